"""Choices that are made once: a file with a checksum, which nothing writes again.

A plan that tunes on some seeds and tests on others keeps here what it chose, with the scores that
the choice rests on, before the first test begins. A pack of its runs has the file, too, and a plan
that goes on from the pack keeps to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klip.engine.advance import Keeping
from klip.engine.job import Job
from klip.errors import KlipError
from klip.runs.files import LARGEST_TEXT, of_json, own_folder, read_file, write_whole
from klip.shapes.value import is_number


@dataclass(frozen=True)
class Sealed:
    """Where the choices of a plan are, and for which rules they are."""

    what: str
    """The plan, in a word: league."""
    name: str
    """Of the file."""
    format: str
    rules: Mapping[str, Any]

    def read(self, keeping: Keeping) -> dict[str, Any] | None:
        """The choices, in the plan's folder or in a pack that it has; None where there are none.

        Those in its folder that are for other rules, or were edited since, are an error.
        """
        found = self._found(keeping)
        return None if found is None else self._opened(*found)

    def adopt(self, keeping: Keeping) -> dict[str, Any] | None:
        """The same; if they come from a pack, the folder gets them: its tests will rest on them."""
        found = self._found(keeping)
        if found is not None and found[0].parent != keeping.out:
            own_folder(keeping.out)
            write_whole(keeping.out / self.name, found[1])
        return None if found is None else self._opened(*found)

    def write(self, keeping: Keeping, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the choices for good, and give them as they will be read."""
        text = json.dumps({"rules": self.rules, **choices}, sort_keys=True, indent=1)
        whole = {"format": self.format, "sha256": _digest(text), "frozen": json.loads(text)}
        data = (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode()
        own_folder(keeping.out)
        write_whole(keeping.out / self.name, data)
        return self._opened(keeping.out / self.name, data)

    def refuse_after(self, tests: Sequence[Job], keeping: Keeping) -> None:
        """Raise where one of these tests has begun: the choices that it rests on are gone."""
        for job in tests:
            path, pack = keeping.path(job), keeping.have.places.get(job.id)
            if path.is_dir() or pack is not None:
                place = keeping.out if path.is_dir() else pack
                raise KlipError(
                    f"{place} has tests of tuned shapes, such as {job.names[0]} on {job.task} "
                    f"seed {job.seed}, and no {self.name} for these rules: bring that back; "
                    "nothing is tuned again after a look at tests"
                )

    def damaged(self, keeping: Keeping, error: Exception) -> KlipError:
        """The error of choices that cannot be what was written."""
        return damaged(keeping.out / self.name, self.what, error)

    def _found(self, keeping: Keeping) -> tuple[Path, bytes] | None:
        """The file of the choices, and its content: the folder's, or of a pack, and all agree."""
        files: dict[Path, bytes] = {}
        own = keeping.out / self.name
        if own.is_file():
            files[own] = content(own)
        for pack, choices in keeping.have.choices.items():
            data = choices.get(self.name)
            if data is not None and self._fits(data):  # others are of another plan
                files[pack / self.name] = data
        if not files:
            return None
        first, *others = files.items()
        for path, data in others:
            if data != first[1]:
                raise KlipError(
                    f"{first[0]} and {path} have frozen other choices for one {self.what}: its "
                    "tests rest on one of them, so leave the other out"
                )
        return first

    def _fits(self, data: bytes) -> bool:
        """Whether choices are for these rules; what cannot be read is, and is an error later."""
        try:
            return bool(of_json(data)["frozen"]["rules"] == json.loads(json.dumps(self.rules)))
        except (ValueError, KeyError, TypeError):
            return True

    def _opened(self, path: Path, content: bytes) -> dict[str, Any]:
        try:
            whole = of_json(content)
            data: dict[str, Any] = whole["frozen"]
            text = json.dumps(data, sort_keys=True, indent=1)
            if whole["format"] != self.format or _digest(text) != whole["sha256"]:
                raise ValueError("it is not what its checksum says")
            if data["rules"] != json.loads(json.dumps(self.rules)):
                raise KlipError(
                    f"{path} is frozen for other rules (tasks, shapes, seeds or steps): "
                    "choose another folder with --out"
                )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path, self.what, error) from None
        return data


def name_for(rules: Mapping[str, Any]) -> str:
    """The name of a file of choices that may lie beside those of other plans.

    >>> name_for({"tasks": ["Ant-v4"]})
    'frozen-09eeedb9.json'
    """
    return f"frozen-{_digest(json.dumps(rules, sort_keys=True))[:8]}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def damaged(path: Path, what: str, error: Exception) -> KlipError:
    """The error of a file of choices that cannot be what was written."""
    return KlipError(
        f"{path} is damaged or was edited ({error}): bring it back as it was frozen, or "
        f"begin a {what} in another folder"
    )


def content(path: Path) -> bytes:
    """What a file of choices holds."""
    try:
        return read_file(path, LARGEST_TEXT)
    except OSError as error:
        raise KlipError(f"{path} cannot be read: {error.strerror}") from None


def is_reckonable(value: Any) -> bool:
    """Whether a value of a file is a number that means can be taken of.

    >>> is_reckonable(0.5), is_reckonable(True), is_reckonable("1"), is_reckonable(10**400)
    (True, False, False, False)
    """
    return is_number(value) and not abs(value) > 1e300
