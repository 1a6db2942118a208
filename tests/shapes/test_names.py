"""The spelling of shapes: what is read, what is refused, and how."""

import dataclasses
import importlib
import sys
import textwrap
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.shapes import (
    AdaptiveKL,
    ByAge,
    Clip,
    ClipHigher,
    ImportanceSampling,
    KLk3,
    NameUnknown,
    Ramp,
    TrulyPPO,
    Truncate,
    by_sign,
    parse,
)
from klip.shapes.code import digest_of_code
from klip.shapes.names import brief, catalogue, parse_value, shape_of, spelled
from klip.shapes.value import Value, is_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("clip", Clip()),
        ("clip()", Clip()),
        ("clip(0.3)", Clip(eps=0.3)),
        ("clip(eps=0.3)", Clip(eps=0.3)),
        (" clip( low=0.2 , high=0.28 ) ", Clip(low=0.2, high=0.28)),
        ("clip-higher", ClipHigher()),
        ("clip_higher", ClipHigher()),
        ("is", ImportanceSampling()),
        ("truly-ppo(estimator=k3)", TrulyPPO(estimator="k3")),
        ("truly-ppo(estimator='closed-form')", TrulyPPO()),
        ("truly-ppo(estimator=closed-form)", TrulyPPO()),
        ("truncate(cap=2) * clip + kl-k3(b=0.1)", Truncate(cap=2) * Clip() + KLk3(b=0.1)),
        ("truncate * (clip + kl-k3)", Truncate() * (Clip() + KLk3())),
        ("by-sign(clip, ramp(width=0.1))", by_sign(Clip(), Ramp(width=0.1))),
        ("clip(eps=by-age(fresh=0.2))", Clip(eps=ByAge(fresh=0.2))),
        ("adaptive-kl(shape=kl-k3(b=2), target=0.01)", AdaptiveKL(shape=KLk3(b=2), target=0.01)),
    ],
)
def test_what_is_read(text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clap", "did you mean clip"),
        ("CLIP(eps=0.2)", "did you mean clip"),
        ("zzzzzz", "klip shapes"),
        ("", "cannot read the shape"),
        ("clip(eps=0.2", "cannot read the shape"),
        ("clip(eps=0.2) - kl", "cannot read"),
        ("clip(eps=1/5)", "cannot read '1 / 5'"),
        ("clip(eps=None)", "cannot read 'None'"),
        ("clip(epsilon=0.2)", "no parameter 'epsilon'.*it has eps, low, high"),
        ("clip(0.2, eps=0.2)", "no parameter 'eps'"),
        ("spo(1, 2, 3)", "no parameter '2'"),
        ("clip(eps=wide)", "eps='wide' must be a number"),
        ("clip(eps=kl)", "clip: eps=kl.* must be a number, or a threshold"),
        ("clip(eps=by-age(fresh=kl))", "by-age: fresh=kl.* must be a number"),
        ("clip(eps=truncate)", "eps=truncate.* must be a number"),
        ("truly-ppo(estimator=kl)", "must be one of"),
        ("by-sign(1, 2)", "positive=1 must be a shape"),
        ("by-sign(clip, by-age)", "negative=by-age.* must be a shape"),
        ("adaptive-kl(shape=0.2)", "shape=0.2 must be a shape"),
        ("clip * spo", "cannot combine"),
        ("truncate", "is a gate, not a shape"),
        ("by-age(fresh=1)", "is a threshold, not a shape"),
        ("by-sign(clip)", "cannot build by-sign"),
        ("__import__('os')", "no shape is called"),
        ("clip.__class__", "cannot read"),
        ("no_such_file.py:MyShape", "no file no_such_file.py"),
        ("no_such_module:MyShape", "does not import"),
    ],
)
def test_what_is_refused(text, message):
    """One line that says what to do, never another kind of exception."""
    with pytest.raises(KlipError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


NUMBERS = [
    (cls, f.name)
    for cls in catalogue(Value).values()
    for f in dataclasses.fields(cls)
    if is_number(f.default)
]


@pytest.mark.parametrize(("cls", "name"), NUMBERS, ids=lambda x: getattr(x, "name", x))
def test_a_number_is_a_number_or_a_threshold(cls, name):
    """A shape, a gate or a controller in its place would fail later, where a run is trained."""
    for wrong in ("kl", "truncate", "adaptive-kl", "clip + kl-k3"):
        with pytest.raises(KlipError, match=f"{name}=.* must be a number"):
            parse_value(Value, f"{cls.name}({name}={wrong})")


@given(st.text(max_size=30) | st.text("clipeps-_=().,:*+ 019'", max_size=20))
def test_any_text_is_read_or_refused(text):
    """Whatever is typed: a shape that spells itself the same way, or a line of explanation."""
    refusal = None
    try:
        value = parse(text)
    except KlipError as error:
        refusal = str(error)
    if refusal is None:
        assert parse(str(value)) == value
    else:
        assert "\n" not in refusal


def test_a_controller_stands_for_its_first_shape():
    assert str(parse("adaptive-kl").initial) == "kl(b=1.0)"


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


MINE = """
    from dataclasses import dataclass
    from klip.shapes import Shape

    @dataclass(frozen=True)
    class Halved(Shape):
        by: float = 0.5

        def beta(self, s):
            return -self.by * s.w * s.advantage
"""


def test_a_users_file(write):
    """From a file, with parameters, with the catalogue's own names beside it."""
    path = write(MINE)
    shape = parse(f"{path}:Halved(by=0.25)")
    assert float(shape.multiplier(0.0, 1.0)) == 0.75
    assert str(shape) == f"{path}:Halved(by=0.25)"
    assert parse(str(shape)) == shape
    total = parse(f"{path}:truncate(cap=2) * Halved")
    assert total.needs == {"behaviour_log_ratio"}


def test_a_users_file_has_neighbours(tmp_path, monkeypatch):
    """It imports them as `python file.py` does; files in other folders have neighbours too."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    usual = list(sys.path)
    for folder, by in (("one", 0.1), ("two", 0.4)):
        (tmp_path / folder / "parts").mkdir(parents=True)
        (tmp_path / folder / "parts" / "__init__.py").write_text(f"by = {by}\n")
        text = (
            textwrap.dedent(MINE)
            .replace("0.5", "parts.by")
            .replace("from dat", "import parts\nfrom dat")
        )
        (tmp_path / folder / "mine.py").write_text(text)
    assert [parse(f"{tmp_path}/{folder}/mine.py:Halved").by for folder in ("one", "two")] == [
        0.1,
        0.4,
    ]
    assert sys.path == [*usual, f"{tmp_path}/one", f"{tmp_path}/two"]  # never before the libraries


def test_a_users_module(write, monkeypatch):
    path = write(MINE, "klip_test_module.py")
    monkeypatch.syspath_prepend(path.parent)
    assert parse("klip_test_module:Halved(by=0.1)").by == 0.1


def test_a_module_in_the_working_folder(write, monkeypatch):
    """Found since it was named, with what it imports beside it, after all libraries."""
    path = write("from klip_test_beside import base\n" + textwrap.dedent(MINE), "klip_test_here.py")
    write("base = 1", "klip_test_beside.py")
    write("raise RuntimeError", "json.py")
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert digest_of_code("klip_test_here:Halved") == digest_of_code("klip_test_here.py:Halved")
    assert parse("klip_test_here:Halved(by=0.1)").by == 0.1
    assert parse("klip_test_here.py:Halved(by=0.1)").by == 0.1
    assert sys.path[-1] == str(path.parent)


def test_a_value_that_cannot_be_built(write):
    text = "    def __post_init__(self):\n        raise OSError('no\\nway')\n"
    path = write(textwrap.dedent(MINE) + text)
    with pytest.raises(KlipError, match="cannot build halved: OSError: no way"):
        parse(f"{path}:Halved(by=0.1)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_thing", "does not import .ModuleNotFoundError: No module named"),
        ("def broken(:", "does not import .SyntaxError"),
        ("raise RuntimeError('boom')", "does not import .RuntimeError: boom"),
        ("from klip.shapes import Shape\nclass Half(Shape): pass", "define multiplier"),
    ],
)
def test_a_file_that_does_not_import(write, text, message):
    with pytest.raises(KlipError, match=message):
        parse(f"{write(text)}:Halved")


def test_a_name_that_the_file_lacks(write):
    with pytest.raises(NameUnknown, match="did you mean Halved"):
        parse(f"{write(MINE)}:Halve")


def test_somebodys_code_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('executed', 'w')\n")
    assert shape_of("evil.py:Mine") is None
    assert brief("evil.py:Mine") == "evil.py:Mine"
    assert brief("no-such-shape(a=1)") == "no-such-shape(a=1)"
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "text",
    [
        "clip(eps=mine.py:Flat)",
        "clip(low=mine.py:Flat(top=0.1), high=other.py:Flat)",
        "truncate * mine.py:Gauss",
        "adaptive-kl(shape=clip(eps=mine.py:Flat) + kl(b=1))",
        "target-kl(shape=mine.py:Gauss(b=0.1))",
        "mine.py:Gauss + kl-k3(b=0.1)",
        "by-sign(positive=mine.py:Gauss, negative=other.py:Gauss)",
    ],
)
def test_own_values_nest_anywhere_and_print_back(text, own):
    value = parse(text)
    assert parse(str(value)) == value
    assert "mine.py:" in str(value)
    assert digest_of_code(str(value))


def test_classes_of_one_name_in_two_files_stay_apart(own):
    both = parse("by-sign(positive=mine.py:Gauss, negative=other.py:Gauss)")
    assert (both.positive.b, both.negative.b) == (0.5, 0.9)


def test_an_unknown_own_value_says_where_it_was_looked_for(own):
    with pytest.raises(NameUnknown, match=r"'Gaus' in mine.py; did you mean Gauss\?"):
        parse("clip(eps=0.2) + mine.py:Gaus")


def test_an_object_of_an_imported_class_is_spelled_with_its_file(own, monkeypatch):
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    mine = importlib.import_module("mine")
    text = spelled(Clip(eps=mine.Flat()) + KLk3())
    assert text == "clip(eps=mine.py:Flat(top=0.3)) + kl-k3(b=1.0)"
    assert str(parse(text)) == text


def test_an_object_of_a_class_in_a_function_or_script_has_a_way_out():
    @dataclass(frozen=True)
    class Local(Ramp):
        pass

    with pytest.raises(KlipError, match=r"Local is defined in a function.*put the class"):
        spelled(Local())
