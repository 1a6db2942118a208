"""Spans against the same search written with lists."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from klip.errors import KlipError
from klip.tokens import after_marker, after_text, find_marker, first, last, part_position
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


def test_several_markers():
    ids = torch.tensor([[1, 8, 5, 6], [3, 7, 5, 0], [1, 2, 3, 4]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]])
    span = after_marker(ids, mask, [(7,), (8,), (3, 7)])
    assert span.mask.int().tolist() == [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert span.found.tolist() == [True, True, False]
    assert find_marker(ids, mask, [(7,), (8,), (3, 7)])[1].tolist() == [0, 2, 0, 0]


WORDS = ("####", "é", "😀", "答案：", "\n", " ", "12", "�", "<answer>", "#", "no")


@st.composite
def tokenised(draw):
    """(bytes of each token, mask): text of several alphabets, cut anywhere, also in characters."""
    text = "".join(draw(st.lists(st.sampled_from(WORDS), max_size=12)))
    raw = text.encode()
    cuts = sorted(draw(st.sets(st.integers(1, max(len(raw) - 1, 1)), max_size=20)) | {0, len(raw)})
    pieces = [raw[a:b] for a, b in itertools.pairwise(cuts)] or [b""]
    holes = draw(st.lists(st.integers(0, 9), min_size=len(pieces), max_size=len(pieces)))
    return pieces, [hole > 0 for hole in holes]


def places(pieces, marker, occurrence):
    """Where the marker ends, in bytes of all pieces, or None; by looking at bytes alone."""
    raw, marker = b"".join(pieces), marker.encode()
    place = raw.find(marker) if occurrence == "first" else raw.rfind(marker)
    return None if place < 0 else place + len(marker)


@given(tokenised(), st.sampled_from(["####", "答案：", "<answer>", "#"]), st.booleans())
def test_text_is_found_wherever_tokens_are_cut(drawn, marker, late):
    pieces, counts = drawn
    occurrence = "last" if late else "first"

    def decode(ids):
        return b"".join(pieces[i] for i in ids).decode(errors="replace")

    ids = torch.arange(len(pieces))[None]
    span = after_text(ids, torch.tensor([counts]), decode, marker, occurrence)

    # The same by bytes, run by run: no marker reaches over a hole.
    runs, run = [], []
    for i, on in enumerate([*counts, False]):
        if on:
            run.append(i)
        elif run:
            runs, run = [*runs, run], []
    ends = [(run, places([pieces[i] for i in run], marker, occurrence)) for run in runs]
    ends = [(run, end) for run, end in ends if end is not None]
    assert bool(span.found[0]) == bool(ends)
    if not ends:
        assert not span.mask.any()
        return
    run, end = ends[-1] if late else ends[0]
    sizes = itertools.accumulate(len(pieces[i]) for i in run)
    start = next((i for i, size in zip(run, sizes, strict=True) if size > end), run[-1] + 1)
    assert span.mask[0].tolist() == [on and i >= start for i, on in enumerate(counts)]


def test_an_answer_may_be_empty():
    span = after_text(torch.tensor([[0, 1]]), torch.ones(1, 2), lambda ids: "a#"[: len(ids)], "#")
    assert span.found.all()
    assert not span.mask.any()


def test_a_long_text_is_decoded_a_few_times_only():
    asked = []

    def decode(ids):
        asked.append(len(ids))
        return "".join("x#y"[i] for i in ids)

    ids = torch.zeros(1, 5000, dtype=torch.long)
    ids[0, 3999], ids[0, 4000:] = 1, 2
    assert after_text(ids, torch.ones(1, 5000), decode, "#").mask.nonzero()[0, 1] == 4000
    assert len(asked) < 20


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
    with pytest.raises(KlipError, match="marker='' is no text"):
        after_text(ids, ids, str, "")
    with pytest.raises(KlipError, match="occurrence='middle'"):
        after_text(ids, ids, str, "#", "middle")
    with pytest.raises(KlipError, match=r"mask \[1, 3\]"):
        after_text(ids, torch.ones(1, 3), str, "#")
