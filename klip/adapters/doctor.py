"""`klip doctor verl`: whether a worker of verl would find the loss `klip`, its shape, and m.

verl loads its plugins when it is imported, and says nothing when one fails. So everything is looked
at in a process that has just started, as a worker has, and that lets verl do the loading.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from klip.errors import KlipError

GROUP = "verl.plugins"
TIMEOUT = 300.0
"""Seconds that a worker may take to start; importing verl takes some ten."""


@dataclass(frozen=True)
class Check:
    """One line of the doctor's."""

    name: str
    ok: bool | None
    """None: it could not be looked at, for what failed before"""
    says: str


def verl(ray: bool = False) -> list[Check]:
    """What a fresh process finds; with `ray`, what a worker of Ray on this machine finds too."""
    found = _fresh_process()
    if ray:
        found += [Check(f"Ray worker: {c.name}", c.ok, c.says) for c in _ray_worker()]
    return found


def healthy(checks: list[Check]) -> bool:
    """Whether every check was made, and is good."""
    return all(check.ok for check in checks)


def look() -> list[Check]:
    """Every check, in the process that this is; the first that fails leaves the rest unmade.

    The shape needs no verl, so it is read in any case.
    """
    steps: list[tuple[str, Callable[[], str]]] = [
        ("torch", _torch),
        ("verl", _verl),
        ("plugin", _plugin),
        ("loss", _loss),
        ("shape", _shape),
        ("trial", _trial),
    ]
    found: list[Check] = []
    failed = ""
    for name, step in steps:
        if failed and name != "shape":
            found.append(Check(name, None, f"not looked at: {failed} comes first"))
            continue
        try:
            found.append(Check(name, True, step()))
        except Exception as error:
            found.append(Check(name, False, _last_line(error)))
            failed = failed or name
    return found


def _torch() -> str:
    return f"PyTorch {importlib.import_module('torch').__version__}"


def _verl() -> str:
    try:
        module = importlib.import_module("verl")
    except ModuleNotFoundError as error:
        if error.name != "verl":
            raise
        raise KlipError("verl is not installed here: pip install 'klip[verl]'") from None
    return f"verl {module.__version__}"


def _plugin() -> str:
    """Whether verl's own import of its plugins brought ours; if not, why."""
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    allowed = [name.strip() for name in policy.split(",")]
    if policy != "auto" and "klip" not in allowed:
        raise KlipError(
            f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves klip out: add klip, or unset it"
        )
    point = _entry_point()
    loaded = point.module in sys.modules
    point.load()  # what verl keeps to itself comes out here
    if not loaded:
        raise KlipError(f"{point.value} loads, but verl's own import passed it over")
    return f"{point.name} = {point.value}, loaded by verl's import"


def _entry_point() -> EntryPoint:
    ours = [point for point in entry_points(group=GROUP) if point.name == "klip"]
    if not ours:
        raise KlipError(
            f"no installed package has an entry point klip in {GROUP}: install Klip into this "
            "environment (pip install 'klip[verl]', or --editable for a checkout)"
        )
    return ours[0]


def _loss() -> str:
    algorithms = importlib.import_module("verl.trainer.ppo.core_algos")
    function = algorithms.get_policy_loss_fn("klip")
    if function.__module__ != "klip.adapters.verl":
        raise KlipError(f"the loss klip is {function.__module__}'s: another plugin took the name")
    return "registered; set actor_rollout_ref.actor.policy_loss.loss_mode=klip"


def _shape() -> str:
    from klip.adapters.verl_settings import settings

    given = settings()
    where = " and ".join(name for name in ("KLIP_SHAPE", "KLIP_CONFIG") if os.environ.get(name))
    needs = (
        f"; it needs {', '.join(sorted(given.shape.needs))}, and has it"
        if given.shape.needs
        else ""
    )
    return f"{given.shape} at the level {given.level}, by {where}{needs}"


def _trial() -> str:
    """A small batch through the registered loss: its gradient has to be that of m."""
    import torch

    from klip.adapters.verl_settings import named_level, settings
    from klip.tokens import token_multiplier

    plain = importlib.import_module("klip.adapters.verl").plain_loss("klip")
    given = settings()
    generator = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(8, 16, generator=generator)
    new = (old + 0.3 * torch.randn(8, 16, generator=generator)).requires_grad_(True)
    advantages = torch.randn(8, 1, generator=generator).expand(8, 16)
    mask = torch.arange(16) < torch.arange(2, 18, 2)[:, None]
    loss = plain(new, old, advantages, mask)
    (gradient,) = torch.autograd.grad(loss, new)
    m = token_multiplier(new, old, advantages, mask, given.shape, level=named_level(given.level))
    if not bool(torch.isfinite(loss)):
        raise KlipError(f"the loss of a small batch is {loss.item()}")
    if not torch.allclose(gradient, -m / mask.sum(), rtol=1e-5, atol=1e-8):
        worst = (gradient + m / mask.sum()).abs().max().item()
        raise KlipError(f"the gradient of a small batch is off by {worst:.3g} from -m / tokens")
    return f"a small batch has the loss {loss.item():.4g} and the gradient -m / tokens"


def _last_line(error: BaseException) -> str:
    """The last line of the traceback that Python would print."""
    said = str(error)
    name = "" if isinstance(error, KlipError) else f"{type(error).__name__}: "
    return " ".join(f"{name}{said}".split())


def _fresh_process() -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "klip.adapters.doctor", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return [Check("process", False, f"a fresh process said nothing for {TIMEOUT:g} s")]
        if done.returncode or not path.exists():
            said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            return [
                Check("process", False, f"a fresh process ended with {done.returncode}: {said}")
            ]
        return [Check(**found) for found in json.loads(path.read_text(encoding="utf-8"))]


def _ray_worker() -> Iterator[Check]:
    """The same checks in a worker of Ray: of the cluster of RAY_ADDRESS, or of one started here."""
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        yield Check("start", False, "ray is not installed here: pip install ray")
        return
    started = not ray.is_initialized()
    try:
        if started:
            ray.init(num_cpus=None if os.environ.get("RAY_ADDRESS") else 1, log_to_driver=False)
        yield from ray.get(ray.remote(look).remote(), timeout=TIMEOUT)
    except Exception as error:
        yield Check("start", False, _last_line(error))
    finally:
        if started:
            ray.shutdown()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([asdict(check) for check in look()]), encoding="utf-8")
