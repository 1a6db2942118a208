"""The life of a worker: pinned to a core, it trains one share of the jobs, and watches the pipe."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from multiprocessing.connection import Connection

from klip.engine.advance import Keeping, Progress, advance, mistake
from klip.engine.job import read_job
from klip.engine.process import parents_pipe
from klip.errors import KlipError

GRACE = 10.0  # seconds for a process whose parent is gone to save its runs


def main(handle: int) -> None:
    """Train the share that the parent sends; it hears how the runs go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then asks us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pipe = parents_pipe(handle)
    try:
        share, keeping, core, parent = json.loads(pipe.recv_bytes())
    except (EOFError, OSError):  # the parent is gone already
        return
    if os.getppid() != parent:  # it was killed while this process started
        return
    pin(core)
    threading.Thread(target=_listen, args=(pipe, stop), daemon=True).start()

    def tell(news: Progress) -> None:
        try:
            pipe.send_bytes(json.dumps(news).encode())
        except OSError:  # nobody listens any more
            stop.set()

    jobs = [read_job(fields) for fields in share]
    try:
        advance(jobs, Keeping.read(keeping), tell, stop.is_set)
    except Exception as error:
        reason = str(error) if isinstance(error, KlipError) else mistake(error)
        for job in jobs:
            tell(Progress(job.id, "stopped", reason=reason))


def cores() -> list[int]:
    """The cores that this process may use; where the system does not say, all there are."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(core: int) -> None:
    """Keep this process on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _listen(pipe: Connection, stop: threading.Event) -> None:
    """Wait until the parent says stop, or is gone; then nothing may keep this process for long."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.recv_bytes()
            stop.set()
    stop.set()
    time.sleep(GRACE)
    os._exit(1)  # an environment hangs: what was saved is on the disk
