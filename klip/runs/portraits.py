"""`shape.json` of a run: how its shape looks, kept when the run begins; nothing else needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from klip.errors import KlipError
from klip.runs.files import read_file, write_whole
from klip.theory.portrait import LARGEST, Portrait, from_json, of_fields, to_fields

__all__ = ["PORTRAIT", "Portrait", "keep_portrait", "of_fields", "read_portrait", "to_fields"]

PORTRAIT: Final = "shape.json"


def keep_portrait(folder: Path, config: Mapping[str, Any], make: Callable[[], bytes]) -> None:
    """Write the portrait of a run's shape, unless a whole one of it is there."""
    if read_portrait(folder, config)[0] is None:
        write_whole(folder / PORTRAIT, make())


def read_portrait(folder: Path, config: Mapping[str, Any]) -> tuple[Portrait | None, str]:
    """The portrait of a run's shape, and why there is none; both are empty if none was kept."""
    path = folder / PORTRAIT
    try:
        if not path.exists():
            return None, ""
        if path.stat().st_size > LARGEST:
            raise KlipError("the picture of its shape cannot be used: it is too large")
        drawn = from_json(read_file(path))
        if drawn.spelling != config.get("shape"):
            raise KlipError(f"the picture is not of its shape, but of {drawn.spelling!r:.80}")
    except KlipError as error:
        return None, f"{PORTRAIT} is damaged: {error}"
    except OSError as error:
        return None, f"{PORTRAIT} cannot be read: {error.strerror}"
    return drawn, ""
