"""From folders back to configs: what has not ended, and nothing that executes code unasked."""

import dataclasses
import shutil

import pytest

from klip.cli import main
from klip.engine.job import read_job
from klip.engine.resume import code_in, read_jobs
from klip.errors import KlipError
from klip.ppo.config import Config
from klip.runs.store import METRICS, NEWEST, PREVIOUS
from klip.shapes.code import digest_of_code
from tests.runs.folders import make

SMALL = {"envs": 2, "rollout": 16, "steps": 128, "minibatch": 16, "hidden": (8,)}


def config(seed=0, **more):
    return Config(**{"task": "CartPole-v1", "seed": seed, **SMALL, **more})


def make_run(out, c, *args, **more):
    """Its folder, as a trainer leaves it."""
    return make(out, c.stored, *args, **more)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_what_is_not_done(tmp_path):
    """Those that diverged too, so that a command can say so."""
    make_run(tmp_path, config(0), 4, (2, 4), "done")
    make_run(tmp_path, config(1), 4, (2, 4), "diverged")
    make_run(tmp_path, config(2), 4, (2, 4), "failed")
    make_run(tmp_path, config(3), 4, (2,))
    make_run(tmp_path, config(4), 4, ())
    root, found = read_jobs(tmp_path)
    assert root == tmp_path.resolve()
    assert found == [config(1), config(2), config(3), config(4)]
    assert {c.id for c in found} == {config(s).id for s in (1, 2, 3, 4)}


def test_what_is_damaged_is_gone_on_with(tmp_path):
    """A finished run too, if one of its files has to be mended."""
    for seed, names in enumerate(([NEWEST], [METRICS], [NEWEST, PREVIOUS], [])):
        path = make_run(tmp_path, config(seed), 4, (2, 4), "done")
        for name in names:
            flip(path / name)
    assert read_jobs(tmp_path)[1] == [config(0), config(1), config(2)]


def test_from_any_folder_above_or_the_run_itself(tmp_path, monkeypatch):
    path = make_run(tmp_path, config(), 4, (2,))
    for folder in (tmp_path, path.parent.parent, path.parent, path):
        assert read_jobs(folder) == (tmp_path.resolve(), [config()])
    monkeypatch.chdir(tmp_path)
    assert read_jobs(path.relative_to(tmp_path)) == (tmp_path.resolve(), [config()])


def test_several_roots(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name, config(), 4, (2,))
    with pytest.raises(KlipError, match="several folders") as caught:
        read_jobs(tmp_path)
    assert "a, " in str(caught.value)
    assert read_jobs(tmp_path / "a")[0] == (tmp_path / "a").resolve()


@pytest.mark.parametrize(
    "fields", [{"shape": "evil.py:Mine"}, {"shape": "evil.py:Mine(a=1)"}, {"task": "evil:Env-v0"}]
)
def test_code_is_not_executed_unasked(tmp_path, monkeypatch, capsys, fields):
    """Somebody's folder can name any file: reading and listing it must not run that."""
    (tmp_path / "evil.py").write_text("open('executed', 'w').close()\nMine = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = {"shape": "code", "task": "task_code"}
    codes = {digests[name]: digest_of_code(text) for name, text in fields.items()}
    make_run(tmp_path / "runs", config(**codes, **fields), 4, (2,))
    with pytest.raises(KlipError, match="--run-code"):
        read_jobs(tmp_path / "runs")
    assert main(["resume", "runs"]) == 2
    err = capsys.readouterr().err
    assert "evil" in err
    assert err.count("\n") == 1
    assert main(["runs", "runs"]) == 0
    assert not (tmp_path / "executed").exists()
    # it is run, and is neither a shape nor an environment
    assert main(["resume", "runs", "--run-code"]) == 2
    assert (tmp_path / "executed").exists()


def test_a_finished_run_of_code_stands_in_nobodys_way(tmp_path):
    make_run(tmp_path, config(0, shape="evil.py:Mine"), 4, (2, 4), "done")
    make_run(tmp_path, config(1), 4, (2,))
    assert read_jobs(tmp_path)[1] == [config(1)]


def test_code_in():
    assert code_in({"task": "CartPole-v1", "shape": "clip(eps=0.2)"}) == ""
    assert "shape" in code_in({"task": "CartPole-v1", "shape": "by-sign(clip, my.py:A)"})
    assert "task" in code_in({"task": "mod:Env-v0", "shape": "clip"})


def test_nothing_to_resume(tmp_path):
    with pytest.raises(KlipError, match="there are no runs"):
        read_jobs(tmp_path)
    with pytest.raises(KlipError, match="there is no folder"):
        read_jobs(tmp_path / "none")
    make_run(tmp_path, config(), 4, (4,), "done")
    assert read_jobs(tmp_path) == (tmp_path.resolve(), [])


def test_configs_of_other_versions(tmp_path):
    fields = dataclasses.asdict(config())
    assert read_job(fields) == config()
    with pytest.raises(KlipError, match="differs in colour"):
        read_job({**fields, "colour": 1})
    del fields["gamma"]
    with pytest.raises(KlipError, match="differs in gamma"):
        read_job(fields)


@pytest.mark.parametrize(
    "fields",
    [{"lr": "fast"}, {"hidden": 5}, {"hidden": ["8"]}, {"epochs": None}, {"gamma": [1]},
     {"shape": "nothing(eps=1)"}, {"task": "Nothing-v9"}, {"minibatch": 0}],
)  # fmt: skip
def test_configs_that_mean_nothing(tmp_path, fields):
    """With a right checksum and a right id: a message, no traceback."""
    made = {**dataclasses.asdict(config()), "hidden": [8], **fields}
    make(tmp_path, made, 4, (2,))
    with pytest.raises(KlipError):
        read_jobs(tmp_path)


def test_a_run_that_was_moved_is_not_begun_again(tmp_path):
    """Its place follows from its config; from another one it would silently start anew."""
    path = make_run(tmp_path, config(), 4, (2,))
    moved = tmp_path / "CartPole-v1" / "elsewhere" / path.name
    moved.parent.mkdir()
    shutil.move(path, moved)
    with pytest.raises(KlipError, match="elsewhere"):
        read_jobs(tmp_path)
