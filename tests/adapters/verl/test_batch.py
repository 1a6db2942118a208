"""verl's batch as losses see it: two ratios, spans, ages and entropies, where it has them."""

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.utils import losses

from klip.adapters.common import AGE_LABELS
from klip.adapters.verl_batch import Remembered, Told, row_of, telling_of, told
from klip.tokens import token_context, token_loss
from klip.tokens.diagnostics import ENTROPY_LABELS
from tests.adapters.verl.world import MARKER, compute, config_of, microbatch, whole


def with_entropy(output, data):
    """Entropies from 0 to 3 nats, in the engine's layout."""
    shape = data["response_mask"].shape
    entropy = torch.linspace(0, 3, shape.numel()).reshape(shape)
    counts = data["attention_mask"].sum(-1)
    return {**output, "entropy": whole(entropy, data["response_mask"].sum(-1), counts)}, entropy


@pytest.mark.parametrize(("name", "watched"), [("vanilla", True), ("klip", True), ("klip", False)])
def test_both_ratios_have_kills_and_quantiles(request, configure, name, watched, recwarn):
    if watched:
        request.getfixturevalue("watching")
    configure("clip")
    output, data = microbatch(seed=1, rows=16)
    _, _, row = compute(config_of(name), output, data)
    mask = data["response_mask"].bool()
    for ratio, wanted in (("mismatch", torch.tensor(0.3).exp()), ("move", None)):
        quantiles = [row[f"klip/{ratio}/ratio_{label}"] for label in ("p01", "p50", "p99")]
        assert quantiles == sorted(quantiles)
        assert 0 <= row[f"klip/{ratio}/kill"] <= 1
        if wanted is not None:
            assert quantiles == pytest.approx([wanted.item()] * 3, rel=1e-5)
    # e^0.3 is out of the band: the mismatch alone would kill all tokens that are pushed up.
    up = (data["advantages"] > 0)[mask].float().mean().item()
    assert row["klip/mismatch/kill"] == pytest.approx(up, abs=1e-6)
    assert row["klip/move/kill"] == pytest.approx(row["klip/kill"], abs=1e-6)


@pytest.mark.parametrize("name", ["vanilla", "klip"])
def test_spans_ages_and_entropies_are_reported(watching, configure, monkeypatch, name):
    configure("clip")
    monkeypatch.setenv("KLIP_ANSWER_MARKER", MARKER)
    versions = [20, 19, 18, 17, 12, 3, 20, 20]
    output, data = microbatch(seed=2, rows=8, versions=versions)
    output, entropy = with_entropy(output, data)
    _, _, row = compute(config_of(name), output, data)
    mask = data["response_mask"].bool()
    shares = {key.removeprefix("klip/"): x for key, x in row.items() if key.endswith("_of_all")}

    def share(chosen):
        return (chosen & mask).sum().item() / mask.sum().item()

    place, age = (
        torch.arange(6).expand(mask.shape),
        20 - torch.tensor([20, 19, 18, 17, 12, 3] + [20] * 2),
    )
    place, age = torch.arange(6).expand(mask.shape), 20 - torch.tensor(versions)
    wanted = {
        "answer": place > 1, "reasoning": place <= 1,
        "age=0": age[:, None] == 0, "age=1": age[:, None] == 1,
        "age=2-3": (age[:, None] > 1) & (age[:, None] < 4),
        "age=4-7": torch.zeros_like(mask), "age=8+": age[:, None] >= 8,
        "entropy=0-0.1": entropy < 0.1, "entropy=2+": entropy >= 2,
    }  # fmt: skip
    for part, chosen in wanted.items():
        assert shares[f"{part}/tokens_of_all"] == pytest.approx(share(chosen), abs=1e-6), part
    for parts in (
        ("answer", "reasoning"),
        [f"age={label}" for label in AGE_LABELS],
        [f"entropy={label}" for label in ENTROPY_LABELS],
    ):
        zeroed = sum(shares[f"{part}/zeroed_of_all"] for part in parts)
        assert zeroed == pytest.approx(row["klip/zeroed"], abs=1e-6)
    assert row["klip/zeroed"] > 0


def test_shares_of_all_are_those_of_a_batch_cut_in_two(watching, monkeypatch):
    """verl adds up what microbatches report: as if they had been one."""
    monkeypatch.setenv("KLIP_ANSWER_MARKER", MARKER)
    output, data = microbatch(seed=3, rows=8, versions=[4, 4, 4, 3, 3, 2, 1, 4])
    output, _ = with_entropy(output, data)
    _, _, together = compute(config_of(), output, data)
    added = dict.fromkeys(together, 0.0)
    sizes = data["attention_mask"].sum(-1)
    cut = int(sizes[:4].sum())
    for rows, places in ((slice(0, 4), slice(0, cut)), (slice(4, 8), slice(cut, None))):
        half = {key: x[places].detach().requires_grad_(True) for key, x in output.items()}
        _, _, row = compute(config_of(), half, data[rows])
        added = {key: added[key] + row[key] for key in together}
    names = [name for name in together if name.endswith(("_of_all", "/kill"))]
    assert len(names) > 20
    for name in names:
        assert added[name] == pytest.approx(together[name], abs=1e-6), name


def test_the_newest_version_is_remembered_between_batches(watching, recwarn):
    for versions, oldest in (([5, 5, 5, 5], "0"), ([5, 5, 5, 6], "1"), ([5, 5, 5, 5], "1")):
        output, data = microbatch(versions=versions)
        _, _, row = compute(config_of(), output, data)
        assert row[f"klip/age={oldest}/tokens_of_all"] > 0.5


def test_what_the_batch_lacks_is_said_once(watching):
    with pytest.warns(UserWarning, match="KLIP_WATCH watches without") as caught:
        compute(config_of(), *microbatch(sampler=False))
    compute(config_of(), *microbatch(sampler=False))  # a second warning would be an error
    (said,) = (str(warning.message) for warning in caught)
    for name in ("mismatch", "entropy", "age", "span"):
        assert name in said
    assert "calculate_log_probs=True" in said
    assert "KLIP_ANSWER_MARKER" in said


def test_value_and_gradient_are_verls_own(watching, recwarn):
    plain = losses.ppo_loss.__wrapped__
    output, data = microbatch(seed=4)
    POLICY = POLICY_LOSS_REGISTRY["vanilla"].__wrapped__
    value, slope, _ = compute(config_of(), output, data)
    watched, POLICY_LOSS_REGISTRY["vanilla"] = POLICY_LOSS_REGISTRY["vanilla"], POLICY
    try:
        theirs, _ = plain(config_of(), output, data)
    finally:
        POLICY_LOSS_REGISTRY["vanilla"] = watched
    assert torch.equal(value, theirs)
    assert torch.equal(slope, torch.autograd.grad(theirs, output["log_probs"])[0])


def test_a_nested_batch_says_the_same():
    seen = []
    for nested in (False, True):
        output, data = microbatch(seed=5, nested=nested, versions=[3, 2, 1, 3])
        batch = Told(output, data, Remembered())
        mask = data.select("response_mask").to_padded_tensor()["response_mask"].bool()
        found = (batch.sampler, batch.ids, batch.rewards, batch.age)
        seen.append([x if x.shape != mask.shape else x[mask] for x in found])
        assert len(batch.prompts[1]) == 3
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_a_version_that_is_not_known_is_no_age():
    assert Told(*microbatch(versions=[3, None, 1, 3]), Remembered()).age is None
    assert Told(*microbatch(), Remembered()).age is None


def test_a_step_has_one_first_microbatch_of_its_last_minibatch():
    clock, found = Remembered(), []
    for _ in range(2):  # steps of two minibatches of three microbatches
        for last in (False, True):
            for _ in range(3):
                batch = Told(*microbatch(rows=2, last=last, of=6), clock)
                found.append(batch.first_of_last)
                assert batch.first_of_last == found[-1]  # however often it is asked
    assert found == 2 * [False, False, False, True, False, False]


def test_outside_of_a_loss_nothing_is_told():
    assert told() is None
    batch = Told(*microbatch(), Remembered())
    with telling_of(batch):
        assert told() is batch
    assert told() is None


def test_old_ages_are_counted_together():
    new = torch.zeros(3, 2)
    context = token_context(new, new, age=torch.tensor([7.0, 8.0, 40.0]))
    row = row_of(token_loss(new, new, torch.ones(3), context=context).diagnostics.pool())
    assert row["age=8+/tokens_of_all"] == pytest.approx(2 / 3)
    assert row["age=4-7/tokens_of_all"] == pytest.approx(1 / 3)
