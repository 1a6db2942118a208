"""Docstrings become MyST without losing a word, and formulas mean themselves."""

import re

from docstrings import as_myst, fields_of, prose
from hypothesis import given
from hypothesis import strategies as st

import klip


def test_every_part_of_a_docstring_finds_its_place():
    text = as_myst(klip.train.__doc__, frozenset({"train"}))
    assert text.startswith("Train every shape with every seed")
    assert re.search(r"^:param seeds: how many, from 0, or which$", text, re.MULTILINE)
    assert "Args:" not in text


def test_a_doctest_stays_as_it_is():
    text = as_myst(klip.profile.__doc__)
    assert "```pycon\n>>> clip = profile(Clip())\n" in text
    assert "('exact', True, 1.2, 1.2)\n```" in text


@given(st.text(alphabet="wA*_|<>[]$ b=+-", max_size=40))
def test_a_formula_reads_as_it_was_written(text):
    assert re.sub(r"\\(.)", r"\1", prose(text)) == text
    assert not re.search(r"(?<!\\)[*_|<>$\[\]]", prose(text))


def test_known_names_are_links():
    linked = prose("see `klip.train` and `klip.trian`", frozenset({"train"}))
    assert linked == "see {py:obj}`klip.train` and `klip.trian`"


def test_what_stands_below_a_field_is_its_meaning():
    said = fields_of(klip.Config)
    assert said["gamma"] == "discount"
    assert said["epochs"] == "passes over each rollout"
