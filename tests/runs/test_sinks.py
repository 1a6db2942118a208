"""The numbers that sinks are given, and an extra that is missing."""

import sys

import pytest

from klip.errors import KlipError
from klip.runs.sinks import scalars, sync
from tests.runs.synced import row


def test_tags():
    """Grouped; a number for each quantile and epoch; None is skipped, and is never 0."""
    found = scalars(row(1))
    assert found["partition/kill_positive"] == 0.1
    assert found["update/grad_norm"] == 1.1
    assert found["return/return_mean"] == 10 + 1 / 3
    assert found["beta/beta_p05"] == row(1)["beta"][1]
    assert found["epoch/kill_02"] == 0.1
    assert not any(tag in found for tag in ("epoch/kill_03", "beta/beta_kill_p50", "update/step"))
    assert "return/return_mean" not in scalars(row(3))
    assert scalars({"a": "text", "b": {"c": 1}, "d": 10**400, "lr": True}) == {"update/lr": 1.0}


@pytest.mark.parametrize("extra", ["tensorboard", "wandb"])
def test_an_extra_that_is_missing(tmp_path, monkeypatch, extra):
    monkeypatch.delitem(sys.modules, "klip.runs.sink_tensorboard", raising=False)
    monkeypatch.delattr("klip.runs.sink_tensorboard", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == extra]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(KlipError, match=rf'pip install "klip-rl\[{extra}\]"'):
        sync(tmp_path, extra)
