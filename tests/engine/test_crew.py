"""Processes: which share is next, and what is known of its runs."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.engine import crew, read_plan
from klip.engine.advance import Keeping, Progress
from klip.engine.crew import Crew, Share, cores_for
from klip.engine.finish import here
from klip.engine.job import with_needs
from klip.errors import KlipError
from klip.ppo.config import config

JOBS = with_needs(read_plan("scratchpad").only(shapes=["plain clip"], seeds=2).configs)


def test_a_share_begins_when_what_it_needs_has_ended():
    """Waiting or being trained, a warm-up holds back the run of its seed, and no other."""
    warm0, warm1, run0, run1 = (Share([job]) for job in JOBS)
    those = Crew([0, 1], Keeping(Path("runs")))
    assert those._next(deque([run0, run1, warm0, warm1])) is warm0
    those.workers.append(SimpleNamespace(share=warm0))
    assert those._next(deque([run0, run1])) is run1
    assert those._next(deque([run0])) is None
    warm0.hear(Progress(JOBS[0].id, "done"))
    assert those._next(deque([run0])) is run0


def test_what_is_heard_of_runs():
    share = Share(JOBS[:2])
    first, second = (job.id for job in JOBS[:2])
    share.deaths = 2
    share.hear(Progress(first, "running", saved=0))
    assert share.deaths == 2
    share.hear(Progress(first, "running", saved=3))
    assert share.deaths == 0  # it saved something new
    share.hear(Progress(second, "done"))
    assert list(share.open) == [first]
    assert list(share.given_up("why")) == [Progress(first, "stopped", reason="why", saved=3)]
    assert not share.open


def test_how_many_processes():
    assert cores_for(1) == 1
    assert cores_for(None) >= 1
    for wrong in (0, 9999):
        with pytest.raises(KlipError, match=f"workers={wrong} must lie between 1 and"):
            cores_for(wrong)


def dying(guilty):
    """The fate of each run where some end their process; and how many processes there were."""
    jobs = [config("CartPole-v1", seed=seed) for seed in range(9)]
    bad = {jobs[seed].id for seed in guilty}
    those, shares = Crew([0], Keeping(Path("runs"))), deque([Share(jobs)])
    fates, processes = {}, 0
    while shares:
        share, processes = shares.popleft(), processes + 1
        if not bad & share.open.keys():
            fates |= dict.fromkeys(share.open, "done")
            continue
        code = SimpleNamespace(exit_code=-11, pipe=SimpleNamespace(close=lambda: None))
        worker = SimpleNamespace(share=share, core=0, process=code, hung=False)
        those.workers.append(worker)
        fates |= {news.run: news.status for news in those._ended(worker, shares, False)}
    return [fates[job.id] for job in jobs], processes


@pytest.mark.parametrize("guilty", [(0,), (4,), (8,), (2, 7), ()])
def test_whoever_ends_the_process_is_found_and_the_rest_goes_on(guilty):
    fates, processes = dying(guilty)
    assert fates == ["stopped" if seed in guilty else "done" for seed in range(9)]
    assert processes < 20


def test_a_process_of_which_nothing_is_heard_is_ended(monkeypatch):
    ended = []
    monkeypatch.setattr(crew, "Process", lambda *how: SimpleNamespace(
        pipe=SimpleNamespace(send_bytes=lambda text: None), end=lambda: ended.append(True)
    ))  # fmt: skip
    worker = crew.Worker(Share(JOBS[:1]), Keeping(Path("runs")), 0)
    worker.end_if_silent(1000.0)
    assert (ended, worker.hung) == ([], False)
    worker.heard -= 1001.0
    worker.end_if_silent(1000.0)
    worker.end_if_silent(1000.0)
    assert (ended, worker.hung) == ([True], True)
    with pytest.raises(KlipError, match="iteration_limit=0 must be more than 0"):
        here(1, 0.0)
