"""A Ray cluster of two nodes on this machine, each a session of processes that can go dark."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import kills

RAY = str(Path(sys.executable).with_name("ray"))
PATIENCE = 180.0  # seconds for a node to be there


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """Head and second node, one CPU each; `logs` is the folder for what they say."""

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self.logs, self.port, self.nodes = logs, free_port(), list[subprocess.Popen[bytes]]()
        # A token that lies in the user's home would have the head ask for it, and nobody send it.
        self.environment = {**os.environ, "RAY_AUTH_MODE": "disabled",
                            "RAY_DISABLE_IMPORT_WARNING": "1", "RAY_USAGE_STATS_ENABLED": "0",
                            **(environment or {})}  # fmt: skip
        try:
            self.head = self._start("--head", f"--port={self.port}", "--include-dashboard=false",
                                    f"--temp-dir=/tmp/klip-ray-{self.port}")  # fmt: skip
            self._wait_for_the_head()
            self.second = self.start_second()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Where the head listens."""
        return f"127.0.0.1:{self.port}"

    def start_second(self) -> subprocess.Popen[bytes]:
        """Another node in place of the second."""
        self.second = self._start(f"--address={self.address}")
        return self.second

    def wait_for_both(self) -> None:
        """Wait until the second node has joined."""
        until = time.monotonic() + PATIENCE
        while "2.0 CPU" not in self._status().replace("0.0/", "").replace("1.0/", ""):
            if time.monotonic() > until:
                raise TimeoutError("the second node did not join")
            time.sleep(1)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """A machine that goes dark: all its processes at once."""
        for pid in kills.members(node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def processes(self, node: subprocess.Popen[bytes], of: bytes) -> list[int]:
        """The processes of a node whose command line has these words."""
        found = []
        for pid in kills.members(node.pid):
            with contextlib.suppress(OSError):
                if of in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def close(self) -> None:
        """Leave no process behind."""
        for node in reversed(self.nodes):
            self.kill(node)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.logs / f"node-{self.port}-{len(self.nodes)}.log").open("wb") as log:
            node = subprocess.Popen(
                [RAY, "start", "--block", "--num-cpus=1", "--object-store-memory=80000000",
                 "--disable-usage-stats", *options],
                start_new_session=True, stdout=log, stderr=log, env=self.environment,
            )  # fmt: skip
        self.nodes.append(node)
        return node

    def _wait_for_the_head(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1),
            ):
                return
            if time.monotonic() > until:
                raise TimeoutError((self.logs / f"node-{self.port}-0.log").read_text())
            time.sleep(0.2)

    def _status(self) -> str:
        return subprocess.run(
            [RAY, "status", f"--address={self.address}"],
            capture_output=True, text=True, check=False, env=self.environment,
        ).stdout  # fmt: skip
