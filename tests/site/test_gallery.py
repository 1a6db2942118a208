"""The gallery has every shape, and says of a trainer only what its adapter would say."""

import pytest
from gallery import SB3, entry, every, uses

import klip
from klip.shapes import Controller, Shape, catalogue, parse

pytest.importorskip("torch")


def test_every_shape_and_controller_is_there():
    names = [region.name for region in every()]
    assert names == [*catalogue(Shape), *catalogue(Controller)]


@pytest.mark.parametrize("name", ["clip", "spo", "adaptive-kl", "age-conditioned", "tr-ppo"])
def test_an_entry_has_picture_formula_promises_source_and_a_line_a_trainer(name):
    region = parse(name)
    text = entry(region)
    for part in (f"### {name}", "<svg", region.formula, "T1 ", f"klip.{type(region).__name__}"):
        assert part in text
    assert [line.split("|")[1].strip() for line in text.splitlines()[-4:]] == list(uses(region))


def test_a_line_says_what_works_and_why_something_does_not():
    assert uses(parse("clip")) == {
        "PPO": '`klip train CartPole-v1 --shape "clip(eps=0.2)"`',
        "TRL": '`KlipGRPOTrainer(shape="clip(eps=0.2)", ...)`',
        "verl": '`KLIP_SHAPE="clip(eps=0.2)"` and `loss_mode=klip`',
        "SB3": '`KlipPPO("MlpPolicy", "CartPole-v1", shape="clip(eps=0.2)")`',
    }
    assert uses(klip.AgeConditioned())["PPO"].endswith("--lag 1`")
    assert uses(klip.PositionAware())["PPO"].startswith("no: position-aware needs length")
    assert uses(klip.AdaptiveKL())["verl"].startswith("no: adaptive-kl adapts between updates")
    assert uses(klip.AdaptiveKL())["SB3"].startswith("`KlipPPO")


def test_what_reaches_the_loss_in_sb3_is_what_the_adapter_says():
    pytest.importorskip("stable_baselines3")
    from klip.adapters.sb3 import FIELDS

    assert SB3 == FIELDS
