"""A loss by its import path, with settings: what `klip probe` asks."""

import pytest
import torch

from klip.adapters.stock import configured
from klip.cli import main
from klip.errors import KlipError
from klip.theory.probe import load_loss, probe


def clipped(new_log_probs, old_log_probs, advantages, eps=0.2):
    ratio = torch.exp(new_log_probs - old_log_probs)
    clip = ratio.clamp(1 - eps, 1 + eps)
    return -torch.minimum(ratio * advantages, clip * advantages).mean()


class Holder:
    loss = staticmethod(clipped)


def test_settings_are_arguments_of_the_loss():
    assert configured(clipped) is clipped
    assert probe(configured(clipped, ["eps=0.3"])).match.parameters == {"eps": 0.3}


@pytest.mark.parametrize("setting", ["eps", "=3", "1=2"])
def test_a_setting_that_cannot_be_read_is_named(setting):
    with pytest.raises(KlipError, match=f"cannot read the setting '{setting}'; write name=value"):
        configured(clipped, [setting])


def test_a_method_has_a_path(capsys):
    assert load_loss(f"{__name__}:Holder.loss") is clipped
    with pytest.raises(KlipError, match=r"has no 'lose'; did you mean loss\?"):
        load_loss(f"{__name__}:Holder.lose")
    assert main(["probe", f"{__name__}:Holder.loss", "--settings", "eps=0.1"]) == 0
    assert "is clip(eps=0.1)" in capsys.readouterr().out
