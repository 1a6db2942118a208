"""Templates: strict, escaped, and nothing in the data can act."""

import json

import pytest
from jinja2 import UndefinedError

from klip.pages.template import asset, embed, fill

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028'\"&"


def test_json_cannot_leave_its_element():
    made = str(embed({"a": EVIL, "b": [1.5, None]}))
    assert not set("<>&\u2028") & set(made)
    assert json.loads(made) == {"a": EVIL, "b": [1.5, None]}


def test_what_a_template_asks_for_must_be_there():
    with pytest.raises(UndefinedError):
        fill("explorer/page.html", css="", html="")


def test_text_is_escaped_and_assets_are_not():
    assert "&lt;b&gt;" in fill("explorer/explorer.html", left_out={"<b>": "why"})
    assert "&&" in asset("charts.js")
