"""What the environment may say about verl's loss, and what it may not."""

import pytest

from klip.adapters.verl_settings import Settings, Tokens, settings, tokens_asked
from klip.errors import KlipError
from klip.shapes import Clip
from klip.tokens import OPSM, GeometricMean, Level, SequenceMean, SequenceSum, Token, TokenRegion
from klip.tokens.region import named


@pytest.fixture
def written(tmp_path):
    def written(text, name="klip.toml"):
        path = tmp_path / name
        path.write_text(text)
        return {"KLIP_CONFIG": str(path)}

    return written


def test_a_shape_in_the_environment():
    assert settings({"KLIP_SHAPE": "clip(low=0.2, high=0.28)"}) == Settings(
        Clip(low=0.2, high=0.28)
    )


def test_a_file(written):
    said = written(
        'shape = "clip"\nlevel = "sequence-mean"\nnonfinite = "drop"\ndiagnostics = false'
    )
    assert settings(said) == Settings(Clip(), "sequence-mean", "drop", diagnostics=False)


def test_gates_and_penalties_are_spelled_as_everywhere(written):
    said = written('shape = "clip"\ngates = ["opsm(delta=0.1)"]\npenalties = ["kl-k3(b=0.1)"]')
    read = TokenRegion.read("clip", gates=["opsm(delta=0.1)"], penalties=["kl-k3(b=0.1)"])
    assert settings(said).region == read
    assert settings(said).region.gates == (OPSM(delta=0.1),)


def test_both_and_the_same(written):
    both = written('shape = "clip(eps=0.2)"') | {"KLIP_SHAPE": "clip(low=0.2, high=0.2)"}
    assert settings(both) == Settings(Clip(eps=0.2))


def test_a_file_may_leave_the_shape_to_the_environment(written):
    both = written('level = "sequence-sum"') | {"KLIP_SHAPE": "clip"}
    assert settings(both) == Settings(Clip(), "sequence-sum")


def test_a_run_keeps_what_it_began_with(written):
    said = written('shape = "clip"')
    before = settings(said)
    written('shape = "ramp"')
    assert settings(said) is before


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("token", Token()),
        ("sequence-mean", SequenceMean()),
        ("sequence-sum", SequenceSum()),
        ("geometric-mean", GeometricMean(0.4, 0.4)),
        ("geometric-mean(low=0.2, high=1e-1)", GeometricMean(0.2, 0.1)),
        ("geometric-mean(low=0.2)", GeometricMean(0.2, 0.4)),
        ("token()", Token()),
        (SequenceMean(), SequenceMean()),
    ],
)
def test_levels(name, level):
    assert named(Level, name) == level


@pytest.mark.parametrize(
    "name", ["", "sequence", "clip", "token-mean", 3, None, "geometric-mean(low=1.2.3, high=0.1)"]
)
def test_levels_that_are_not(name):
    with pytest.raises(KlipError, match="there are token, sequence-mean"):
        named(Level, name)


def test_nothing():
    with pytest.raises(KlipError, match=r"KLIP_SHAPE=.*KLIP_CONFIG"):
        settings({})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has none"),
        ('shape = "clip', "is not TOML"),
        ("shape = 3", "must be text"),
        ('shape = "clap"', "did you mean clip"),
        ('shape = "clip(eps=-1)"', "greater than 0"),
        ('shape = "truncate"', "not a shape"),
        ('shape = "clip"\nlevel = "sentence"', "'sentence'"),
        ('shape = "clip"\nnonfinite = "zero"', "'zero'"),
        ('shape = "clip"\ndiagnostics = 1', "true or false"),
        ('shape = "clip"\neps = 0.2', "sets eps, which is not known"),
        ('shape = "clip"\ngates = "opsm"', "gates='opsm' must be a list"),
        ('shape = "clip"\ngates = ["opsn"]', r"toml: no gate is called 'opsn'"),
        ('shape = "clip"\ngates = ["truncate"]', "behaviour_log_ratio.*rollout_is=token"),
        ('shape = "clip"\npenalties = ["reference-kl"]', "needs reference_log_ratio.*use_kl_loss"),
        ('shape = "clip"\npenalties = [3]', "penalty=3 must be a penalty"),
    ],
)
def test_files_that_are_wrong(written, text, message):
    with pytest.raises(KlipError, match=message):
        settings(written(text))


def test_two_shapes(written):
    both = written('shape = "ramp"') | {"KLIP_SHAPE": "clip"}
    with pytest.raises(KlipError, match=r"KLIP_SHAPE says clip.* says ramp.*unset one"):
        settings(both)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(KlipError, match="No such file"):
        settings({"KLIP_CONFIG": str(tmp_path / "none.toml")})


def test_a_path_that_depends_on_the_folder():
    with pytest.raises(KlipError, match="absolute path"):
        settings({"KLIP_CONFIG": "klip.toml"})


def test_what_is_asked_of_tokens():
    assert tokens_asked({}) == Tokens()
    every = {"KLIP_ANSWER_MARKER": "####", "KLIP_KEEP_TOKENS": "4", "KLIP_KEEP_IN": "/runs/mine"}
    assert tokens_asked(every) == Tokens("####", 4, "/runs/mine")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"KEEP_TOKENS": "four", "KEEP_IN": "/x"}, r"KLIP_KEEP_TOKENS='four' must be 0 or more"),
        ({"KEEP_TOKENS": "-1", "KEEP_IN": "/x"}, r"KLIP_KEEP_TOKENS='-1' must be 0 or more"),
        ({"KEEP_TOKENS": "4"}, r"needs KLIP_KEEP_IN, the absolute path of a folder"),
        ({"KEEP_TOKENS": "4", "KEEP_IN": "x"}, r"not 'x': workers run in other folders"),
        ({"KEEP_IN": "/x"}, r"KLIP_KEEP_IN=/x is for tokens: set KLIP_KEEP_TOKENS=4 too"),
    ],
)
def test_what_cannot_be_asked_of_tokens(said, message):
    with pytest.raises(KlipError, match=message):
        tokens_asked({f"KLIP_{name}": value for name, value in said.items()})
