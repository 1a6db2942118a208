"""`klip curves`: what trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def curves(
    runs: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = Path("runs"),
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("curves.png"),
) -> None:
    """Draw the learning curves of finished runs, and say which shapes trained to the same bytes.

    Args:
        runs: folder that `klip train` wrote
        output: file to write: png, svg or pdf

    """
    from klip.report.learning import find_runs, identities, learning_curves
    from klip.report.style import save

    found = find_runs(runs)
    save(learning_curves(found), output)
    for task, first, second, alike, seeds in identities(found):
        same = f"identical, byte for byte, in {alike} of {seeds} seeds"
        print(f"{task}: {first} and {second} are {same}")
    print(f"wrote {output}")
