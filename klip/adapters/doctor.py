"""`klip doctor verl`: whether a worker of verl finds the loss `klip` and its shape.

verl loads its plugins when it is imported, and is silent when one fails. So the checks run in a
fresh process, as a worker is, and let verl do the loading.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from klip.errors import KlipError

GROUP = "verl.plugins"
TOKENS = ("KLIP_ANSWER_MARKER", "KLIP_KEEP_TOKENS", "KLIP_KEEP_IN")
"""What may be set of tokens; it is checked if something is."""
TIMEOUT = 300.0
"""Seconds that a worker may take; importing verl takes about ten."""


@dataclass(frozen=True)
class DoctorCheck:
    """One line of the doctor's report."""

    name: str
    ok: bool | None
    """None if an earlier failure prevented the check"""
    says: str


def verl(ray: bool = False, run: Sequence[str] = ()) -> list[DoctorCheck]:
    """The checks in a fresh process, and with `ray` in a worker of Ray too.

    `run` holds a run's settings, as `python -m verl.trainer.main_ppo` takes them.
    """
    checks = _fresh_process(run)
    if ray:
        checks += [DoctorCheck(f"Ray worker: {c.name}", c.ok, c.says) for c in _ray_worker(run)]
    return checks


def doctor(trainer: str, ray: bool = False, run: Sequence[str] = ()) -> list[DoctorCheck]:
    """Whether a trainer's workers find Klip and its shape, check by check.

    >>> [check.ok for check in doctor("verl")]  # doctest: +SKIP

    Args:
        trainer: verl
        ray: also check a worker of Ray, in the cluster of RAY_ADDRESS or in one started here
        run: settings of a run, as verl takes them, to check whether it would use the shape and
            whether that would matter

    Returns:
        a line for each thing that was checked: whether it is in order, and what was found

    """
    if trainer != "verl":
        raise KlipError(f"the doctor knows verl, not {trainer}: klip doctor verl")
    return verl(ray, run)


def healthy(checks: list[DoctorCheck]) -> bool:
    """Whether every check was made and passed."""
    return all(check.ok for check in checks)


def look(run: Sequence[str] = ()) -> list[DoctorCheck]:
    """Every check, made in this process; those after the first failure are not made.

    Shape and tokens need no verl, so they are checked in any case.
    """
    steps: list[tuple[str, Callable[[], str]]] = [
        ("torch", _torch),
        ("verl", _verl),
        ("plugin", _plugin),
        ("loss", _loss),
        ("shape", _shape),
        ("trial", _trial),
        *([("tokens", _tokens)] if any(map(os.environ.get, TOKENS)) else []),
        *([("run", lambda: _run(run))] if run else []),
    ]
    checks: list[DoctorCheck] = []
    failed = ""
    for name, step in steps:
        if failed and name not in ("shape", "tokens"):
            checks.append(DoctorCheck(name, None, f"not checked: {failed} failed"))
            continue
        try:
            checks.append(DoctorCheck(name, True, step()))
        except Exception as error:
            checks.append(DoctorCheck(name, False, _last_line(error)))
            failed = failed or name
    return checks


def _torch() -> str:
    with _needed("torch"):
        return f"PyTorch {importlib.import_module('torch').__version__}"


def _verl() -> str:
    with _needed("verl"):
        return f"verl {importlib.import_module('verl').__version__}"


@contextlib.contextmanager
def _needed(library: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise KlipError(f"{library} is not installed here: pip install 'klip-rl[verl]'") from None


def _plugin() -> str:
    """Says that verl's own import loaded our plugin; raises with the reason if not."""
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    allowed = [name.strip() for name in policy.split(",")]
    if policy != "auto" and "klip" not in allowed:
        raise KlipError(
            f"VERL_USE_EXTERNAL_PLUGINS={policy} leaves klip out: add klip, or unset it"
        )
    point = _entry_point()
    loaded = point.module in sys.modules
    point.load()  # raises the error that verl hides
    if not loaded:
        raise KlipError(f"{point.value} loads, but verl's own import skipped it")
    return f"{point.name} = {point.value}, loaded by verl's import"


def _entry_point() -> EntryPoint:
    ours = [point for point in entry_points(group=GROUP) if point.name == "klip"]
    if not ours:
        raise KlipError(
            f"no installed package has an entry point klip in {GROUP}: install Klip into this "
            "environment (pip install 'klip-rl[verl]', or --editable for a checkout)"
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

    chosen = settings()
    where = " and ".join(name for name in ("KLIP_SHAPE", "KLIP_CONFIG") if os.environ.get(name))
    fields = ", ".join(sorted(chosen.region.needs))
    needs = f"; it needs {fields}, and has it" if fields else ""
    more = "".join(f" with {part}" for part in (*chosen.gates, *chosen.penalties))
    return f"{chosen.shape}{more} at the level {chosen.level}, by {where}{needs}"


def _tokens() -> str:
    from klip.adapters.verl_settings import tokens_asked

    asked = tokens_asked()
    kept = f"those of {asked.count} completions a step go to {asked.folder}" if asked.count else ""
    span = f"the answer follows {asked.marker!r}" if asked.marker else ""
    return "; ".join(filter(None, (kept, span)))


def _trial() -> str:
    """Says that the registered loss of a small batch has the gradient -m / tokens; or raises."""
    import torch

    from klip.adapters.verl_settings import settings
    from klip.tokens import token_multiplier

    plain = importlib.import_module("klip.adapters.verl").plain_loss("klip")
    chosen = settings()
    generator = torch.Generator().manual_seed(0)
    old = -3 * torch.rand(8, 16, generator=generator)
    new = (old + 0.3 * torch.randn(8, 16, generator=generator)).requires_grad_(True)
    advantages = torch.randn(8, 1, generator=generator).expand(8, 16)
    mask = torch.arange(16) < torch.arange(2, 18, 2)[:, None]
    loss = plain(new, old, advantages, mask)
    (gradient,) = torch.autograd.grad(loss, new)
    m = token_multiplier(
        new,
        old,
        advantages,
        mask,
        chosen.shape,
        level=chosen.level,
        gates=chosen.gates,
        penalties=chosen.penalties,
    )
    if not bool(torch.isfinite(loss)):
        raise KlipError(f"the loss of a small batch is {loss.item()}")
    if not torch.allclose(gradient, -m / mask.sum(), rtol=1e-5, atol=1e-8):
        worst = (gradient + m / mask.sum()).abs().max().item()
        raise KlipError(f"the gradient of a small batch is off by {worst:.3g} from -m / tokens")
    return f"a small batch has the loss {loss.item():.4g} and the gradient -m / tokens"


def composed(run: Sequence[str]) -> Any:
    """verl's whole configuration for a run with these settings."""
    hydra = importlib.import_module("hydra")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra warns about itself
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            return hydra.compose("ppo_trainer", list(run))


def _run(run: Sequence[str]) -> str:
    """Says how many updates per batch use the shape; raises if none would, or if none matters."""
    import torch

    from klip.adapters.verl_settings import settings

    config, chosen = composed(run), settings()
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.rollout_correction
    if actor.policy_loss.loss_mode != "klip":
        raise KlipError(
            f"loss_mode is {actor.policy_loss.loss_mode}: the run does not use Klip; set "
            "actor_rollout_ref.actor.policy_loss.loss_mode=klip"
        )
    adapter = importlib.import_module("klip.adapters.verl")
    adapter.check_config(actor, chosen)
    adapter.token_weight(torch.ones(2, 3), actor.loss_agg_mode, {})  # raises if verl has no such
    if correction.bypass_mode and (correction.rollout_is or correction.rollout_rs):
        raise KlipError(
            "rollout_is and rollout_rs of algorithm.rollout_correction do nothing with "
            "bypass_mode=True and loss_mode=klip: unset them, or set bypass_mode=False"
        )
    updates = actor.ppo_epochs * config.data.train_batch_size / actor.ppo_mini_batch_size
    if updates <= 1 and config.trainer.v1.trainer_mode == "sync" and not correction.bypass_mode:
        raise KlipError(
            f"one update a batch (ppo_epochs={actor.ppo_epochs}, data.train_batch_size="
            f"{config.data.train_batch_size}, ppo_mini_batch_size={actor.ppo_mini_batch_size}): "
            "every ratio is 1 and no trust region does anything; take more minibatches or epochs"
        )
    return f"loss_mode=klip, {updates:g} updates a batch"


def worker_variables(run: Sequence[str]) -> dict[str, str]:
    """The environment variables that a run gives to Ray's workers."""
    if not run:
        return {}
    variables = composed(run).ray_kwargs.ray_init.runtime_env.get("env_vars", None)
    return {str(name): str(value) for name, value in (variables or {}).items()}


def _last_line(error: BaseException) -> str:
    """The last line of the traceback that Python would print."""
    name = "" if isinstance(error, KlipError) else f"{type(error).__name__}: "
    return " ".join(f"{name}{error}".split())


def _fresh_process(run: Sequence[str]) -> list[DoctorCheck]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checks.json"
        command = [sys.executable, "-P", "-m", "klip.adapters.doctor", str(path), *run]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            silent = f"a fresh process did not answer within {TIMEOUT:g} s"
            return [DoctorCheck("process", False, silent)]
        if done.returncode or not path.exists():
            last = (done.stderr.strip() or "it printed no error").splitlines()[-1]
            ended = f"a fresh process ended with {done.returncode}: {last}"
            return [DoctorCheck("process", False, ended)]
        return [DoctorCheck(**check) for check in json.loads(path.read_text(encoding="utf-8"))]


def _ray_worker(run: Sequence[str]) -> Iterator[DoctorCheck]:
    """The same checks in a worker of Ray, in the cluster of RAY_ADDRESS or one started here."""
    try:
        ray: Any = importlib.import_module("ray")
        ray.init(
            num_cpus=None if os.environ.get("RAY_ADDRESS") else 1,
            runtime_env={"env_vars": worker_variables(run)},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        yield DoctorCheck("start", False, _last_line(error))
        return
    try:
        yield from ray.get(ray.remote(look).remote(run), timeout=TIMEOUT)
    except Exception as error:
        yield DoctorCheck("answer", False, _last_line(error))
    finally:
        ray.shutdown()


def main(path: str, *run: str) -> None:
    """Run by the fresh process: write every check as JSON to `path`, since verl prints too."""
    # The check `run` reports settings that verl does not take.
    with contextlib.suppress(Exception):
        os.environ.update(worker_variables(run))
    checks = [asdict(check) for check in look(run)]
    Path(path).write_text(json.dumps(checks), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
