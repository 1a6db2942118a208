"""The wheel in every supported Python that this machine has: `python benchmarks/pythons.py`.

Each gets an environment of its own in a folder that is thrown away, with the core and nothing else.
There the package is imported, the catalogue listed, the theorems checked, CartPole trained for a
few thousand steps, and a report made. A version that is not here is named, and is no failure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
TRIED = (
    ("klip", "shapes"),
    ("klip", "verify", "--samples", "8192"),
    ("klip", "train", "CartPole-v1", "--seeds", "1", "--steps", "4096", "--out", "runs"),
    ("klip", "report", "runs", "-o", "page.html"),
)
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


def interpreter(version: str) -> str | None:
    """A Python of this version that starts: on the path, or one of pyenv's."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, kept)):
        if found is not None and told(found).startswith(version):
            return found
    return None


def told(python: str) -> str:
    """The version that an interpreter says it is; nothing if it does not start."""
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    return done.stdout.strip()


def tried(python: str, wheel: Path, folder: Path) -> str:
    """What went wrong with the wheel in this Python; nothing if all went well."""
    subprocess.run([python, "-m", "venv", folder / "env"], check=True)
    scripts = folder / "env" / "bin"
    install = [scripts / "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    for command in (install, *((scripts / words[0], *words[1:]) for words in TRIED)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            return f"{' '.join(map(str, command))}: {done.stderr[-2000:]}"
    return "" if (folder / "page.html").exists() else "no page was written"


def main() -> int:
    """Try every version; the exit code is 1 if one of them fails."""
    failed = False
    with tempfile.TemporaryDirectory() as built:
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built]
        subprocess.run([*build, ROOT], check=True)
        (wheel,) = Path(built).glob("*.whl")
        for version in VERSIONS:
            python = interpreter(version)
            if python is None:
                print(f"{version}: not here")
                continue
            with tempfile.TemporaryDirectory() as folder:
                wrong = tried(python, wheel, Path(folder))
            print(f"{version}: {told(python)}, {wrong or 'all commands work'}", flush=True)
            failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
