"""Anybody's policy loss as a black box: log-probabilities in, gradients out, in float64.

Everything that differs between PyTorch and JAX losses, and between the ways people lay out their
arguments, is settled here once: the framework, the order of the arguments, the mask, the layout.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from klip.errors import KlipError
from klip.theory.arguments import Arguments, arguments_of, describe
from klip.theory.views import Floats

FRAMEWORKS = ("torch", "jax")
OLD = -5.0
"""The old log-probability at which a loss is called: new ones up to w = e^4 stay below 0."""

NEAR_OLD = -1.0
"""The one for a loss in half precision, which rounds small log-probabilities less."""

HALF = {"bfloat16": 0.04, "float16": 0.005}
"""The half precisions, and the relative error of a pull that is computed in them."""

FLAT, GRID, SEQUENCES = "[N]", "[B, T]", "[B, T] with advantages [B]"


@dataclass(frozen=True)
class Answer:
    """What one call of a loss returned."""

    value: Floats  # [], [N], [B] or [B, T]
    gradient: Floats  # [B, T], of the sum of `value`


@dataclass(frozen=True)
class BlackBox:
    """A loss, and how to call it."""

    function: Callable[..., Any]
    framework: str
    layout: str
    arguments: Arguments
    boolean_mask: bool = False
    compiled: bool = False
    """Whether JAX compiles the loss; it cannot compile one that indexes by its mask."""
    half: str = ""
    """The half precision in which the loss computes, "bfloat16" or "float16"; or empty."""

    @functools.cached_property
    def gradient(self) -> Callable[..., Any]:
        """A JAX function from arrays by name to the loss and its gradient."""
        import jax

        return jax.jit(self._gradient) if self.compiled else self._gradient

    def _gradient(self, arrays: dict[str, Any]) -> Any:
        import jax
        import jax.numpy as jnp

        def loss(new: Any) -> Any:
            out = _ask(self, arrays | {"new": new})
            if not jnp.issubdtype(out.dtype, jnp.floating):
                raise KlipError(_not_a_loss(self.function, f"values of type {out.dtype}"))
            return out

        value, pullback = jax.vjp(loss, arrays["new"])
        return value, pullback(jnp.ones_like(value))[0]

    @property
    def masked(self) -> bool:
        """Whether the loss takes a mask."""
        return "mask" in self.arguments

    @property
    def referenced(self) -> bool:
        """Whether the loss takes the log-probabilities of a reference policy."""
        return "reference" in self.arguments


def openings(function: Any, framework: str) -> Iterator[BlackBox]:
    """Every way to call the loss, the likeliest first."""
    if not callable(function):
        raise KlipError(
            f"{function!r} is not callable; give a function of new_log_probs, old_log_probs and "
            "advantages"
        )
    if framework not in (*FRAMEWORKS, "auto"):
        raise KlipError(f"framework={framework!r} is unknown; give torch, jax or auto")
    for taken in arguments_of(function):
        masked = "mask" in taken
        for name in _frameworks(function) if framework == "auto" else (framework,):
            if not importlib.util.find_spec(name):
                raise KlipError(f"{name} is not installed: pip install {name}")
            for layout in (GRID, SEQUENCES, FLAT) if masked else (FLAT, GRID, SEQUENCES):
                for boolean in (False, True) if masked else (False,):
                    for compiled in (True, False) if name == "jax" else (False,):
                        yield BlackBox(function, name, layout, taken, boolean, compiled)


def _frameworks(function: Callable[..., Any]) -> tuple[str, ...]:
    """The frameworks to try: those that the loss or its module uses, or else all installed ones."""
    inner = function.func if isinstance(function, functools.partial) else function
    inner = inspect.unwrap(inner)
    scope = getattr(inner, "__globals__", None)
    if scope is None:
        module = sys.modules.get(getattr(type(inner), "__module__", ""), None)
        scope = vars(module) if module else {}
    code = getattr(inner, "__code__", None)
    used = [scope[name] for name in getattr(code, "co_names", ()) if name in scope]
    for objects in (used, list(scope.values())):
        roots = {_root(item) for item in objects}
        if mentioned := tuple(name for name in FRAMEWORKS if name in roots):
            return mentioned
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    return tuple(sorted(installed, key=lambda name: name not in sys.modules))


def _root(item: object) -> str:
    """The package that an object comes from."""
    name = item.__name__ if inspect.ismodule(item) else getattr(item, "__module__", None)
    return str(name or "").partition(".")[0]


def call(
    box: BlackBox,
    log_ratio: Floats,
    advantage: Floats,
    *,
    old: Floats | float | None = None,
    mask: Floats | None = None,
    reference: float = 0.0,
    dtype: str = "float64",
) -> Answer:
    """The loss and its gradient in the new log-probabilities, on arrays `[B, T]`.

    By default `old` is so low that the new log-probabilities stay below 0 too; `reference` is the
    reference policy's log-probability minus the old one.
    """
    usual = NEAR_OLD if box.half else OLD
    level = np.minimum(usual, -log_ratio - 0.5) if old is None else old + 0 * log_ratio
    arrays = {"new": level + log_ratio, "old": level, "advantage": advantage}
    if box.referenced:
        arrays["reference"] = level + reference
    if box.masked:
        arrays["mask"] = np.ones_like(log_ratio) if mask is None else mask
    shape = (-1,) if box.layout == FLAT else log_ratio.shape
    arrays = {key: value.reshape(shape) for key, value in arrays.items()}
    if box.layout == SEQUENCES:
        arrays["advantage"] = arrays["advantage"][:, 0]
    run = _run_torch if box.framework == "torch" else _run_jax
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        value, gradient = run(box, arrays, dtype)
    gradient = np.asarray(gradient, dtype=np.float64).reshape(log_ratio.shape)
    return Answer(np.asarray(value, dtype=np.float64), gradient)


def _ask(box: BlackBox, arrays: dict[str, Any]) -> Any:
    """What the loss returns: its first output if there are several, or the one called `loss`."""
    named = {keyword: arrays[key] for keyword, key in box.arguments.named}
    out = box.function(*(arrays[key] for key in box.arguments.order), **named)
    if isinstance(out, (tuple, list)) and out:
        out = out[0]
    elif isinstance(out, dict) and "loss" in out:
        out = out["loss"]
    if out is None or not hasattr(out, "dtype"):
        raise KlipError(_not_a_loss(box.function, "None" if out is None else type(out).__name__))
    return out


def _not_a_loss(function: Callable[..., Any], what: str) -> str:
    return (
        f"{describe(function)} returns {what}, which has no gradient; return the loss as a "
        "floating-point tensor computed from new_log_probs"
    )


def _run_torch(box: BlackBox, arrays: dict[str, Floats], dtype: str) -> tuple[Any, Any]:
    import torch

    kind = getattr(torch, dtype)
    tensors = {
        key: torch.tensor(x, dtype=torch.bool if key == "mask" and box.boolean_mask else kind)
        for key, x in arrays.items()
    }
    leaf = tensors["new"].requires_grad_(True)
    with torch.enable_grad(), _one_thread(torch):
        out = _ask(box, tensors | {"new": leaf.clone()})
        if not out.requires_grad:
            raise KlipError(
                f"{describe(box.function)} returns a loss that does not require grad; compute it "
                "from new_log_probs, without detach(), item(), numpy() or no_grad()"
            )
        (gradient,) = torch.autograd.grad(out.sum(), leaf, allow_unused=True)
    if gradient is None:
        gradient = torch.zeros_like(leaf)
    return out.detach().double().numpy(), gradient.double().numpy()


@contextlib.contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """Keep PyTorch to one thread: on a busy machine, waking another costs more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _run_jax(box: BlackBox, arrays: dict[str, Floats], dtype: str) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(dtype == "float64"):
        inputs = {
            key: jnp.asarray(x, dtype=bool if key == "mask" and box.boolean_mask else dtype)
            for key, x in arrays.items()
        }

        value, gradient = box.gradient(inputs)
        return np.asarray(value), np.asarray(gradient)


def one_by_one(box: BlackBox) -> BlackBox:
    """The loss of samples `[N]` that are a batch of one each."""
    keys = (*box.arguments.order, *(key for _, key in box.arguments.named))
    sides = (1,) if box.layout == FLAT else (1, 1)

    def each(*parts: Any) -> Any:
        arrays = {key: part.reshape(sides) for key, part in zip(keys, parts, strict=True)}
        if box.layout == SEQUENCES:
            arrays["advantage"] = arrays["advantage"][:, 0]
        return _ask(box, arrays).sum()

    def mapped(*arrays: Any) -> Any:
        if box.framework == "jax":
            import jax

            return jax.vmap(each)(*arrays)
        import torch

        return torch.func.vmap(each)(*arrays)

    def stacked(*arrays: Any) -> Any:
        values = [each(*parts) for parts in zip(*arrays, strict=True)]
        if box.framework == "jax":
            import jax.numpy as jnp

            return jnp.stack(values)
        import torch

        return torch.stack(values)

    quick = replace(box, function=mapped, layout=FLAT, arguments=Arguments(keys))
    try:
        call(quick, np.zeros((1, 2)), np.ones((1, 2)))
    except Exception:  # not every loss can be mapped
        return replace(quick, function=stacked, compiled=False)
    return quick


def half_precision(box: BlackBox) -> str:
    """The half precision in which the loss computes, "bfloat16" or "float16"; or "".

    Metrics in half precision do not count: the gradient must show it as well.
    """
    x, a = np.meshgrid([-0.15, -0.06, 0.05, 0.13], np.linspace(-1.7, 1.9, 64))
    x = x + np.linspace(-0.04, 0.04, 64)[:, None]
    seen = _types_seen(box, x, a)
    found = next((half for half in HALF if half in seen), "")
    if found:
        at = [call(box, x + step, a + step).gradient for step in (0.0, 2**-12, 2**-11)]
        rough = np.abs(at[0] - 2 * at[1] + at[2]) > 1e-5 * np.nanmax(np.abs(at[0]), initial=0.0)
        found = found if np.any(rough) else ""
    return found


def _types_seen(box: BlackBox, log_ratio: Floats, advantage: Floats) -> set[str]:
    """The types of numbers that occur inside the loss, by name."""
    seen: set[str] = set()
    watch = _watch_torch if box.framework == "torch" else _watch_jax
    call(replace(box, function=watch(box.function, seen), compiled=False), log_ratio, advantage)
    return seen


def _watch_torch(function: Callable[..., Any], seen: set[str]) -> Callable[..., Any]:
    """The function, which adds the types of its tensors to `seen`."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, step: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = step(*args, **(kwargs or {}))
            for item in out if isinstance(out, tuple) else (out,):
                if isinstance(item, torch.Tensor):
                    seen.add(str(item.dtype).removeprefix("torch."))
            return out

    def watched(*args: Any, **named: Any) -> Any:
        with Watch():
            return function(*args, **named)

    return watched


def _watch_jax(function: Callable[..., Any], seen: set[str]) -> Callable[..., Any]:
    """The function, which adds the half precisions in its trace to `seen`."""
    import jax

    def watched(*args: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):  # not every loss can be traced
            text = str(jax.make_jaxpr(function)(*args, **named))
            found = re.findall(r"\b(b?)f16\[", text)
            seen.update({"b": "bfloat16", "": "float16"}[letter] for letter in found)
        return function(*args, **named)

    return watched


def open_box(function: Any, framework: str, works: Callable[[BlackBox], bool]) -> BlackBox:
    """The first way to call the loss that does not raise and for which `works` holds.

    If `works` holds for none, it is the first that does not raise.
    """
    fallback: BlackBox | None = None
    refused: Exception | None = None
    for box in openings(function, framework):
        try:
            if works(box):
                return box
            fallback = fallback or box
        except KlipError:
            raise
        except Exception as error:
            refused = refused or error
    if fallback is not None:
        return fallback
    words = " ".join(str(refused).split())
    raise KlipError(
        f"{describe(function)} raises on every layout of its inputs ({type(refused).__name__}: "
        f"{words[:300]}); make it run as loss(new_log_probs, old_log_probs, advantages[, mask]) "
        "on arrays [N] or [B, T]"
    ) from refused
