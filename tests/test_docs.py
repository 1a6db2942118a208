"""What the pages say is run, and what they show is there."""

import functools
import re
import shlex
from pathlib import Path

import pytest
import tyro

from klip.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
HABITS = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(?:bash|sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^klip (?:.*\\\n)*.*$", re.MULTILINE)
EVIDENCE = [*sorted((ROOT / "results").rglob("*.md")), ROOT / "benchmarks" / "README.md"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_there_are_pages():
    assert {"idea.md", "writing-a-shape.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_blocks_run_in_order(page, monkeypatch):
    if page.stem in ("trl", "verl"):  # in an environment of its own, by tests/adapters/
        pytest.importorskip(page.stem)
    monkeypatch.chdir(ROOT)  # commands and paths on the pages are those of a checkout
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": f"docs_{page.stem.replace('-', '_')}"}
    blocks = list(BLOCK.finditer(text))
    assert blocks, "a page without code that runs cannot be checked"
    for found in blocks:
        line = text.count("\n", 0, found.start(1))
        source = "\n" * line + found[1]  # a failure then names the page's own line
        exec(compile(source, str(page), "exec"), names)


def command_lines():
    """Each command on a page, with the place where it stands."""
    for page in [*PAGES, *HABITS, *EVIDENCE]:
        text = page.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            for found in COMMAND.finditer(fence[1]):
                line = text.count("\n", 0, fence.start(1) + found.start()) + 1
                where = f"{page.relative_to(ROOT).as_posix()}:{line}"
                plain = re.sub(r"\s#.*", "", found[0].replace("\\\n", " "))
                for each in plain.split("; "):
                    yield pytest.param(each, id=where)


@pytest.mark.parametrize("line", [*command_lines()])
def test_a_command_on_a_page_is_understood(line):
    """Its options are there, and take what they are given; nothing is run."""
    _, name, *words = shlex.split(re.split(r" [|>&] ", line)[0])

    @functools.wraps(COMMANDS[name])
    def heard(**options):
        return options

    assert tyro.cli(heard, args=words, config=(tyro.conf.FlagCreatePairsOff,)) is not None


@pytest.mark.parametrize("page", [*PAGES, *HABITS], ids=lambda page: page.stem)
def test_what_a_page_links_to_exists(page):
    text = page.read_text(encoding="utf-8")
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert missing == []


def test_the_example_file_is_the_one_on_the_page():
    example = (ROOT / "examples" / "my_shapes.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "writing-a-shape.md").read_text(encoding="utf-8")
    shown = BLOCK.search(page)
    assert shown is not None
    assert example.endswith(shown[1])
