"""The card of a policy in a notebook: all of it text, whatever its file says."""

import dataclasses

import klip
from klip.policies.showing import policy_card


def test_a_policy_shows_its_card():
    policy = klip.load("examples/policy")
    shown = policy._repr_html_()
    assert shown == policy_card(policy)
    for text in ("CartPole-v1", "observations [4]", "[64, 64]", "40960 steps", "clip(eps=0.2)"):
        assert text in shown


def test_what_a_file_says_is_text_and_nobodys_code_is_run():
    policy = klip.load("examples/policy")
    config = {**policy.config, "task": "<script>", "shape": "<b>.py:Mine()", "steps": "<i>" * 999}
    shown = policy_card(dataclasses.replace(policy, config=config))
    assert not [tag for tag in ("<script>", "<b>", "<i>", "<svg") if tag in shown]
    assert "&lt;script&gt;" in shown
    assert len(shown) < 5000
