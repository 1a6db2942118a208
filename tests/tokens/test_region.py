"""Levels, gates, penalties and reducers are values: printed, parsed back, and named if wrong."""

import pytest
import torch

from klip.errors import KlipError
from klip.shapes import Clip, Gate, NameUnknown, Penalty, Shape, Value, catalogue, parse
from klip.shapes.names import OF_TOKENS
from klip.tokens import (
    OPSM,
    ConstantLength,
    Denominator,
    GeometricMean,
    Level,
    Reducer,
    ReferenceKL,
    SequenceMean,
    Token,
    TokenRegion,
    token_loss,
    token_multiplier,
)
from klip.tokens.region import ROOMS, named
from tests.tokens.batches import draw

REQUIRED = {ConstantLength: (8,), Denominator: (4,)}
KINDS = {
    Level: [
        *("token", "sequence-mean", "sequence-sum", "geometric-mean"),
        *("prefix-sum", "prefix-mean"),
    ],
    Reducer: ["token-mean", "mean-of-means", "mean-of-sums", "constant-length", "denominator"],
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_names(kind):
    assert list(catalogue(kind, ROOMS)) == KINDS[kind]


def test_what_is_for_tokens_alone_says_so_elsewhere():
    assert sorted(n for k in (Gate, Shape) for n in catalogue(k, ("klip.tokens",))) == [*OF_TOKENS]
    with pytest.raises(NameUnknown, match=r"'cppo' is for tokens in sequences: klip\.token_loss"):
        parse("cppo * is")


@pytest.mark.parametrize("kind", [Level, Reducer, Gate, Penalty])
def test_what_is_printed_is_read(kind):
    for cls in catalogue(kind, ROOMS).values():
        value = cls(*REQUIRED.get(cls, ()))
        assert named(kind, str(value)) == value
        assert named(kind, value) is value


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (Level, "sentence", "no level is called 'sentence'; there are token, sequence-mean"),
        (Level, "token-mean", "'token-mean' is not a level; there are token"),
        (Level, "geometric-mean(low=0)", r"geometric-mean: low=0 must be greater than 0"),
        (Level, "geometric-mean(width=1)", "geometric-mean has no parameter 'width'"),
        (Level, torch.sum, "must be a level or its spelling; there are token"),
        (Reducer, "constant-length", "cannot build constant-length"),
        (Reducer, "denominator(value=-1)", "denominator: value=-1 must be greater than 0"),
        (Gate, "clip", "'clip' is not a gate; there are .*opsm"),
        (Penalty, Clip(), "must be a penalty or its spelling"),
        (Shape, "truncate", "'truncate' is not a shape; `klip shapes` lists them all"),
        (Shape, "clap", "did you mean clip"),
    ],
)
def test_what_is_not_of_the_kind_is_named(kind, wrong, message):
    with pytest.raises(KlipError, match=message):
        named(kind, wrong)


def test_a_list_is_asked_for():
    with pytest.raises(KlipError, match="gates='opsm' must be a list of gates"):
        TokenRegion.read("clip", gates="opsm")
    with pytest.raises(KlipError, match=r"penalties=ReferenceKL\(.* must be a list of penalties"):
        TokenRegion.read("clip", penalties=ReferenceKL())


def test_a_region_by_its_spellings():
    region = TokenRegion.read("clip", "sequence-mean", ["opsm(delta=0.1)"], ["reference-kl"])
    assert region == TokenRegion(Clip(), SequenceMean(), (OPSM(delta=0.1),), (ReferenceKL(),))
    assert region.needs == {"mask", "reference_log_ratio"}
    assert all(isinstance(part, Value) for part in region.parts)
    assert TokenRegion.read("clip") == TokenRegion(Clip(), Token())


def test_a_loss_by_spellings_is_the_loss_of_the_values():
    batch = draw(1)
    values = {"level": GeometricMean(0.2, 0.3), "gates": [OPSM(delta=0.1)]}
    spelled = {"level": "geometric-mean(low=0.2, high=0.3)", "gates": ["opsm(delta=0.1)"]}
    plain = token_loss(shape=Clip(eps=0.1), reducer=ConstantLength(8), **values, **batch).loss
    other = token_loss(shape="clip(eps=0.1)", reducer="constant-length(8)", **spelled, **batch).loss
    assert torch.equal(plain, other)
    del batch["state_kl"]
    assert torch.equal(
        token_multiplier(shape=Clip(eps=0.1), **values, **batch),
        token_multiplier(shape="clip(eps=0.1)", **spelled, **batch),
    )
