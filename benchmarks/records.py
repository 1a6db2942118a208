"""A record of something long: kept after each part, so that it can be stopped and gone on with."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "klip"


def code() -> str:
    """The beginning of a digest of the package: a record is of the code that it was made with."""
    sha256 = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        sha256.update(f"{path.relative_to(PACKAGE)}\n".encode() + path.read_bytes())
    return sha256.hexdigest()[:12]


class Record:
    """What has been found so far. Of other code, or with another seed, it begins anew."""

    def __init__(self, path: Path | None, seed: int = 0) -> None:
        self.path = path
        self.data: dict[str, Any] = {"code": code(), "seed": seed}
        if path is not None and path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            same = {name: kept.get(name) for name in self.data} == self.data
            self.data = kept if same else self.data
            print(f"{path.name}: {'goes on' if same else 'begins anew: it is of other code'}")

    def part(self, *names: str) -> dict[str, Any]:
        """A table of the record, made if it is not there."""
        inside = self.data
        for name in names:
            inside = inside.setdefault(name, {})
        return inside

    def keep(self) -> None:
        """Write it in one step, if it is to be kept."""
        if self.path is not None:
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.data, indent=2) + "\n", encoding="utf-8")
            os.replace(part, self.path)


def add(table: dict[str, Any], more: dict[str, Any]) -> None:
    """Add counts and lists to those that are there."""
    for name, value in more.items():
        table[name] = table[name] + value if name in table else value
