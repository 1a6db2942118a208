"""What is checked of the built site: every link and anchor leads somewhere, nothing is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser loads by itself, and by which attribute."""
STYLED = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^\"')]+)")
"""What a style sheet would have it load."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.styles: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("a", "use") and "href" in given:
            self.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given:
            self.loads.append(given[LOADS[tag]])


def trouble(site: Path) -> list[str]:
    """A line for each link that leads nowhere and each thing that would be fetched."""
    paths = sorted(site.rglob("*.html"))
    pages = {path.resolve(): _read(path) for path in paths}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if (name.parts[0], path.stem) in {("results", "report")}:
            continue  # pages of their own, which the report's own tests look at
        found += [f"{name} styles by {url}" for url in page.styles]
        found += [f"{name} loads {url} from elsewhere" for url in page.loads if _is_remote(url)]
        for link in [*page.links, *page.loads]:
            found += [f"{name}: {why}" for why in _dead(link, path, pages)]
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(encoding="utf-8")
        found += [f"{sheet.relative_to(site)} styles by {url}" for url in STYLED.findall(text)]
    return found


def _read(path: Path) -> _Page:
    page, text = _Page(), path.read_text(encoding="utf-8")
    page.feed(text)
    page.styles = STYLED.findall(text)
    return page


def _is_remote(url: str) -> bool:
    return url.startswith("//") or urlsplit(url).scheme in ("http", "https")


def _dead(link: str, path: Path, pages: dict[Path, _Page]) -> list[str]:
    """Why a link leads nowhere; nothing if it does, or if it leads out of the site."""
    parts = urlsplit(link)
    if _is_remote(link) or parts.scheme in ("mailto", "data", "javascript"):
        return []
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return [f"{link} is not there"]
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].ids:
        return [f"{link} has no such place"]
    return []
