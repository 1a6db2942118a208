"""Pictures of Gymnasium's environments, with and without a screen."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import tests.tasks.own  # noqa: F401  registers Corridor, which renders nothing
from klip.errors import KlipError
from klip.policies.rendering import (
    SCREENLESS,
    one_line,
    render,
    rendered_environment,
    screenless,
)


def test_a_picture_is_the_environments_own():
    with screenless("CartPole-v1"):
        env = rendered_environment("CartPole-v1")
        env.reset(seed=0)
        first = render(env, "CartPole-v1")
        for _ in range(5):
            env.step(1)
        later = render(env, "CartPole-v1")
        env.close()
    assert first.dtype == np.uint8
    assert first.ndim == later.ndim == 3
    assert not np.array_equal(first, later)


class Odd(gymnasium.Env):
    """Renders whatever it is given."""

    def __init__(self, picture):
        self.picture = picture

    def render(self):
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((4, 4)), r"Odd renders float64\[4, 4\], and a film needs uint8\[H, W, 3\]"),
        (OSError("no\n display"), "Odd could not be rendered: OSError: no display"),
        (gymnasium.error.DependencyNotInstalled("pygame"), r'pip install "klip-rl\[video\]"'),
    ],
)
def test_what_is_no_picture_is_said_in_a_line(picture, message):
    with pytest.raises(KlipError, match=message):
        render(Odd(picture), "Odd")


def test_an_environment_that_cannot_be_rendered_is_named():
    with pytest.raises(KlipError, match="Corridor-v0 cannot be filmed: it renders as nothing"):
        rendered_environment("Corridor-v0")


def test_an_error_fits_on_a_line():
    assert one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert len(one_line(ValueError("x" * 1000))) == 300


def test_the_processs_settings_are_put_back(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "mine")
    before = dict(os.environ)
    with screenless("CartPole-v1"):
        assert os.environ["SDL_VIDEODRIVER"] == "mine"
        assert os.environ["SDL_AUDIODRIVER"] == "dummy"
    assert dict(os.environ) == before


def test_without_opengl_it_says_what_to_install(tmp_path, runs):
    """As on a machine whose EGL has no driver."""
    policy = str(runs["Hopper-v4"])
    environment = {**os.environ, "__EGL_VENDOR_LIBRARY_DIRS": "/nonexistent", "MUJOCO_GL": "egl"}
    command = [sys.executable, "-m", "klip", "video", policy, "-o", str(tmp_path / "film.gif")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "apt-get install libegl1" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_screen_and_without_libraries(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("klip.policies.rendering.find_library", lambda name: None)
    with pytest.raises(KlipError) as caught, screenless("Hopper-v4"):
        pass
    assert SCREENLESS in str(caught.value)
    with screenless("CartPole-v1"):
        pass
