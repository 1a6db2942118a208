"""The warm-up as a job: killed and gone on with, and what a run does where it is damaged."""

import dataclasses

import pytest

from klip.engine.advance import Keeping
from klip.lab.warmup import WarmupRun
from klip.runs import read_run

from .conftest import TINY, tiny, train

SHORT = dataclasses.replace(TINY, steps=12)


def test_stopped_anywhere_it_ends_with_the_same_bytes(tmp_path):
    assert train(SHORT, tmp_path / "whole").status == "done"
    for stops in (5, 1, 3):
        looks = iter(range(stops))
        news = train(SHORT, tmp_path / "cut", lambda looks=looks: next(looks, None) is None)
        assert news.status == "stopped"
    assert train(SHORT, tmp_path / "cut").status == "done"
    one, two = (read_run(Keeping(tmp_path / out).path(SHORT)) for out in ("whole", "cut"))
    assert one.digest() == two.digest()
    assert one.rows[-1]["step"] == 12 * SHORT.batch
    assert all(row["loss"] > 0 for row in one.rows)


def test_it_goes_on_as_one_that_was_not_stopped():
    whole, again = WarmupRun(SHORT), WarmupRun(SHORT)
    first = [whole.iterate() for _ in range(3)]
    again.restore(3, whole.arrays())
    assert again.iterate() == whole.iterate()
    assert [row["iteration"] for row in first] == [1, 2, 3]


def test_without_steps_of_a_size_it_diverges(tmp_path):
    news = train(dataclasses.replace(SHORT, learning_rate=1e38), tmp_path)
    assert news.status == "diverged"
    assert "not finite" in news.reason


@pytest.mark.parametrize("name", ["checkpoint.safetensors"])
def test_a_damaged_warm_up_is_named_by_the_runs_that_need_it(tmp_path, name):
    train(SHORT, tmp_path)
    path = Keeping(tmp_path).path(SHORT)
    (path / name).write_bytes(b"nothing")
    news = train(tiny(warmup=SHORT), tmp_path)
    assert news.status == "stopped"
    assert "it needs the warm-up of seed 0, which is damaged" in news.reason
