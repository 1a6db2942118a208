"""Token plans: the shipped one covers the question, and a mistake in one's own is named."""

import pytest

from klip.engine import read_plan
from klip.engine.job import iterations_of, read_job, with_needs
from klip.errors import KlipError
from klip.shapes import parse

SHIPPED = read_plan("scratchpad")


def test_the_shipped_plan_covers_position_and_age():
    shapes = {c.arm: parse(c.shape) for c in SHIPPED.configs}
    needs = {arm: shape.needs for arm, shape in shapes.items()}
    position = [c.arm for c in SHIPPED.configs if c.group == "position" and c.seed == 0]
    age = [c.arm for c in SHIPPED.configs if c.group == "age" and c.seed == 0]
    assert (len(position), len(age)) == (6, 4)
    assert [arm for arm in position if "position" in needs[arm]] == [
        "sharp answer, soft reasoning", "soft answer, sharp reasoning",
    ]  # fmt: skip
    assert [arm for arm in age if "age" in needs[arm]] == ["shrinking with age", "hard drop"]
    assert len(SHIPPED.configs) == 50
    assert {c.seed for c in SHIPPED.configs} == set(range(5))


def test_arms_of_a_seed_share_their_warm_up_and_differ_in_their_shape_alone():
    assert [job.kind for job in with_needs(SHIPPED.configs)] == ["warm-up"] * 5 + ["tokens"] * 50
    for group in ("position", "age"):
        members = [c.stored for c in SHIPPED.configs if c.group == group and c.seed == 2]
        differing = {key for key in members[0] if len({str(m[key]) for m in members}) > 1}
        assert differing <= {"arm", "shape", "place", "against"}
    assert len({c.id for c in SHIPPED.configs}) == 50


def test_replay_is_what_makes_the_age_group():
    assert {c.group: c.replay > 0 for c in SHIPPED.configs} == {"position": False, "age": True}


def test_a_part_of_a_plan():
    some = SHIPPED.only(shapes=["plain clip", "hard drop"], seeds=2)
    assert [(c.arm, c.seed) for c in some.configs] == [
        ("plain clip", 0), ("hard drop", 0), ("plain clip", 1), ("hard drop", 1),
    ]  # fmt: skip
    with pytest.raises(KlipError, match="no shape 'clap'; it has clip"):
        SHIPPED.only(shapes=["clap"])
    assert {c.arm for c in SHIPPED.only(shapes=["clip(eps=0.02)"]).configs} == {"plain clip"}
    assert {c.group for c in SHIPPED.only(["addition-replay7"]).configs} == {"age"}
    assert {c.iterations for c in SHIPPED.only(seeds=1, steps=1100).configs} == {2}
    with pytest.raises(KlipError, match="less than the 512 completions"):
        SHIPPED.only(steps=5)
    with pytest.raises(KlipError, match="--seeds 0"):
        SHIPPED.only(seeds=0)


def test_jobs_go_to_disk_and_back():
    for job in with_needs(SHIPPED.configs[:1]):
        assert read_job(job.stored) == job
        assert iterations_of(job.stored) == job.iterations
        with pytest.raises(KlipError, match="differs in colour"):
            read_job({**job.stored, "colour": 1})
        with pytest.raises(KlipError, match="seed='0' must be a whole number"):
            read_job({**job.stored, "seed": "0"})


GOOD = """
kind = "tokens"
seeds = 1
[config]
iterations = 3
[[runs]]
group = "g"
arms = [{ name = "a", shape = "clip" }]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds = 1", "seeds = 0", "seeds must be a count"),
        ("seeds = 1", "sedes = 1", "at the top: 'sedes' is not known"),
        ("iterations = 3", "iterations = 0", "iterations=0 must be more than 0"),
        ("iterations = 3", "iterations = 1.5", "iterations=1.5 must be a whole number"),
        ("iterations = 3", "arm = 'x'", "no config field is called 'arm'"),
        ("iterations = 3", "minibatches = 7", "minibatches=7 must divide"),
        ("iterations = 3", "completions = 1", "completions=1"),
        ('shape = "clip"', 'shape = "clap"', "arm 'a': no shape is called 'clap'"),
        ('shape = "clip"', 'shape = "adaptive-kl"', "is a controller"),
        ('shape = "clip"', 'shape = "clip(eps=by-entropy)"', "needs entropy"),
        ('name = "a"', 'name = ""', "arm=''"),
        ('shape = "clip" }', 'shape = "clip", against = "b" }', "against='b'"),
        ('"clip" }]', '"clip" }, { name = "a", shape = "is" }]', "two arms are called a"),
        ("arms = [", "arm = [", "in [[runs]] number 1: 'arm' is not known"),
    ],
)
def test_a_mistake_in_a_plan_is_named(tmp_path, old, new, said):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert len(read_plan(path).configs) == 1
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(KlipError) as error:
        read_plan(path)
    assert said in str(error.value)
    assert "mine.toml" in str(error.value)


def test_a_plan_that_is_not_there_or_not_toml(tmp_path):
    with pytest.raises(KlipError, match="no plan 'nothing': give one of guarantees, league, paper"):
        read_plan("nothing")
    (tmp_path / "x.toml").write_text("= 1")
    with pytest.raises(KlipError, match="is not TOML"):
        read_plan(tmp_path / "x.toml")
