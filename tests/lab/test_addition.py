"""The task's checker: what is right passes, what is wrong does not, however it is written."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klip.lab.addition import (
    completion_length,
    decode,
    encode,
    is_right,
    problems,
    prompt,
    prompt_length,
    scratchpad,
)

digits = st.integers(1, 3)
seeds = st.integers(0, 2**32 - 1)


@given(digits, seeds)
def test_every_spelling_of_a_right_scratchpad_passes(count, seed):
    chance = np.random.default_rng(seed)
    a, b = problems(chance, 1, count)[0].tolist()
    assert is_right(a, b, count, scratchpad(a, b, count))
    assert is_right(a, b, count, scratchpad(a, b, count, chance))


@given(digits, seeds)
def test_a_corrupted_scratchpad_passes_only_if_its_answer_is_the_sum(count, seed):
    chance = np.random.default_rng(seed)
    a, b = problems(chance, 1, count)[0].tolist()
    text = scratchpad(a, b, count, chance, slip=0.5, forget=0.5)
    answer = text.partition("#")[2].rstrip("$")
    assert is_right(a, b, count, text) == (answer == str(a + b))


@given(seeds, st.data())
def test_any_other_answer_fails(seed, data):
    a, b = problems(np.random.default_rng(seed), 1, 2)[0].tolist()
    answer = data.draw(st.text("0123456789", max_size=5).filter(lambda t: t != str(a + b)))
    text = re.sub(r"#\d+", f"#{answer}", scratchpad(a, b, 2))
    assert not is_right(a, b, 2, text)


@pytest.mark.parametrize(
    "text",
    ["#132$", "132$", "7+5=12,4+8+1=13#132", "7+5=12#132$", "7+5=12,4+8+1=13,#132$",
     "7+5=12,4+8+1=13#132$$", "7+5=12,4+8+1=13##132$", "7+5=12 4+8+1=13#132$", ""],
)  # fmt: skip
def test_the_right_answer_in_another_form_fails(text):
    assert is_right(47, 85, 2, "7+5=12,4+8+1=13#132$")
    assert not is_right(47, 85, 2, text)


@given(digits, seeds)
def test_prompts_and_scratchpads_fit_their_lengths_and_the_vocabulary(count, seed):
    chance = np.random.default_rng(seed)
    a, b = problems(chance, 1, count)[0].tolist()
    text = scratchpad(a, b, count, chance, slip=0.5, forget=0.5)
    assert len(prompt(a, b)) == prompt_length(count)
    assert len(text) <= completion_length(count)
    assert decode(encode(text)) == text


def test_mistakes_happen_as_often_as_they_should():
    chance = np.random.default_rng(0)
    texts = [scratchpad(27, 85, 2, chance, forget=0.5) for _ in range(2000)]
    right = np.mean([is_right(27, 85, 2, text) for text in texts])
    assert 0.45 < right < 0.55  # one carry, forgotten every other time
    assert all(is_right(12, 31, 2, scratchpad(12, 31, 2, chance, forget=0.9)) for _ in range(50))


def test_no_pair_is_both_trained_on_and_held_out():
    chance = np.random.default_rng(0)
    seen = {tuple(pair) for pair in problems(chance, 20000, 2).tolist()}
    kept = {tuple(pair) for pair in problems(chance, 5000, 2, held_out=True).tolist()}
    assert not seen & kept
    assert 0.1 < len(kept) / (len(seen) + len(kept)) < 0.16
