"""Runs to use, as in the tests of policies, and training that needs no other process."""

import pytest

from klip.engine import run
from tests.engine.test_finish import one_by_one
from tests.policies.conftest import runs

__all__ = ["in_this_process", "runs"]


@pytest.fixture
def in_this_process(monkeypatch):
    """Jobs are run here, one after the other: no process has to be started, nothing imported."""
    monkeypatch.setattr(run, "site", lambda workers, ray: run.Site(one_by_one, 1, "here"))
