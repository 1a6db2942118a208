"""The reference: every name of `import klip`, from its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from docstrings import as_myst, fields_of, prose

import klip
from klip.shapes import Controller, Gate, Shape, Threshold, Value, catalogue

DOOR: Any = klip  # what its stub does not tell: all names, and where each is at home
PAGES = {
    "shapes": ("Trust regions", ("shapes",)),
    "looking": ("Looking at them", ("draw", "theory", "adapters")),
    "training": ("Training and comparing", ("ppo", "engine", "studies", "errors")),
    "runs": ("Runs, reports and sinks", ("pages", "runs")),
    "policies": ("Policies", ("policies",)),
    "tokens": ("Tokens", ("tokens",)),
}
"""The title of each page, and the rooms whose names of the front door are on it."""
ABOUT = {
    "shapes": "What a trust region is made of. Every shape by itself is in "
    "[the gallery](../gallery.md) and in [the catalogue](catalogue.md).",
    "looking": "Pictures, properties, guarantees, and which trust region somebody's loss is.",
    "training": "One PPO for every shape, plans of many runs, and what their seeds can tell.",
    "runs": "What training leaves on disk, and what is made of it.",
    "policies": "A trained policy in use.",
    "tokens": "The same shapes as a loss over tokens; PyTorch is needed. All names but "
    "`token_loss` are in `klip.tokens`.",
}


def pages() -> dict[str, str]:
    """Every page of the reference as MyST, by its name."""
    names = frozenset(name for name in DOOR.__all__ if name not in DOOR._ROOMS)
    values = _catalogue()
    by_page: dict[str, list[tuple[str, Any]]] = {page: [] for page in PAGES}
    for name in sorted(names, key=lambda name: (name[0].isupper(), name.lower())):
        if name not in {cls.__name__ for cls in values}:
            by_page[_page_of(name)].append((f"klip.{name}", getattr(klip, name)))
    more = [name for name in klip.tokens.__all__ if name not in names]
    by_page["tokens"] += [(f"klip.tokens.{name}", getattr(klip.tokens, name)) for name in more]
    written = {page: _page(page, things, names) for page, things in by_page.items()}
    written["catalogue"] = _catalogue_page(values, names)
    written["index"] = _index(by_page)
    return written


def _page_of(name: str) -> str:
    room = DOOR._homes()[name].split(".")[1]
    return next(page for page, (_, rooms) in PAGES.items() if room in rooms)


def _page(page: str, things: list[tuple[str, Any]], names: frozenset[str]) -> str:
    parts = [f"# {PAGES[page][0]}", ABOUT[page]]
    parts += [entry(name, thing, names) for name, thing in things]
    known = {id(thing) for _, thing in things}
    come = {cls: None for _, thing in things for cls in returned(thing) if id(cls) not in known}
    public = [cls for cls in come if cls.__name__ not in names]
    if public:
        parts += ["## What comes back"]
        parts += [entry(f"{cls.__module__}.{cls.__name__}", cls, names) for cls in public]
    return "\n\n".join(parts) + "\n"


def _index(by_page: dict[str, list[tuple[str, Any]]]) -> str:
    lines = [
        "# Reference",
        "All that `import klip` gives; a name is imported when it is asked for. The functions that "
        "are commands too have the commands' options. Where arrays are, their shapes are in "
        "brackets: `[T, N]` is time by environments, `[B, T]` sequences by tokens.",
    ]
    for page, things in by_page.items():
        listed = ", ".join(f"{{py:obj}}`{name}`" for name, _ in things)
        lines.append(f"**[{PAGES[page][0]}]({page}.md)**: {listed}")
    lines.append("**[The catalogue](catalogue.md)**: every shape, controller, gate and threshold")
    listed = "\n".join([*PAGES, "catalogue"])
    return "\n\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _catalogue() -> list[type[Any]]:
    kinds = (Shape, Controller, Gate, Threshold)
    return [cls for kind in kinds for cls in catalogue(kind).values()]


def _catalogue_page(values: Iterable[type[Any]], names: frozenset[str]) -> str:
    parts = ["# The catalogue", "Each class with its formula, its parameters and their defaults."]
    for kind in (Shape, Controller, Gate, Threshold):
        parts.append(f"## {kind.__name__}s")
        parts += [entry(f"klip.{c.__name__}", c, names) for c in values if issubclass(c, kind)]
    return "\n\n".join(parts) + "\n"


def entry(name: str, thing: Any, names: frozenset[str]) -> str:
    """One function or class as a directive of Sphinx's Python domain."""
    doc = inspect.getdoc(thing) or ""
    if not isinstance(thing, type):
        return _directive("function", f"{name}{signature(thing)}", as_myst(doc, names))
    body = [as_myst(doc, names)]
    if issubclass(thing, Value) and (reference := getattr(thing, "reference", "")):
        body.append(f"Source: {prose(reference)}")
    if issubclass(thing, Value) and thing in _catalogue() and issubclass(thing, Shape | Controller):
        body.append(f"Picture and promises: [the gallery](../gallery.md#{thing.name})")
    if table := _fields(thing):
        body.append(table)
    if thing not in _catalogue():
        body += list(_members(thing, names))
    if issubclass(thing, BaseException):
        return _directive("exception", name, "\n\n".join(body))
    return _directive("class", f"{name}{signature(thing)}", "\n\n".join(body), marks=6)


def _directive(kind: str, head: str, body: str, marks: int = 4) -> str:
    return f"{':' * marks}{{py:{kind}}} {head}\n\n{body}\n{':' * marks}"


def _fields(cls: type[Any]) -> str:
    """A table of a dataclass's fields, with what is said below each."""
    if not dataclasses.is_dataclass(cls):
        return ""
    said = fields_of(cls)
    rows = []
    for field in dataclasses.fields(cls):
        told = said.get(field.name) or str(field.metadata.get("meaning", ""))
        above = field.metadata.get("above")
        rules = [] if above is None else [f"> {above:g}"]
        if field.metadata.get("at_least") is not None:
            rules.append(f">= {field.metadata['at_least']:g}")
        if field.metadata.get("choices"):
            rules.append(" or ".join(field.metadata["choices"]))
        note = "; ".join([*([told] if told else []), *rules])
        rows.append(f"| `{field.name}` | `{_type(field.type)}` | {_cell(prose(note))} |")
    if not rows:
        return ""
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.replace("|", "or").replace("`", "")


def _members(cls: type[Any], names: frozenset[str]) -> Iterator[str]:
    """Public methods and properties that the class, or one of ours above it, defines."""
    seen = set()
    for each in cls.__mro__:
        if not each.__module__.startswith("klip.") or (each is not cls and each in _FRONT):
            continue
        for name, member in vars(each).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            inner = getattr(member, "func", getattr(member, "fget", None))
            plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            doc = inspect.getdoc(inner if inner is not None else plain) or ""
            if inner is not None:
                yield _directive("property", name, as_myst(doc, names))
            elif inspect.isfunction(plain) and doc:
                yield _directive("method", f"{name}{signature(plain)}", as_myst(doc, names))


_FRONT = frozenset(cls for cls in (klip.Value, klip.Region, klip.Shape))
"""Their members are documented once, on themselves."""


def signature(thing: Callable[..., Any]) -> str:
    """The arguments as they are written, with defaults that a reader can read."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    parameters = []
    for p in found.parameters.values():
        default = p.default
        if inspect.isfunction(default):
            p = p.replace(default=...)
        elif isinstance(default, Value):
            p = p.replace(default=str(default))
        elif default is not p.empty and " object at 0x" in repr(default):
            p = p.replace(default=...)
        if isinstance(thing, type):
            p = p.replace(annotation=p.empty)  # the table of fields has them
        parameters.append(p)
    shown = found.replace(parameters=parameters)
    if isinstance(thing, type):
        shown = shown.replace(return_annotation=inspect.Signature.empty)
    return _plain(shown)


def _plain(shown: inspect.Signature) -> str:
    """A signature whose annotations stand without quotes."""
    text = []
    star = False
    for p in shown.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            text.append("*")
            star = True
        mark = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        star = star or p.kind is p.VAR_POSITIONAL
        note = "" if p.annotation is p.empty else f": {p.annotation}"
        default = "" if p.default is p.empty else f" = {_default(p.default)}"
        text.append(f"{mark}{p.name}{note}{default}")
    back = shown.return_annotation
    return f"({', '.join(text)})" + ("" if back is shown.empty else f" -> {back}")


def _default(value: Any) -> str:
    if value is ...:
        return "..."
    return getattr(value, "__name__", "") if isinstance(value, type) else repr(value)


def returned(thing: Any) -> list[type[Any]]:
    """The classes of ours that a function gives back."""
    if isinstance(thing, type) or not callable(thing):
        return []
    try:
        back = typing.get_type_hints(thing).get("return")
    except (NameError, TypeError):
        return []
    found: list[type[Any]] = []
    left = [back]
    while left:
        each = left.pop(0)
        ours = getattr(each, "__module__", "").startswith("klip.")
        if ours and isinstance(each, type) and not typing.get_args(each):
            found.append(each)
        left += typing.get_args(each)
    return found
