import sys

import pytest

from klip.errors import KlipError
from klip.tasks import TaskError, describe, make_lanes
from klip.tasks.lookup import find, suggestions


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("HalfCheetah-v7", "there is no environment HalfCheetah-v7: did you mean "
         "HalfCheetah-v4 or HalfCheetah-v5?"),
        ("hopper-v4", "did you mean Hopper-v4 or Hopper-v5?"),
        ("CartPole", "did you mean CartPole-v0 or CartPole-v1?"),
        ("LunarLandre-v3", "did you mean LunarLander-v3"),
        ("Walker-v4", "Walker2d-v4"),
        ("Zzz-v0", r"see gymnasium.pprint_registry\(\); your own environment is module:Id-v0"),
        ("HalfCheetah-v3", "no longer works with Gymnasium: use HalfCheetah-v4 or HalfCheetah-v5"),
        ("nosuchmodule:Env-v0", "the module nosuchmodule cannot be imported"),
        ("tests.tasks.own:Corridr-v0", "did you mean Corridor-v0"),
    ],
)  # fmt: skip
def test_a_task_that_is_not_there_is_named_with_its_neighbours(task, message):
    with pytest.raises(KlipError, match=message) as caught:
        describe(task)
    assert "\n" not in str(caught.value)


def test_a_module_in_the_working_folder(tmp_path, monkeypatch):
    """It is found since the user named it; the folder comes after all libraries."""
    (tmp_path / "my_own_tasks.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MyOwn-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert find("my_own_tasks:MyOwn-v0").id == "MyOwn-v0"
    assert sys.path[-1] == str(tmp_path)
    with pytest.raises(TaskError, match="my_others cannot be imported"):
        find("my_others:MyOwn-v0")


def test_suggestions_are_few():
    assert all(len(suggestions(name)) <= 4 for name in ("Cart", "A", "Pendulum", "FrozenLake"))


def test_missing_box2d_says_what_to_install(monkeypatch):
    for module in [m for m in sys.modules if m.startswith(("gymnasium.envs.box2d", "Box2D"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(TaskError, match=r'pip install "gymnasium\[box2d\]"') as caught:
        describe("LunarLander-v3")
    assert "\n" not in str(caught.value)


def test_there_must_be_a_lane():
    with pytest.raises(TaskError, match="0 lanes were asked for"):
        make_lanes("CartPole-v1", 0, lambda lane, episode: 0)
