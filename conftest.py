"""Adapters whose library is not installed are left to the environment that has it."""

import builtins
from importlib.util import find_spec

import pytest

PARTS = {
    "trl": (
        *("klip/adapters/trl.py", "klip/adapters/trl_async.py", "klip/adapters/trl_watch.py"),
        *("klip/adapters/trl_window.py", "tests/adapters/trl"),
    ),
    "verl": (
        *("klip/adapters/verl.py", "klip/adapters/verl_batch.py", "klip/adapters/verl_keeping.py"),
        *("klip/adapters/verl_watch.py", "tests/adapters/verl"),
    ),
    "tree": ("klip/adapters/rllib.py", "tests/adapters/rllib"),  # RLlib needs it, Ray does not
    "torchrl": ("klip/adapters/torchrl.py", "tests/adapters/torchrl"),
    "stable_baselines3": (
        "klip/adapters/sb3.py",
        "tests/adapters/test_sb3.py",
        "tests/end_to_end/test_presets_sb3.py",
    ),
}

collect_ignore = [part for name, parts in PARTS.items() if not find_spec(name) for part in parts]


@pytest.fixture(autouse=True)
def forget_last_value():
    """A doctest leaves what it showed last in `builtins._`, where libraries then find it."""
    yield
    vars(builtins).pop("_", None)
