"""A library's own loss as a function of log-probs, so that `klip probe` can ask it."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from klip.errors import KlipError

Loss = Callable[..., Any]


def configured(loss: Loss, settings: Iterable[str] = ()) -> Loss:
    """`loss` as the library that it comes from would call it, with `name=value` settings.

    A class or method of TRL is its GRPO trainer's loss, and a function of verl one of its policy
    losses; of any other function the settings are keyword arguments.

    >>> configured(max, ["key=len"]).keywords
    {'key': 'len'}
    """
    given = dict(map(_setting, settings))
    library = str(getattr(loss, "__module__", "")).partition(".")[0]
    if library == "trl":
        if not loss.__qualname__.startswith("GRPOTrainer"):
            raise KlipError(f"of TRL only the loss of trl:GRPOTrainer is known, not {loss}")
        from klip.adapters.trl_stock import loss_of_trainer

        return loss_of_trainer(**given)
    if library == "verl":
        if "response_mask" not in inspect.signature(loss).parameters:
            raise KlipError(f"{loss.__qualname__} of verl is not a policy loss: it takes no mask")
        from klip.adapters.verl import plain_loss

        return plain_loss(loss, **given)
    return functools.partial(loss, **given) if given else loss


def _setting(text: str) -> tuple[str, Any]:
    """("epsilon", 0.2) of "epsilon=0.2"; what is no literal is a string."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise KlipError(f"cannot read the setting '{text}'; write name=value")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
