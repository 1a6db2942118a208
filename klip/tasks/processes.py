"""Slow environments in processes of their own, several of them at work at once.

A process has a share of the copies and is asked and answers in JSON. Python writes floats so that
they read back as the same bits, so nothing depends on where a copy is. A process that dies
is replaced, and its copies play their open episodes again. One that hears no more of us ends.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from klip.engine.process import Process, parents_pipe
from klip.tasks.copies import RAISED, Copy, Failure, Played, Transition, failure
from klip.tasks.lanes import Arguments

DEATHS = 3  # times in a row that a process may die at one request
PATIENCE = 5.0  # seconds for environments to close


class _Open:
    """A copy's open episode: enough to bring another copy to the same place."""

    def __init__(self, seed: int, actions: list[Any], observation: list[float]) -> None:
        self.seed, self.actions, self.observation = seed, actions, observation


class _Stepper:
    """A process with some copies, which answers requests about them."""

    def __init__(self, task: str, arguments: Arguments, numbers: Sequence[int]) -> None:
        # spelled by Python, since a tuple is no list
        self._about, self.numbers = [task, repr(dict(arguments))], list(numbers)
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self.process = Process(__name__)
        self._send([*self._about, _cores()])

    def ask(self, do: str, copies: Mapping[int, Any]) -> bool:
        """Send a request; whether there is a process that may have heard it."""
        return self._send({"do": do, "copies": copies})

    def answer(self) -> dict[int, Any] | None:
        """The answer to the last request, by copy; None if the process died over it."""
        try:
            return _numbered(json.loads(self.process.pipe.recv_bytes()))
        except (EOFError, OSError):
            return None

    def death(self) -> str:
        """Let go of it; how it ended, in words."""
        self.process.kill()  # it may still be going down
        code = self.process.exit_code or 0
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        """Close its copies, and leave nothing behind."""
        if self.ask("close", {}):
            with contextlib.suppress(OSError):
                self.process.pipe.poll(PATIENCE)  # it hangs up when all are closed
        self.process.kill()

    def _send(self, message: Any) -> bool:
        try:
            self.process.pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            return False
        return True


class InProcesses:
    """Copies that other processes call; see `Copies`."""

    def __init__(self, task: str, arguments: Arguments, count: int, processes: int) -> None:
        self._task = task
        shares = [range(k, count, processes) for k in range(min(processes, count))]
        self._processes = [_Stepper(task, arguments, share) for share in shares]
        self._open: dict[int, _Open] = {}
        self._lost: dict[int, Any] = {}  # copies that a dead process took along, and why

    def play(
        self, episodes: Mapping[int, tuple[int, Sequence[NDArray[Any]]]]
    ) -> dict[int, Played | Failure]:
        asked: dict[int, Any] = {
            number: [seed, [action.tolist() for action in actions]]
            for number, (seed, actions) in episodes.items()
        }
        for number in asked:
            self._forget(number)  # whatever it did before is over
        played: dict[int, Played | Failure] = {}
        for number, given in self._request("play", asked).items():
            played[number] = answer = _read(given, Played)
            if isinstance(answer, Played) and not answer.ended:
                seed, actions = asked[number]
                self._open[number] = _Open(seed, actions, given[0])
        return played

    def step(self, actions: Mapping[int, NDArray[Any]]) -> dict[int, Transition | Failure]:
        asked = {number: action.tolist() for number, action in actions.items()}
        stepped: dict[int, Transition | Failure] = {}
        for number, given in self._request("step", asked).items():
            stepped[number] = answer = _read(given, Transition)
            if isinstance(answer, Transition):
                self._open[number].actions.append(asked[number])
                self._open[number].observation = given[0]
        return stepped

    def drop(self, numbers: Sequence[int]) -> None:
        gone = set(numbers)
        self._request("drop", dict.fromkeys(numbers))
        for process in list(self._processes):
            process.numbers = [number for number in process.numbers if number not in gone]
            if not process.numbers:
                process.end()
                self._processes.remove(process)
        for number in gone:
            self._forget(number)

    def close(self) -> None:
        for process in self._processes:
            process.end()
        self._processes = []

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        self._lost.pop(number, None)

    def _request(self, do: str, asked: Mapping[int, Any]) -> dict[int, Any]:
        """Ask all processes at once; the answer for each copy, in the order of the request."""
        busy = []
        for process in self._processes:
            share = {n: asked[n] for n in process.numbers if n in asked and n not in self._lost}
            if share:
                process.ask(do, share)
                busy.append((process, share))
        answers: dict[int, Any] = {}
        for process, share in busy:
            answer = process.answer()
            answers |= self._again(process, do, share) if answer is None else answer
        return {number: answers.get(number, self._lost.get(number)) for number in asked}

    def _again(self, process: _Stepper, do: str, share: Mapping[int, Any]) -> dict[int, Any]:
        """Replace a process that died, and ask once more, a few times."""
        for _ in range(DEATHS - 1):
            how = process.death()
            process.start()
            if not self._brought_back(process):
                continue
            rest = {number: each for number, each in share.items() if number not in self._lost}
            if process.ask(do, rest) and (answer := process.answer()) is not None:
                return answer
        how = process.death()
        process.start()  # for what its copies are asked next
        doing = {"play": "resetting", "step": "stepping"}.get(do, "closing")
        why = {"failed": [doing, f"its process {how}, {DEATHS} times in a row", ""]}
        self._lost |= {number: why for number in process.numbers if number in self._open}
        return {number: why for number in share}

    def _brought_back(self, process: _Stepper) -> bool:
        """Let a new process play its open episodes again; whether it lived through that."""
        plays = {
            number: [self._open[number].seed, self._open[number].actions]
            for number in process.numbers
            if number in self._open and number not in self._lost
        }
        if not process.ask("play", plays):
            return False
        answer = process.answer()
        for number, given in (answer or {}).items():
            if isinstance(given, dict):
                self._lost[number] = given
            elif json.dumps(given) != json.dumps([self._open[number].observation, 0]):
                why = f"its process was replaced, and {self._task} is not deterministic"
                self._lost[number] = {"failed": ["resetting", why, ""]}
        return answer is not None


def main(handle: int) -> None:
    """The life of a process: hear what it steps, then answer until nobody asks any more."""
    pipe = parents_pipe(handle)
    task, arguments, cores = json.loads(pipe.recv_bytes())
    arguments = ast.literal_eval(arguments)
    if cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    copies: dict[int, Copy] = {}
    while (request := requests.get())["do"] != "close":
        answer: dict[int, Any] = {}
        for number, given in _numbered(request["copies"]).items():
            if request["do"] == "drop":
                if number in copies:
                    copies.pop(number).close()
                answer[number] = None
                continue
            try:
                if number not in copies:
                    copies[number] = Copy(task, arguments)
            except RAISED as error:
                answer[number] = _written(failure("making it", error))
                continue
            answer[number] = _written(_called(copies[number], request["do"], given))
        with contextlib.suppress(OSError):  # nobody listens any more, which ends us
            pipe.send_bytes(json.dumps(answer).encode())
    for copy in copies.values():
        copy.close()
    os._exit(0)


def _called(copy: Copy, do: str, given: Any) -> Transition | Played | Failure:
    if do == "step":
        return copy.step(_array(given, copy.dtype))
    seed, actions = given
    return copy.play(seed, [_array(action, copy.dtype) for action in actions])


def _listen(pipe: Connection, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Take in requests; end at once when whoever asks is gone, whatever is being done."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(json.loads(pipe.recv_bytes()))
    os._exit(1)


def _array(action: Any, dtype: DTypeLike) -> NDArray[Any]:
    return np.array(action, dtype=dtype)


def _written(answer: Transition | Played | Failure) -> Any:
    if isinstance(answer, Failure):
        return {"failed": list(answer)}
    return [answer.observation.tolist(), *answer[1:]]


def _read(given: Any, kind: Any) -> Any:
    if isinstance(given, dict):
        return Failure(*given["failed"])
    return kind(np.array(given[0], np.float64), *given[1:])


def _numbered(copies: Mapping[str, Any]) -> dict[int, Any]:
    return {int(number): each for number, each in copies.items()}


def _cores() -> list[int]:
    """The cores that processes may use: a trainer is pinned to one, and its parent is not."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    with contextlib.suppress(OSError):
        return sorted(os.sched_getaffinity(0) | os.sched_getaffinity(os.getppid()))
    return []
