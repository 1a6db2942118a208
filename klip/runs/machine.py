"""What the bits of a run depend on besides its config: versions and the processor."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from klip import __version__


@functools.cache
def this_machine(libraries: tuple[str, ...] = ()) -> Mapping[str, str]:
    """Versions of Klip, of NumPy and of `libraries`, and the processor.

    The processor is named with its instruction sets, since compiled code depends on them.
    """
    versions = {name: version(name) for name in ("numpy", *libraries)}
    return {
        "klip": __version__,
        **versions,
        "python": platform.python_version(),
        "cpu": _processor(),
    }


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as it was, in words.

    >>> differences({"jax": "0.9", "cpu": "x"}, {"jax": "0.10", "cpu": "x"})
    ['jax 0.9 -> 0.10']
    """
    names = dict.fromkeys((*before, *now))
    return [
        f"{name} {before.get(name, 'none')} -> {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _processor() -> str:
    """The model's name, and a digest of its features: compiled code depends on those."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".strip()
    facts = dict(_fact(line) for line in lines if ":" in line)  # the last core's, like all
    name = facts.get("model name", platform.machine())
    features = " ".join(sorted((facts.get("flags") or facts.get("Features") or "").split()))
    return f"{name} [{hashlib.sha256(features.encode()).hexdigest()[:8]}]"


def _fact(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
