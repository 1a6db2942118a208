"""verl's tokens as files: once a step, with what its batch knows and null for the rest."""

import polars as pl
import pytest
import torch

from klip.errors import KlipError
from klip.pages.kept import report_of_kept
from klip.runs.kept import SCHEMA, kept_steps, read_kept
from tests.adapters.verl.world import MARKER, Letters, compute, config_of, microbatch


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KLIP_KEEP_TOKENS", "2")
    monkeypatch.setenv("KLIP_KEEP_IN", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["vanilla", "klip"])
def test_tokens_are_kept_beside_other_shapes(
    folder, watching, configure, monkeypatch, name, recwarn
):
    configure("dual-clip")
    monkeypatch.setenv("KLIP_ANSWER_MARKER", MARKER)
    output, data = microbatch(seed=1, versions=[9, 8, 9, 9])
    compute(config_of(name), output, data)
    kept = read_kept(folder)
    own = {"vanilla": "vanilla", "klip": "dual-clip(eps=0.2, cap=3.0)"}[name]
    assert dict(kept.schema) == SCHEMA
    assert kept["shape"].unique(maintain_order=True).to_list() == [own, "sapo"]
    assert kept.filter("trained")["shape"].unique().to_list() == [own]
    assert kept["sequence"].unique().to_list() == [0, 1]
    mask = data["response_mask"][:2].bool()
    mine = kept.filter(pl.col("shape") == own)
    assert "".join(mine["text"]) == Letters().decode(data["responses"][:2][mask].tolist())
    assert mine["advantage"].to_list() == data["advantages"][:2][mask].tolist()
    assert mine["reward"].to_list() == pytest.approx([float(row) for row in mine["sequence"]])
    assert mine["age"].to_list() == [float(row) for row in mine["sequence"]]
    assert [span == "answer" for span in mine["span"]] == [place > 1 for place in mine["place"]]
    first, second = data["prompts"][:2].tolist()
    prompts = [Letters().decode(ids) for ids in (first[1:], second)]
    assert mine["prompt"].unique(maintain_order=True).to_list() == prompts
    assert kept["entropy"].is_null().all()
    assert "sapo" in report_of_kept(folder)


def test_once_a_step_and_on_after_a_restart(folder, configure, recwarn):
    from klip.adapters import verl_keeping

    configure("clip")
    for _ in range(2):
        for last in (False, False, True, True):
            compute(config_of("klip"), *microbatch(rows=2, last=last, of=4))
    assert kept_steps(folder) == [1, 2]
    verl_keeping._keeper.cache_clear()  # another process
    compute(config_of("klip"), *microbatch())
    assert kept_steps(folder) == [1, 2, 3]


def test_what_is_not_known_is_null_and_said_once(folder, configure):
    configure("clip")
    config = config_of("klip", tokenizer=False)
    with pytest.warns(UserWarning, match="KLIP_KEEP_TOKENS keeps tokens without") as caught:
        compute(config, *microbatch(scores=False))
    compute(config, *microbatch(scores=False))  # a second warning would be an error
    (said,) = (str(warning.message) for warning in caught)
    kept = read_kept(folder)
    for name in ("text", "prompt", "span", "age", "entropy", "reward"):
        assert kept[name].is_null().all()
        assert name in said or name == "prompt"
    assert not kept["ratio"].is_null().any()
    assert "text unknown" in report_of_kept(folder)


def test_the_multiplier_is_that_of_the_gradient(folder, configure, recwarn):
    configure("sapo")
    output, data = microbatch(seed=3)
    _, slope, _ = compute(config_of("klip"), output, data)
    mask = data["response_mask"].bool()
    kept = torch.tensor(read_kept(folder)["multiplier"].to_list())
    theirs = -slope[slope != 0] * mask.sum()
    torch.testing.assert_close(kept, theirs[: len(kept)], rtol=1e-5, atol=1e-7)


def test_nothing_is_kept_unless_asked(tmp_path, configure, monkeypatch):
    configure("clip")
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    compute(config_of("klip"), *microbatch())
    assert set(tmp_path.iterdir()) == before


def test_a_relative_folder_is_refused(folder, configure, monkeypatch):
    monkeypatch.setenv("KLIP_KEEP_IN", "here")
    configure("clip")
    with pytest.raises(KlipError, match=r"absolute path of a folder for the files, not 'here'"):
        compute(config_of("klip"), *microbatch())
