import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its log into the working directory; Gymnasium's cheetah makes it write."""
    monkeypatch.chdir(tmp_path)
