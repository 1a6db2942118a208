import pytest

from klip.tasks import TaskError, describe
from tests.tasks.own import ACTIONS, OBSERVATIONS

REMEDIES = {
    "Dict": "observes a Dict.*gymnasium.wrappers.FlattenObservation",
    "Tuple": "observes a Tuple.*gymnasium.wrappers.FlattenObservation",
    "Image": r"observes images of shape \(8, 8, 3\).*ResizeObservation and FlattenObservation",
    "Matrix": r"observes a Box of shape \(2, 2\).*FlattenObservation",
    "Number": "observes one of 16 numbers.*FlattenObservation",
    "Growing": "observes a Sequence.*TransformObservation",
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_observation_that_is_not_flat_names_a_wrapper(name):
    with pytest.raises(TaskError, match=REMEDIES[name]):
        describe(f"tests.tasks.own:{name}-v0")


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_space_without_a_policy_is_an_error(name):
    with pytest.raises(TaskError, match=r"takes actions in .*TransformAction"):
        describe(f"tests.tasks.own:{name}-v0")


def test_gymnasiums_own_discrete_observation():
    with pytest.raises(TaskError, match="FrozenLake-v1 observes one of 16 numbers"):
        describe("FrozenLake-v1")
