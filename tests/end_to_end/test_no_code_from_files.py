"""A policy, a run or a config from a stranger is data: nothing in it can run."""

import ast
import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

import klip
from klip.cli import main
from klip.errors import KlipError
from klip.ppo.config import Config
from klip.runs.checkpoint import Checkpoint, encode
from klip.tasks import Discrete
from tests.policies.runs import arrays_of

ROOT = Path(klip.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve",
           "code", "codeop", "runpy", "yaml"}  # fmt: skip
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
METHODS = {("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("np", "load"),
           ("numpy", "load"), ("pd", "read_pickle"), ("os", "system"), ("os", "popen")}  # fmt: skip
IMPORTS = {"import_module", "exec_module", "spec_from_file_location", "module_from_spec"}
MAY_IMPORT = {
    "engine/job.py": "a kind of job, each in a module that is written there",
    "engine/plan.py": "a kind of plan in stages, likewise",
    "__init__.py": "Klip's own names, each from a module that is written there",
    "runs/sinks.py": "a sink, by one of the names that are written there",
    "shapes/code.py": "a user's own shape, which they name on the command line",
}


def findings(source):
    """What in a piece of Python could turn data into code, with its line."""
    tree = ast.parse(source)
    # `import_module("numpy")` is an `import`: what it loads is written there
    written = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and [type(a) for a in node.args] == [ast.Constant]
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = [a.name for a in names if a.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=module) if module and module.split(".")[0] in MODULES:
                found = [module]
            case ast.ImportFrom(names=names):
                found = [a.name for a in names if a.name in IMPORTS]
            case ast.Name(id=name) if name in CALLS:
                found = [name]
            case ast.Attribute(attr="import_module") if id(node) in written:
                found = []
            case ast.Attribute(attr=name) if name in IMPORTS:
                found = [name]
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in METHODS:
                found = [f"{owner}.{name}"]
            case ast.keyword(arg="allow_pickle" | "shell"):
                found = [node.arg]
            case _:
                found = []
        for name in found:
            yield name, getattr(node, "lineno", 0)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_of_klip_can_run_data(path):
    place = path.relative_to(ROOT).as_posix()
    found = list(findings(path.read_text(encoding="utf-8")))
    if place in MAY_IMPORT:
        found = [(name, line) for name, line in found if name not in IMPORTS]
    assert found == []


def test_those_that_may_import_do():
    for place in MAY_IMPORT:
        found = {name for name, _ in findings((ROOT / place).read_text(encoding="utf-8"))}
        assert found & IMPORTS, f"{place} no longer needs its exception"


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from marshal import loads", "import yaml", "eval('1')", "exec(x)",
        "compile(x, '', 'exec')", "__import__('os')", "torch.load(f)", "np.load(f)",
        "numpy.load(f, allow_pickle=True)", "load(f, allow_pickle=True)", "os.system(x)",
        "importlib.import_module(x)", "from importlib import import_module", "run(x, shell=True)",
        "spec.loader.exec_module(m)", "f = eval", "import shelve as s",
    ],
)  # fmt: skip
def test_the_walk_sees(line):
    assert list(findings(line))


# -- a checkpoint from a stranger -------------------------------------------------------------


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """Modules that leave a mark when they are imported, wherever one would look for them."""
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w').close()\n"
    for name in ("evil.py", "evilmod.py"):
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield marker
    assert "evilmod" not in sys.modules


def stranger(path, **fields):
    """A checkpoint with a right checksum, a policy for CartPole, and a config of one's choice."""
    config = dataclasses.asdict(Config(task="CartPole-v1", hidden=(8,), rollout=16, steps=16))
    config |= {"hidden": [8], **fields}
    arrays = arrays_of({"hidden": (8,)}, 4, Discrete(2))
    path.write_bytes(encode(Checkpoint(config, 1, arrays, status="done")))
    return path


NAMES = {
    "a file's shape": {"shape": "evil.py:X"},
    "a module's shape": {"shape": "evilmod:X(a=1)"},
    "a module's task": {"task": "evilmod:X-v0"},
    "a module's known task": {"task": "evilmod:CartPole-v1"},
    "a path": {"task": "../../../etc/passwd", "shape": "../../evil.py"},
    "markup": {"task": "<script>alert(1)</script>", "shape": "[bold]<img src=x>"},
    "an expression": {"shape": "__import__('evilmod')"},
}


@pytest.mark.parametrize("fields", NAMES.values(), ids=NAMES)
def test_a_strangers_checkpoint_runs_nothing(trap, tmp_path, fields, capsys):
    path = stranger(tmp_path / "gift.safetensors", **fields)
    policy = klip.load(path)
    assert policy.act(np.zeros(4)) in (0, 1)
    code = main(["eval", str(path), "--episodes", "1"])
    assert code == (2 if "task" in fields else 0)
    assert main(["video", str(path), "-o", str(tmp_path / "film.gif")]) == code
    assert main(["export", str(path), "-o", str(tmp_path / "a")]) == code
    assert main(["export", str(path), "-o", str(tmp_path / "b"), "--episodes", "0"]) == 0
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    card = (tmp_path / "b" / "README.md").read_text()
    assert "<script" not in card
    assert "<img" not in card
    assert not trap.exists()
    kept = {"a", "b", "film.gif", "gift.safetensors", "evil.py", "evilmod.py", "__pycache__"}
    assert {p.name for p in tmp_path.iterdir()} <= kept, "it wrote elsewhere"


@pytest.mark.parametrize(
    "name", ["\x1b[31mred", "a\nb", "bell\x07", "\u202eback", "x" * 1000, 3, None]
)
@pytest.mark.parametrize("field", ["task", "shape"])
def test_a_name_that_cannot_be_shown_is_refused(tmp_path, field, name):
    path = stranger(tmp_path / "gift.safetensors", **{field: name})
    with pytest.raises(KlipError, match="cannot be used") as caught:
        klip.load(path)
    assert str(caught.value).isprintable()


def test_a_folder_that_calls_itself_a_run_runs_nothing(trap, tmp_path, capsys):
    point = klip.runs.checkpoint.read(stranger(tmp_path / "gift", shape="evil.py:X"))
    folder = tmp_path / f"seed-0-{point.id}"
    folder.mkdir()
    (tmp_path / "gift").rename(folder / "checkpoint.safetensors")
    assert klip.load(folder).config["shape"] == "evil.py:X"
    assert main(["eval", str(folder), "--episodes", "1"]) == 0
    assert not trap.exists()
