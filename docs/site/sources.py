"""The repository's own pages, copied to where Sphinx reads, with their links made to fit.

A link between two pages stays as it is. A link to Python code leads to a page that shows the code,
one to a folder of figures to a page that shows them, and any other file is put beside the site.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
ALONE = ("examples/policy/README.md",)
"""Pages that the side of the site does not list."""
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """Every page that is copied, from its path in the repository to its path in the site."""
    found = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "results").rglob("*.md"))]
    found += [ROOT / "benchmarks/README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    found += [ROOT / "examples/policy/README.md"]
    named = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT).as_posix() for path in found}
    return {"README.md": "index.md", **named}


def copy_pages(source: Path, extra: Path) -> None:
    """Write all pages, and what they link to, into the two folders."""
    known = pages()
    linked: set[str] = set()
    for inside, target in known.items():
        text = (ROOT / inside).read_text(encoding="utf-8")
        text = outside_code(text, lambda part, inside=inside: fitted(part, inside, known, linked))
        orphan = "---\norphan: true\n---\n" if inside in ALONE else ""
        write(source / target, orphan + without_front_matter(text))
        for picture in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text):
            copy((ROOT / inside).parent / picture, source / Path(inside).parent / picture)
    for path in sorted(linked):
        if (ROOT / path).is_dir():
            write(source / f"{path}.md", listing(path, source, extra))
        elif path.endswith(".py"):
            code = (ROOT / path).read_text(encoding="utf-8")
            write(
                source / f"{path}.md",
                f"---\norphan: true\n---\n# {path}\n\n````python\n{code}````\n",
            )
        else:
            copy(ROOT / path, extra / path)


def fitted(text: str, inside: str, known: dict[str, str], linked: set[str]) -> str:
    """Markdown whose relative links lead to pages of the site; `linked` gets what they need."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = os.path.normpath(Path(inside).parent / target).replace(os.sep, "/")
        if (ROOT / path / "README.md").exists():
            path = f"{path}/README.md"
        if path in known:
            return f"[{words}]({relative(known[path], inside)}{anchor})"
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{inside} links to {target}, which is not there")
        if path.endswith(".ipynb"):
            return f"[{words}]({relative(path.removesuffix('.ipynb'), inside)}.md)"
        linked.add(path)
        if (ROOT / path).is_dir() or path.endswith(".py"):
            return f"[{words}]({relative(path, inside)}.md)"
        return f'<a href="{relative(path, inside)}">{words}</a>'

    return LINK.sub(link, text)


def relative(path: str, page: str) -> str:
    """The way from a page to a path, both from the root."""
    return os.path.relpath(path, Path(page).parent).replace(os.sep, "/")


def outside_code(text: str, change: object) -> str:
    """Text in which everything outside of fenced code is changed."""
    assert callable(change)
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def without_front_matter(text: str) -> str:
    """Markdown without the metadata that a model card begins with."""
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)


def listing(folder: str, source: Path, extra: Path) -> str:
    """A page of the pictures in a folder, with links to its other files."""
    lines = ["---", "orphan: true", "---", f"# {folder}", ""]
    files = sorted(path for path in (ROOT / folder).iterdir() if path.is_file())
    for path in (path for path in files if path.suffix == ".png"):
        others = [other for other in files if other.stem == path.stem and other != path]
        for each in others:
            copy(each, extra / folder / each.name)
        links = ", ".join(_beside(folder, each) for each in others)
        copy(path, source / folder / path.name)
        title = path.stem.replace("-", " ")
        lines += [f"## {title}", "", f"![{title}]({Path(folder).name}/{path.name})", "", links, ""]
    rest = [p for p in files if not any(p.stem == q.stem and q.suffix == ".png" for q in files)]
    for path in rest:
        copy(path, extra / folder / path.name)
    if rest:
        lines += ["## Tables", "", ", ".join(_beside(folder, path) for path in rest), ""]
    return "\n".join(lines)


def _beside(folder: str, path: Path) -> str:
    return f'<a href="{Path(folder).name}/{path.name}">{path.name}</a>'


def contents(groups: Mapping[str, Iterable[str]]) -> str:
    """The table of contents as MyST: a caption, and the pages below it."""
    blocks = []
    for caption, names in groups.items():
        listed = "\n".join(names)
        head = f":caption: {caption}\n:hidden:\n:maxdepth: 2"
        blocks.append(f"```{{toctree}}\n{head}\n\n{listed}\n```")
    return "\n\n".join(blocks) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(path: Path, to: Path) -> None:
    """Copy a file, and make the folders above it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)
