"""Token runs and their warm-ups as kinds of job.

    kind = "tokens"
    seeds = 5
    config = { iterations = 60, warmup = { steps = 1000 } }    # fields of TokenConfig and Warmup

    [[runs]]
    group = "position"
    config = { replay = 0 }                                    # for this group alone
    arms = [
        { name = "plain clip", shape = "clip(eps=0.2)" },      # the others are compared with it
        { name = "soft clip", shape = "ramp(eps=0.2)", against = "mine" },
        { name = "mine", shape = "my_shapes.py:Mine" },
    ]

Every arm meets every seed. All arms of a seed share its warm-up, its prompts and its dice. Nothing
here needs PyTorch until a job begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klip.engine.alone import Alone
from klip.engine.fields import check_runs, typed, whole, whole_number
from klip.engine.job import Entry, Fields, Kind
from klip.engine.plan import check_keys
from klip.errors import KlipError
from klip.lab.config import TokenConfig, Warmup, check, check_warmup
from klip.runs import Record
from klip.shapes.code import digest_of_code

if TYPE_CHECKING:
    from klip.engine.job import Group

START = 4.0  # seconds that a process takes to import PyTorch
COMPLETION = 450.0  # microseconds of one core for a completion and an epoch, in the usual size
SCRATCHPAD = 130.0  # microseconds of one core for a scratchpad of a warm-up, likewise
OWN = {"group", "arm", "shape", "code", "seed", "place", "against", "warmup"}
"""Fields of a config that a plan sets elsewhere."""


def planned(entries: Sequence[Entry]) -> list[TokenConfig]:
    """The jobs of a plan, seed by seed, so that whole comparisons are done first."""
    arms: list[tuple[Entry, dict[str, Any]]] = []
    for entry in entries:
        arms += [(entry, arm) for arm in _arms(entry, len(arms))]
    names = [arm["arm"] for _, arm in arms]
    if twice := {name for name in names if names.count(name) > 1}:
        raise KlipError(
            f"two arms are called {', '.join(sorted(twice))}: give each a name of its own"
        )
    seeds = dict.fromkeys(seed for entry in entries for seed in entry.seeds)
    check_runs(sum(len(entry.seeds) for entry, _ in arms))
    having = {entry.where: {*entry.seeds} for entry in entries}
    configs = [
        TokenConfig(**{**arm, "seed": seed, "warmup": Warmup(**arm["warmup"], seed=seed)})
        for seed in seeds
        for entry, arm in arms
        if seed in having[entry.where]
    ]
    for c in {c.arm: c for c in configs}.values():
        try:
            check(c)
        except KlipError as error:
            raise KlipError(f"arm {c.arm!r}: {error}") from None
    return configs


def _arms(entry: Entry, place: int) -> list[dict[str, Any]]:
    """The fields of each arm of an entry, without its seed; the first arm has this place."""
    settings, tables = dict(entry.fields), entry.table.get("arms")
    if not isinstance(tables, list) or not tables:
        raise KlipError(f"{entry.where}: arms must be a list of tables with name and shape")
    for table in tables:
        check_keys(entry.where, table, {"name", "shape", "against"})
    names = [str(table.get("name", "")) for table in tables]
    try:
        warmup = typed(Warmup, settings.pop("warmup", {}), {"seed"})
        fields = typed(TokenConfig, settings, OWN)
    except KlipError as error:
        raise KlipError(f"{entry.where}: {error}") from None
    for table in tables:
        if table.get("against", names[0]) not in names:
            raise KlipError(
                f"{entry.where}: against={table['against']!r} is not an arm of the group"
            )
    return [
        {
            **fields,
            "warmup": warmup,
            "group": str(entry.table.get("group", "")),
            "arm": name,
            "shape": str(table.get("shape", "")),
            "code": digest_of_code(str(table.get("shape", ""))),
            "place": place + number,
            "against": str(table.get("against", "")),
        }
        for number, (name, table) in enumerate(zip(names, tables, strict=True))
    ]


def with_steps(c: TokenConfig, steps: int) -> TokenConfig:
    """The same run with as many whole iterations as fit into `steps` completions."""
    steps = whole_number("steps", steps)
    if steps < c.batch:
        raise KlipError(f"steps={steps} is less than the {c.batch} completions of an iteration")
    return dataclasses.replace(c, iterations=steps // c.batch)


def seconds(runs: Sequence[TokenConfig]) -> float:
    """Seconds that one core takes for runs, start included."""
    work = sum(c.iterations * c.batch * (c.epochs + 2) for c in runs)  # 2: sampled, and looked at
    return START + work * COMPLETION * 1e-6


def warmup_seconds(runs: Sequence[Warmup]) -> float:
    """Seconds that one core takes for warm-ups, start included."""
    return START + sum(w.steps * w.batch for w in runs) * SCRATCHPAD * 1e-6


def _usual_size(w: Warmup) -> bool:
    usual = Warmup()
    return (w.digits, w.layers, w.width) == (usual.digits, usual.layers, usual.width)


def _without_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config on disk that are the dataclass's."""
    return {key: value for key, value in fields.items() if key not in ("kind", "task")}


def _settings(fields: Fields) -> dict[str, Any]:
    """The settings of a config on disk, and of its warm-up, without names and seeds."""
    warmup = fields.get("warmup", {})
    nested = {f"warmup.{key}": value for key, value in warmup.items() if key != "seed"}
    return {k: v for k, v in fields.items() if k not in {*OWN, "kind", "task"}} | nested


def _label(fields: Fields) -> str:
    return str(fields["arm"])


def _open(configs: Sequence[TokenConfig], needed: Sequence[Sequence[Record]]) -> Group:
    import klip.tokens  # noqa: F401 - says how to get PyTorch where it is missing
    from klip.lab.training import TokenRun

    (c,), ((warmup,),) = configs, needed
    return Alone(c, TokenRun(c, dict(warmup.arrays)))


def _open_warmup(configs: Sequence[Warmup], needed: Sequence[Sequence[Record]]) -> Group:
    import klip.tokens  # noqa: F401 - as above
    from klip.lab.warmup import WarmupRun

    (w,) = configs
    return Alone(w, WarmupRun(w))


LIBRARIES = ("torch",)
TOKENS = Kind(
    libraries=LIBRARIES,
    brief=("iteration", "step", "return_mean", "zeroed", "kl"),
    read=lambda fields: whole(TokenConfig, _without_names(fields)),
    check=check,
    label=_label,
    iterations=lambda fields: int(fields["iterations"]),
    settings=_settings,
    usual=lambda task: _settings(TokenConfig("", "", "").stored),
    lockstep=lambda c: c.id,
    seconds=seconds,
    measured=lambda c: _usual_size(c.warmup),
    open=_open,
    needs=lambda c: (c.warmup,),
    keys=frozenset({"group", "arms"}),
    plan=planned,
    with_steps=with_steps,
)
WARM_UP = Kind(
    libraries=LIBRARIES,
    brief=("iteration", "step", "loss"),
    read=lambda fields: whole(Warmup, _without_names(fields)),
    check=check_warmup,
    label=lambda fields: "warm-up",
    iterations=lambda fields: int(fields["steps"]),
    settings=_settings,
    usual=lambda task: _settings(Warmup().stored),
    lockstep=lambda w: w.id,
    seconds=warmup_seconds,
    measured=_usual_size,
    open=_open_warmup,
)
