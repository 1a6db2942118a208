"""What the bits of a run depend on besides its config."""

import json
import platform
from pathlib import Path

import jax
import numpy as np
import pytest

from klip.runs import machine
from klip.runs.machine import differences, this_machine


def test_this_machine():
    found = this_machine(("jax", "mujoco"))
    assert found["jax"] == jax.__version__
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert set(found) == {"klip", "numpy", "jax", "mujoco", "python", "cpu"}
    assert set(this_machine()) == {"klip", "numpy", "python", "cpu"}
    assert all(isinstance(value, str) and value for value in found.values())
    assert json.loads(json.dumps(found)) == found


def test_differences():
    here = {"jax": "1", "cpu": "a", "numpy": "2"}
    assert differences(here, here) == []
    assert differences(here, {**here, "jax": "2"}) == ["jax 1 -> 2"]
    assert differences({}, {"jax": "2"}) == ["jax none -> 2"]
    assert differences({"jax": "2"}, {}) == ["jax 2 -> none"]
    assert len(differences(here, {"jax": "2", "cpu": "b", "numpy": "2"})) == 2


CPU = "processor\t: {n}\nmodel name\t: {name}\nflags\t\t: {flags}\n\n"


def processor(monkeypatch, text):
    def read_text(path, **_):
        if text is None:
            raise FileNotFoundError
        assert str(path) == "/proc/cpuinfo"
        return text

    monkeypatch.setattr(Path, "read_text", read_text)
    return machine._processor()


def test_a_processor_is_its_name_and_features(monkeypatch):
    """Compiled code depends on instruction sets, so another set of them is another processor."""
    base = CPU.format(n=0, name="Fast 1", flags="sse avx2")
    found = processor(monkeypatch, base)
    assert found.startswith("Fast 1 [")
    assert processor(monkeypatch, CPU.format(n=0, name="Fast 1", flags="avx2 sse")) == found
    assert processor(monkeypatch, base + CPU.format(n=1, name="Fast 1", flags="sse avx2")) == found
    assert processor(monkeypatch, CPU.format(n=0, name="Fast 1", flags="sse")) != found
    assert processor(monkeypatch, CPU.format(n=0, name="Fast 2", flags="sse avx2")) != found


@pytest.mark.parametrize("text", [None, "", "Features\t: fp asimd\n"])
def test_a_processor_that_says_little(monkeypatch, text):
    assert platform.machine() in processor(monkeypatch, text)
