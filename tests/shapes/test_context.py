"""Context fields are optional, and a missing one is named."""

import pytest

from klip.shapes import CONTEXT_FIELDS, Context, MissingContext


@pytest.mark.parametrize("name", CONTEXT_FIELDS)
def test_a_missing_field_is_named(name):
    with pytest.raises(MissingContext, match=name):
        getattr(Context(), name)
    assert getattr(Context(**{name: 3.0}), name) == 3.0
    assert Context(**{name: 3.0}).given == {name}


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="colour"):
        Context(colour=1.0)
