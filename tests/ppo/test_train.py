"""Many runs with one call: workers, folders, results."""

import json

import klip
from klip.ppo.train import plan
from klip.studies.identities import comparisons
from klip.studies.reading import read_study

SMALL = {"rollout": 32, "steps": 384, "minibatch": 24, "epochs": 3}


def files(results):
    return {
        (r.config.shape, r.config.seed): [
            (r.path / name).read_bytes() for name in ("checkpoint.safetensors", "metrics.jsonl")
        ]
        for r in results
    }


def test_one_worker_or_two(tmp_path):
    """The same bytes in every folder, in any order; and clip and per-sample are one."""
    shapes = ["clip", "per-sample", "spo"]
    one = klip.train("CartPole-v1", shapes, 2, workers=1, out=tmp_path / "one", **SMALL)
    two = klip.train("CartPole-v1", shapes[::-1], [1, 0], workers=2, out=tmp_path / "two", **SMALL)
    assert files(one) == files(two)
    assert all(r.status == "done" for r in one)
    heard = []
    again = klip.train(
        "CartPole-v1", shapes, 2, out=tmp_path / "one", progress=heard.append, **SMALL
    )
    assert [news.status for news in heard] == ["done"] * 6
    assert files(again) == files(one)
    seeds = comparisons(read_study(tmp_path / "one"))
    assert [(c.seed, list(c.runs), c.verdict) for c in seeds] == [
        (seed, ["clip", "per-sample"], "identical") for seed in range(2)
    ]


def test_a_run_that_diverges_is_reported(tmp_path):
    """An absurd step size: a reason, in the result and on disk."""
    results = klip.train("CartPole-v1", ["is"], 2, workers=1, out=tmp_path, lr=1e30, **SMALL)
    assert {r.status for r in results} == {"diverged"}
    assert "not finite" in results[0].reason
    status = json.loads((results[0].path / "status.json").read_text())
    assert status["status"] == "diverged"


def test_a_plan_varies_seeds_fastest():
    made = plan("CartPole-v1", ["clip", "spo"], 2)
    assert [(c.shape, c.seed) for c in made] == [
        ("clip(eps=0.2)", 0), ("clip(eps=0.2)", 1), ("spo(eps=0.2)", 0), ("spo(eps=0.2)", 1),
    ]  # fmt: skip
