"""A policy's episodes as a film, rendered by the true environment without a screen."""

from __future__ import annotations

import io
import itertools
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from klip.disk import operations
from klip.errors import KlipError
from klip.policies.evaluation import (
    Episode,
    TaskArguments,
    action_stream,
    chosen_task,
    episode_seed,
)
from klip.policies.loading import Source, policy_in
from klip.policies.policy import Policy
from klip.policies.rendering import Frame, one_line, render, rendered_environment, screenless
from klip.ppo.arguments import Arguments
from klip.runs.files import disk, folder_aside, write_whole

FRAMES_PER_SECOND = 30  # about the most: nobody sees more, and each takes time to render
KINDS = (".gif", ".mp4")


@dataclass(frozen=True)
class Film:
    """The file that was written, and what it shows."""

    path: Path
    frames: int
    fps: float
    """frames per second, so that it plays as fast as the task's own time runs"""
    episodes: tuple[Episode, ...]
    """with the returns and lengths that `evaluate` gives, also where the film was cut short"""


def video(
    run: Source,
    output: str | Path = "policy.gif",
    episodes: int = 1,
    seed: int = 0,
    *,
    sampled: bool = False,
    seconds: float = 30.0,
    task: str | None = None,
    task_args: TaskArguments | None = None,
    trust_task: bool = False,
    longest: int = 100_000,
    progress: Callable[[int, int], None] = lambda episodes, steps: None,
) -> Film:
    """Film episodes 0, 1, ... of a seed into one file.

    >>> film = video("examples/policy", "policy.gif", seconds=2)  # doctest: +SKIP

    Args:
        run: a policy, or the path of a run's folder, a checkpoint file, or an exported folder
        output: file to write: gif or mp4
        episodes: how many, one after the other: the first ones of `evaluate` with the same seed
        seed: of the episodes
        sampled: sample the actions, as in training, instead of taking the likeliest
        seconds: length of the film at the most
        task: another task than the policy's own, with the same sizes
        task_args: keyword arguments of the task; those of the policy's own task are what it was
            trained with
        trust_task: import the policy's own task where it is a `module:Id`, which runs its code
        longest: steps after which an episode of a task without a time limit is an error
        progress: is called with the episodes ended and the steps taken so far

    Returns:
        where the film is, how many frames it has, and the episodes in it

    """
    policy, path = policy_in(run), Path(output)
    if path.suffix not in KINDS:
        raise KlipError(f"cannot film to {path}: give a name that ends in {' or '.join(KINDS)}")
    if episodes < 1 or seed < 0 or not seconds > 0:
        raise KlipError(
            f"episodes={episodes} must be at least 1, seed={seed} at least 0, and "
            f"seconds={seconds} more than 0"
        )
    task, arguments = chosen_task(policy, task, task_args, trust_task)
    write = _gif if path.suffix == ".gif" else _mp4_writer()
    with screenless(task):
        show = _Show(policy, task, arguments, episodes, seed, sampled, seconds, longest, progress)
        try:
            with disk(path.parent):
                operations.make_folders(path.parent)
            write(path, show.frames(), show.fps)
        finally:
            show.close()
    return Film(path, show.shown, show.fps, tuple(show.ended))


class _Show:
    """Plays episodes in Gymnasium's own environment, and gives a frame every few steps."""

    def __init__(
        self,
        policy: Policy,
        task: str,
        arguments: Arguments,
        episodes: int,
        seed: int,
        sampled: bool,
        seconds: float,
        longest: int,
        progress: Callable[[int, int], None],
    ) -> None:
        self.policy, self.task, self.episodes, self.seed = policy, task, episodes, seed
        self.sampled, self.longest, self.progress = sampled, longest, progress
        self._arguments = arguments
        self._env = rendered_environment(task, arguments)
        self._check(self._env)
        own = float(self._env.metadata.get("render_fps") or FRAMES_PER_SECOND)
        self.stride = max(1, round(own / FRAMES_PER_SECOND))
        self.fps = own / self.stride
        self.most, self.shown, self.steps = math.ceil(seconds * self.fps), 0, 0
        self.ended: list[Episode] = []

    def frames(self) -> Iterator[Frame]:
        """Every frame of the film, one after the other."""
        for number in range(self.episodes):
            if number:
                # a new copy: some environments carry their world over from the last episode
                self._env.close()
                self._env = rendered_environment(self.task, self._arguments)
            yield from self._episode(self._env, number)

    def close(self) -> None:
        """Let go of the environment."""
        self._env.close()

    def _episode(self, env: gymnasium.Env[Any, Any], number: int) -> Iterator[Frame]:
        seed, rng = episode_seed(self.seed, number), action_stream(self.seed, number)
        with _blame(f"{self.task}: episode {number} (reset with seed {seed}) failed"):
            observation, _ = env.reset(seed=seed)
        total, length, over = 0.0, 0, False
        while True:
            if self.shown < self.most and (length % self.stride == 0 or over):
                self.shown += 1
                yield render(env, self.task)
            if over:
                break
            if length >= self.longest:
                raise KlipError(
                    f"{self.task}: episode {number} has not ended after {length} steps: give the "
                    "task a time limit (max_episode_steps)"
                )
            action = self.policy.act(observation, not self.sampled, rng)
            with _blame(f"{self.task}: episode {number} (reset with seed {seed}) failed"):
                observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            length, over = length + 1, bool(terminated or truncated)
            self.steps += 1
            self.progress(number, self.steps)
        self.ended.append(Episode(number, seed, total, length, bool(terminated), False))

    def _check(self, env: gymnasium.Env[Any, Any]) -> None:
        shape = env.observation_space.shape
        if shape != (self.policy.observation_size,):
            raise KlipError(
                f"{self.task} observes {shape}, and the policy takes "
                f"({self.policy.observation_size},): it was trained on {self.policy.task}"
            )


@contextmanager
def _blame(whom: str) -> Iterator[None]:
    """Turn what an environment raises into an error that says which one raised it."""
    try:
        yield
    except Exception as error:
        raise KlipError(f"{whom}: {one_line(error)}") from error


# -- files ------------------------------------------------------------------------------------


def _gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    from PIL import Image

    pictures = [Image.fromarray(frame).quantize(128) for frame in frames]
    # a gif counts in hundredths: each picture ends at the one nearest to its time
    times = [10 * round(100 * i / fps) for i in range(len(pictures) + 1)]
    durations = [max(20, after - before) for before, after in itertools.pairwise(times)]
    data = io.BytesIO()
    pictures[0].save(
        data, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0
    )
    write_whole(path, data.getvalue())


def _mp4_writer() -> Callable[[Path, Iterator[Frame], float], None]:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise KlipError(
            'an mp4 needs imageio-ffmpeg: pip install "klip-rl[video]", or film to a .gif'
        ) from None

    program = imageio_ffmpeg.get_ffmpeg_exe()

    def write(path: Path, frames: Iterator[Frame], fps: float) -> None:
        first = next(frames)
        height, width = first.shape[:2]
        given = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps:.6f} -i -"
        # x264 in yuv420p is what everything plays; it takes even sizes only
        even = "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2"
        wanted = "-c:v libx264 -pix_fmt yuv420p -crf 20 -movflags +faststart"
        options = f"-n -loglevel error {given} {even} {wanted}".split()
        with folder_aside(path) as aside, tempfile.TemporaryFile() as errors:
            made = aside / path.name
            command = [program, *options, str(made)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as ffmpeg:
                assert ffmpeg.stdin is not None
                with suppress(BrokenPipeError):  # it has stopped, and says why
                    for frame in itertools.chain([first], frames):
                        ffmpeg.stdin.write(np.ascontiguousarray(frame).data)
                    ffmpeg.stdin.close()
            if ffmpeg.returncode:
                errors.seek(0)
                reason = " ".join(errors.read().decode(errors="replace").split())[-300:]
                raise KlipError(f"ffmpeg could not write {path}: {reason}")
            with disk(path):
                operations.replace(made, path)

    return write
