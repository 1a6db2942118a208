"""What the environment says about verl's loss `klip`: a shape, its level, gates and penalties.

The module needs PyTorch but not verl: `klip doctor verl` uses it where verl is missing or broken.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klip.adapters.common import OF_TOKENS, given_region, given_shape, shown_metrics
from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.tokens import Level, Token, TokenRegion

TRAINER = "verl"
FIELDS = OF_TOKENS
"""The context fields that a registered loss has."""

WAYS_OUT = {
    "behaviour_log_ratio": "verl corrects for the sampler itself, with "
    "algorithm.rollout_correction.rollout_is=token: its weights multiply any shape",
    "reference_log_ratio": "verl adds the KL to the reference itself, with "
    "actor_rollout_ref.actor.use_kl_loss=True",
}
"""What verl has instead of a context field that does not reach the loss."""


@dataclass(frozen=True)
class Settings:
    """What `KLIP_SHAPE` and `KLIP_CONFIG` say."""

    shape: Shape
    level: Level = Token()
    """or its spelling: token, sequence-mean, sequence-sum, geometric-mean(low=0.4, high=0.4)"""
    nonfinite: str = "raise"
    """what to do about tokens whose numbers are not finite: raise or drop"""
    diagnostics: bool = True
    """whether `klip/...` is logged"""
    metrics: str = "few"
    """how much of it: few or all"""
    gates: tuple[Gate, ...] = ()
    """or their spellings: opsm(delta=0.5)"""
    penalties: tuple[Penalty, ...] = ()
    """or their spellings: kl-k3(b=0.1)"""

    def __post_init__(self) -> None:
        region = given_region(TRAINER, FIELDS, self.shape, self.level, self.gates, self.penalties)
        for name in ("shape", "level", "gates", "penalties"):
            object.__setattr__(self, name, getattr(region, name))
        if self.nonfinite not in ("raise", "drop"):
            raise KlipError(f"nonfinite={self.nonfinite!r} must be 'raise' or 'drop'")
        if not isinstance(self.diagnostics, bool):
            raise KlipError(f"diagnostics={self.diagnostics!r} must be true or false")
        shown_metrics(self.metrics)  # which knows the words

    @property
    def region(self) -> TokenRegion:
        """All that decides the multiplier of a token."""
        return TokenRegion(self.shape, self.level, self.gates, self.penalties)


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process; the file is read once, so a run keeps its settings.

    >>> settings({"KLIP_SHAPE": "clip(eps=0.3)"}).shape
    Clip(eps=0.3, low=None, high=None)
    """
    environment = os.environ if environment is None else environment
    return _settings(environment.get("KLIP_SHAPE", ""), environment.get("KLIP_CONFIG", ""))


@functools.cache
def _settings(spelling: str, path: str) -> Settings:
    file = _file(path) if path else {}
    texts = {"KLIP_SHAPE": spelling, f"KLIP_CONFIG={path}": file.pop("shape", "")}
    shapes = {where: _shape(text, where) for where, text in texts.items() if text != ""}
    if not shapes:
        empty = f" ({path} has none)" if path else ""
        raise KlipError(
            f"loss_mode=klip has no shape{empty}: set KLIP_SHAPE="
            '"clip(low=0.2, high=0.28)", or KLIP_CONFIG to a TOML file with shape = "...", where '
            "verl's workers see it (docs/verl.md)"
        )
    if len(set(shapes.values())) > 1:
        both = " and ".join(f"{where} says {shape}" for where, shape in shapes.items())
        raise KlipError(f"{both}: unset one of the two")
    try:
        return Settings(next(iter(shapes.values())), **file)
    except KlipError as error:
        raise _hinted(f"KLIP_CONFIG={path}", error) from None


@dataclass(frozen=True)
class Tokens:
    """What the environment asks of the tokens of any loss: a span, and to keep some of them."""

    marker: str = ""
    """`KLIP_ANSWER_MARKER`: the text after which the answer follows"""
    count: int = 0
    """`KLIP_KEEP_TOKENS`: of how many completions the tokens are written at each step"""
    folder: str = ""
    """`KLIP_KEEP_IN`: the folder that they are written to"""


def tokens_asked(environment: Mapping[str, str] | None = None) -> Tokens:
    """What the environment of this process asks of tokens.

    >>> tokens_asked({"KLIP_KEEP_TOKENS": "4", "KLIP_KEEP_IN": "/runs/mine"}).count
    4
    """
    environment = os.environ if environment is None else environment
    names = ("KLIP_ANSWER_MARKER", "KLIP_KEEP_TOKENS", "KLIP_KEEP_IN")
    return _tokens_asked(*(environment.get(name, "") for name in names))


@functools.cache
def _tokens_asked(marker: str, count: str, folder: str) -> Tokens:
    if not count.strip():
        if folder:
            raise KlipError(f"KLIP_KEEP_IN={folder} is for tokens: set KLIP_KEEP_TOKENS=4 too")
        return Tokens(marker)
    if not count.strip().isdecimal():
        raise KlipError(
            f"KLIP_KEEP_TOKENS={count!r} must be 0 or more completions a step, such as 4"
        )
    if not Path(folder).is_absolute():
        raise KlipError(
            f"KLIP_KEEP_TOKENS={count.strip()} needs KLIP_KEEP_IN, the absolute path of a folder "
            f"for the files, not {folder!r}: workers run in other folders"
        )
    return Tokens(marker, int(count), folder)


def _file(path: str) -> dict[str, Any]:
    if not Path(path).is_absolute():
        raise KlipError(
            f"KLIP_CONFIG={path} must be an absolute path: workers run in other folders"
        )
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise KlipError(
            f"KLIP_CONFIG={path} cannot be read ({error.strerror}): every node needs the file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KlipError(f"KLIP_CONFIG={path} is not TOML: {error}") from None
    known = [field.name for field in dataclasses.fields(Settings)]
    if unknown := sorted(table.keys() - set(known)):
        raise KlipError(
            f"KLIP_CONFIG={path} sets {', '.join(unknown)}, which is not known; it may set "
            f"{', '.join(known)}"
        )
    return table


def _shape(text: Any, where: str) -> Shape:
    if not isinstance(text, str):
        raise KlipError(f'{where}: shape = {text!r} must be text, such as "clip(eps=0.2)"')
    try:
        return given_shape(text, TRAINER, FIELDS)
    except KlipError as error:
        raise _hinted(where, error) from None


def _hinted(where: str, error: KlipError) -> KlipError:
    """The error with the place of its cause, and with what verl has instead."""
    hints = [hint for field, hint in WAYS_OUT.items() if f"needs {field} " in str(error)]
    return KlipError("; ".join([f"{where}: {error}", *hints]))
