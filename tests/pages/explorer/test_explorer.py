import json
import re
from dataclasses import dataclass

import numpy as np
import pytest

from klip.errors import KlipError
from klip.pages.explorer.explorer import COMPOSED, _variants, explorer_page, explorer_parts
from klip.shapes import (
    Clip,
    Controller,
    Parameter,
    Ramp,
    Shape,
    catalogue,
    numbers,
    parameter,
    parse,
    with_numbers,
)
from klip.theory.curves import values
from klip.theory.views import jumps, pull_of, reference_context

pytest_plugins = ["tests.pages.browser"]

ELSEWHERE = {
    "old_log_prob": -2.0, "kl": 0.05, "entropy": 1.7, "position": 80.0, "length": 93.0, "age": 3.0,
    "mask": 1.0, "sequence": 2.0, "group": 1.0, "behaviour_log_ratio": 0.9, "reward": -0.5,
    "reference_log_ratio": 0.3, "step": 4e5, "proximal_log_ratio": -0.4, "effective_size": 0.6,
    "deviation": 2.5, "second_moment": 0.1}  # fmt: skip
ROOT = "document.querySelector('.klip-explorer').klip"


@pytest.fixture(scope="module")
def everything():
    """Every shape of the catalogue, the controllers, the compositions and the user's."""
    kinds = [*catalogue().values(), *catalogue(Controller).values()]
    mine = parse("examples/my_shapes.py:Cauchy")
    return [*(cls() for cls in kinds), *map(parse, COMPOSED), mine]


@pytest.fixture(scope="module")
def whole(everything):
    return explorer_page(everything)


@pytest.fixture(scope="module")
def both():
    return explorer_page([Clip(), Ramp(), *map(parse, ("spo", "clip(eps=by-age)"))])


def start(value):
    return value.initial


def settings(shape):
    """The shape as it is, and with every number moved down, and up, within its range."""
    found = numbers(shape)
    yield shape
    for factor in (0.7, 1.3):
        yield with_numbers(shape, {path: factor * x + 0.01 for path, x in found.items()})


def cases(entry, value):
    """What the page and the library are asked: (code, parameters, context) and where."""
    for variant, (_, shape) in zip(entry["variants"], _variants(start(value)), strict=True):
        for i, moved in enumerate(settings(shape)):
            given = ELSEWHERE if i else {}
            p = [float(x) for x in numbers(moved).values()]
            smooth = np.linspace(-4.7, 4.7, 37)
            pull = pull_of(moved, {k: v for k, v in given.items() if k in moved.needs})
            found = [x for a in (1.0, -1.0) for x, _ in jumps(pull, a, -4.6, 4.6)]
            near = [x + d for x in found for d in (-1e-9, 1e-9)]
            with np.errstate(all="ignore"):
                edges = np.log(np.array([[1 + x, 1 - x, x, 1 / (1 + x)] for x in p] or [1.0]))
            kinks = np.concatenate([edges.ravel(), [np.log(1 + sum(p[:2])), np.log(1 - sum(p[:2]))]
                                    if sum(p[:2]) < 1 else []])  # fmt: skip
            kinks = [x for x in kinks if np.isfinite(x) and abs(x) < 30]
            strict = np.concatenate([smooth, near, [0.0, -1e-9, 1e-9, 19.9, -19.9, 25.0, -25.0]])
            for ratios, exact in ((strict, True), (np.array([*kinks, 20.0, -20.0]), False)):
                x, a = (g.ravel() for g in np.meshgrid(ratios, [1.0, -1.0, 0.3, -2.0, 0.0]))
                yield variant, moved, given, p, x, a, exact


def library(shape, given, x, a):
    context = reference_context(shape, x, a, {k: v for k, v in given.items() if k in shape.needs})
    weight = shape.kl_weight(x, a, context)
    seen = [shape.multiplier(x, a, context), shape.beta(x, a, context)]
    seen += [] if weight is None else [weight]
    fields = [
        np.broadcast_to(np.asarray(getattr(context, k), float), x.shape).tolist()
        for k in sorted(shape.needs)
    ]
    return [np.broadcast_to(np.asarray(v, float), x.shape) for v in seen], fields


def test_the_page_computes_what_the_library_does(page, everything, whole):
    page.open(whole)
    entries = page.evaluate(f"{ROOT}.DATA.shapes")
    assert (
        len(entries)
        == len(everything)
        == len(catalogue()) + len(catalogue(Controller)) + len(COMPOSED) + 1
    )
    asked, expected = [], []
    for entry, value in zip(entries, everything, strict=True):
        for variant, shape, given, p, x, a, exact in cases(entry, value):
            seen, fields = library(shape, given, x, a)
            asked.append([variant["code"], p, x.tolist(), a.tolist(), fields, len(seen)])
            expected.append((entry["title"], shape, given, x, a, exact, seen))
    answers = json.loads(
        page.evaluate(f"""JSON.stringify({json.dumps(asked)}.map(([code, p, x, a, c, count]) => {{
            const run = {ROOT}.evaluate, at = i => c.map(field => field[i]);
            const out = x.map((l, i) => run(code, l, a[i], p, at(i)));
            return Array.from({{length: count}}, (_, k) => out.map(o => o[k]));
        }}))""")
    )
    worst = 0.0
    for (title, shape, given, x, a, exact, seen), got in zip(expected, answers, strict=True):
        got = np.array(got, dtype=float)
        # On a kink itself one rounding of exp decides the side: a neighbour of w will do there.
        at = [x] if exact else [x, *(x + k * np.spacing(np.abs(x) + 1) for k in (-2, -1, 1, 2))]
        scale = np.maximum(np.abs(a), np.exp(np.clip(x, -20, 20)) * np.abs(a))
        for k, view in enumerate(seen):
            near = [library(shape, given, place, a)[0][k] for place in at]
            unit = np.maximum(scale, np.abs(view)) + 1e-300
            difference = np.min([np.abs(got[k] - v) for v in near], axis=0) / unit
            worst = max(worst, difference.max())
            assert difference.max() < 1e-12, (title, x[difference.argmax()], a[difference.argmax()])
    assert page.errors == []
    print(f"{len(asked)} functions and settings, largest relative difference {worst:.1e}")


def test_the_whole_catalogue_is_there():
    parts = explorer_parts()
    assert parts.left_out == {}
    data = json.loads(re.search(r"const DATA = (.*);", parts.js)[1])
    titles = [entry["title"] for entry in data["shapes"]]
    assert [*catalogue(), *catalogue(Controller)] == titles[: -len(COMPOSED)]
    assert [titles[i] for i in data["start"]] == ["clip", "ramp"]
    assert len(parts.js) < 200_000


def curve(page, side, sign=1):
    """The curve that is drawn: w, m and beta, apart from the ends of jumps."""
    found = page.evaluate(f"""(() => {{
        const {{x, rows, jumps}} = {ROOT}.results.{side}.curves[{sign}];
        return [x, rows.map(r => r[0]), rows.map(r => r[1]), jumps.map(j => j.at)];
    }})()""")
    x, m, beta = (np.array(v, dtype=float) for v in found[:3])
    keep = ~np.isin(x, found[3])
    return x[keep], m[keep], beta[keep]


def assert_is(page, side, shape, overrides=None):
    for sign in (1.0, -1.0):
        x, m, beta = curve(page, side, int(sign))
        assert len(x) > 300
        for got, view in ((m, "multiplier"), (beta, "beta")):
            wanted = values(shape, view, x, sign, overrides)
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def drawn(page):
    return page.evaluate("[...document.querySelectorAll('.kx-line')].map(e => e.getAttribute('d'))")


def test_it_opens_with_the_clip_beside_the_ramp(page, both):
    page.open(both)
    page.settle()
    assert_is(page, "a", Clip())
    assert_is(page, "b", Ramp())
    assert page.evaluate("document.querySelectorAll('figure').length") == 12
    assert "NaN" not in " ".join(drawn(page))
    assert page.errors == []
    assert page.external == []
    assert page.requests == [f"file://{page.folder / 'page.html'}"]


def test_a_slider_moves_the_curve(page, both):
    page.open(both)
    page.wait("document.querySelectorAll('.kx-line').length > 0")
    before = drawn(page)
    page.set("#kx-a-p-eps-slider", 0.35)
    assert_is(page, "a", Clip(eps=0.35))
    assert_is(page, "b", Ramp())
    assert page.evaluate("document.querySelector('#kx-a-p-eps').value") == "0.35"
    assert page.evaluate("document.querySelector('[data-side=a] .kx-foot code').textContent") == (
        "clip(eps=0.35)"
    )
    assert drawn(page)[0] != before[0]
    page.click(".kx-card[data-side=a] button")
    assert drawn(page) == before


def test_a_number_beyond_the_slider_counts_and_an_impossible_one_does_not(page, both):
    page.open(both)
    page.set("#kx-b-p-width", 0.7)
    assert_is(page, "b", Ramp(width=0.7))
    page.set("#kx-b-p-width", -1)
    assert page.evaluate("document.querySelector('#kx-b-p-width').ariaInvalid") == "true"
    assert_is(page, "b", Ramp(width=0.7))


def test_another_shape_brings_its_own_controls(page, both):
    page.open(both)
    names = "[...document.querySelectorAll('[data-side=b] .kx-body label')].map(e => e.textContent)"
    assert page.evaluate(names) == ["band", "eps", "width"]
    page.select("#kx-b-shape", "spo")
    assert page.evaluate(names) == ["eps"]
    assert_is(page, "b", parse("spo").initial)
    page.select("#kx-b-shape", "clip(eps=by-age)")
    assert page.evaluate(names) == ["eps.fresh", "eps.half_life", "eps.floor", "age"]
    page.set("#kx-b-c-age-slider", 4)
    assert_is(page, "b", parse("clip(eps=by-age)").initial, {"age": 4.0})
    labels = page.evaluate("""[...document.querySelectorAll('.klip-explorer :is(input, select)')]
        .filter(e => !e.labels.length && !e.ariaLabel).map(e => e.id)""")
    assert labels == []


def test_a_band_may_have_two_sides(page, both):
    page.open(both)
    page.select("#kx-a-band", "two sides")
    page.set("#kx-a-p-high", 0.4)
    assert_is(page, "a", Clip(low=0.2, high=0.4))
    page.settle()
    assert page.evaluate("document.querySelector('[data-side=a] .kx-foot code').textContent") == (
        "clip(low=0.2, high=0.4)"
    )


def test_choices_and_what_follows_the_ratio(page):
    page.open(explorer_page([parse("truly-ppo").initial, parse("topr").initial]))
    page.select("#kx-a-estimator", "k3")
    assert_is(page, "a", parse("truly-ppo(estimator=k3)").initial)
    page.click("#kx-a-auto-kl")
    page.set("#kx-a-c-kl", 0.1)
    assert_is(page, "a", parse("truly-ppo(estimator=k3)").initial, {"kl": 0.1})
    page.select("#kx-b-sign", "reward")
    assert_is(page, "b", parse("topr(sign=reward)").initial)


def test_the_difference_is_b_minus_a(page, both):
    page.open(both)
    hidden = "getComputedStyle(document.querySelector('.kx-differences')).display"
    assert page.evaluate(hidden) == "none"
    page.click("#kx-difference")
    assert page.evaluate(hidden) == "block"
    page.settle()
    x, m = (
        np.array(v, dtype=float)
        for v in page.evaluate(f"""[{ROOT}.results.d.curves[1].x,
            {ROOT}.results.d.curves[1].rows.map(r => r[0])]""")
    )
    keep = np.abs(x - 1.2) > 1e-9
    wanted = values(Ramp(), "multiplier", x, 1.0) - values(Clip(), "multiplier", x, 1.0)
    np.testing.assert_allclose(m[keep], wanted[keep], atol=1e-12)
    assert "undefined" not in page.evaluate("document.body.innerText")


def test_the_map_is_beta(page, both):
    page.open(both)
    page.settle()
    beta = np.array(page.evaluate(f"[...{ROOT}.results.b.map]")).reshape(160, 240)
    w, a = (np.arange(240) + 0.5) * 2 / 240, 2 - (np.arange(160) + 0.5) * 4 / 160
    np.testing.assert_allclose(beta, values(Ramp(), "beta", w[None], a[:, None]), atol=1e-12)
    pixel = """[...document.querySelector('figure[data-view=map] canvas')
        .getContext('2d').getImageData(120, 40, 1, 1).data]"""
    assert page.evaluate(pixel) == [255, 255, 255, 255]
    page.open(both, dark=True)
    page.settle()
    assert page.evaluate(pixel) == [27, 30, 36, 255]


def test_the_address_keeps_the_state(page, both):
    page.open(both)
    page.set("#kx-a-p-eps", 0.33)
    page.select("#kx-b-shape", "clip(eps=by-age)")
    page.set("#kx-b-c-age", 3)
    page.wait("location.hash.includes('age')")
    kept = page.evaluate("location.hash")
    page.open(both, hash=kept)
    page.settle()
    assert_is(page, "a", Clip(eps=0.33))
    assert_is(page, "b", parse("clip(eps=by-age)").initial, {"age": 3.0})
    page.open(both, hash="#explore?a=nothing&a.eps=oops&b=ramp&b.width=-3&A=1e99")
    page.settle()
    assert_is(page, "a", Clip())
    assert_is(page, "b", Ramp())
    page.open(both, hash="#results")
    page.evaluate("new Promise(done => setTimeout(done, 400))")
    assert page.evaluate("location.hash") == "#results"
    assert page.errors == []


def test_the_keyboard_is_enough(page, both):
    page.open(both)
    order = []
    for _ in range(9):
        page.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert order[:5] == ["kx-a-shape", "kx-a-band", "kx-a-p-eps-slider", "kx-a-p-eps", "BUTTON"]
    page.evaluate("document.querySelector('#kx-a-p-eps-slider').focus()")
    page.press("ArrowRight")
    assert_is(page, "a", Clip(eps=0.205))


def test_pointing_reads_the_curves(page, both):
    page.open(both)
    page.settle()
    x, y = page.evaluate("""(() => {
        const box = document.querySelector('figure[data-view=m] svg').getBoundingClientRect();
        return [box.x + 40 + (box.width - 48) * 0.75, box.y + 50];
    })()""")
    page.mouse("mouseMoved", x, y)
    page.settle()
    caption = page.evaluate("document.querySelector('figure[data-view=m] figcaption').innerText")
    assert re.search(r"m = 0, −1\.[45]\d* at w = 1\.[45]", caption)


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, False), (390, True), (1280, True)])
def test_nothing_overflows(page, whole, width, dark):
    page.open(whole, width=width, height=844, dark=dark)
    page.settle()
    shapes = page.evaluate(f"{ROOT}.DATA.shapes.length")
    assert page.overflow() == 0
    for i in range(shapes - 14, shapes) if width != 390 or dark else range(shapes):
        page.select("#kx-a-shape", i)
        assert page.overflow() == 0, i
    assert page.errors == []


HOSTILE = "</script><img src=x onerror=window.broken=1><!--@CODE@ <script> \u2028 'q' \"d\" ${x} `"


def test_a_hostile_shape_is_inert(page):
    @dataclass(frozen=True)
    class Hostile(Shape):
        name = number = reference = family = HOSTILE

        eps: Parameter = parameter(0.2, above=0)

        def multiplier(self, s):
            return s.w * s.advantage * self.eps

    Hostile.__doc__ = HOSTILE

    @dataclass(frozen=True)
    class Refused(Shape):
        name = HOSTILE + "2"

        def multiplier(self, s):
            return s.log_w - s.log_w.mean()

    page.open(explorer_page([Hostile(), Clip(), Refused()]))
    page.settle()
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.querySelector('#kx-a-shape').selectedOptions[0].text")[:9] == (
        "</script>"
    )
    assert page.errors == []
    assert page.external == []
    assert_is(page, "a", Hostile())


def test_what_cannot_be_compiled_is_left_out_and_named():
    @dataclass(frozen=True)
    class Branches(Shape):
        def multiplier(self, s):
            return s.advantage if s.log_w > 0 else s.log_w

    @dataclass(frozen=True)
    class Centred(Shape):
        def multiplier(self, s):
            return s.w * (s.advantage - s.advantage.mean())

    parts = explorer_parts([Clip(), Branches(), Centred()])
    assert list(parts.left_out) == ["branches", "centred"]
    assert "JAX cannot trace it" in parts.left_out["branches"]
    assert "reduce_sum" in parts.left_out["centred"]
    assert "centred: cannot write reduce_sum" in parts.html


def test_no_code_is_made_at_run_time():
    parts = explorer_parts([Clip()])
    assert not re.search(r"\beval\b|new Function|document\.write|https?://(?!www\.w3)", parts.js)
    assert "url(" not in parts.css


def test_titles_tell_equal_names_apart():
    parts = explorer_parts([Clip(), Clip(eps=0.3), Clip()])
    titles = re.findall(r'"title":"([^"]*)"', parts.js)
    assert titles == ["clip", "clip(eps=0.3)", "clip (2)"]


def test_nothing_to_explore_is_an_error():
    with pytest.raises(KlipError, match="there is no shape to explore"):
        explorer_parts([])
