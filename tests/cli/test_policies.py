"""`klip eval`, `video` and `export`, as one types them."""

import json
import warnings

import pytest

from klip.cli import main
from klip.policies import evaluate, export, load, read, video
from tests.policies.runs import write_run


def test_eval_prints_and_gives_json(runs, capsys):
    path = str(runs["CartPole-v1"])
    assert main(["eval", path, "--episodes", "4"]) == 0
    said = capsys.readouterr().out
    assert "CartPole-v1: 4 episodes, deterministic actions, seed 0" in said
    assert "by the time limit" in said
    assert main(["eval", path, "--episodes", "4", "--seed", "2", "--sampled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = evaluate(load(path), 4, 2, sampled=True).as_dict()
    assert {k: found[k] for k in expected} == expected
    assert found["shape"] == "clip(eps=0.2)"
    assert found["status"] == "done"
    assert found["notes"] == []


def test_eval_says_which_checkpoint_it_used(tmp_path, capsys):
    path = write_run(tmp_path, "CartPole-v1", saves=2)
    (path / "checkpoint.safetensors").write_bytes(b"half")
    assert main(["eval", str(path), "--episodes", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["iteration"] == 1
    assert "checkpoint.safetensors cannot be used" in err
    assert "the policy is that of iteration 1" in err


def test_video_writes_a_film_and_the_returns(runs, tmp_path, capsys):
    target = tmp_path / "film.gif"
    assert main(["video", str(runs["CartPole-v1"]), "-o", str(target), "--episodes", "2"]) == 0
    said = capsys.readouterr().out
    for episode in evaluate(load(runs["CartPole-v1"]), 2).episodes:
        assert (
            f"episode {episode.number}: return {episode.total:.1f}, {episode.length} steps" in said
        )
    assert f"wrote {target}" in said
    assert target.read_bytes().startswith(b"GIF89a")


def test_export_lists_what_it_wrote_and_what_not(runs, tmp_path, capsys):
    path, target = str(runs["CartPole-v1"]), tmp_path / "out"
    assert main(["export", path, "-o", str(target), "--episodes", "2"]) == 0
    said = capsys.readouterr().out
    assert f"wrote {target / 'policy.onnx'}" in said
    assert "its outputs differ from ours by" in said
    assert main(["export", path, "-o", str(target), "--no-onnx", "--force"]) == 0
    assert "not written: policy.onnx: it was not asked for" in capsys.readouterr().out
    assert main(["eval", str(target), "--episodes", "1"]) == 0


@pytest.mark.parametrize("command", ["eval", "video", "export"])
def test_a_mistake_is_one_line(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "nowhere")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("klip: there is no ")
    assert err.count("\n") == 1


def test_a_policy_is_taken_by_its_path_too(runs, tmp_path):
    """What the commands take, the functions take: a path, or what is read from it."""
    path = runs["CartPole-v1"]
    expected = evaluate(load(path), 2, 1)
    assert evaluate(path, 2, 1) == evaluate(str(path), 2, 1) == evaluate(read(path), 2, 1)
    assert evaluate(path, 2, 1) == expected
    film = video(path, tmp_path / "film.gif", 2, 1, seconds=0.1)
    assert film.episodes == expected.episodes
    made = export(path, tmp_path / "out", onnx=False, episodes=2, seed=1)
    assert made.result == expected


def test_a_path_whose_newest_checkpoint_is_damaged_is_a_warning(tmp_path):
    path = write_run(tmp_path, "CartPole-v1", saves=2)
    (path / "checkpoint.safetensors").write_bytes(b"half")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(path, 1)
    assert "checkpoint.safetensors cannot be used" in str(caught[0].message)
    assert {warning.filename for warning in caught} == {__file__}
