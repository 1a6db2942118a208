"""Slow environments in processes of their own, several of them at work at once.

A process has a share of the copies and answers one line of JSON with another. Python writes floats
so that they read back as the same bits, so nothing depends on where a copy is. A process that dies
is replaced, and its copies play their open episodes again. One that hears no more of us ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from klip.tasks.copies import Copy, Failure, Played, Transition, failure
from klip.tasks.lanes import Arguments

DEATHS = 3  # times in a row that a process may die at one request
PATIENCE = 5.0  # seconds for environments to close
START = (  # -P: nothing is imported from the current folder by chance
    "import ast, sys; path, *words = map(ast.literal_eval, sys.argv[1:]); sys.path[:] = path; "
    "from klip.tasks.processes import serve; serve(*words)"
)


class _Open:
    """A copy's open episode: enough to bring another copy to the same place."""

    def __init__(self, seed: int, actions: list[Any], observation: list[float]) -> None:
        self.seed, self.actions, self.observation = seed, actions, observation


class _Process:
    """A process with some copies, and the lines to it and from it."""

    def __init__(self, task: str, arguments: Arguments, numbers: Sequence[int]) -> None:
        self.about, self.numbers = (task, dict(arguments)), list(numbers)
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        path = [*(entry for entry in sys.path if entry), str(Path(__file__).parents[2])]
        words = [repr(word) for word in (path, *self.about, _cores())]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for whoever trains
        )

    def ask(self, request: dict[str, Any]) -> bool:
        """Send a request; whether there is a process that may have heard it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return False
        return True

    def answer(self) -> dict[str, Any] | None:
        """The answer to the last request; None if the process died over it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def death(self) -> str:
        """Let go of it; how it ended, in words."""
        self._process.kill()  # it may still be going down
        code = self._process.wait()
        self._close_pipes()
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        """Close its copies, and leave nothing behind."""
        self.ask({"do": "close"})
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was not sent any more is lost with it
                pipe.close()  # type: ignore[union-attr]


class InProcesses:
    """Copies that other processes call; see `Copies`."""

    def __init__(self, task: str, arguments: Arguments, count: int, processes: int) -> None:
        self._task = task
        shares = [range(k, count, processes) for k in range(min(processes, count))]
        self._processes = [_Process(task, arguments, share) for share in shares]
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
                process.ask({"do": do, "copies": share})
                busy.append((process, share))
        answers: dict[int, Any] = {}
        for process, share in busy:
            answer = process.answer()
            answers |= self._again(process, do, share) if answer is None else _numbered(answer)
        return {number: answers.get(number, self._lost.get(number)) for number in asked}

    def _again(self, process: _Process, do: str, share: Mapping[int, Any]) -> dict[int, Any]:
        """Replace a process that died, and ask once more, a few times."""
        for _ in range(DEATHS - 1):
            how = process.death()
            process.start()
            if not self._brought_back(process):
                continue
            rest = {number: each for number, each in share.items() if number not in self._lost}
            if process.ask({"do": do, "copies": rest}) and (answer := process.answer()) is not None:
                return _numbered(answer)
        how = process.death()
        process.start()  # for what its copies are asked next
        doing = {"play": "resetting", "step": "stepping"}.get(do, "closing")
        why = {"failed": [doing, f"its process {how}, {DEATHS} times in a row", ""]}
        self._lost |= {number: why for number in process.numbers if number in self._open}
        return {number: why for number in share}

    def _brought_back(self, process: _Process) -> bool:
        """Let a new process play its open episodes again; whether it lived through that."""
        plays = {
            number: [self._open[number].seed, self._open[number].actions]
            for number in process.numbers
            if number in self._open and number not in self._lost
        }
        if not process.ask({"do": "play", "copies": plays}):
            return False
        answer = process.answer()
        for number, given in _numbered(answer or {}).items():
            if isinstance(given, dict):
                self._lost[number] = given
            elif json.dumps(given) != json.dumps([self._open[number].observation, 0]):
                why = f"its process was replaced, and {self._task} is not deterministic"
                self._lost[number] = {"failed": ["resetting", why, ""]}
        return answer is not None


def serve(task: str, arguments: dict[str, Any], cores: list[int]) -> None:
    """The life of a process: make its copies, then answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an environment prints is no answer
    if cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(os.fdopen(os.dup(0)), requests), daemon=True).start()
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
            except Exception as error:
                answer[number] = _written(failure("making it", error))
                continue
            answer[number] = _written(_called(copies[number], request["do"], given))
        print(json.dumps(answer), file=answers, flush=True)
    for copy in copies.values():
        copy.close()
    os._exit(0)


def _called(copy: Copy, do: str, given: Any) -> Transition | Played | Failure:
    if do == "step":
        return copy.step(_array(given, copy.dtype))
    seed, actions = given
    return copy.play(seed, [_array(action, copy.dtype) for action in actions])


def _listen(lines: Any, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Take in requests; end at once when whoever asks is gone, whatever is being done."""
    for line in lines:
        requests.put(json.loads(line))
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
