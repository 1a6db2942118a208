"""The doctor where there is no verl, or no process to ask: it says so, and never falls over."""

import json
import sys

import pytest

from klip.adapters import doctor
from klip.cli.adapters import doctor as command
from klip.errors import KlipError


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("KLIP_SHAPE", "KLIP_CONFIG", "VERL_USE_EXTERNAL_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def without_verl(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", None)


def marks(checks):
    return {check.name: check.ok for check in checks}


def test_without_verl(without_verl, monkeypatch):
    """The shape is read all the same; what needs verl is not called good."""
    monkeypatch.setenv("KLIP_SHAPE", "clip(low=0.2, high=0.28)")
    found = doctor.look()
    assert marks(found) == {
        "torch": True, "verl": False, "plugin": None, "loss": None, "shape": True, "trial": None,
    }  # fmt: skip
    assert "pip install 'klip-rl[verl]'" in found[1].says
    assert found[4].says == "clip(low=0.2, high=0.28) at the level token, by KLIP_SHAPE"
    assert not doctor.healthy(found)


@pytest.mark.parametrize(
    ("shape", "message"),
    [("", "KLIP_SHAPE"), ("clap", "did you mean clip"), ("max-age * clip", "needs age")],
)
def test_shapes_that_will_not_do(without_verl, monkeypatch, shape, message):
    if shape:
        monkeypatch.setenv("KLIP_SHAPE", shape)
    found = {check.name: check for check in doctor.look()}
    assert found["shape"].ok is False
    assert message in found["shape"].says
    assert "\n" not in found["shape"].says


def test_what_a_shape_needs_is_told(without_verl, monkeypatch):
    monkeypatch.setenv("KLIP_SHAPE", "position-aware")
    assert "it needs length, position, and has it" in doctor.look()[4].says


def test_tokens_to_keep_are_told_and_a_folder_that_is_none_is_found(without_verl, monkeypatch):
    monkeypatch.setenv("KLIP_SHAPE", "clip")
    assert "tokens" not in {check.name for check in doctor.look()}
    monkeypatch.setenv("KLIP_KEEP_TOKENS", "4")
    found = {check.name: check for check in doctor.look()}["tokens"]
    assert not found.ok
    assert "needs KLIP_KEEP_IN" in found.says
    monkeypatch.setenv("KLIP_KEEP_IN", "/runs/mine")
    monkeypatch.setenv("KLIP_ANSWER_MARKER", "####")
    found = {check.name: check for check in doctor.look()}["tokens"]
    assert found.ok
    assert found.says == (
        "those of 4 completions a step go to /runs/mine; the answer follows '####'"
    )


def test_plugins_switched_off(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    with pytest.raises(KlipError, match="VERL_USE_EXTERNAL_PLUGINS=none leaves klip out"):
        doctor._plugin()


def test_klip_without_its_entry_point(monkeypatch):
    monkeypatch.setattr(doctor, "entry_points", lambda group: [])
    with pytest.raises(KlipError, match="install Klip"):
        doctor._plugin()


def test_a_process_that_dies(monkeypatch, tmp_path):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho 'Segmentation fault' >&2\nexit 139\n")
    dying.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(dying))
    (check,) = doctor.verl()
    assert check == doctor.DoctorCheck(
        "process", False, "a fresh process ended with 139: Segmentation fault"
    )


def test_a_process_that_never_ends(monkeypatch, tmp_path):
    sleeping = tmp_path / "python"
    sleeping.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeping.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(sleeping))
    monkeypatch.setattr(doctor, "TIMEOUT", 0.2)
    (check,) = doctor.verl()
    assert check.ok is False


@pytest.fixture
def found(monkeypatch):
    """`found(*checks)`: what the doctor will find."""
    return lambda *checks: monkeypatch.setattr(doctor, "verl", lambda ray, run: list(checks))


def test_the_command(found, capsys):
    found(
        doctor.DoctorCheck("verl", True, "verl 0.9.1"),
        doctor.DoctorCheck("loss", True, "registered"),
    )
    assert command("verl") == 0
    assert capsys.readouterr().out == "ok  verl  verl 0.9.1\nok  loss  registered\n"


def test_the_command_fails(found, capsys):
    found(
        doctor.DoctorCheck("verl", False, "is not"),
        doctor.DoctorCheck("loss", None, "not looked at"),
    )
    assert command("verl") == 1
    assert capsys.readouterr().out == "NO  verl  is not\n--  loss  not looked at\n"


def test_the_command_as_json(found, capsys):
    found(doctor.DoctorCheck("verl", False, "is not"))
    assert command("verl", as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "trainer": "verl",
        "ok": False,
        "checks": [{"name": "verl", "ok": False, "says": "is not"}],
    }


def test_another_trainer():
    with pytest.raises(KlipError, match="knows verl, not slime"):
        command("slime")
