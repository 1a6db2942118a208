"""The folder of a run."""

from pathlib import Path

import numpy as np
import pytest

from klip.errors import KlipError
from klip.runs.store import RunFolder, final_return, folder_of, read_arrays, read_metrics, slug


def test_names_stay_below_their_folder():
    """Whatever a task or a shape is called."""
    for hostile in ("../../etc", "/root", "a\nb", "..", "x" * 500, "<b>", "my.py:S(a=1)"):
        path = folder_of(Path("runs"), hostile, hostile, 0, "id")
        assert path.parts[0] == "runs"
        assert len(path.parts) == 4
        assert ".." not in path.parts
        assert len(slug(hostile)) <= 80


def test_what_is_written_is_read(tmp_path):
    folder = RunFolder(tmp_path / "run", {"task": "x"})
    folder.append({"step": 1, "return_mean": None})
    folder.append({"step": 2, "return_mean": 3.5})
    folder.finish({"w": np.arange(6.0).reshape(2, 3).T}, "done", "", 2)
    assert read_metrics(tmp_path / "run")[1] == {"step": 2, "return_mean": 3.5}
    np.testing.assert_array_equal(
        read_arrays(tmp_path / "run")["w"], np.arange(6.0).reshape(2, 3).T
    )


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KlipError, match="cannot write the run"):
        RunFolder(tmp_path / "file" / "run", {})


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    folder = RunFolder(tmp_path / "run", {})
    with pytest.raises(ValueError, match="JSON"):
        folder.append({"kl": float("nan")})
    folder.close()


def test_the_papers_final_return():
    """Rows at or above the 0.9 quantile of steps; iterations without an episode do not count."""
    rows = [{"step": k * 2048, "return_mean": float(k)} for k in range(1, 489)]
    late = [r["return_mean"] for r in rows if r["step"] >= 901_120]
    assert len(late) == 49
    assert final_return(rows) == np.mean(late)
    rows[-1]["return_mean"] = None
    assert final_return(rows) == np.mean(late[:-1])
    assert final_return([]) is None
