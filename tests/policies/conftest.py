"""Runs to use, written once."""

import pytest

from tests.policies.runs import write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """One run a task, in a folder that no test changes."""
    folder = tmp_path_factory.mktemp("runs")
    tasks = ("CartPole-v1", "Hopper-v4", "Hopper-v5", "Pendulum-v1")
    return {task: write_run(folder, task, saves=3) for task in tasks}
