"""What every file keeps to: a test file of its own, a size that can be read, one name a thing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for path in (ROOT / "klip").rglob("*/*.py") if not path.stem.startswith("__"))
SOURCES = sorted(
    path
    for folder in ("klip", "tests", "benchmarks", "examples", "docs")
    for path in (ROOT / folder).rglob("*.py")
)

LONGEST_FILE = 400
LONGEST_FUNCTION = 60

TESTED_ELSEWHERE = {
    "adapters/rllib": "tests/adapters/rllib/test_rllib.py",
    "adapters/torchrl": "tests/adapters/torchrl/test_torchrl.py",
    "adapters/trl": "tests/adapters/trl/test_gradients.py",
    "adapters/trl_async": "tests/adapters/trl/test_async.py",
    "adapters/trl_batch": "tests/adapters/trl/test_batch.py",
    "adapters/trl_keeping": "tests/adapters/trl/test_keeping.py",
    "adapters/trl_record": "tests/adapters/trl/test_record.py",
    "adapters/trl_settings": "tests/adapters/trl/test_settings.py",
    "adapters/trl_stock": "tests/adapters/trl/test_stock.py",
    "adapters/trl_watch": "tests/adapters/trl/test_watch.py",
    "adapters/trl_window": "tests/adapters/trl/test_windows.py",
    "adapters/verl": "tests/adapters/verl/test_verl.py",
    "adapters/verl_batch": "tests/adapters/verl/test_batch.py",
    "adapters/verl_keeping": "tests/adapters/verl/test_keeping.py",
    "adapters/verl_watch": "tests/adapters/verl/test_watch.py",
    "shapes/hard": "tests/shapes/test_every_shape.py",
    "shapes/penalties": "tests/shapes/test_every_shape.py",
    "shapes/soft": "tests/shapes/test_every_shape.py",
    "shapes/stateful": "tests/shapes/test_every_shape.py",
    "shapes/weights": "tests/shapes/test_every_shape.py",
}
"""Modules whose tests have another place: an environment of their own, or one law for all."""

LONG_FUNCTIONS = {
    ("examples/cleanrl_style.py", "train"),  # such a script reads top to bottom
    ("klip/adapters/prime_rl.py", "loss"),
    ("klip/adapters/tinker.py", "loss"),
    ("klip/tokens/loss.py", "token_loss"),
    # one compiled program: its steps are closures over what was chosen when it was built
    ("klip/ppo/update.py", "epochs"),
}
"""Functions above the limit, docstring and all."""


def name_of(path):
    return path.relative_to(ROOT / "klip").with_suffix("").as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_its_test_file(path):
    name = name_of(path)
    here = (ROOT / "tests" / name).with_name(f"test_{path.stem}.py").exists()
    if name in TESTED_ELSEWHERE:
        assert (ROOT / TESTED_ELSEWHERE[name]).exists()
        assert not here, "strike it from TESTED_ELSEWHERE"
        return
    assert here, "write its test file"


def test_the_lists_of_exceptions_name_modules_that_exist():
    names = {name_of(path) for path in MODULES}
    assert names >= TESTED_ELSEWHERE.keys()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_can_be_read(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_FILE, "a file that outgrows the limit is two files"
    name = str(path.relative_to(ROOT))
    long = {
        (name, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert long == {entry for entry in LONG_FUNCTIONS if entry[0] == name}


def test_one_name_is_one_class():
    homes = defaultdict(set)
    for path in (ROOT / "klip").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(str(path.relative_to(ROOT)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_the_files_that_contributors_are_sent_to_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:klip|tests|benchmarks)/[\w/.]+)`", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_hooks_run_what_the_tests_run():
    """`make style`, which `make test` begins with, and the hooks before a commit are the same."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    style = re.search(r"^style:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in style.splitlines()]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^ +entry: (.*)$", hooks, re.MULTILINE) == commands
    assert "repo: local" in hooks
    assert not re.search(r"repo: (?!local)", hooks), "a hook must need no network"
    assert re.search(r"^test: style\b", makefile, re.MULTILINE)
