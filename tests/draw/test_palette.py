"""Looks: no two alike in a study, in light and in dark, for any common kind of eye."""

import itertools

import numpy as np
import pytest

from klip.draw.palette import DARK, LIGHT, hue, looks, mixed, oklab

# Machado, Oliveira and Fernandes 2009, severity 1, on linear light.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip

SWEEPS = [
    *("clip", "per-sample", "kl", "adaptive-kl", "spo"),
    *(f"kl(b={b})" for b in (0.003, 0.01, 0.03, 0.1, 0.3, 3.0, 10.0)),
    *(f"adaptive-kl(target={t})" for t in (0.003, 0.01, 0.05, 0.1, 0.3)),
    *(f"clip(eps={e})" for e in (0.1, 0.15, 0.25, 0.3)),
    *(f"shape{i}" for i in range(9)),
]
FAMILIES = [f"shape{i}" for i in range(42)]


def apart(a, b):
    return float(np.linalg.norm(oklab(a) - oklab(b)))


@pytest.mark.parametrize("labels", [SWEEPS, FAMILIES], ids=["sweeps", "families"])
def test_no_two_shapes_look_alike(labels):
    found = looks(labels)
    assert len(found) == len(labels) >= 30
    for a, b in itertools.combinations(found.values(), 2):
        assert a.light != b.light
        assert a.dark != b.dark
        if a.dash == b.dash:
            assert apart(a.light, b.light) > 0.025, (a, b)
            assert apart(a.dark, b.dark) > 0.025, (a, b)


@pytest.mark.parametrize("labels", [SWEEPS, FAMILIES], ids=["sweeps", "families"])
def test_every_look_stands_out_from_its_ground(labels):
    for look in looks(labels).values():
        assert apart(look.light, "#FFFFFF") > 0.15
        assert apart(look.dark, "#15171A") > 0.2


def test_sweeps_are_shades_of_their_shape():
    found = looks(["clip", "kl", *(f"kl(b={b})" for b in range(5))])
    for k in range(5):
        own, clip = (apart(found[f"kl(b={k})"].light, found[name].light) for name in ("kl", "clip"))
        assert own < clip


def test_fourteen_shapes_differ_where_nothing_but_colour_tells_them_apart():
    """Dots have no dash."""
    for a, b in itertools.combinations(looks(FAMILIES[:14]).values(), 2):
        assert apart(a.light, b.light) > 0.07, (a, b)
        assert apart(a.dark, b.dark) > 0.07, (a, b)


@pytest.mark.parametrize("eye", BLIND)
@pytest.mark.parametrize("palette", [LIGHT[:7], DARK[:7]], ids=["light", "dark"])
def test_the_hues_differ_for_the_colour_blind(eye, palette):
    def seen(colour):
        srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        changed = (np.array(BLIND[eye]) @ linear).clip(0, 1)
        back = np.where(changed <= 0.0031308, 12.92 * changed, 1.055 * changed ** (1 / 2.4) - 0.055)
        return "#" + "".join(f"{int(x):02X}" for x in np.rint(255 * back))

    for a, b in itertools.combinations(palette, 2):
        assert apart(seen(a), seen(b)) > 0.05, (a, b)


def test_the_order_of_a_study_decides():
    assert looks(["clip", "kl"])["clip"].light == LIGHT[0]
    assert looks(["kl", "clip"])["clip"].light == LIGHT[1]
    assert hue("my.py:Mine(a=1)") == "my.py:Mine"


def test_mixing_goes_from_one_colour_to_the_other():
    steps = [apart(mixed("#0072B2", "#FFFFFF", t), "#FFFFFF") for t in (0.0, 0.3, 0.6, 1.0)]
    assert steps == sorted(steps, reverse=True)
    assert mixed("#0072B2", "#123456", 0.0) == "#0072B2"
