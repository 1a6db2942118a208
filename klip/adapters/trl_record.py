"""Which trust region a run of TRL's trained with, written where its users look for settings.

It stands in the config of every tracker (W&B, TensorBoard and others log `args.to_dict()`), in the
model card, and as `klip.json` beside saved weights, which a run that is resumed is held to. The
module imports nothing of TRL.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.shapes.code import digest_of_code
from klip.shapes.names import spelled
from klip.shapes.value import Value
from klip.tokens import TokenRegion

FILE = "klip.json"
"""The name of the record beside a checkpoint's weights."""

PREFIX = "klip_"
"""What the names of the record begin with among TRL's own settings."""

_OURS = re.compile(r"\bklip(\.\w+)+:")
"""The place of a class of Klip's own in a spelling."""

Record = Mapping[str, Any]
"""Spellings by name: shape, level, gates, penalties, answer_marker and code."""


def record_of(region: TokenRegion, answer_marker: str | None = None) -> dict[str, Any]:
    """The record of a region; `code` is a digest of what the user's own code in it means.

    >>> from klip.shapes import Clip
    >>> record_of(TokenRegion(Clip()))["shape"]
    'clip(eps=0.2)'
    """
    shape, *others = (_spelled(part) for part in region.parts)
    return {
        "shape": shape,
        "level": _spelled(region.level),
        "gates": others[: len(region.gates)],
        "penalties": others[len(region.gates) :],
        "answer_marker": answer_marker,
        "code": digest_of_code(_OURS.sub("", " ".join([shape, *others]))),
    }


def recording(args: Any, record: Record) -> Any:
    """A copy of TRL's settings, of the same class, whose `to_dict` has the record too."""
    made = copy.copy(args)
    kind: Any = type(args)
    made.__class__ = _recording(kind)
    for name, value in record.items():
        setattr(made, PREFIX + name, value)
    return made


@functools.cache
def _recording(kind: Any) -> Any:
    def to_dict(self: Any) -> dict[str, Any]:
        own = {name: x for name, x in vars(self).items() if name.startswith(PREFIX)}
        settings: dict[str, Any] = kind.to_dict(self)
        return settings | own

    def reduce(self: Any, protocol: Any) -> Any:
        plain = object.__new__(kind)  # so that training_args.bin needs no Klip to be read
        vars(plain).update(vars(self))
        return plain.__reduce_ex__(1)  # the newer protocols insist on this object's own class

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    methods = {"to_dict": to_dict, "__reduce_ex__": reduce}
    return type(kind.__name__, (kind,), {**names, **methods})


def write(folder: str | Path, record: Record) -> None:
    """Write the record into a folder of weights, which is made if need be."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (Path(folder) / FILE).write_text(text, encoding="utf-8")


def check_resumed(checkpoint: str | Path, record: Record) -> None:
    """Refuse to resume from a checkpoint that was trained with another region; warn without record.

    Only Klip's own names are read as values; a spelling with somebody's code is compared as text.
    """
    path = Path(checkpoint) / FILE
    if not path.is_file():
        warnings.warn(
            f"{checkpoint} has no {FILE}, so it does not say which trust region it was trained "
            f"with: it goes on with shape={record['shape']!r}",
            stacklevel=3,
        )
        return
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
        text = all(isinstance(theirs[name], str) for name in ("shape", "level", "code"))
        lists = all(isinstance(theirs[name], list) for name in ("gates", "penalties"))
        if not (text and lists):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise KlipError(
            f"{path} is not a record of Klip's: delete it to resume with shape={record['shape']!r} "
            "all the same"
        ) from None
    if _same(theirs, record):
        return
    names = [name for name in record if theirs.get(name) != record[name]]
    before, now = (_said(names, x) for x in (theirs, record))
    raise KlipError(
        f"{checkpoint} was trained with {before}, and this trainer has {now}: give the trainer "
        f"what the checkpoint has; or, to change it on purpose, start a new run with "
        f"model={str(checkpoint)!r}, or delete {path}"
    )


def in_card(card: str, record: Record) -> str:
    """A model card with the record, before TRL's section on versions or at the end."""
    said = [f"- {name}: `{value}`" for name, value in record.items() if value]
    section = "\n".join(
        [
            "### Trust region",
            "",
            "The policy loss had a trust region of Klip's, in the place of TRL's clip:",
            "",
            *said,
        ]
    )
    before, heading, after = card.partition("### Framework versions")
    return f"{before.rstrip()}\n\n{section}\n" + (f"\n{heading}{after}" if heading else "")


def _same(theirs: Record, ours: Record) -> bool:
    if theirs == ours:
        return True
    if any(theirs.get(name) != ours[name] for name in ("answer_marker", "code")):
        return False
    regions = [_region(record) for record in (theirs, ours)]
    return None not in regions and regions[0] == regions[1]


def _region(record: Record) -> TokenRegion | None:
    """The region of a record; None if it has somebody's code, which is not executed."""
    parts = [record[name] for name in ("shape", "level", "gates", "penalties")]
    if ":" in _OURS.sub("", repr(parts)):
        return None
    try:
        return TokenRegion.read(*parts)
    except KlipError:  # of another version of Klip
        return None


def _said(names: list[str], record: Record) -> str:
    return ", ".join(f"{name}={record.get(name)!r}" for name in names)


def _spelled(value: Value) -> str:
    """A spelling that has the place of a user's class, if the class has one."""
    try:
        return spelled(value)
    except KlipError:  # it is defined in a notebook, or in the script itself
        return str(value)
