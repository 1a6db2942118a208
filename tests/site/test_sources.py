"""Links of the repository's pages fit the site, and one that leads nowhere is an error."""

import pytest
from sources import ROOT, contents, fitted, listing, outside_code, pages, without_front_matter


def fit(text, inside="docs/idea.md"):
    linked = set()
    return fitted(text, inside, pages(), linked), linked


def test_a_link_to_a_page_stays_and_the_readme_is_the_front_page():
    assert fit("[a](training.md#tasks)") == ("[a](training.md#tasks)", set())
    assert fit("[a](../README.md)") == ("[a](../index.md)", set())
    assert fit("[a](../results/paper)") == ("[a](../results/paper/README.md)", set())


def test_other_files_come_along():
    assert fit("[`x`](../examples/my_loss.py)") == (
        "[`x`](../examples/my_loss.py.md)",
        {"examples/my_loss.py"},
    )
    text, linked = fit("[figures/](figures)", "results/paper/README.md")
    assert (text, linked) == ("[figures/](figures.md)", {"results/paper/figures"})
    text, linked = fit("[page](report.html)", "results/paper/README.md")
    assert (text, linked) == ('<a href="report.html">page</a>', {"results/paper/report.html"})


def test_a_notebook_is_a_page():
    (name,) = [p.stem for p in (ROOT / "docs/notebooks").glob("02-*.ipynb")]
    assert fit(f"[a](notebooks/{name}.ipynb)") == (f"[a](notebooks/{name}.md)", set())


def test_the_web_pictures_and_places_on_the_page_are_left_alone():
    for text in ("[a](https://x.org)", "[a](#here)", "![a](figures/morph.png)"):
        assert fit(text) == (text, set())


def test_a_link_that_leads_nowhere_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"docs/idea.md links to nowhere.md"):
        fit("[a](nowhere.md)")


def test_code_is_not_changed():
    text = "a\n```python\na\n```\na\n"
    assert outside_code(text, lambda part: part.replace("a", "b")) == "b\n```python\na\n```\nb\n"


def test_every_page_of_the_repository_is_there():
    on_disk = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert on_disk | {"README.md", "CHANGELOG.md", "benchmarks/README.md"} <= pages().keys()


def test_a_folder_of_figures_is_a_page(tmp_path):
    text = listing("results/tokens/figures", tmp_path / "source", tmp_path / "extra")
    assert "![age kill](figures/age-kill.png)" in text
    assert (tmp_path / "source/results/tokens/figures/age-kill.png").exists()
    assert (tmp_path / "extra/results/tokens/figures/arms.csv").exists()


def test_the_small_parts():
    assert without_front_matter("---\na: b\n---\n# x") == "# x"
    assert ":caption: Learn" in contents({"Learn": ["docs/idea"]})


def test_every_page_has_its_place_at_the_side_of_the_site():
    """Sphinx would warn, and the build fail, minutes later."""
    listed = (ROOT / "docs/site/build.py").read_text(encoding="utf-8")
    names = [path.stem for path in (ROOT / "docs").glob("*.md")]
    assert [name for name in names if f'"docs/{name}"' not in listed] == []
