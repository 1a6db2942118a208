"""Fields from a plan or a disk are of their types, or an error names them."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from klip.engine.fields import typed, types_of, whole
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


FULL = {"count": 2, "size": 1, "flag": True, "name": "n", "widths": [1, 2], "mode": "y",
        "inner": {"a": 3}}  # fmt: skip


def test_a_whole_config_from_disk():
    assert whole(Outer, FULL) == Outer(2, 1, True, "n", (1, 2), "y", Inner(3))
    assert "kind" not in types_of(Outer)


@pytest.mark.parametrize(
    ("field", "value"),
    [("count", 1.0), ("count", True), ("count", None), ("size", "1"), ("size", float("nan")),
     ("flag", 1), ("name", 3), ("widths", 3), ("widths", ["1"]), ("mode", "z")],
)  # fmt: skip
def test_a_value_of_another_type_is_named(field, value):
    with pytest.raises(KlipError, match=f"{field}=.* must be of type"):
        whole(Outer, {**FULL, field: value})
    with pytest.raises(KlipError, match=f"{field}=.* must be of type"):
        typed(Outer, {field: value})


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
