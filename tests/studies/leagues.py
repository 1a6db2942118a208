"""A league whose runs nobody trained."""

from klip.engine.advance import Keeping
from klip.engine.having import having
from klip.studies.league import Course, read
from tests.studies.folders import make_run

TINY = {"steps": 20 * 64, "envs": 2, "rollout": 32, "minibatch": 16}
PLAN = {
    "about": "Small.",
    "kind": "league",
    "tasks": ["CartPole-v1", "Acrobot-v1"],
    "shapes": ["clip", "per-sample", "is", "spo"],
    "factors": [0.5, 1, 2],
    "stress": [
        {"name": "K = 1", "config": {"epochs": 1}},
        {"name": "K = 2", "config": {"epochs": 2}},
    ],
    "tuning": {"seeds": [1000, 1001], "config": TINY},
    "testing": {"seeds": 4, "config": TINY},
}


def level(job):
    """What a shape reaches: SPO is best with twice its radius."""
    by_shape = {"spo(eps=0.4)": 180.0, "spo(eps=0.2)": 100.0, "is": 50.0}
    return by_shape.get(job.shape, 100.0 if "eps=0.2" in job.shape else 60.0)


def train(jobs, out):
    """Write the runs that are missing; return which those were."""
    made = []
    for job in jobs:
        if not Keeping(out).path(job).exists():
            make_run(out, job.stored, level=level(job))
            made.append(job.id)
    return made


def play(plan, out, have=()):
    """Take a plan to its end; return which runs had to be written."""
    keeping, made = Keeping(out, have=having(have)), []
    while plan is not None:
        made += train([job for job in plan.configs if job.id not in keeping.have.runs], out)
        plan = plan.next(keeping)
    return made


def small(**more):
    return read("small", {**PLAN, **more})


def rules(**more):
    stages = small(**more).course
    assert isinstance(stages, Course)
    return stages.rules
