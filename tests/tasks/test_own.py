"""Tasks in the user's own files: found from the current folder, by id or by maker."""

import sys

import pytest

from klip.tasks import TaskError, describe
from klip.tasks.lookup import find
from klip.tasks.own import file_of, task_of

CODE = """
import gymnasium, numpy as np
from {helpers} import SIZE

class Point(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, size=SIZE):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (size,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {{}}
    def step(self, action):
        return self.observation_space.sample() * 0, 0.0, False, False, {{}}

def small():
    return Point(1)

gymnasium.register("{id}", entry_point="{entry}", max_episode_steps=9)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module and its neighbour."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "klip_helpers.py").write_text("SIZE = 3\n")
    text = CODE.format(helpers="klip_helpers", id="Point-v0", entry="klip_mine:Point")
    (tmp_path / "klip_mine.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize("place", ["klip_mine", "klip_mine.py", "./klip_mine.py"])
def test_the_current_folder_is_searched(place, folder):
    spec = describe(f"{place}:Point-v0")
    assert (spec.observation_size, spec.max_episode_steps) == (3, 9)
    assert describe(f"{place}:Point-v0", {"size": 5}).observation_size == 5
    assert describe(f"{place}:Point").observation_size == 3
    assert describe(f"{place}:small").observation_size == 1
    assert file_of(place).name == "klip_mine.py"


def test_a_package_in_the_current_folder(folder):
    (folder / "klip_pack").mkdir()
    (folder / "klip_pack" / "__init__.py").write_text("from .envs import Point\n")
    text = CODE.format(helpers="klip_helpers", id="Packed-v0", entry="klip_pack.envs:Point")
    (folder / "klip_pack" / "envs.py").write_text(text)
    for place in ("klip_pack", "klip_pack.envs"):
        assert describe(f"{place}:Packed-v0").observation_size == 3
    assert str(file_of("klip_pack.envs")) == "klip_pack/envs.py"


def test_two_files_may_register_the_same_id(folder):
    other = folder / "elsewhere"
    other.mkdir()
    text = (folder / "klip_mine.py").read_text().replace("size=SIZE", "size=7")
    (other / "klip_mine.py").write_text(text)
    tasks = ["klip_mine.py:Point-v0", "elsewhere/klip_mine.py:Point-v0"]
    with pytest.warns(UserWarning, match="Overriding"):
        assert [describe(task).observation_size for task in tasks * 2] == [3, 7, 3, 7]


def test_a_module_that_is_installed_goes_first(folder):
    (folder / "json.py").write_text("raise SystemExit('a stranger')\n")
    assert file_of("json") is None
    with pytest.raises(TaskError, match="there is no environment json:Point-v0"):
        find("json:Point-v0")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("klip_mine.py:Pint-v0", "did you mean Point-v0"),
        ("klip_mine.py:SIZE", "there is no environment"),
        ("klip_nothing.py:Point-v0", "there is no file klip_nothing.py"),
        ("klip_nothing:Point-v0", "the module klip_nothing cannot be imported"),
        ("klip_broken.py:Point-v0", "klip_broken.py does not import .*ZeroDivisionError"),
        ("klip_lacks:Point-v0", "does not import .*no_such_library"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(task, message, folder):
    (folder / "klip_broken.py").write_text("1 / 0\n")
    (folder / "klip_lacks.py").write_text("import no_such_library\n")
    if "Pint" in task:
        find("klip_mine.py:Point-v0")
    with pytest.raises(TaskError, match=message) as caught:
        find(task)
    assert "\n" not in str(caught.value)


def test_a_class_or_function_has_a_name_that_other_processes_find(folder):
    find("klip_mine:Point")
    klip_mine = sys.modules["klip_mine"]

    assert task_of(klip_mine.Point) == "klip_mine.py:Point"
    assert task_of(klip_mine.small) == "klip_mine.py:small"
    assert find(task_of(klip_mine.Point)).entry_point is klip_mine.Point


def test_what_has_no_such_name_is_refused(monkeypatch):
    def local():
        """Nobody else can reach it."""

    for maker in (local, lambda: None):
        with pytest.raises(TaskError, match="cannot be found by its name"):
            task_of(maker)
    monkeypatch.setattr(test_what_has_no_such_name_is_refused, "__module__", "__main__")
    with pytest.raises(TaskError, match="put it into a file, such as myenvs"):
        task_of(test_what_has_no_such_name_is_refused)
