"""One template system for all pages: autoescaped, strict, and with everything inside the file.

Names come from configs that anybody may have written. They reach a page through autoescaped
templates and through JSON in which no tag can open; a policy in the page's head forbids every
request.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from klip import __version__
from klip.draw.as_plotly import charts
from klip.draw.panel import Picture
from klip.pages import words


def fill(template: str, **context: Any) -> str:
    """A template of `klip/pages/templates` with its blanks filled."""
    return _environment().get_template(template).render(context)


def page(
    template: str,
    pictures: Sequence[Picture],
    context: Mapping[str, Any],
    refresh: float | None,
    also: Sequence[str] = (),
) -> str:
    """The HTML of a page with charts.

    Args:
        template: its file, which extends `base.html`
        pictures: all that are placed on it
        context: what its template says
        refresh: seconds after which it loads itself again; None for never
        also: its own style sheets and scripts, beside those that all pages have

    """
    from plotly.offline import get_plotlyjs

    drawn = ",".join(  # one after the other: numbers take more memory than their text
        f"{embed(name)}:{embed(chart)}" for picture in pictures for name, chart in charts(picture)
    )
    rest = embed(
        {"refresh": refresh, "choice": context.get("choice", {})}
        | ({"kept": context["kept"]} if "kept" in context else {})
    )
    return fill(
        template,
        version=__version__,
        refresh=refresh,
        styles=[asset(name) for name in ("page.css", *also) if name.endswith(".css")],
        scripts=[Markup(get_plotlyjs())] * bool(drawn)
        + [asset(name) for name in ("charts.js", "page.js", *also) if name.endswith(".js")],
        data=Markup(f'{{"charts":{{{drawn}}},{rest[1:]}'),
        **context,
    )


def asset(name: str) -> Markup:
    """A style sheet or script, word for word."""
    return Markup((files("klip.pages") / "templates" / name).read_text(encoding="utf-8"))


def embed(data: Any) -> Markup:
    r"""JSON that may stand inside a script element, whatever strings are in it.

    >>> embed("</script>")
    Markup('"\\u003c/script\\u003e"')
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("klip.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {f.__name__: f for f in words.FILTERS}
    environment.globals["cell"] = words.cell
    return environment
