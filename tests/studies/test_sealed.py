"""Choices that are made once: read back, told apart by their rules, and never taken on trust."""

import json

import pytest

from klip.engine.advance import Keeping
from klip.engine.having import Have
from klip.errors import KlipError
from klip.studies.sealed import Sealed

FILE = Sealed("plan", "frozen-01234567.json", "some 1", {"tasks": ["a"], "n": 2})


def packed(tmp_path, *several):
    """What a plan has, if these choices are in packs of its own."""
    packs = {tmp_path / f"pack{i}": {FILE.name: data} for i, data in enumerate(several)}
    return Keeping(tmp_path / "out", have=Have(choices=packs))


def sealed(tmp_path, choices, file=FILE):
    file.write(Keeping(tmp_path), choices)
    return (tmp_path / file.name).read_bytes()


def test_what_is_written_is_read(tmp_path):
    assert FILE.read(Keeping(tmp_path)) is None
    written = FILE.write(Keeping(tmp_path), {"chosen": 3})
    assert written == FILE.read(Keeping(tmp_path)) == {"rules": dict(FILE.rules), "chosen": 3}


def test_a_pack_s_choices_are_taken_into_the_folder(tmp_path):
    data = sealed(tmp_path / "made", {"chosen": 3})
    keeping = packed(tmp_path, data, data)
    assert FILE.read(keeping)["chosen"] == 3
    assert not (tmp_path / "out").exists()
    assert FILE.adopt(keeping)["chosen"] == 3
    assert (tmp_path / "out" / FILE.name).read_bytes() == data


def test_two_packs_that_differ_are_refused_and_another_plan_s_is_none(tmp_path):
    one, two = (sealed(tmp_path / str(i), {"chosen": i}) for i in range(2))
    with pytest.raises(KlipError, match="have frozen other choices for one plan"):
        FILE.read(packed(tmp_path, one, two))
    other = Sealed("plan", FILE.name, FILE.format, {"tasks": ["b"]})
    assert FILE.read(packed(tmp_path, sealed(tmp_path / "b", {}, other))) is None


def test_other_rules_in_the_folder_are_an_error(tmp_path):
    sealed(tmp_path, {}, Sealed("plan", FILE.name, FILE.format, {"tasks": ["b"]}))
    with pytest.raises(KlipError, match="frozen for other rules"):
        FILE.read(Keeping(tmp_path))


@pytest.mark.parametrize("at", [("frozen", "chosen"), ("format",), ("sha256",)])
def test_an_edit_is_seen(tmp_path, at):
    data = json.loads(sealed(tmp_path, {"chosen": 3}))
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = 4
    (tmp_path / FILE.name).write_text(json.dumps(data))
    with pytest.raises(KlipError, match=r"damaged or was edited.*begin a plan in another folder"):
        FILE.read(Keeping(tmp_path))


@pytest.mark.parametrize("text", ["", "[", "[]", "3", '{"frozen": {}}', "[" * 50_000])
def test_garbage_is_one_line(tmp_path, text):
    (tmp_path / FILE.name).write_text(text)
    with pytest.raises(KlipError, match="damaged or was edited"):
        FILE.read(Keeping(tmp_path))
