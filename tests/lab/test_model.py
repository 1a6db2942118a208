"""The model: its cache computes what the whole does, and its numbers come from its seed."""

import numpy as np
import pytest
import torch

from klip.engine.random import stream
from klip.lab.addition import END, PAD, VOCABULARY
from klip.lab.model import Size, generate, mask_of, new_model, score

LONGEST = 16


@pytest.fixture(scope="module")
def model():
    made = new_model(Size(2, 32, 4), LONGEST, stream(0, "weights"))
    with torch.no_grad():  # far from uniform, so that a mistake would show
        for weight in made.parameters():
            weight.mul_(4.0)
    return made


def ids(rows, length, seed=0):
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, len(VOCABULARY), (rows, length))
    )


@pytest.mark.parametrize("start", [1, 5])
def test_the_cache_gives_the_logits_of_the_whole(model, start):
    tokens = ids(3, LONGEST)
    with torch.no_grad():
        whole = model(tokens)
        caches = model.empty_caches(3)
        parts = [model(tokens[:, :start], caches)]
        for place in range(start, LONGEST):
            parts.append(model(tokens[:, place : place + 1], caches, place))
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-4)


def test_no_token_sees_a_later_one(model):
    tokens, other = ids(2, LONGEST), ids(2, LONGEST, seed=1)
    mixed = torch.cat([tokens[:, :7], other[:, 7:]], 1)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :7], model(mixed)[:, :7])


def test_greedy_completions_are_the_likeliest_tokens_of_the_whole(model):
    prompts = ids(8, 4)
    made = generate(model, prompts, None)
    with torch.no_grad():
        best = model(torch.cat([prompts, made[:, :-1]], 1))[:, 3:].argmax(-1)
    mask = mask_of(made)
    assert (made == best)[mask].all()
    assert (made[~mask] == PAD).all()


def test_sampled_tokens_follow_the_models_distribution(model):
    prompts = ids(1, 4).repeat(20000, 1)
    dice = np.random.default_rng(0).random((LONGEST - 4, 20000), np.float32)
    first = generate(model, prompts, dice)[:, 0]
    with torch.no_grad():
        expected = model(prompts[:1])[0, -1].softmax(-1)
    found = torch.bincount(first, minlength=len(VOCABULARY)) / 20000
    assert (found - expected).abs().max() < 0.015


def test_scores_are_log_probabilities_of_the_tokens(model):
    prompts, made = ids(2, 4), ids(2, LONGEST - 4, seed=2)
    said = score(model, prompts, made)
    logs = model(torch.cat([prompts, made], 1)).log_softmax(-1)
    for place in range(LONGEST - 4):
        own = logs[torch.arange(2), 3 + place, made[:, place]]
        torch.testing.assert_close(said.log_prob[:, place], own)
    assert (said.entropy >= 0).all()
    assert (said.entropy <= np.log(len(VOCABULARY)) + 1e-5).all()


def test_the_mask_ends_with_the_end():
    made = torch.tensor([[1, END, PAD, PAD], [1, 2, 3, 4], [END, PAD, PAD, PAD]])
    assert mask_of(made).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


def test_weights_are_a_function_of_the_seed():
    one, same, other = (new_model(Size(), LONGEST, stream(s, "weights")) for s in (3, 3, 4))
    pairs = [
        (a, b, c)
        for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True)
        if a.ndim > 1
    ]
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in pairs)
    assert 100_000 <= sum(p.numel() for p in one.parameters()) <= 200_000
