"""Many runs with one call: workers, folders, the command."""

import json

import pytest

import klip
from klip.cli import main
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


def test_the_command(tmp_path, capsys):
    out = tmp_path / "runs"
    args = ["train", "CartPole-v1", "--shape", "clip", "spo(eps=0.3)", "--seeds", "1", "--steps",
            "1024", "--minibatch", "32", "--epochs", "2", "--out", str(out)]  # fmt: skip
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "spo(eps=0.3)" in text
    assert str(out) in text
    (path,) = out.glob("CartPole-v1/spo_eps=0.3/seed-0-*")
    config = json.loads((path / "config.json").read_text())
    assert config["minibatch"] == 32
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [512, 1024]
    for key in ("return_mean", "return_iqm", "length_mean", "episodes", "kill", "beta", "lr",
                "killed_mass", "kl", "k1", "k3", "entropy", "grad_norm", "policy_grad_norm",
                "explained_variance", "value_loss", "ratio_max"):  # fmt: skip
        assert key in rows[0]
    assert len(rows[0]["beta"]) == 9
    assert json.loads((path / "status.json").read_text())["status"] == "done"
    assert main(["report", str(out), "-o", str(tmp_path / "report.html"), "--page-only"]) == 0


def test_a_run_that_diverges_is_reported(tmp_path, capsys):
    """An absurd step size: exit code 1, a reason, and the others are done."""
    results = klip.train("CartPole-v1", ["is"], 2, workers=1, out=tmp_path, lr=1e30, **SMALL)
    assert {r.status for r in results} == {"diverged"}
    assert "not finite" in results[0].reason
    status = json.loads((results[0].path / "status.json").read_text())
    assert status["status"] == "diverged"
    code = main(["train", "CartPole-v1", "--seeds", "1", "--lr", "1e30", "--steps", "1024",
                 "--out", str(tmp_path / "b")])  # fmt: skip
    assert code == 1
    assert "diverged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["CartPol-v1"], "CartPole"),
        (["CartPole-v1", "--steps", "10"], "less than one rollout"),
        (["CartPole-v1", "--minibatch", "4096"], "larger than a rollout"),
        (["CartPole-v1", "--shape", "position-aware"], "needs length"),
        (["CartPole-v1", "--shape", "clap"], "did you mean clip"),
        (["CartPole-v1", "--seeds", "0"], "nothing to train"),
        (["CartPole-v1", "--shape", "clip", "clip(eps=0.2)"], "named twice"),
        (["CartPole-v1", "--workers", "999"], "must lie between 1 and"),
    ],
)
def test_mistakes_are_told_before_anything_starts(args, message, tmp_path, capsys):
    assert main(["train", *args, "--out", str(tmp_path / "never")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "never").exists()


def test_a_plan_varies_seeds_fastest():
    made = plan("CartPole-v1", ["clip", "spo"], 2)
    assert [(c.shape, c.seed) for c in made] == [
        ("clip(eps=0.2)", 0), ("clip(eps=0.2)", 1), ("spo(eps=0.2)", 0), ("spo(eps=0.2)", 1),
    ]  # fmt: skip
