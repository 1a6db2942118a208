"""Tokens as columns: each token of the first sequences, once for each shape."""

import torch

from klip.runs.kept import SCHEMA
from klip.theory.diagnostics import FATES
from klip.tokens import token_context, token_loss
from klip.tokens.keeping import COLUMNS, kept_columns, piece_of
from tests.tokens.batches import draw


def columns(count=2, **more):
    batch = draw(4)
    batch["context"] = token_context(
        batch["log_prob"], batch["old_log_prob"], age=torch.arange(5.0), entropy=batch["log_prob"]
    )
    spans = {"late": torch.arange(7).expand(5, 7) > 3}
    did = {
        name: token_loss(**batch, shape=name, spans=spans).diagnostics for name in ("clip", "sapo")
    }
    ids = torch.arange(35).reshape(5, 7)
    return batch, did, kept_columns(did, ids, str, step=9, count=count, **more)


def test_every_token_is_there_once_for_each_shape():
    batch, did, kept = columns()
    assert tuple(kept) == COLUMNS == tuple(SCHEMA)
    tokens = int(batch["mask"][:2].sum())
    assert {len(values) for values in kept.values()} == {2 * tokens}
    assert sum(kept["trained"]) == tokens
    for name, found in did.items():
        rows = [i for i, shape in enumerate(kept["shape"]) if shape == name]
        active = found.active[:2]
        assert [kept["multiplier"][i] for i in rows] == found.m[:2][active].tolist()
        assert [FATES.index(kept["fate"][i]) for i in rows] == (
            found.observed.fate[:2][active].tolist()
        )
    first = [i for i, shape in enumerate(kept["shape"]) if shape == "clip"]
    ids = torch.arange(35).reshape(5, 7)[:2][batch["mask"][:2]]
    assert [kept["text"][i] for i in first] == [str(i) for i in ids.tolist()]
    assert [span == "late" for span in kept["span"]] == [place > 3 for place in kept["place"]]
    assert [kept["age"][i] for i in first] == [float(kept["sequence"][i]) for i in first]


def test_what_is_not_known_is_null():
    new = torch.zeros(1, 2)
    did = {"clip": token_loss(new, new, torch.ones(1)).diagnostics}
    kept = kept_columns(did, new.long(), str, step=0, count=1)
    for name in ("prompt", "span", "age", "entropy", "reward"):
        assert kept[name] == [None, None]


def test_prompts_rewards_and_empty_sequences():
    batch, _, kept = columns(count=9, prompts=list("abcde"), rewards=torch.arange(5.0))
    assert set(kept["sequence"]) == set(batch["mask"].any(-1).nonzero()[:, 0].tolist())
    assert all(
        (prompt, reward) == ("abcde"[row], float(row))
        for prompt, reward, row in zip(
            kept["prompt"], kept["reward"], kept["sequence"], strict=True
        )
    )


def test_half_a_character_has_its_tokenisers_name():
    class Bytes:
        def decode(self, ids, **_):
            return bytes(ids).decode(errors="replace")

        def convert_ids_to_tokens(self, i):
            return f"<0x{i:02X}>"

    piece = piece_of(Bytes())
    assert (piece(65), piece(0xC3)) == ("A", "<0xC3>")
