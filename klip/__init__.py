"""Klip: the workbench for trust regions in policy optimisation.

Every trust region is one number per sample, beta, in  E[ w*A + beta * log pi(a|s) ].
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klip.errors import KlipError
    from klip.policies import load
    from klip.ppo.train import train
    from klip.shapes import Context, Shape, parse

__version__ = "0.1.0"
__all__ = ["Context", "KlipError", "Shape", "load", "parse", "train"]

_HOMES = {
    "KlipError": "klip.errors",
    "load": "klip.policies",
    "train": "klip.ppo.train",
    "Context": "klip.shapes",
    "Shape": "klip.shapes",
    "parse": "klip.shapes",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: a command that is stopped at once has loaded little."""
    if name not in _HOMES:
        raise AttributeError(f"klip has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
