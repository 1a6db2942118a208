"""Random numbers as a function of (seed, purpose, index)."""

from hypothesis import given
from hypothesis import strategies as st

from klip.engine.random import EpisodeSeeds, stream

places = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40))


@given(st.integers(0, 2**63), places)
def test_the_same_place_gives_the_same_numbers(seed, place):
    first, second = (stream(seed, "act", *place).random(4) for _ in range(2))
    assert first.tolist() == second.tolist()


@given(st.integers(0, 2**63), places, places)
def test_other_places_seeds_and_purposes_give_other_numbers(seed, place, other):
    here = stream(seed, "act", *place).random(4).tolist()
    assert here != stream(seed + 1, "act", *place).random(4).tolist()
    assert here != stream(seed, "order", *place).random(4).tolist()
    if place != other:
        assert here != stream(seed, "act", *other).random(4).tolist()


def test_streams_do_not_run_into_each_other():
    """A long draw at one index never reaches the numbers of the next."""
    long = stream(0, "act", 0).integers(2**63, size=100_000)
    following = stream(0, "act", 1).integers(2**63, size=100)
    assert not set(long.tolist()) & set(following.tolist())


def test_episode_seeds_differ():
    of = EpisodeSeeds()
    seeds = {of(s, e, k) for s in range(5) for e in range(4) for k in range(50)}
    assert len(seeds) == 1000


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), places), min_size=1, max_size=5))
def test_episode_seeds_are_those_of_their_streams_in_any_order(asked):
    of = EpisodeSeeds()
    for seed, place in asked:
        assert of(seed, *place) == stream(seed, "episode", *place).integers(2**31)
