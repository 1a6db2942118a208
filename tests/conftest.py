"""What every test shares: hypothesis settings, clean modules, and the option for a user's shape."""

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from klip.engine.programs import kept_programs

settings.register_profile(
    "klip",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("klip")


def pytest_addoption(parser):
    parser.addoption(
        "--shape", action="append", default=[], help="a shape to test as if it were shipped"
    )


@pytest.fixture(scope="session")
def programs():
    """Compile each program once for all tests and for the processes that they start."""
    os.environ.setdefault("KLIP_CACHE", str(Path(__file__).parents[1] / ".cache"))
    exchanged = time.monotonic()
    with kept_programs() as exchange:

        def now_and_then():
            nonlocal exchanged
            if time.monotonic() - exchanged > 2:
                exchange()
                exchanged = time.monotonic()

        yield now_and_then


@pytest.fixture(autouse=True)
def share_programs(programs):
    yield
    programs()


@pytest.fixture(autouse=True)
def forget_users_code(tmp_path_factory):
    """Leave no module, path or environment behind that a test wrote into a folder of its own."""
    path = list(sys.path)
    tasks = getattr(sys.modules.get("gymnasium"), "registry", {})
    registered = dict(tasks)
    yield
    sys.path[:] = path
    base = f"{tmp_path_factory.getbasetemp().resolve()}{os.sep}"
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(base):
            del sys.modules[name]
    for id in [id for id, spec in tasks.items() if registered.get(id) is not spec]:
        del tasks[id]
    tasks.update(registered)
