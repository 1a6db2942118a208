"""`klip doctor`: does an installed trainer find Klip?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import tyro

from klip.cli.common import Json, print_json
from klip.runs.files import shown


def doctor(
    trainer: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="verl")],
    ray: bool = False,
    run: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SETTING...")] = (),
    as_json: Json = False,
) -> int:
    """Check that a trainer's workers find Klip and its shape; exit with 1 if something is amiss.

    Args:
        trainer: verl
        ray: also look in a Ray worker, of the cluster at RAY_ADDRESS or of one started here
        run: settings of a run, as verl takes them: check that it would use the shape, to effect
        as_json: print one JSON object

    """
    from klip.adapters.doctor import doctor, healthy

    checks = doctor(trainer, ray, run)
    ok = healthy(checks)
    if as_json:
        print_json({"trainer": trainer, "ok": ok, "checks": [asdict(check) for check in checks]})
        return 0 if ok else 1
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = {True: "ok", False: "NO", None: "--"}[check.ok]
        print(f"{mark}  {check.name:{width}}  {shown(check.says)}")
    return 0 if ok else 1
