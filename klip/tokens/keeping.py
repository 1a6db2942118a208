"""Tokens of a few completions as columns: what a reader sees of them, and a file keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from klip.theory.diagnostics import FATES, PARTS
from klip.tokens.diagnostics import Diagnostics

REPLACED = "\ufffd"
"""What a tokeniser writes for bytes that are no whole character."""

COLUMNS = (
    *("step", "sequence", "place", "prompt", "text", "shape", "trained", "ratio", "advantage"),
    *("multiplier", "fate", "part", "span", "age", "entropy", "reward"),
)


def kept_columns(
    did: Mapping[str, Diagnostics],
    ids: Tensor,
    pieces: Callable[[int], str | None],
    *,
    step: int,
    count: int,
    prompts: Sequence[str] = (),
    rewards: Tensor | None = None,
) -> dict[str, list[Any]]:
    """The tokens of the first `count` sequences that have any, as columns of equal length.

    Args:
        did: what each shape did to the same batch, by name; the first is the one that trained
        ids: of tokens, `[B, T]`
        pieces: the text of one id; None if it is not known
        step: of training
        count: how many sequences are kept
        prompts: a text for each sequence
        rewards: `[B]`

    >>> from klip.tokens import token_loss
    >>> new = torch.tensor([[0.0, 0.5]])
    >>> clip = token_loss(new, torch.zeros(1, 2), torch.ones(1)).diagnostics
    >>> columns = kept_columns({"clip": clip}, torch.tensor([[7, 8]]), str, step=3, count=1)
    >>> columns["text"], columns["fate"], columns["multiplier"]
    (['7', '8'], ['kept', 'zeroed'], [1.0, 0.0])

    """
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    own = next(iter(did.values()))
    for row in own.active.any(-1).nonzero()[:count, 0].tolist():
        places = own.active[row].nonzero()[:, 0].tolist()
        shared = {
            "step": step,
            "sequence": row,
            "place": places,
            "prompt": prompts[row] if len(prompts) else None,
            "text": [pieces(i) for i in ids[row][own.active[row]].tolist()],
            "span": _spans(own, row, places),
            "age": _numbers(own.age, own, row),
            "entropy": _numbers(own.entropy, own, row),
            "reward": None if rewards is None else float(rewards[row]),
        }
        for name, diagnostics in did.items():
            whose = {"shape": name, "trained": diagnostics is own}
            every = shared | whose | _did(diagnostics, row)
            for column in COLUMNS:
                value = every[column]
                columns[column] += value if isinstance(value, list) else [value] * len(places)
    return columns


def _did(diagnostics: Diagnostics, row: int) -> dict[str, list[Any]]:
    """What became of the tokens of a sequence."""
    o, active = diagnostics.observed, diagnostics.active[row]
    return {
        "ratio": o.ratio[row][active].tolist(),
        "advantage": o.advantage[row][active].tolist(),
        "multiplier": o.m[row][active].tolist(),
        "fate": [FATES[i] for i in o.fate[row][active].tolist()],
        "part": [PARTS[i] for i in o.part[row][active].tolist()],
    }


def piece_of(tokenizer: Any) -> Callable[[int], str]:
    """The text of one token id; of half a character, the name that the tokeniser has for it."""

    def piece(i: int) -> str:
        text: str = tokenizer.decode(
            [i], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return str(tokenizer.convert_ids_to_tokens(i)) if REPLACED in text else text

    return piece


def _spans(own: Diagnostics, row: int, places: Sequence[int]) -> list[str | None]:
    """The name of the span that each token is in; None if it is in none."""
    found: list[str | None] = [None] * len(places)
    for name, mask in (own.spans or {}).items():
        inside = mask[row].bool().tolist()
        found = [
            name if inside[place] else known for place, known in zip(places, found, strict=True)
        ]
    return found


def _numbers(value: Any, own: Diagnostics, row: int) -> list[float] | list[None]:
    active = own.active[row]
    if value is None:
        return [None] * int(active.sum())
    spread = torch.as_tensor(value, device=own.active.device).expand_as(own.active)
    numbers: list[float] = spread[row][active].tolist()
    return numbers
