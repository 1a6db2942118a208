"""Runs to use, as in the tests of policies, and training that needs no other process."""

import pytest

from klip.cli import experiments, training
from klip.engine import run
from tests.engine.test_finish import one_by_one
from tests.policies.conftest import runs

__all__ = ["followed", "in_this_process", "runs"]


@pytest.fixture
def in_this_process(monkeypatch):
    """Jobs are run here, one after the other: no process has to be started, nothing imported."""
    monkeypatch.setattr(
        run, "site", lambda workers, ray, limit=None: run.Site(one_by_one, 1, "here")
    )


@pytest.fixture
def followed(monkeypatch):
    """What a command would train, and how; nothing is trained, and it exits with 7."""
    calls = []

    def follow(*args, limit=None):
        calls.append((*args, limit))
        return 7

    monkeypatch.setattr(experiments, "follow", follow)
    monkeypatch.setattr(training, "follow", follow)
    return calls
