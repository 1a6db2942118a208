"""Spans against the same search written with lists."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.tokens import after_marker, find_marker, first, last, part_position, spellings
from klip.tokens.spans import positions


@st.composite
def sequences(draw):
    rows, length = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    bits = st.lists(st.integers(0, 2), min_size=length, max_size=length)
    ids = torch.tensor([draw(bits) for _ in range(rows)])
    mask = torch.tensor([[b > 0 for b in draw(bits)] for _ in range(rows)])
    return ids, mask


markers = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
)


@given(sequences(), markers, st.sampled_from(["first", "last"]))
def test_after_marker(drawn, markers, occurrence):
    ids, mask = drawn
    span = after_marker(ids, mask, markers, occurrence)
    for row, (tokens, counts) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)):
        ends = [
            end
            for end in range(len(tokens))
            if any(
                end - len(k) + 1 >= 0
                and tuple(tokens[end - len(k) + 1 : end + 1]) == k
                and all(counts[end - len(k) + 1 : end + 1])
                for k in markers
            )
        ]
        assert bool(span.found[row]) == bool(ends)
        cut = len(tokens) if not ends else ends[0] if occurrence == "first" else ends[-1]
        expected = [counts[i] and i > cut for i in range(len(tokens))]
        assert span.mask[row].tolist() == expected


@given(sequences(), st.integers(0, 10))
def test_from_either_end(drawn, count):
    _, mask = drawn
    for row in range(len(mask)):
        held = [i for i, on in enumerate(mask[row].tolist()) if on]
        assert first(mask, count)[row].nonzero().flatten().tolist() == held[:count]
        tail = held[-count:] if count else []
        assert last(mask, count)[row].nonzero().flatten().tolist() == tail
        place, length = positions(mask)
        assert place[row][mask[row]].tolist() == list(range(len(held)))
        assert length[row].item() == len(held)


def test_several_spellings_of_one_marker():
    merges = {"####": [7], " ####": [8], "\n####": [3, 7]}
    found = spellings(lambda text: merges[text], "####")
    assert found == [(7,), (8,), (3, 7)]
    ids = torch.tensor([[1, 8, 5, 6], [3, 7, 5, 0], [1, 2, 3, 4]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
    span = after_marker(ids, mask, found)
    assert span.mask.int().tolist() == [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert span.found.tolist() == [True, True, False]
    assert find_marker(ids, mask, found)[1].tolist() == [0, 2, 0, 0]


def test_a_marker_longer_than_the_sequence_is_not_there():
    assert not after_marker(torch.ones(1, 2), torch.ones(1, 2), [(1, 1, 1)]).found.any()


def test_two_parts():
    place, length = part_position(torch.tensor([[False, True]]))
    assert place.tolist() == [[0, 1]]
    assert length.tolist() == [[2]]


def test_mistakes_are_named():
    ids = torch.zeros(1, 2)
    with pytest.raises(KlipError, match="occurrence='middle'"):
        after_marker(ids, ids, [(1,)], "middle")
    with pytest.raises(KlipError, match="at least one marker"):
        after_marker(ids, ids, [])
    with pytest.raises(KlipError, match="at least one token id"):
        after_marker(ids, ids, [()])
    with pytest.raises(KlipError, match=r"mask \[1, 3\]"):
        after_marker(ids, torch.ones(1, 3), [(1,)])
