"""A shape as JavaScript: what JAX traces of it, written out as code that a page can run.

JAX turns a shape into a jaxpr, a list of primitive operations on arrays. Those of a trust region
act on each sample alone, and JavaScript has every one of them in the same double precision. So
the page computes with the library's own formulas at any value of any parameter, and a
user's own shape needs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from klip.errors import KlipError

BATCH: Final = 3
"""How many samples are traced: more than one, or a mean over the batch would look elementwise."""

_SAME: Final = ("stop_gradient", "broadcast_in_dim", "copy", "copy_p", "squeeze", "reshape")
_OPERATIONS: Final = {
    "add": "{0} + {1}",
    "add_any": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "rem": "{0} % {1}",
    "neg": "-{0}",
    "eq": "{0} === {1}",
    "ne": "{0} !== {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "square": "{0} * {0}",
    "rsqrt": "1 / Math.sqrt({0})",
    "logistic": "1 / (1 + Math.exp(-{0}))",
    "exp2": "Math.pow(2, {0})",
    "is_finite": "Number.isFinite({0})",
    "max": "Math.max({0}, {1})",
    "min": "Math.min({0}, {1})",
    "pow": "Math.pow({0}, {1})",
    "atan2": "Math.atan2({0}, {1})",
    "clamp": "Math.min(Math.max({1}, {0}), {2})",
    **{
        name: f"Math.{name}({{0}})"
        for name in (
            "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "cbrt", "tanh", "floor", "ceil",
            "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
        )
    },
}  # fmt: skip
_LOGIC: Final = {"and": "{0} && {1}", "or": "{0} || {1}", "xor": "{0} !== {1}", "not": "!{0}"}
_INLINED: Final = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def javascript(
    function: Callable[..., Sequence[Any]],
    samples: Sequence[str],
    numbers: Sequence[str],
    out: str,
) -> str:
    """The statements that set `out[0]`, `out[1]`, ... to what `function` returns for one sample.

    `samples` and `numbers` are the names, in JavaScript, of its arguments: of those that differ
    from sample to sample, and of the parameters, in this order.

    >>> javascript(lambda w, eps: [jax.numpy.where(w > 1 + eps, 0.0, w)], ["w"], ["e"], "m")
    'm[0] = (w > (1 + e)) ? 0 : w;'
    >>> javascript(lambda w: [w - w.mean()], ["w"], [], "m")
    Traceback (most recent call last):
    klip.errors.KlipError: cannot write reduce_sum as JavaScript: only what acts on each sample alone can be
    """  # noqa: E501
    with jax.enable_x64(True):
        arguments = [np.zeros(BATCH)] * len(samples) + [np.float64(0.0)] * len(numbers)
        try:
            traced = jax.make_jaxpr(lambda *xs: tuple(function(*xs)))(*arguments)
        except KlipError:
            raise
        except Exception as error:  # anything that a user's code may raise
            line = str(error).strip().split("\n")[0]
            raise KlipError(
                f"JAX cannot trace it ({type(error).__name__}: {line}); "
                "write it with the functions of klip.shapes"
            ) from error
    code = _Code()
    atoms = code.closed(traced, [*samples, *numbers])
    return code.write({f"{out}[{i}]": atom for i, atom in enumerate(atoms)})


def number(x: Any) -> str:
    """A constant's spelling, to the last bit.

    >>> [number(x) for x in (0.1, -2.0, 1e-25, np.inf, True)]
    ['0.1', '(-2)', '1e-25', 'Infinity', 'true']
    """
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    value = float(x)
    if np.isnan(value):
        return "NaN"
    text = "Infinity" if np.isinf(value) else repr(abs(value)).removesuffix(".0")
    return f"(-{text})" if np.signbit(value) else text


class _Code:
    """A growing list of operations, each once; an atom is a name, a number or `@` and an index."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, tuple[str, ...]]] = []
        self.index: dict[tuple[str, tuple[str, ...]], str] = {}

    def closed(self, closed: ClosedJaxpr, arguments: Sequence[str]) -> list[str]:
        return self.inline(closed.jaxpr, [_constant(c) for c in closed.consts], arguments)

    def inline(self, jaxpr: Jaxpr, constants: Sequence[str], arguments: Sequence[str]) -> list[str]:
        """Add the operations of a jaxpr; return the atoms of its results."""
        known: dict[Any, str] = dict(zip(jaxpr.constvars, constants, strict=True))
        known |= dict(zip(jaxpr.invars, arguments, strict=True))

        def atom(x: Any) -> str:
            return _constant(x.val) if isinstance(x, Literal) else known[x]

        for equation in jaxpr.eqns:
            results = self.equation(equation, [atom(x) for x in equation.invars])
            known |= dict(zip(equation.outvars, results, strict=True))
        return [atom(x) for x in jaxpr.outvars]

    def equation(self, equation: Any, atoms: list[str]) -> list[str]:
        name = equation.primitive.name
        inner = next((equation.params[k] for k in _INLINED if k in equation.params), None)
        if isinstance(inner, ClosedJaxpr):
            return self.closed(inner, atoms)
        if isinstance(inner, Jaxpr):
            return self.inline(inner, [], atoms)
        if any(x.aval.shape not in ((), (BATCH,)) for x in equation.outvars):
            raise _refused(name)
        if name in _SAME or _is_conversion_to_itself(equation):
            return atoms[:1]
        if "1" in atoms and name == "mul":  # what differentiation starts with
            return [atoms[1 - atoms.index("1")]]
        return [self.operation(_template(equation, name), *atoms)]

    def operation(self, template: str, *atoms: str) -> str:
        key = (template, atoms)
        if key not in self.index:
            self.index[key] = f"@{len(self.operations)}"
            self.operations.append(key)
        return self.index[key]

    def write(self, results: dict[str, str]) -> str:
        """The assignments; a value used once stands where it is used, one never used nowhere."""
        uses = dict.fromkeys(self.index.values(), 0)
        live = [atom for atom in results.values() if atom in uses]
        for atom in live:
            uses[atom] += 1
        for i in reversed(range(len(self.operations))):
            if uses[f"@{i}"]:
                template, atoms = self.operations[i]
                for place, atom in enumerate(atoms):
                    if atom in uses:
                        uses[atom] += template.count(f"{{{place}}}")
        texts: dict[str, str] = {}
        statements = []
        for i, (template, atoms) in enumerate(self.operations):
            name = f"@{i}"
            if not uses[name]:
                continue
            text = template.format(*(texts.get(atom, atom) for atom in atoms))
            if uses[name] > 1:
                statements.append(f"const v{i} = {text};")
                texts[name] = f"v{i}"
            else:
                texts[name] = f"({text})"
        for name, atom in results.items():
            text = texts.get(atom, atom)
            bare = text[1:-1] if atom in uses and uses[atom] == 1 else text
            statements.append(f"{name} = {bare};")
        return " ".join(statements)


def _constant(x: Any) -> str:
    value = np.asarray(x)
    if not value.size or not np.array_equal(value, np.full_like(value, value.flat[0]), True):
        raise _refused("an array of different numbers")
    return number(value.flat[0])


def _template(equation: Any, name: str) -> str:
    """An operation's expression, with {0}, {1}, ... for its arguments."""
    kind = equation.invars[0].aval.dtype.kind
    if name == "select_n":
        if kind != "b" or len(equation.invars) != 3:
            raise _refused("a choice among more than two")
        return "{0} ? {2} : {1}"
    if name == "integer_pow":
        power = equation.params["y"]
        return "{0} * {0}" if power == 2 else f"Math.pow({{0}}, {power})"
    if name == "convert_element_type":
        return _conversion(kind, equation.params["new_dtype"])
    if name in _LOGIC and kind == "b":
        return _LOGIC[name]
    if name == "div" and kind in "iu":
        return "Math.trunc({0} / {1})"
    if name in _OPERATIONS:
        return _OPERATIONS[name]
    raise _refused(name)


def _is_conversion_to_itself(equation: Any) -> bool:
    target = equation.params.get("new_dtype")
    return target is not None and target == equation.invars[0].aval.dtype


def _conversion(kind: str, target: Any) -> str:
    if target.kind == "b":
        return "{0} !== 0" if kind != "b" else "{0}"
    if target.kind in "iu":
        return "Math.trunc({0})" if kind == "f" else "+{0}"
    if target == np.float64:
        return "+{0}"
    if target == np.float32:
        return "Math.fround({0})"
    raise _refused(f"a conversion to {target}")


def _refused(what: str) -> KlipError:
    return KlipError(
        f"cannot write {what} as JavaScript: only what acts on each sample alone can be"
    )
