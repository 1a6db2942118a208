"""Films are read back: their frames are of the episodes that `evaluate` plays."""

import itertools
import re
import subprocess
import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from PIL import Image

import tests.tasks.own  # noqa: F401  registers Corridor, which renders nothing
from klip.errors import KlipError
from klip.policies import evaluate, load, video
from tests.policies.runs import write_run


def mujoco_renders():
    """Why MuJoCo cannot render here, if so."""
    code = "from klip.policies.rendering import screenless\nwith screenless('Hopper-v4'): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def rendering():
    if reason := mujoco_renders():
        pytest.skip(reason)


def read_gif(path):
    frames, seconds = [], 0.0
    with Image.open(path) as picture:
        for i in range(picture.n_frames):
            picture.seek(i)
            frames.append(np.asarray(picture.convert("RGB")))
            seconds += picture.info["duration"] / 1000
    return frames, seconds


def read_mp4(path):
    import imageio_ffmpeg

    program = imageio_ffmpeg.get_ffmpeg_exe()
    about = subprocess.run([program, "-i", str(path)], capture_output=True, text=True).stderr
    width, height = map(int, re.search(r"yuv420p.*? (\d+)x(\d+)", about).groups())
    seconds = float(re.search(r"Duration: 00:00:(\d+\.\d+)", about)[1])
    decode = [program, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(decode, capture_output=True, check=True).stdout
    return list(np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)), seconds


def check(path, made, read):
    frames, seconds = read(path)
    merged = 3 if read is read_gif else 0  # a gif shows two pictures that look the same as one
    assert made.frames - merged <= len(frames) <= made.frames
    assert seconds == pytest.approx(made.frames / made.fps, abs=0.1)
    assert all(frame.std() > 5 for frame in frames), "a frame shows nothing"
    steps = itertools.pairwise(frames)
    assert sum(not np.array_equal(a, b) for a, b in steps) >= len(frames) // 2


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_cartpole(runs, tmp_path, suffix):
    policy, path = load(runs["CartPole-v1"]), tmp_path / "new" / f"film.{suffix}"
    made = video(policy, path, episodes=2, seed=3)
    check(path, made, read_gif if suffix == "gif" else read_mp4)
    assert [e.total for e in made.episodes] == [e.total for e in evaluate(policy, 2, 3).episodes]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_hopper(runs, tmp_path, rendering):
    """MuJoCo, already imported by the evaluation, renders without a screen."""
    policy, path = load(runs["Hopper-v4"]), tmp_path / "film.gif"
    expected = evaluate(policy, 1, sampled=True).episodes
    made = video(policy, path, sampled=True)
    check(path, made, read_gif)
    assert [(e.total, e.length) for e in made.episodes] == [(e.total, e.length) for e in expected]
    frames, _ = read_gif(path)
    assert frames[0].shape == (480, 480, 3)


def test_half_cheetah_renders_in_silence(tmp_path, rendering, monkeypatch, capfd):
    """MuJoCo would complain about its model on the terminal and in a file."""
    monkeypatch.chdir(tmp_path)
    policy = load(write_run(tmp_path / "runs", "HalfCheetah-v4"))
    made = video(policy, tmp_path / "film.gif", seconds=0.1)
    assert made.episodes[0].total == evaluate(policy, 1).episodes[0].total
    assert capfd.readouterr() == ("", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["film.gif", "runs"]


def test_a_film_is_cut_and_its_return_is_not(runs, tmp_path):
    policy = load(runs["Pendulum-v1"])
    made = video(policy, tmp_path / "film.gif", seconds=0.5)
    assert made.frames == 15
    assert made.episodes[0].length == 200
    assert made.episodes[0].total == evaluate(policy, 1).episodes[0].total


def test_an_mp4_without_its_extra(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(KlipError, match=r'pip install "klip-rl\[video\]", or film to a .gif'):
        video(load(runs["CartPole-v1"]), tmp_path / "film.mp4")


def test_what_cannot_be_filmed_is_explained(runs, tmp_path):
    policy = load(runs["CartPole-v1"])
    with pytest.raises(KlipError, match=r"film\.avi: give a name that ends in \.gif or \.mp4"):
        video(policy, tmp_path / "film.avi")
    with pytest.raises(KlipError, match="seconds=0 more than 0"):
        video(policy, tmp_path / "film.gif", seconds=0)
    with pytest.raises(
        KlipError, match=r"Pendulum-v1 observes \(3,\), and the policy takes \(4,\)"
    ):
        video(policy, tmp_path / "film.gif", task="Pendulum-v1")
    own = load(write_run(tmp_path / "runs", "Corridor-v0"))
    with pytest.raises(KlipError, match="Corridor-v0 cannot be filmed: it renders as nothing"):
        video(own, tmp_path / "film.gif")
    with pytest.raises(KlipError, match=r"cannot write .*config\.json"):
        video(policy, runs["CartPole-v1"] / "config.json" / "film.gif")


class Falls(gymnasium.Env):
    """Breaks at its third step."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            raise OSError("fell over")
        return np.zeros(4, np.float32), 0.0, False, False, {}

    def render(self):
        return np.zeros((64, 64, 3), np.uint8)


gymnasium.register("Falls-v0", Falls)


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_broken_episode_leaves_no_film(runs, tmp_path, suffix):
    with pytest.raises(KlipError, match=r"Falls-v0: episode 0 .* failed: OSError: fell over"):
        video(load(runs["CartPole-v1"]), tmp_path / f"film.{suffix}", task="Falls-v0")
    assert list(tmp_path.iterdir()) == []
