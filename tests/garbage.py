"""Structured garbage: what was written, with something in it that nobody would write."""

import copy

from hypothesis import strategies as st

ODD = st.sampled_from(
    [None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 5e-324,
     float("nan"), float("inf"), -float("inf"), "", "x", "clip", "\x1b[2J", "\ud800", "1" * 400,
     "../../etc", "os:system", [], {}, [[]], [None], [1, "a"], {"a": 1}, [1.0] * 40, ["x"] * 3,
     {"seed": []}, [{"since": 0}], "NaN", "<script>", [[[[[[[[[[1]]]]]]]]]]]
)  # fmt: skip


def places(value, before=()):
    """Every place in a document, as the keys that lead there."""
    yield before
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else list(enumerate(value))[:6]:
            yield from places(part, (*before, key))


@st.composite
def spoilt(draw, whole, most=3):
    """A document with one to three places changed, removed, or added to."""
    made = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, most))):
        open_places = [place for place in places(made) if place]
        if not open_places:
            break
        *above, key = draw(st.sampled_from(open_places))
        inside = made
        for part in above:
            inside = inside[part]
        how = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if how == "remove":
            del inside[key]
        elif how == "replace":
            inside[key] = copy.deepcopy(draw(ODD))
        elif isinstance(inside, dict):
            name = draw(st.sampled_from(["x", "", "seed", "kind", "a\nb"]))
            inside[name] = copy.deepcopy(draw(ODD))
        else:
            inside.append(copy.deepcopy(draw(ODD)))
    return made
