"""What must hold for a block of lanes of every kind: it is saved, restored and kept alone."""

import io
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.same_environment import actions_of, episode_seed
from klip.errors import KlipError
from klip.tasks import TaskError, make_lanes
from tests.tasks.test_every_lanes import assert_same, run

KINDS = (
    "CartPole-v1",
    "Hopper-v4",  # simulations stepped together
    "Humanoid-v4",  # and in turn, for the contact forces
    "Ant-v5",  # which are clipped here
    "LunarLander-v3",
    "Pendulum-v1",
    "tests.tasks.own:Corridor-v0",
)
every_kind = pytest.mark.parametrize("task", KINDS)


def seeds_of(*numbers):
    """The seeds of lanes that have other numbers elsewhere."""
    return lambda lane, episode: episode_seed(numbers[lane], episode)


def file_of(state):
    file = io.BytesIO()
    np.savez(file, **state)
    return file.getvalue()


def read(content):
    with np.load(io.BytesIO(content)) as file:
        return dict(file)


@every_kind
@settings(max_examples=8)
@given(
    first=st.integers(0, 2),
    at=st.integers(0, 3),
    before=st.integers(0, 40),
    other=st.integers(0, 9),
)
def test_a_block_goes_on_exactly_among_others_that_notice_nothing(task, first, at, before, other):
    source, target = slice(first, first + 2), slice(at, at + 2)
    actions = actions_of(task, 9, before + 30)
    small = make_lanes(task, 4, episode_seed)
    small.reset()
    for action in actions[:before, :4]:
        seen = small.step(action).observation[source]
    saved = file_of(small.state(source))
    expected = [field[:, source] for field in run(small, actions[before:, :4])]

    numbers = [4, 5, 6, 7, 8]
    numbers[target] = [first, first + 1]
    with_it, without = (make_lanes(task, 5, seeds_of(*numbers)) for _ in range(2))
    for lanes in (with_it, without):
        lanes.reset()
        run(lanes, actions[: other + 1, 4:])
    restored = with_it.restore(target, read(saved))
    if before:
        assert restored.tobytes() == seen.tobytes()
    assert file_of(with_it.state(target)) == saved
    rest = actions[before:, numbers]
    got, alone = run(with_it, rest), run(without, rest)
    assert_same([field[:, target] for field in got], expected)
    assert_same(*([np.delete(f, target, axis=1) for f in fields] for fields in (got, alone)))
    assert file_of(with_it.state(target)) == file_of(small.state(source))
    for neighbours in (slice(0, at), slice(at + 2, 5)):
        assert file_of(with_it.state(neighbours)) == file_of(without.state(neighbours))
    for lanes in (small, with_it, without):
        lanes.close()


@every_kind
def test_a_blocks_bytes_do_not_tell_its_neighbours(task):
    actions = actions_of(task, 7, 70)
    many, few = make_lanes(task, 7, episode_seed), make_lanes(task, 2, seeds_of(4, 5))
    many.reset(), few.reset()
    for action in actions:
        many.step(action), few.step(action[4:6])
        assert file_of(many.state(slice(4, 6))) == file_of(few.state())
    assert all(len(array) == 2 for array in few.state().values())


@every_kind
def test_lanes_that_are_kept_go_on_exactly_and_again(task):
    actions = actions_of(task, 6, 230)
    lanes, all_of_them = (make_lanes(task, 6, episode_seed) for _ in range(2))
    first = lanes.reset()
    all_of_them.reset()
    present = [0, 1, 2, 3, 4, 5]
    for chosen, times in (([0, 1, 2, 3, 4, 5], 33), ([4, 1, 2], 67), ([2, 0], 130)):
        lanes.keep(chosen)
        present = [present[lane] for lane in chosen]
        assert lanes.lanes == len(present) == len(lanes.warnings)
        now, actions = actions[:times], actions[times:]
        expected = [field[:, present] for field in run(all_of_them, now)]
        assert_same(run(lanes, now[:, present]), expected)
        for lane, number in enumerate(present):
            own = all_of_them.state(slice(number, number + 1))
            assert file_of(lanes.state(slice(lane, lane + 1))) == file_of(own)
    assert (expected[2] | expected[3]).any()  # a later episode began, by its own seed
    assert lanes.reset().tobytes() == first[present].tobytes()
    lanes.close(), all_of_them.close()


def shapes_and_types(array):
    """What cannot have been saved."""
    yield from (None, [1, 2], "text", array.astype(object), array.astype(np.complex64))
    yield from (array.astype(np.float16), array[:1], array[None], array.ravel()[:-1], array[..., 0])
    yield np.concatenate([array, array])


@every_kind
def test_a_state_of_another_shape_or_type_is_named(task):
    lanes = make_lanes(task, 3, episode_seed)
    lanes.reset()
    run(lanes, actions_of(task, 3, 12))
    where = slice(1, 3)
    saved = lanes.state(where)
    before = file_of(lanes.state())
    for key, array in saved.items():
        for wrong in shapes_and_types(array):
            with pytest.raises(TaskError, match=f"the saved '{key}'"):
                lanes.restore(where, saved | {key: wrong})
        with pytest.raises(TaskError, match=f"the saved state has no '{key}'"):
            lanes.restore(where, {k: v for k, v in saved.items() if k != key})
    for key in ("episode", "elapsed"):
        damaged = saved | {key: saved[key] - 10**6}
        with pytest.raises(TaskError, match=f"the saved '{key}' is damaged"):
            lanes.restore(where, damaged)
    with pytest.raises(TaskError, match=r"the saved '(elapsed|actions)'"):
        lanes.restore(where, saved | {"elapsed": saved["elapsed"] + 2**62})
    assert file_of(lanes.state()) == before
    assert lanes.failed == {}


@every_kind
@settings(max_examples=40)
@given(data=st.data())
def test_a_damaged_number_is_restored_or_named_and_harms_no_neighbour(task, data):
    actions = actions_of(task, 3, 30)
    lanes, clean = (make_lanes(task, 3, episode_seed) for _ in range(2))
    for each in (lanes, clean):
        each.reset()
        run(each, actions[:12])
    where = slice(1, 3)
    saved = lanes.state(where)
    key = data.draw(st.sampled_from([k for k, v in saved.items() if v.size]))
    array = saved[key]
    index = data.draw(st.integers(0, array.size - 1))
    if array.dtype.kind == "f":
        array.flat[index] = data.draw(st.floats(width=32))
    elif array.dtype.kind == "i":
        array.flat[index] = data.draw(st.integers(-(2**63), 2**63 - 1))
    else:
        array.flat[index] = ~array.flat[index]
    with suppress(KlipError):
        assert lanes.restore(where, saved).shape == (2, lanes.observation_size)
        assert_same(lanes.state(where).values(), saved.values())
    with np.errstate(all="ignore"):
        got, expected = run(lanes, actions[12:]), run(clean, actions[12:])
    assert_same([field[:, 0] for field in got], [field[:, 0] for field in expected])
    lanes.close(), clean.close()
