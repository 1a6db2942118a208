"""Code that users name: what of it makes another run."""

import pytest

from klip.shapes.code import digest_of_code
from tests.shapes.conftest import OWN


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("import dataclass", "import dataclass  # a comment", True),
        ("Says what it is.", "Says more.", True),
        ("self.b\n", "(self.b)\n\n\n", True),
        ("* self.b", "* self.b * 2", False),
    ],
)
def test_the_meaning_of_code_is_hashed_not_its_looks(before, after, same, own):
    first = digest_of_code("mine.py:Gauss")
    assert before in OWN
    (own / "mine.py").write_text(OWN.replace(before, after))
    assert (digest_of_code("mine.py:Gauss") == first) == same


def test_a_file_beside_it_is_part_of_the_code(own):
    first = digest_of_code("clip(eps=mine.py:Flat)")
    (own / "near.py").write_text("factor = 2\n")
    assert digest_of_code("clip(eps=mine.py:Flat)") != first
