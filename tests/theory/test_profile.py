"""Property profiles, against the catalogue's matrix and against theory."""

import json
from pathlib import Path

import numpy as np
import pytest

from klip.shapes import Clip, ClipHigher, Shape, catalogue, parse
from klip.theory.profile import Jump, profile
from klip.theory.views import Anchor

MATRIX = json.loads((Path(__file__).parents[1] / "data" / "property_matrix.json").read_text())

# Where our figures differ from the matrix, and why; each reason is shown by a test below.
SCANNED_TO_3 = "the matrix looked for jumps below w = 3 only"
UNDERFLOW = "a pull of 1e-12 is not 0: it decays and never vanishes"
SCANNED_TO_10 = "the matrix looked for w* between 0.001 and 10 only"
MODULO = "the matrix read the drift as it stands, not modulo scale and gauge"
DIFFERENCES = {
    **{(row, "drift_nonnegative"): MODULO
       for row in ("sigmoid_gate", "pspo", "kl_fwd_k1", "kl_rev_k1(IS)")},
    ("dual_clip", "max_jump"): SCANNED_TO_3,
    ("dcpo(p=0.5)", "max_jump"): SCANNED_TO_3,
    ("dcpo(p=0.05)", "max_jump"): SCANNED_TO_3,
    ("dppo_tv(p=0.05)", "max_jump"): SCANNED_TO_3,
    ("tv(b=1)", "max_jump"): "with w = 1 on the grid, one jump of 1 looks like two of a half",
    ("dcpo(p=0.5)", "drift_nonnegative"): "beyond cap = 10 the pass side is dropped",
    ("dcpo(p=0.05)", "drift_nonnegative"): "beyond cap = 10 the pass side is dropped",
    **{(row, f"w*({a})"): UNDERFLOW for row in ("sigmoid_gate", "soft_min", "scopic(tau=4)")
       for a in ("1", "0.3", "2")},
    **{("kimi/dro(tau=.1)", f"w*({a})"): SCANNED_TO_10 for a in ("1", "-1", "0.3", "2")},
    ("dpo_drift", "w*(0.3)"): SCANNED_TO_10,
}  # fmt: skip


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row["row"])
def test_the_matrix_of_properties(row):
    """All thirteen columns for every shipped row; the differences are exactly the known ones."""
    p = profile(parse(row["shape"]).initial, row["context"])
    agree = {
        "anchor": (p.anchor.outcome == "exact") == row["anchor"],
        "restoring": p.restoring == row["restoring"],
        "drift_nonnegative": p.drift_nonnegative == row["drift_nonnegative"],
        "reverses": (p.sign == "reverses") == row["reverses"],
        "sup_positive": p.sup_positive == pytest.approx(row["sup_positive"], rel=6e-3),
        "sup_negative": p.sup_negative == pytest.approx(row["sup_negative"], rel=6e-3),
        "max_jump": p.max_jump == pytest.approx(row["max_jump"], abs=5.1e-3),
        "homogeneous": p.homogeneous == row["homogeneous"],
        "zero_at_zero": p.zero_at_zero == row["zero_at_zero"],
    }
    for a, expected in row["equilibrium"].items():
        found = p.equilibrium[a]
        near = isinstance(expected, float) and isinstance(found, float)
        agree[f"w*({a})"] = abs(found - expected) < 2e-3 if near else found == expected
    differing = {(row["row"], name) for name, same in agree.items() if not same}
    assert differing == {key for key in DIFFERENCES if key[0] == row["row"]}


def test_why_the_jumps_differ():
    """Each missed jump is there: m on either side of it."""
    for name, context, w, a in (
        ("dual-clip", {}, 3.0, -1.0),
        ("dcpo", {"old_log_prob": np.log(0.5)}, 10.0, -1.0),
        ("dcpo", {"old_log_prob": np.log(0.05)}, 10.0, -1.0),
        ("dppo-tv", {"old_log_prob": np.log(0.05)}, 5.0, 1.0),
    ):
        p = profile(parse(name).initial, context)
        assert Jump(w, a, w) in p.jumps
        below_3 = max((j.size for j in p.jumps if j.ratio < 3), default=0.0)
        row = next(
            r for r in MATRIX if r["shape"] == name and r["context"] == pytest.approx(context)
        )
        assert below_3 == pytest.approx(row["max_jump"], abs=5.1e-3)
    tv = parse("tv").initial
    sides = [float(tv.multiplier(x, 1.0)) for x in (-1e-9, 0.0, 1e-9)]
    assert sides == pytest.approx([1.5, 1.0, 0.5])


def test_why_dcpos_drift_differs():
    """Past its cap the coefficient is w > 0 at A = -1, so D falls below 0 there."""
    from klip.theory.views import drift

    d = drift(parse("dcpo").initial, np.log([9.0, 20.0]), np.array([-1.0, -1.0]))
    np.testing.assert_allclose(d, [0.0, -10.0], atol=1e-9)


def test_why_the_equilibria_differ():
    """Where the matrix has a w*, the pull is still there; where it has none, there is one."""
    for name, ws in (("sigmoid-gate", (2.63, 2.508, 2.701)), ("soft-min", (2.63, 2.508, 2.701)),
                     ("scopic(tau=4)", (8.799, 8.178, 9.157))):  # fmt: skip
        for w, a in zip(ws, (1.0, 0.3, 2.0), strict=True):
            assert 0 < float(parse(name).initial.multiplier(np.log(w), a)) < 1e-11
    for a in (1.0, -1.0, 0.3, 2.0):
        assert float(parse("kimi(tau=0.1)").initial.multiplier(10.0 * a, a)) == pytest.approx(0)
    dpo = parse("dpo-drift").initial
    assert float(dpo.multiplier(np.log(10), 0.3)) > 0.3 > float(dpo.multiplier(np.log(50), 0.3))
    assert float(dpo.multiplier(np.log(200), 0.3)) < 1e-9


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        ("clip", Anchor("exact", 1.0)),
        ("kl-k1(b=0.5)", Anchor("gauge", 0.5)),
        ("kl-reverse(b=0.5)", Anchor("gauge", -0.5)),
        ("pspo(alpha=0.1)", Anchor("scale", 0.9)),
        ("sigmoid-gate", Anchor("scale", 0.9820137900)),
    ],
)
def test_the_anchor_has_four_outcomes(text, anchor):
    assert profile(parse(text).initial).anchor == anchor


def test_the_fourth_anchor_and_any_pull():
    """A pull need not come from a shape."""
    odd = profile(lambda x, a: np.exp(x) * a * np.abs(a))
    assert odd.anchor.outcome == "broken"
    assert not odd.homogeneous
    assert odd.limits is None


def test_clip_is_what_it_is():
    p = profile(Clip(low=0.1, high=0.3))
    assert p.restoring
    assert p.drift_nonnegative
    assert p.sign == "zero"
    assert p.jumps == (Jump(1.3, 1.0, 1.3), Jump(0.9, -1.0, 0.9))
    assert (p.bounded_positive, p.bounded_negative) == (True, False)
    assert p.redescending_above
    assert p.redescending_below
    assert p.pass_fidelity
    assert p.conformance == 0.0


def test_kinks_are_where_the_slope_jumps():
    ramp = profile(parse("ramp(eps=0.2, width=0.05)").initial)
    assert [(k.advantage, k.ratio) for k in ramp.kinks] == [
        (1.0, 1.2), (1.0, 1.25), (-1.0, 0.75), (-1.0, 0.8)]  # fmt: skip
    assert profile(parse("spo").initial).kinks == ()


def test_only_the_ramp_has_both_limits():
    """Softness 0 is PPO-Clip for all three; infinite softness is the unconstrained for one."""
    limits = {
        name: profile(parse(name).initial).limits for name in ("ramp", "sigmoid-gate", "soft-min")
    }
    assert limits["ramp"] == {"sharp": True, "wide": True}
    assert limits["sigmoid-gate"] == {"sharp": True, "wide": False}
    assert limits["soft-min"]["wide"] is False


@pytest.mark.parametrize("cls", catalogue(Shape).values(), ids=lambda cls: cls.name)
def test_every_shape_has_a_profile(cls):
    """Finite in float32 and bfloat16, true to its objective, and ready for JSON."""
    p = profile(cls())
    assert all(p.finite.values()), p.finite
    assert p.conformance is None or p.conformance < 1e-9
    assert set(p.meanings()) == set(p.as_dict())
    json.dumps(p.as_dict(), allow_nan=False)


def test_admissible_shapes():
    """The ones that satisfy anchor, restoring and drift >= 0, as the catalogue names them."""
    admissible = {
        name for name, cls in catalogue(Shape).items()
        if (p := profile(cls())).anchor.outcome == "exact" and p.restoring and p.drift_nonnegative
    }  # fmt: skip
    named = {"clip", "clip-phi", "per-sample", "clip-higher", "ramp", "spo", "ppo-rb", "dppo-tv",
             "dppo-kl", "dpo-drift", "ano", "kl-k3", "kl-reverse-k3", "chi2",
             "hellinger2"}  # fmt: skip
    assert named <= admissible
    assert not {"dual-clip", "cispo", "sapo", "tis", "topr", "reinforce"} & admissible
    assert profile(ClipHigher()).drift_nonnegative
