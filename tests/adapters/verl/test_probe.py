"""The probe names verl's own losses, by their import paths."""

import pytest

from klip.adapters.stock import configured
from klip.cli import main
from klip.errors import KlipError
from klip.theory.probe import load_loss

PLACE = "verl.trainer.ppo.core_algos"


@pytest.mark.parametrize(
    ("loss", "settings", "found"),
    [
        ("vanilla", "", "dual-clip(eps=0.2, cap=3.0)"),
        ("vanilla", "clip_ratio_high=0.28 clip_ratio_c=1e9", "clip-higher(low=0.2, high=0.28)"),
        ("vanilla", "loss_agg_mode=seq-mean-token-mean", "dual-clip(eps=0.2, cap=3.0)"),
        ("gspo", "", "clip(eps=0.2) at the level sequence-mean"),
        ("gspo", "clip_ratio_low=3e-4 clip_ratio_high=4e-4",
         "clip(low=0.0003, high=0.0004) at the level sequence-mean"),
        ("geo_mean", "", "clip(low=0.181269, high=0.221403) at the level geometric-mean"),
        ("sapo", "", "sapo(tau_positive=1.0, tau_negative=1.05)"),
        ("cispo", "", "cispo(cap=1.2, floor=0.8)"),
        ("gpg", "", "reinforce"),
    ],
)  # fmt: skip
def test_it_names_them(loss, settings, found, capsys):
    given = ["--settings", *settings.split()] if settings else []
    assert main(["probe", f"{PLACE}:compute_policy_loss_{loss}", *given]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f") is {found} " in said
    assert ("sequence-level ratio" in said) == (loss in ("gspo", "geo_mean"))


def test_what_is_no_policy_loss_is_refused():
    with pytest.raises(KlipError, match="compute_rewards of verl is not a policy loss"):
        configured(load_loss(f"{PLACE}:compute_rewards"))
