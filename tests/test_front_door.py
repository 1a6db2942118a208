"""`import klip` gives what people look for, and gives it as the command line does."""

import ast
import inspect
import io
import pkgutil
import pydoc
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import tyro

import klip
from klip.cli.commands import COMMANDS
from klip.shapes import Controller, Gate, Shape, Threshold, catalogue

PACKAGE = Path(klip.__file__).parent

OTHER_NAMES = {
    "eval": "evaluate",  # eval is Python's own
    "runs": "list_runs",  # klip.runs is the room
    "shapes": "catalogue",  # klip.shapes is the room
    "plans": "shipped_plans",
}
"""Commands whose function bears another name."""

NO_FUNCTION = {
    "bench": "runs a script of the checkout",
}
"""Commands that are no function at the front door, and why."""

OPTIONS_APART = {
    "as_json": "Python gets the value itself",
    "fields": "fields of the config are keyword arguments in Python",
}
"""Options of any command that its function need not have."""

SAID_ONLY = {
    ("run", "dry_run"),
    ("probe", "profile"),
    ("compare", "output"),
    ("league", "output"),
    ("league", "figures"),
    ("tune", "output"),
}
"""(command, option) that only changes what is printed or drawn: `klip.engine.finish.estimate`,
`Probe.profile`, `klip.draw.closing.closing`, `klip.pages.league.write` and `write_figures`,
`Tuned.plan` say it."""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_it_loads_nothing_heavy():
    heavy = {"jax", "torch", "matplotlib", "numpy", "gymnasium", "tyro", "polars"}
    done = python(
        f"import sys, klip\nloaded = {heavy!r} & sys.modules.keys()\n"
        "assert not loaded, loaded\n"
        "assert not [name for name in sys.modules if name.startswith('klip.')]\n"
    )
    assert done.returncode == 0, done.stderr


def test_shapes_need_no_framework():
    done = python(
        "import sys, klip\n"
        "assert str(klip.Clip(eps=0.3)) == 'clip(eps=0.3)'\n"
        "klip.AdaptiveKL(), klip.parse('ramp'), klip.Context\n"
        "assert not {'jax', 'torch', 'matplotlib'} & sys.modules.keys()\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [Shape, Controller, Gate, Threshold])
def test_every_shipped_value_is_there(kind):
    for cls in catalogue(kind).values():
        assert getattr(klip, cls.__name__) is cls
        assert cls.__name__ in klip.__all__


def test_every_name_leads_to_a_thing_of_that_name():
    pytest.importorskip("torch")
    for name in klip.__all__:
        value = getattr(klip, name)
        assert getattr(value, "__name__", "").rpartition(".")[2] == name
        assert value.__doc__, f"klip.{name} says nothing about itself"


def test_rooms_are_the_folders_and_no_name_hides_one():
    folders = {module.name for module in pkgutil.iter_modules([str(PACKAGE)]) if module.ispkg}
    assert folders - {"cli"} == klip._ROOMS
    modules = {module.name for module in pkgutil.iter_modules([str(PACKAGE)])}
    assert not modules & klip._homes().keys() - klip._ROOMS


def test_editors_are_told_the_same():
    """Every name of the table is in `__init__.pyi`, from the same module, and no other is."""
    told = {}
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "only `name as name` is given on"
                is_room = node.module == "klip"
                told[alias.name] = f"klip.{alias.name}" if is_room else node.module
    assert told == klip._homes(), "write it anew: python tests/test_front_door.py"


def test_completion_and_help_know_the_names():
    assert {"Clip", "train", "shapes", "__version__"} <= set(dir(klip))
    text = io.StringIO()
    pydoc.Helper(output=text).help(klip)
    for name in ("class Clip", "verify(", "Every trust region is one number per sample"):
        assert name in text.getvalue()


def test_without_pytorch_everything_else_is_there():
    done = python(
        "import importlib.abc, io, pydoc, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import klip\n"
        "assert 'token_loss' not in dir(klip) and 'tokens' not in klip.__all__\n"
        "pydoc.Helper(output=io.StringIO()).help(klip)\n"
        "try:\n"
        "    klip.token_loss\n"
        "except klip.KlipError as error:\n"
        "    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'klip-rl[torch]'" in done.stdout


@pytest.mark.parametrize(
    ("name", "meant"),
    [("clip", "Clip"), ("Adaptive_KL", "AdaptiveKL"), ("tran", "train"), ("Contex", "Context")],
)
def test_a_name_that_is_not_there_suggests_another(name, meant):
    with pytest.raises(AttributeError, match=rf"klip has no '{name}'; did you mean klip\.{meant}"):
        getattr(klip, name)


def test_a_name_that_is_like_no_other_points_to_the_list():
    with pytest.raises(AttributeError, match=r"klip has no 'xyzzy'; dir\(klip\) lists"):
        _ = klip.xyzzy


# -- the command line, from Python ------------------------------------------------------------


def function_of(command):
    return getattr(klip, OTHER_NAMES.get(command, command))


def options_of(command):
    """{name: (default, whether it is positional)} of a command's options."""
    hints = typing.get_type_hints(COMMANDS[command], include_extras=True)
    return {
        name: (parameter.default, tyro.conf.Positional in typing.get_args(hints[name]))
        for name, parameter in inspect.signature(COMMANDS[command]).parameters.items()
        if name not in OPTIONS_APART
    }


def differences(command):
    """The options of a command that its function does not take with the same default."""
    parameters = inspect.signature(function_of(command)).parameters
    different = set()
    for place, (name, (default, positional)) in enumerate(options_of(command).items()):
        parameter = parameters.get(name)
        if parameter is None and positional:  # where there is no dash, only the place counts
            parameter = [*parameters.values()][place]
        if parameter is None or _plain(parameter.default) != _plain(default):
            different.add(name)
    return different


def _plain(default):
    if default is None or default in ((), {}):
        return None
    if isinstance(default, tuple):
        return tuple(map(_plain, default))
    return str(default) if isinstance(default, Path) else default


def test_every_command_has_a_function_or_a_reason():
    names = klip._homes().keys() - klip._ROOMS
    missing = {command for command in COMMANDS if OTHER_NAMES.get(command, command) not in names}
    assert missing == NO_FUNCTION.keys()
    assert OTHER_NAMES.keys() <= COMMANDS.keys()


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - NO_FUNCTION.keys()))
def test_a_function_has_the_options_of_its_command(command):
    said = {option for name, option in SAID_ONLY if name == command}
    assert differences(command) == said


def test_the_module_runs_as_the_command():
    line = [sys.executable, "-m", "klip", "profile", "clip", "--json"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"anchor"' in done.stdout


def stub():
    """`klip/__init__.pyi`: every name of the front door, from its module."""
    homes = {**klip._homes(), **dict.fromkeys(klip._ROOMS, "klip")}
    lines = [f"from {home} import {name} as {name}" for name, home in homes.items()]
    about = '"""What `import klip` gives, for editors and type checkers; `__init__.py` is lazy."""'
    return "\n".join([about, "", *sorted(lines), "", "__version__: str", ""])


if __name__ == "__main__":
    (PACKAGE / "__init__.pyi").write_text(stub(), encoding="utf-8")
