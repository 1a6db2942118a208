"""Old samples that would not fit: one line, before anything starts."""

import pytest

from klip.engine import memory
from klip.engine.advance import Keeping
from klip.engine.finish import estimate, finish, here, survey
from klip.errors import KlipError
from klip.ppo.config import config

FIELDS = {"rollout": 64, "steps": 64 * 400, "replay": 400}
JOBS = [config("Humanoid-v4", seed=seed, **FIELDS) for seed in range(2)]


def test_what_groups_take_together():
    one = memory.demand([JOBS[:1]], 2)
    both = memory.demand([JOBS[:1], JOBS[1:]], 2)
    assert both.together == 2 * one.together == 2 * both.process
    assert memory.demand([JOBS[:1], JOBS[1:]], 1).together == one.together
    fresh = [config("CartPole-v1")]
    assert memory.demand([fresh], 1) == (0, 0, 0)
    assert memory.demand([fresh], 1).words == ""


def test_it_is_said_before_anything_starts(tmp_path):
    found = survey(JOBS, Keeping(tmp_path))
    text = estimate(found, 1, "here")
    assert "old samples and policies take up to" in text
    assert "in a run's checkpoint" in text


def test_what_does_not_fit_is_refused_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "memory_here", lambda: 700_000_000)
    out = tmp_path / "runs"
    with pytest.raises(KlipError, match=r"take .* in 1 process, and this machine has 700 MB"):
        finish(survey(JOBS, Keeping(out)), here(1))
    assert not out.exists()
    monkeypatch.setattr(memory, "memory_here", lambda: 7_000_000_000)
    memory.check_memory([JOBS], 1)


def test_a_container_may_have_less(tmp_path, monkeypatch):
    whole = memory.memory_here()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "LIMIT", limit)
    for text, expected in (("max\n", None), ("1000000\n", 1_000_000)):
        limit.write_text(text)
        assert memory.memory_here() == (expected or memory.memory_here())
    assert whole >= 1_000_000
