"""`klip doctor`, as one types it."""

import json

import pytest

from klip.adapters import doctor
from klip.cli import main


@pytest.fixture
def asked(monkeypatch):
    """What the doctor is asked; it says that the second of two checks could not be made."""
    questions = []

    def verl(ray, run):
        questions.append((ray, run))
        unmade = None if "broken" in run else True
        return [
            doctor.DoctorCheck("verl", True, "0.9"),
            doctor.DoctorCheck("its loss", unmade, "klip"),
        ]

    monkeypatch.setattr(doctor, "verl", verl)
    return questions


def test_all_is_well(asked, capsys):
    assert main(["doctor", "verl"]) == 0
    assert capsys.readouterr().out == "ok  verl      0.9\nok  its loss  klip\n"
    assert asked == [(False, ())]


def test_something_is_amiss(asked, capsys):
    assert main(["doctor", "verl", "--ray", "--run", "broken", "a=1"]) == 1
    assert "--  its loss" in capsys.readouterr().out
    assert asked == [(True, ("broken", "a=1"))]
    assert main(["doctor", "verl", "--run", "broken", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["checks"][1]["ok"]) == (False, None)


def test_only_verl_has_a_doctor(capsys):
    assert main(["doctor", "trl"]) == 2
    assert capsys.readouterr().err == "klip: the doctor knows verl, not trl: klip doctor verl\n"
