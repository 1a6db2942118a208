"""Imports point one way: each room imports only those that the map lets it import."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "klip"

MAY_IMPORT = {
    "disk": "",
    "shapes": "",
    "tasks": "shapes engine",
    "runs": "disk theory",
    "theory": "shapes",
    "tokens": "shapes theory",
    "engine": "disk shapes runs",
    "ppo": "shapes theory tasks runs engine",
    "lab": "shapes theory tokens runs engine",
    "studies": "disk shapes runs engine ppo",
    "draw": "disk shapes theory runs studies",
    "pages": "disk shapes theory runs studies draw",
    "policies": "disk shapes tasks runs engine ppo draw",
    "adapters": "shapes theory tokens runs draw",
}
"""Which rooms a room may import; `klip.errors` is everybody's, and `cli` may import every room."""

ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
COMMON = {"errors", "__version__"}


def allowed(room):
    if room == "cli":
        return set(MAY_IMPORT)
    return set(MAY_IMPORT[room].split())


def imports(path):
    """[(line, room)] of every import of a module of Klip's, wherever in the file it stands."""
    rooms = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports from klip. on"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        parts = [name.split(".") for name in names]
        rooms += [(node.lineno, part[1]) for part in parts if part[0] == "klip" and len(part) > 1]
    return rooms


def test_every_room_is_on_the_map():
    assert set(ROOMS) <= {*MAY_IMPORT, "cli"}, "give the new room a line in MAY_IMPORT"


def test_the_map_has_no_circle():
    graph = {room: others.split() for room, others in MAY_IMPORT.items()}
    assert set(TopologicalSorter(graph).static_order()) == set(MAY_IMPORT)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room):
    known = {room, *COMMON, *allowed(room)}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports klip.{other}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for line, other in imports(path)
        if other not in known
    ]
    assert wrong == []


def test_only_the_front_door_and_the_errors_stand_outside_the_rooms():
    files = {path.name for path in PACKAGE.glob("*.py*")}
    assert files == {"__init__.py", "__init__.pyi", "__main__.py", "errors.py"}
    assert imports(PACKAGE / "__init__.py") == imports(PACKAGE / "errors.py") == []


@pytest.mark.parametrize("room", sorted({*ROOMS} - {"cli"}))
def test_a_room_says_what_it_knows(room):
    """`Knows shapes and theory; ...` in its `__init__`: what it imports, no more than it may."""
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8")))
    sentence = re.search(r"\b[Kk]nows ([^.;]*)[.;]", text)
    assert sentence is not None, "say which rooms it knows: `Knows shapes and theory; ...`"
    rooms = {word for word in re.findall(r"\w+", sentence[1]) if word in MAY_IMPORT}
    files = sorted((PACKAGE / room).rglob("*.py"))
    imported = {other for path in files for _, other in imports(path)}
    assert imported & set(MAY_IMPORT[room].split()) <= rooms <= set(MAY_IMPORT[room].split())


def test_the_map_of_the_code_shows_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`klip/(\w+)/`", text)) == set(ROOMS)
