"""The reference has every name of the front door once, with arguments, returns and an example."""

import inspect
import re
from collections import Counter

import pytest
import reference

import klip

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def names():
    return [name for name in klip.__all__ if name not in klip._ROOMS]


def test_every_name_is_there_once(pages):
    text = "\n".join(pages.values())
    told = Counter(re.findall(r"\{py:(?:function|class|exception)\} klip\.(\w+)\b[^.\w]", text))
    assert {name: told[name] for name in names()} == dict.fromkeys(names(), 1)


@pytest.mark.parametrize("name", [n for n in names() if inspect.isfunction(getattr(klip, n))])
def test_a_function_says_its_arguments_what_comes_back_and_an_example(name):
    function = getattr(klip, name)
    doc = inspect.getdoc(function)
    assert ">>> " in doc, "give it an example that runs"
    assert "Returns:" in doc, "say what comes back, with its unit"
    for argument in inspect.signature(function).parameters:
        assert re.search(rf"^    {argument}: ", doc, re.MULTILINE), f"say what {argument} is"


@pytest.mark.parametrize("name", [n for n in names() if isinstance(getattr(klip, n), type)])
def test_a_class_says_what_it_is(name):
    assert len(inspect.getdoc(getattr(klip, name)).splitlines()[0]) > 10


def test_signatures_can_be_read():
    assert (
        reference.signature(klip.parse)
        == "(text: str, rooms: tuple[str, ...] = ('klip.shapes',)) -> Region"
    )
    assert "<function" not in reference.signature(klip.train)
    assert "object at 0x" not in reference.signature(klip.token_loss)
    assert reference.signature(klip.Clip) == "(eps = None, low = None, high = None)"


def test_what_functions_give_back_is_found():
    assert [cls.__name__ for cls in reference.returned(klip.evaluate)] == ["Evaluation"]
    assert [cls.__name__ for cls in reference.returned(klip.resume)] == ["Result"]
