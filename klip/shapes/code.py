"""Code that users name in a spelling: `my_shapes.py:MyShape`, `package.module:MyShape`.

It is imported only where it is named, and known by what it means: `digest_of_code` is the same for
the same code with other comments.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from klip.errors import KlipError

OWN = re.compile(r"(?P<place>[^\s()*+=,:'\"]+):(?P<name>[A-Za-z_]\w*)")
"""A user's class in a spelling: the file or module, and the class's name."""

USERS = "klip_user_"
"""How the names of modules begin that are users' files."""


def importable(folder: Path) -> None:
    """Let Python import from a folder in which the user named code, after all other folders.

    Klip imports nothing from the working folder otherwise; and no file there can take the place
    of a library.
    """
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def load_module(place: str) -> ModuleType:
    """The module at `place`, a path that ends in .py or a dotted name."""
    try:
        if not place.endswith(".py"):
            importable(Path.cwd())
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise KlipError(f"there is no file {place}; give a path to a .py file")
        importable(path.parent)  # for what it imports from beside it, later
        name = f"{USERS}{path.stem}_{abs(hash(path))}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                with _first_on_path(path.parent):
                    spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[name]
                raise
        return sys.modules[name]
    except KlipError:
        raise
    except (Exception, SystemExit) as error:
        raise KlipError(
            f"{place} does not import ({type(error).__name__}: {error}); "
            f"make `python {place if place.endswith('.py') else '-m ' + place}` run first"
        ) from error


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """Import from a file's folder first, as `python file.py` does, while the file itself is read.

    Neighbours of the same name that a file in another folder has imported are imported anew.
    """
    for name in [name for name in sys.modules if _is_neighbour_elsewhere(name, folder)]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))  # the first of them


def _homes() -> set[Path]:
    """The folders of users' files that have been imported."""
    users = [module for name, module in sys.modules.items() if name.startswith(USERS)]
    return {Path(module.__file__ or "").parent for module in users}


def _is_neighbour_elsewhere(name: str, folder: Path) -> bool:
    """Whether the module lies beside a user's file in another folder, and `folder` has one too."""
    root = name.partition(".")[0]
    if not ((folder / f"{root}.py").is_file() or (folder / root).is_dir()):
        return False
    file = Path(getattr(sys.modules[name], "__file__", None) or "")
    homes = _homes() - {folder}
    return any(file == home / f"{root}.py" or home / root in file.parents for home in homes)


def digest_of_code(shape: str) -> str:
    """12 hex digits that stand for what the code means that a spelling names, or "".

    Comments, docstrings and layout are no part of it; modules that lie beside a file and are
    imported by it are.
    """
    paths = [_path_of(match["place"]) for match in OWN.finditer(shape)]
    meaning: dict[Path, str] = {}
    for path in paths:
        _add_meaning(path, meaning)
    if not meaning:
        return ""
    text = "\n".join(meaning[path] for path in sorted(meaning, key=lambda path: path.name))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _path_of(place: str) -> Path:
    if place.endswith(".py"):
        return Path(place)
    importable(Path.cwd())
    spec = importlib.util.find_spec(place)
    return Path((spec.origin if spec is not None else None) or place)


def _add_meaning(path: Path, meaning: dict[Path, str]) -> None:
    """The code of a file and of the modules beside it that it imports, without what says nothing."""
    if path in meaning or not path.is_file():
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        meaning[path] = path.read_bytes().hex()
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = isinstance(node.body[0], ast.Expr) if node.body else False
            if text and ast.get_docstring(node, clean=False) is not None:
                node.body[0] = ast.Pass()
    meaning[path] = ast.unparse(tree)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            _add_meaning(path.with_name(f"{name.split('.')[0]}.py"), meaning)
