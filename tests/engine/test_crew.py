"""Processes: which share is next, and what is known of its runs."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from klip.engine import read_plan
from klip.engine.advance import Keeping, Progress
from klip.engine.crew import Crew, Share, cores_for
from klip.engine.job import with_needs
from klip.errors import KlipError

JOBS = with_needs(read_plan("scratchpad").only(shapes=["plain clip"], seeds=2).configs)


def test_a_share_begins_when_what_it_needs_has_ended():
    """Waiting or being trained, a warm-up holds back the run of its seed, and no other."""
    warm0, warm1, run0, run1 = (Share([job]) for job in JOBS)
    crew = Crew([0, 1], Keeping(Path("runs")))
    assert crew._next(deque([run0, run1, warm0, warm1])) is warm0
    crew.workers.append(SimpleNamespace(share=warm0))
    assert crew._next(deque([run0, run1])) is run1
    assert crew._next(deque([run0])) is None
    warm0.hear(Progress(JOBS[0].id, "done"))
    assert crew._next(deque([run0])) is run0


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
