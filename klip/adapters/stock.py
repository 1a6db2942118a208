"""A library's own loss as a function of log-probs, for `klip probe`."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from klip.errors import KlipError
from klip.theory.arguments import describe
from klip.theory.probe import Probe, load_loss
from klip.theory.probe import probe as ask

Loss = Callable[..., Any]


def probe(
    loss: str | Loss, settings: Iterable[str] = (), output: str | Path | None = None
) -> Probe:
    """Which trust region a policy loss (to be minimised) implements, by its gradients alone.

    >>> import jax.numpy as jnp
    >>> def loss(new, old, advantages):
    ...     w = jnp.exp(new - old)
    ...     return -jnp.minimum(w * advantages, jnp.clip(w, 0.8, 1.2) * advantages).mean()
    >>> str(probe(loss).match)
    'clip(eps=0.2)'

    Args:
        loss: a function of new and old log-probs and advantages (and of a mask, and of a
            reference's log-probs, if it takes them), or its place, as "file.py:function" or
            "package.module:function"; TRL's is "trl:GRPOTrainer"
        settings: "name=value" each: keyword arguments, or settings of the loss's library
        output: a .png, .svg or .pdf file for a picture of the recovered multiplier

    Returns:
        what the loss is (`match`, `headline`), what looks wrong (`findings`, `ok`), and its pull
        and profile, for pictures and numbers of one's own

    """
    name = loss if isinstance(loss, str) else describe(loss)
    function = load_loss(loss) if isinstance(loss, str) else loss
    probed = dataclasses.replace(ask(configured(function, settings)), name=name)
    if output is not None:
        from klip.draw.show import probe_picture, save

        save(probe_picture(probed.points(), probed.match.shape, name), Path(output))
    return probed


def configured(loss: Loss, settings: Iterable[str] = ()) -> Loss:
    """`loss` as the library that it comes from would call it, with `name=value` settings.

    A class or method of TRL stands for its GRPO trainer's loss, and a function of verl is one of
    its policy losses; any other function takes the settings as keyword arguments.

    >>> configured(max, ["key=len"]).keywords
    {'key': 'len'}
    """
    options = dict(map(_setting, settings))
    library = str(getattr(loss, "__module__", "")).partition(".")[0]
    if library == "trl":
        if not loss.__qualname__.startswith("GRPOTrainer"):
            raise KlipError(f"of TRL only the loss of trl:GRPOTrainer is known, not {loss}")
        from klip.adapters.trl_stock import loss_of_trainer

        return loss_of_trainer(**options)
    if library == "verl":
        if "response_mask" not in inspect.signature(loss).parameters:
            raise KlipError(f"{loss.__qualname__} of verl is not a policy loss: it takes no mask")
        from klip.adapters.verl import plain_loss

        return plain_loss(loss, **options)
    return functools.partial(loss, **options) if options else loss


def _setting(text: str) -> tuple[str, Any]:
    """("epsilon", 0.2) for "epsilon=0.2"; a value that is no literal is a string."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise KlipError(f"cannot read the setting '{text}'; write name=value")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
