"""What is refused of networks, step sizes and ways of learning, in one line each."""

import pytest

from klip.errors import KlipError
from klip.ppo.checking import age_weights, check_task
from klip.ppo.config import config
from klip.ppo.job import ready


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation": "sine"}, "activation='sine' must be one of tanh, relu, elu, swish"),
        ({"value_hidden": (8, 0)}, r"value_hidden=\(8, 0\) must be one or more positive widths"),
        ({"shared_trunk": True, "value_hidden": (8,)}, "leave out shared_trunk"),
        ({"shared_trunk": True, "value_lr": 1e-3}, "value_lr=0.001 needs a policy and a value"),
        ({"shared_trunk": True, "grad_clip": "separate"}, "grad_clip=separate needs"),
        ({"shared_trunk": True, "stop_value": False}, "stop_value=no needs"),
        ({"state_std": True, "log_std": -7.0}, "must be greater than -6.91"),
        ({"hidden_gain": 0.0}, "hidden_gain=0.0 must be greater than 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm=-1.0 must be at least 0"),
        ({"value_lr": -1e-3}, "value_lr=-0.001 must be at least 0"),
        ({"lr_end": 1.5}, "lr_end=1.5 must lie between 0 and 1"),
        ({"warmup": 1.0}, "warmup=1.0 must be at least 0 and less than 1"),
        ({"advantage_ddof": 2}, "advantage_ddof=2 must be 0 or 1"),
        ({"lag": 1, "time_limits": "skip"}, "time_limits=skip is for fresh samples"),
        ({"replay": 2, "value_target": "monte-carlo"}, "monte-carlo is for fresh samples"),
        ({"replay": 2, "advantage_form": "next-return"}, "leave out lag and replay"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(KlipError, match=message) as caught:
        config("CartPole-v1", **fields)
    assert "\n" not in str(caught.value)


def test_gaussians_of_a_kind_need_actions_of_it():
    with pytest.raises(KlipError, match="state_std is for actions that are real numbers"):
        check_task(config("CartPole-v1", preset="brax"))
    check_task(config("Pendulum-v1", preset="brax"))


def test_no_clipping_and_all_late_fields_at_once():
    given = {"max_grad_norm": 0.0, "layer_norm": True, "activation": "relu", "warmup": 0.1}
    made = config("CartPole-v1", **given)
    assert {name: getattr(made, name) for name in given} == given


def test_ages_weigh_one_in_the_mean():
    for spelled in ("uniform", "geppo", "5 1 0"):
        assert sum(age_weights(spelled, 3)) == pytest.approx(3)


def test_a_shape_of_the_probability_is_told_that_actions_have_densities():
    masked = config("Hopper-v4", shape="dppo-tv")
    with pytest.warns(RuntimeWarning, match="dppo-tv .* of Hopper-v4 have densities"):
        ready([config("Hopper-v4"), masked])
    inside = config("Pendulum-v1", shape="trgppo + kl-k3")
    with pytest.warns(RuntimeWarning, match="of Pendulum-v1 have densities"):
        ready([inside])


def test_a_shape_of_the_probability_is_at_home_with_choices():
    ready([config("CartPole-v1", shape="dppo-tv"), config("Hopper-v4")])  # warnings are errors
