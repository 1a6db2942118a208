"""The command: on all cores, killed at any time, and going on to the same bytes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from klip.cli import tokens
from klip.errors import KlipError
from klip.lab.plan import read_plan
from klip.lab.running import Keeping, is_done
from klip.lab.warmup import read_warmup, warmup_path
from klip.runs import read_run

BEGIN = "from pathlib import Path; from klip.cli.tokens import run; "


def begun(plan_file, out):
    call = (
        f"run({str(plan_file)!r}, out=Path({str(out)!r}), seeds=1, workers=1, checkpoint_every=0)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + call], stdout=subprocess.DEVNULL, start_new_session=True
    )


def test_killed_and_begun_again_ends_with_the_same_bytes(plan_file, trained, tmp_path):
    (tmp_path / "warm-up").symlink_to(trained / "warm-up")
    keeping = Keeping(tmp_path)
    first, *others = read_plan(plan_file).only(seeds=1).configs
    process = begun(plan_file, tmp_path)
    try:
        until = time.monotonic() + 300
        while not (keeping.path(first) / "checkpoint.safetensors").exists():
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not all(is_done(c, keeping) for c in others)
    assert tokens.run(str(plan_file), out=tmp_path, seeds=1, workers=1) == 0
    for c in (first, *others):
        one, two = read_run(keeping.path(c)), read_run(Keeping(trained).path(c))
        assert one.digest() == two.digest()
        texts = [(record.path / "metrics.jsonl").read_bytes() for record in (one, two)]
        assert texts[0] == texts[1]


def test_what_is_done_is_not_repeated(plan_file, trained, capsys):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")}
    assert tokens.run(str(plan_file), out=trained, workers=1) == 0
    assert "0 of 10 runs to do" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")}


def test_a_damaged_warm_up_is_named(home, tmp_path):
    w = read_plan("scratchpad").warmups[0]
    path = warmup_path(tmp_path, w)
    path.parent.mkdir()
    path.write_bytes(b"nothing")
    with pytest.raises(KlipError, match=path.name):
        read_warmup(path, w)
    assert not is_done(w, Keeping(tmp_path))


def test_mistakes_in_the_command_are_named(tmp_path, plan_file):
    with pytest.raises(KlipError, match="--checkpoint-every -1"):
        tokens.run(str(plan_file), out=tmp_path, checkpoint_every=-1)
    with pytest.raises(KlipError, match="workers=99"):
        tokens.run(str(plan_file), out=tmp_path, workers=99)
    with pytest.raises(KlipError, match=r"must end in \.html"):
        tokens.report(tmp_path, output=tmp_path / "page.pdf")


def test_report_and_pack_write_what_they_say(trained, tmp_path, capsys):
    tokens.report(trained, output=tmp_path / "page.html")
    tokens.pack(trained, output=tmp_path / "packed")
    tokens.report(tmp_path / "packed", output=tmp_path / "again.html")
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "again.html").read_bytes()
    assert "wrote" in capsys.readouterr().out


def test_plans_are_listed(capsys):
    tokens.plans(as_json=True)
    assert '"runs": 50' in capsys.readouterr().out
    tokens.plans()
    assert "scratchpad" in capsys.readouterr().out


def test_the_page_needs_no_pytorch_and_a_run_says_that_it_does(plan_file, trained, tmp_path):
    """A packed experiment can be looked at where only the core is installed."""
    script = f"""
import sys
from pathlib import Path
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from klip.cli import tokens
from klip.errors import KlipError
tokens.report(Path({str(trained)!r}), output=Path({str(tmp_path / "page.html")!r}))
try:
    tokens.run({str(plan_file)!r})
except KlipError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "klip[torch]" in done.stdout
    assert (tmp_path / "page.html").stat().st_size > 100_000
