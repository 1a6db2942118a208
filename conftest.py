"""Adapters whose library is not installed are left to the environment that has it."""

from importlib.util import find_spec

collect_ignore = [
    path
    for name in ("trl", "verl")
    if find_spec(name) is None
    for path in (f"klip/adapters/{name}.py", f"tests/adapters/{name}")
]
