"""Plans: what the shipped ones hold, what a file may say, and what it may not."""

import time

import pytest

from klip.engine import read_plan, shipped_plans
from klip.engine.advance import Keeping
from klip.engine.finish import check_missing, estimate, survey
from klip.engine.labels import labels_of
from klip.errors import KlipError
from klip.ppo.config import config

PAPER_TASKS = {"CartPole-v1", "LunarLander-v3", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4",
               "Ant-v4", "Humanoid-v4"}  # fmt: skip


def test_the_papers_plan_is_the_papers():
    """4 variants x 7 tasks x 5 seeds, each in the paper's configuration of its task."""
    plan = read_plan("paper")
    assert len(plan.configs) == 140
    assert {c.task for c in plan.configs} == PAPER_TASKS
    assert {c.seed for c in plan.configs} == set(range(5))
    shapes = {"clip(eps=0.2)", "per-sample(eps=0.2)"} | {
        config("CartPole-v1", shape=name).shape for name in ("kl(b=1)", "adaptive-kl(target=0.02)")
    }
    assert {c.shape for c in plan.configs} == shapes
    for c in plan.configs:
        assert c == config(c.task, shape=c.shape, seed=c.seed)


def test_the_papers_sweeps():
    plan = read_plan("paper-sweeps")
    assert len(plan.configs) == 3 * 13 * 5
    assert {c.task for c in plan.configs} == {"CartPole-v1", "HalfCheetah-v4", "Hopper-v4"}
    shared = {c.id for c in plan.configs} & {c.id for c in read_plan("paper").configs}
    assert len(shared) == 3 * 3 * 5  # what both name is one run, trained once


def test_the_plans_of_old_samples():
    """Lags from 0 to 16 with nine methods, replays from 1 to 8 with six; equal steps for all."""
    lag, replay = (read_plan(f"stale-{name}").configs for name in ("lag", "replay"))
    assert len(lag) == (7 + 5 * 9) * 2 * 5
    assert len(replay) == (3 + 3 * 6) * 2 * 5
    assert {c.lag for c in lag} == {0, 1, 2, 4, 8, 16}
    assert {c.replay for c in replay} == {1, 2, 4, 8}
    for c in (*lag, *replay):
        assert (c.steps, c.gradient_steps) == (300_000, "equal")
        assert c.task in ("Hopper-v4", "HalfCheetah-v4")
    held = [
        {(c.shape.partition("(")[0], c.ratio) for c in lag if c.lag == each} for each in (1, 16)
    ]
    assert held[0] == held[1]
    assert len(held[0]) == 9


def test_the_plan_that_asks_whether_theory_predicts_training():
    configs = read_plan("guarantees").configs
    assert len(configs) == 2 * 8 * 4 * 2 * 5
    assert {c.lr for c in configs} == {3e-4, 9e-4, 3e-3, 9e-3}
    assert {(c.epochs, c.steps) for c in configs} == {(10, 200_000), (40, 200_000)}


def test_every_shipped_plan_can_be_read():
    assert set(shipped_plans()) == {
        "guarantees", "league", "paper", "paper-sweeps", "scalar-tuned", "scratchpad", "soft-clip",
        "stale-lag", "stale-replay",
    }  # fmt: skip
    for name in shipped_plans():
        assert read_plan(name).about


def test_a_part_of_a_plan():
    part = read_plan("paper").only(["Hopper-v4", "Ant-v4"], ["clip"], seeds=3, steps=204_800)
    assert [(c.task, c.shape, c.seed, c.steps) for c in part.configs] == [
        (task, "clip(eps=0.2)", seed, 204_800)
        for seed in range(3)
        for task in ("Ant-v4", "Hopper-v4")
    ]


FILE = """
about = "Mine."
seeds = [3, 7]
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["clip", "clip(eps=0.2)", "spo"]
config = { steps = 2048, hidden = [8, 8] }
[[runs]]
tasks = ["CartPole-v1"]
shapes = ["is"]
seeds = 1
"""


def test_a_file_of_ones_own(tmp_path):
    """Seeds of the plan or of an entry; the same run named twice is one."""
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    plan = read_plan(path)
    assert (plan.name, plan.about) == ("mine", "Mine.")
    assert [(c.shape, c.seed, c.steps) for c in plan.configs] == [
        ("clip(eps=0.2)", 3, 2048),
        ("spo(eps=0.2)", 3, 2048),
        ("clip(eps=0.2)", 7, 2048),
        ("spo(eps=0.2)", 7, 2048),
        ("is", 0, 100_000),
    ]
    assert plan.configs[0].hidden == (8, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = 5", "are no \\[\\[runs\\]\\]"),
        ("[[runs]\n", "not TOML"),
        ("sheds = 5\n" + FILE, "at the top: 'sheds' is not known; keys: about, config"),
        (FILE.replace("shapes", "shape", 1), "in \\[\\[runs\\]\\] number 1: 'shape' is not known"),
        (FILE.replace('["is"]', '"is"'), "shapes must be a list of names, not 'is'"),
        (FILE.replace("seeds = 1", "seeds = 0"), "number 2: seeds must be a count"),
        (FILE.replace("seeds = 1", "seeds = [1.5]"), "seeds must be a count or a list"),
        (FILE.replace("seeds = 1", f"seeds = {2**31}"), "number 2: 2,147,483,648 runs at once"),
        (FILE.replace("seeds = [3, 7]", "seeds = 40_000"), "number 1: 120,000 runs at once"),
        (FILE.replace("steps = 2048", "stops = 2048"), "no config field is called 'stops'"),
        (FILE.replace("steps = 2048", "seed = 2048"), "no config field is called 'seed'"),
        (FILE.replace("steps = 2048", 'steps = "many"'), "steps='many' must be a whole number"),
        (FILE.replace("{ steps = 2048, hidden = [8, 8] }", "3"), "config must be a table"),
        ('kind = "chess"\n' + FILE, "there is no kind of job 'chess': choose ppo, tokens"),
        ('kind = "warm-up"\n' + FILE, "has no plans: plan jobs that need it"),
        (FILE.replace('"is"', '"iss"'), "no shape is called 'iss'"),
        ("runs = 3", "are no \\[\\[runs\\]\\]"),
        ("runs = [3]", "there must be a table"),
        ("a = " + "[" * 9999, "plan.toml is not a plan: its lists are nested too deeply"),
        ("# " + "x" * 1_000_000, "cannot be read: its 1,000,002 bytes are more than the 1,000,000"),
    ],
)
def test_mistakes_in_a_plan(text, message, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(KlipError, match=message) as raised:
        read_plan(path)
    assert "plan.toml" in str(raised.value)


def test_thousands_of_seeds_take_no_time(tmp_path):
    """Neither to be read nor to be chosen from, looked for, checked and estimated."""
    path = tmp_path / "many.toml"
    path.write_text("seeds = 4000\n[[runs]]\ntasks = ['CartPole-v1']\nshapes = ['clip']\n")
    began = time.process_time()
    chosen = read_plan(path).only(seeds=3999).configs
    surveyed = survey(chosen, Keeping(tmp_path))
    check_missing(surveyed)
    assert "3999 of 3999 runs are missing" in estimate(surveyed, 2, "here")
    assert len(labels_of(chosen)) == 3999
    assert time.process_time() - began < 6.0  # on a machine that is busy, too
    assert [c.seed for c in chosen] == list(range(3999))
    assert chosen[7] == config("CartPole-v1", shape="clip", seed=7)
