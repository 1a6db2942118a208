"""What adapters share: checks of the user's trust region, and the names of logged metrics."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from klip.errors import KlipError, NotFinite
from klip.shapes import (
    A3PO,
    CONTEXT_FIELDS,
    P3OESS,
    VACO,
    Array,
    Gate,
    GePPO,
    IcePop,
    KPopMask,
    Parameter,
    Penalty,
    Region,
    Sample,
    Shape,
    Truncate,
    parameter,
    parse,
)
from klip.shapes.context import OF_BATCH, TWO_RATIOS
from klip.shapes.value import Value
from klip.theory.diagnostics import FATES, PARTS
from klip.tokens import Level, Reducer, SequenceMIS, SequenceTIS, SequenceTrust, TokenRegion
from klip.tokens.old import TwoRatios
from klip.tokens.region import ROOMS

T = TypeVar("T")

OF_TOKENS = frozenset({"length", "mask", "old_log_prob", "position", "sequence"})
"""The context fields that log-probs and mask give in any trainer of language models."""
OF_SAMPLER = TWO_RATIOS | OF_BATCH
"""The context fields that are made of the sampler's log-probs; those of a batch are of the part of
it that one pass learns from."""

OLDEST = 8
"""From this age on, ages are counted together where a log needs the same names for every batch."""
AGE_LABELS = ("0", "1", "2-3", "4-7", f"{OLDEST}+")

LOGGED = (
    *(*FATES, "zeroed_mass", "reversed_mass", "pull", "k3"),
    *("ratio_mean", "ratio_min", "ratio_max", "beta_p05", "beta_p50", "beta_p95"),
)
"""The diagnostics that trainers with a short log record, of any shape."""

OF_BAND = (*PARTS, "killed_mass")
"""Those that they record of a shape with a band of its own."""


WHICH = ("few", "all")
"""How many diagnostics a trainer logs."""

FEW = (*FATES, "zeroed_mass", "pull", "k3", "ratio_max", "inert")
"""Those that every trainer logs, of any shape, of all tokens."""

_RATIO = ("k3", "ratio_p01", "ratio_p50", "ratio_p99")
"""The divergence and the quantiles that every trainer logs of either ratio of old samples."""

_FEW = re.compile(
    rf"({'|'.join(FEW)}|kill|answer_found|reference_k3"
    rf"|(move|mismatch)/(kill(@.*)?|{'|'.join(_RATIO)})"
    r"|instead/[^/]+/(zeroed|of_zeroed/pull)"
    r"|entropy=[^/]+/zeroed|(?!instead/|entropy=)[^/]+/(zeroed|pull))"
)
_DETAIL = re.compile(r"/.*_(positive|negative|zero)(@.*)?$")


def shown_metrics(which: str) -> Callable[[Mapping[str, float]], dict[str, float]]:
    """The function that chooses from a row of diagnostics those that are logged.

    "few" are some twenty: the fates of all tokens and how far ratios went, and of each span, age
    and entropy what was zeroed. "all" leaves out only those of a part that are split by the sign of
    the advantage.

    >>> row = {"zeroed": 0.1, "kill_positive": 0.1, "answer/zeroed": 0.2, "answer/kill_positive": 0}
    >>> list(shown_metrics("few")(row)), list(shown_metrics("all")(row))
    (['zeroed', 'answer/zeroed'], ['zeroed', 'kill_positive', 'answer/zeroed'])
    """
    if which not in WHICH:
        raise KlipError(f"metrics={which!r} must be 'few' or 'all'")

    def shown(row: Mapping[str, float]) -> dict[str, float]:
        few = which == "few"
        return {
            name: value
            for name, value in row.items()
            if (_FEW.fullmatch(name) if few else not _DETAIL.search(name))
        }

    return shown


def short_log(mark: str, names: tuple[str, ...] = LOGGED) -> tuple[str, ...]:
    """`names`, and those of a band if the shape has one: if `mark` (of `mark_of`) is empty."""
    return names if mark else (*names, *OF_BAND)


def of_two_ratios(mark: str) -> tuple[str, ...]:
    """The diagnostics that keep the two ratios apart: what each would kill, and how far it is.

    >>> of_two_ratios("")[:2]
    ('move/kill', 'move/k3')
    """
    return tuple(
        f"{ratio}/{name}" for ratio in TwoRatios._fields for name in (f"kill{mark}", *_RATIO)
    )


@functools.cache
def say_once(text: str) -> None:
    """Warn of something, once in a process."""
    warnings.warn(text, stacklevel=3)


@contextmanager
def nothing_dropped() -> Iterator[None]:
    """Say what helps against a number that is not finite where tokens cannot be left out."""
    try:
        yield
    except NotFinite as error:
        raise NotFinite(
            error.what,
            "a smaller learning rate, fewer epochs or a shape that bounds the multiplier may "
            "hold it",
        ) from None


def logged(metrics: Mapping[str, T]) -> dict[str, T]:
    """The metrics under the names that they have in a trainer's log.

    >>> logged({"kill": 0.5})
    {'klip/kill': 0.5}
    """
    return {f"klip/{name}": value for name, value in metrics.items()}


def given_region(
    trainer: str,
    fields: Iterable[str],
    shape: str | Region,
    level: str | Level = "token",
    gates: Iterable[str | Gate] = (),
    penalties: Iterable[str | Penalty] = (),
) -> TokenRegion:
    """The region of these values or spellings; raises if `trainer` lacks what it needs.

    `fields` are the context fields that reach the loss in that trainer.

    >>> given_region("verl", (), "clip(eps=0.3)", "sequence-mean").level
    SequenceMean()
    """
    region = TokenRegion.read(given_shape(shape, trainer, fields), level, gates, penalties)
    check_fields(region.parts, trainer, fields)
    return region


def given_shape(shape: str | Region, trainer: str, fields: Iterable[str]) -> Shape:
    """The shape that `shape` is or spells; raises if `trainer` lacks what it needs.

    >>> given_shape("clip(eps=0.3)", "TRL", ())
    Clip(eps=0.3, low=None, high=None)
    >>> given_shape("age-conditioned", "verl", ())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    klip.errors.KlipError: age-conditioned needs age (how many updates old the sample is), which ...
    """
    value = parse(shape, ROOMS) if isinstance(shape, str) else shape
    if not isinstance(value, Region):
        raise KlipError(
            f"shape={value!r} must be a shape or its spelling, such as 'clip(eps=0.2)'; "
            "`klip shapes` lists them"
        )
    if value.adapts:
        raise KlipError(
            f"{value.name} adapts between updates, and {trainer} keeps no state for it: give a "
            "shape with a fixed coefficient, such as kl-k3(b=1)"
        )
    check_fields((value.initial,), trainer, fields)
    return value.initial


def check_fields(
    parts: Iterable[Shape | Gate | Penalty], trainer: str, fields: Iterable[str]
) -> None:
    """Raise if a part needs context that `trainer` lacks, or weighs a closed-form KL."""
    fields = frozenset(fields)
    for part in parts:
        for name in sorted(part.needs - fields):
            raise KlipError(
                f"{part.name} needs {name} ({CONTEXT_FIELDS[name]}), which does not reach the "
                f"loss in {trainer}; it has {', '.join(sorted(fields)) or 'no context'}"
            )
        weighs = isinstance(part, Shape) and part.weighs_kl(torch.ones(1, 1))
        if weighs and "kl" not in fields:
            raise KlipError(
                f"{part.name} weighs the closed-form KL of each distribution, which {trainer} "
                "does not compute: choose a sampled penalty (kl-k1, kl-k2, kl-k3)"
            )


CORRECTING = (
    *(Truncate, IcePop, SequenceTIS, SequenceMIS, SequenceTrust, KPopMask, VACO),
    *(GePPO, A3PO, P3OESS),
)
"""What weighs a token by the ratio of the old policy to the sampler."""


def check_corrected_once(region: TokenRegion, setting: str, neutral: str) -> None:
    """Raise if the region corrects for the sampler, which the trainer's own `setting` does too.

    `neutral` is what turns the trainer's correction off.

    >>> check_corrected_once(TokenRegion.read("icepop * clip"), "tis=token", "set tis=off")
    Traceback (most recent call last):
    klip.errors.KlipError: icepop(floor=0.5, cap=5.0) and tis=token both correct for the sampler, and together do it twice: set tis=off
    """  # noqa: E501 - a traceback in a doctest is one line
    if (part := correcting(region)) is not None:
        raise KlipError(
            f"{part} and {setting} both correct for the sampler, and together do it twice: "
            f"{neutral}"
        )


def correcting(region: TokenRegion) -> Value | None:
    """The first part of a region that corrects for the sampler; None if none does."""
    found = (part for part in _within(region.parts) if isinstance(part, CORRECTING))
    return next(found, None)


def _within(values: Iterable[Value]) -> Iterator[Value]:
    """The values and all values within them."""
    for value in values:
        yield value
        yield from _within([x for x in value.parameters.values() if isinstance(x, Value)])


def defaults(settings: Any) -> dict[str, Any]:
    """The default of each field of a trainer's settings, a dataclass or an instance of one."""
    return {field.name: field.default for field in dataclasses.fields(settings)}


@dataclass(frozen=True, eq=False)
class TrainersWeight(Gate):
    """c = the weight `[B, T]` by which the trainer multiplies each token of its own losses."""

    c: Parameter = parameter(MISSING)

    def weight(self, s: Sample) -> Array:
        return self.c


@dataclass(frozen=True, eq=False)
class RowWeights(Reducer):
    """The weight `[B, 1]` that a trainer's own reduction gives to a token of each sequence."""

    value: Parameter = parameter(MISSING)

    def weight(self, count: Tensor) -> Tensor:
        weight: Tensor = self.value
        return weight


def slope(loss: Callable[[Tensor], Any], like: Tensor) -> tuple[Tensor, Any]:
    """-d loss / d advantage at an advantage of 1, and all that `loss` returns, the loss first.

    If `loss` shows a trainer's own loss a ratio of 1, this is the weight of each token in it.

    >>> slope(lambda advantages: (-advantages.mean(),), torch.zeros(1, 2))[0]
    tensor([[0.5000, 0.5000]])
    """
    with torch.enable_grad():
        ones = torch.ones_like(like, requires_grad=True)
        returned = loss(ones)
        (found,) = torch.autograd.grad(returned[0], ones)
    return -found, returned


def reader(tokenizer: Any, marker: str) -> Callable[[list[int]], str]:
    """The text of some ids, special tokens included; raises if it can never have the marker."""

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    within = tokenizer.encode(f"a{marker}a", add_special_tokens=False)
    if not marker.strip() or marker not in decode(within):
        raise KlipError(
            f"answer_marker={marker!r} must be text that the tokenizer knows, such as '####': "
            f"written and read back by this one it is {decode(within)[1:-1]!r}"
        )
    return decode
