"""Many MuJoCo simulations of one model, their states the rows of one array.

There are two ways to step them. MuJoCo's batch does it in one call, but it cannot give the contact
forces that Gymnasium asks MuJoCo for after each step. Where they are needed, one MjData serves the
lanes in turn, and so stays in the processor's cache.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import mujoco  # type: ignore[import-untyped]
import numpy as np
from mujoco.batch import Batch, SimulationError  # type: ignore[import-untyped]
from numpy.typing import NDArray

from klip.tasks.lanes import Bools, Floats, Ints

Failures = dict[int, str]
"""The lanes in which MuJoCo raised an error, and its text; their states are as before the call."""

_UNSTABLE = [
    int(kind)
    for kind in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
        mujoco.mjtWarning.mjWARN_BADCTRL,
    )
]
_ROW = mujoco.mjtState.mjSTATE_INTEGRATION.value
_STATE_ONLY = mujoco.mjtStage.mjSTAGE_NONE.value


class _StoppedClock:
    """Within it MuJoCo's clock stands still, in all threads, until the last of them leaves.

    MuJoCo reads its clock dozens of times a step, for `MjData.timer`, which nobody reads here: 4 to
    15 % of the physics. Only a compiled clock is cheap, and this one always says the same.
    """

    def __init__(self) -> None:
        self._still = ctypes.CFUNCTYPE(ctypes.c_double)(("PyFloat_GetMax", ctypes.pythonapi))
        self._lock, self._within = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before = mujoco.get_mjcb_time()
                mujoco.set_mjcb_time(self._still)
            self._within += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                mujoco.set_mjcb_time(self._before)


_UNTIMED = _StoppedClock()


class Simulations(Protocol):
    """Simulations of one model, with live views of all their fields."""

    state: Floats  # [N, S] all that the next step depends on; may be written

    def bind(self, field: str) -> Floats:
        """A live view of a field of every simulation, [N, ...]; ask before the first step."""

    def restart(self, lanes: Ints) -> None:
        """Put some simulations into the model's initial state, and compute nothing yet."""

    def forward(self, lanes: Ints) -> Failures:
        """Compute the fields of some freshly started simulations from their states."""

    def step(self, substeps: int, lanes: Ints | None) -> Failures:
        """Advance some simulations, or all; an error in one keeps no other from its step."""

    def unstable(self) -> Bools:
        """[N] whether MuJoCo met a bad position, speed, acceleration or control since `restart`."""


class Together:
    """Simulations stepped by MuJoCo in one call; contact forces stay zero."""

    def __init__(self, model: mujoco.MjModel, lanes: int) -> None:
        self._batch = Batch(model, nsim=lanes, nthread=1)
        self.state: Floats = self._batch.state
        with _UNTIMED:
            self._batch.reset(stage=_STATE_ONLY)
        self._initial: Floats = self.state[0].copy()
        # [N, kinds of warning, (last cause, count)] live, and what MuJoCo counts on from
        self._warnings: NDArray[np.int32] = self._batch.warning

    def bind(self, field: str) -> Floats:
        view: Floats = self._batch.bind(field)
        return view

    def restart(self, lanes: Ints) -> None:
        self.state[lanes] = self._initial  # as Batch.reset does, which takes longer
        self._warnings[lanes] = 0

    def forward(self, lanes: Ints) -> Failures:
        try:
            with _UNTIMED:
                self._batch.forward(lanes)
        except SimulationError as error:
            return self._failures(error)
        return {}

    def step(self, substeps: int, lanes: Ints | None) -> Failures:
        try:
            with _UNTIMED:
                self._batch.step(lanes, substeps)
        except SimulationError as error:
            return self._failures(error)
        return {}

    def unstable(self) -> Bools:
        if not np.count_nonzero(self._warnings):
            return np.zeros(len(self.state), np.bool_)
        unstable: Bools = np.logical_or.reduce(self._warnings[:, _UNSTABLE, 1] > 0, axis=1)
        return unstable

    def _failures(self, error: SimulationError) -> Failures:
        """What an error says, which MuJoCo raises when all the other simulations are done."""
        return {int(lane): _line(error, self._batch.error(int(lane))) for lane in error.ids}


class InTurn:
    """Simulations stepped one after the other, each with its contact forces (`cfrc_ext`)."""

    def __init__(self, model: mujoco.MjModel, lanes: int) -> None:
        self._model, self._data = model, mujoco.MjData(model)
        self.state: Floats = np.zeros((lanes, mujoco.mj_stateSize(model, _ROW)))
        self._initial: Floats = np.zeros(self.state.shape[1])
        mujoco.mj_getState(model, self._data, self._initial, _ROW)
        self._unstable: Bools = np.zeros(lanes, np.bool_)
        self._counts: NDArray[Any] = self._data.warning.number  # live
        self._bound: dict[str, Floats] = {}
        self._copies: list[list[tuple[Floats, Floats]]] = [[] for _ in range(lanes)]

    def bind(self, field: str) -> Floats:
        source: Floats = getattr(self._data, field)
        lanes = len(self.state)
        if field in _COMPONENTS:
            bit = _COMPONENTS[field].value
            start = mujoco.mj_stateSize(self._model, _ROW & (bit - 1))
            return self.state[:, start : start + source.size]
        if field not in self._bound:
            self._bound[field] = view = np.zeros((lanes, *source.shape))
            for copies, target in zip(self._copies, view, strict=True):
                copies.append((target, source))
        return self._bound[field]

    def restart(self, lanes: Ints) -> None:
        self.state[lanes] = self._initial
        self._unstable[lanes] = False

    def forward(self, lanes: Ints) -> Failures:
        def begin(model: mujoco.MjModel, data: mujoco.MjData, row: Floats) -> None:
            mujoco.mj_resetData(model, data)  # contact forces are zero at first
            mujoco.mj_setState(model, data, row, _ROW)
            mujoco.mj_forward(model, data)

        with _UNTIMED:
            return self._each(lanes.tolist(), begin)

    def step(self, substeps: int, lanes: Ints | None) -> Failures:
        def advance(model: mujoco.MjModel, data: mujoco.MjData, row: Floats) -> None:
            mujoco.mj_setState(model, data, row, _ROW)
            mujoco.mj_step(model, data, substeps)
            mujoco.mj_rnePostConstraint(model, data)

        with _UNTIMED:
            return self._each(range(len(self.state)) if lanes is None else lanes.tolist(), advance)

    def unstable(self) -> Bools:
        return self._unstable.copy()

    def _each(
        self,
        lanes: Iterable[int],
        call: Callable[[mujoco.MjModel, mujoco.MjData, Floats], None],
    ) -> Failures:
        """Make a call on each lane's state, and write the new state and fields back."""
        model, data, failures = self._model, self._data, Failures()
        for lane in lanes:
            row = self.state[lane]
            try:
                call(model, data, row)
            except mujoco.FatalError as error:
                failures[lane] = _line(error, str(error))
                mujoco.mj_resetData(model, data)  # the error left its stack in use
                continue
            mujoco.mj_getState(model, data, row, _ROW)
            for target, source in self._copies[lane]:
                np.copyto(target, source)
            if np.count_nonzero(self._counts):
                self._unstable[lane] |= self._counts[_UNSTABLE].any()
                self._counts[:] = 0  # the next lane starts without them
        return failures


def _line(error: Exception, text: str) -> str:
    """The kind of error and its text on one line; MuJoCo breaks it into several."""
    return f"{type(error).__name__}: {' '.join(text.split())}"


_COMPONENTS = {
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
}
"""The fields that are part of a state row, in which components lie in the order of their bits."""
