"""A policy as a notebook shows it: its card, with the picture of its trust region.

A run's names and numbers come from a file that anybody may have written: they are shown as text,
and a shape that is somebody's code is only named.
"""

from __future__ import annotations

import html
from typing import Final

import numpy as np

from klip.draw.notebook import notebook, table
from klip.policies.card import given
from klip.policies.policy import Policy
from klip.shapes.names import shape_of

_LONGEST: Final = 400  # characters of anything that a file says


def policy_card(policy: Policy) -> str:
    """HTML that needs nothing else: task and shape, what it takes and gives, how it was trained.

    >>> import klip
    >>> text = policy_card(klip.load("examples/policy"))
    >>> "CartPole-v1" in text, "one of 2 choices" in text, "<svg" in text
    (True, True, True)
    """
    config = policy.config
    spelling = str(config.get("shape", ""))[:_LONGEST]
    size = sum(int(np.prod(array.shape)) for array in policy.arrays.values())
    seen = "as they are" if policy.moments is None else f"normalised, clipped at {policy.limit:g}"
    about = {
        "task": policy.task,
        "takes": f"observations [{policy.observation_size}], {seen}",
        "gives": given(policy),
        "network": f"hidden layers {list(policy.layout.hidden)}, {size:,d} parameters",
        "trained for": f"{config.get('steps')} steps, seed {config.get('seed')}",
        "rate, epochs, minibatch": ", ".join(
            str(config.get(name)) for name in ("lr", "epochs", "minibatch")
        ),
    }
    rows = [(name, value[:_LONGEST]) for name, value in about.items()]
    region = shape_of(spelling)
    drawn = (
        f"<div><code>{html.escape(spelling)}</code></div>" if region is None else notebook(region)
    )
    return f"{table(('policy', ''), rows)}{drawn}"
