"""Fields are of their types wherever they come from, or an error names them."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pytest

from klip.engine.fields import LATE, conform, stored, typed, types_of, whole, whole_number
from klip.errors import KlipError


@dataclass(frozen=True)
class Inner:
    a: int = 1


@dataclass(frozen=True)
class Outer:
    kind: ClassVar[str] = "outer"
    count: int = 1
    size: float = 0.5
    flag: bool = False
    name: str = ""
    widths: tuple[int, ...] = ()
    mode: Literal["x", "y"] = "x"
    inner: Inner = Inner()
    extra: int = field(default=0, metadata=LATE)

    def __post_init__(self):
        conform(self)


FULL = {"count": 2, "size": 1, "flag": True, "name": "n", "widths": [1, 2], "mode": "y",
        "inner": {"a": 3}}  # fmt: skip


def test_a_whole_config_from_disk():
    assert whole(Outer, FULL) == Outer(2, 1, True, "n", (1, 2), "y", Inner(3))
    assert "kind" not in types_of(Outer)


WRONG = [
    ("count", 1.5, "a whole number"), ("count", True, "a whole number"),
    ("count", None, "a whole number"), ("count", 2**63, "below 2\\^63"),
    ("count", 1e19, "below 2\\^63"), ("count", float("nan"), "a whole number"),
    ("size", "1", "a finite number"), ("size", float("nan"), "a finite number"),
    ("size", float("inf"), "a finite number"), ("size", 10**400, "a finite number"),
    ("flag", 1, "true or false"), ("flag", "no", "true or false"), ("name", 3, "text"),
    ("widths", 3, "a list of whole numbers"), ("widths", ["1"], "a list of whole numbers"),
    ("widths", "12", "a list of whole numbers"), ("mode", "z", "one of x, y"),
    ("mode", ["x"], "one of x, y"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "words"), WRONG)
def test_a_value_of_another_type_is_named_in_every_way_in(name, value, words):
    for make in (
        lambda: whole(Outer, {**FULL, name: value}),
        lambda: typed(Outer, {name: value}),
        lambda: Outer(**{name: value}),
    ):
        with pytest.raises(KlipError, match=f"{name}=.* must be .*{words}") as caught:
            make()
        assert "\n" not in str(caught.value)


def test_whole_numbers_written_as_floats_and_numbers_of_numpys():
    made = Outer(count=1e6, size=np.float32(0.5), flag=np.bool_(True), widths=[8.0, np.int64(4)])
    assert made == Outer(1_000_000, 0.5, True, widths=(8, 4))
    assert [type(v) for v in (made.count, made.size, made.flag, *made.widths)] == [
        int, float, bool, int, int,
    ]  # fmt: skip
    assert typed(Outer, {"count": 2.048e3}) == {"count": 2048}
    assert whole_number("steps", 1e6) == 1_000_000


def test_a_whole_number_in_a_floats_place_stays_one():
    """It would be another run."""
    assert type(Outer(size=1).size) is int


def test_what_lies_on_disk_is_not_converted():
    with pytest.raises(KlipError, match=r"count=2\.0 must be a whole number"):
        whole(Outer, {**FULL, "count": 2.0})


def test_a_late_field_may_be_missing_and_is_not_written_at_its_default():
    """A run from before the field was there is the same run."""
    old = whole(Outer, FULL)
    assert old.extra == 0
    assert stored(old) == {**FULL, "widths": (1, 2)}
    new = whole(Outer, {**FULL, "extra": 3})
    assert stored(new)["extra"] == new.extra == 3


def test_fields_that_are_missing_or_too_many():
    with pytest.raises(KlipError, match="differs in colour"):
        whole(Outer, {**FULL, "colour": 1})
    with pytest.raises(KlipError, match="differs in a"):
        whole(Outer, {**FULL, "inner": {}})
    with pytest.raises(KlipError, match="differs in a"):
        whole(Outer, {**FULL, "inner": 5})
    with pytest.raises(KlipError, match="no config field is called 'count'; there are size"):
        typed(Outer, {"count": 1}, {"count"})
    with pytest.raises(KlipError, match="a table of fields"):
        typed(Outer, [1])
