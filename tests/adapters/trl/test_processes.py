"""Two processes train as TRL's do, and what they saw is put together."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from klip.theory.diagnostics import QUANTILES
from tests.test_docs import ROOT


def test_two_processes_train_as_trls_and_log_as_one(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    script = ["-m", "tests.adapters.trl.two_processes", str(tmp_path)]
    done = subprocess.run(
        [*command, *script],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one, other = (json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2))
    ratios = np.array(one.pop("tokens") + other.pop("tokens"))
    assert one == other
    assert one["processes"] == 2
    assert one["difference"] < 1e-5
    assert one["own"] == pytest.approx(one["its"], abs=1e-6)
    assert min(one["own"][1:]) > 0.05
    assert one["sequences"] == [64.0] * 4  # both processes' 32
    pooled = one["pooled"]
    assert pooled["klip/tokens"] == ratios.size
    assert pooled["klip/sequences"] == 4 * 64
    wanted = {"max": ratios.max(), "min": ratios.min(), "std": ratios.std()}
    wanted |= {f"p{q:02d}": np.percentile(ratios, q) for q in QUANTILES}
    for name, value in wanted.items():
        assert pooled[f"klip/ratio_{name}"] == pytest.approx(value, rel=1e-5), name
