"""Sets the environment that the loss reads."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("KLIP_SHAPE", "KLIP_CONFIG", "KLIP_WATCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def configure(monkeypatch, tmp_path):
    """`configure(shape, level)`: the loss `klip` is this from now on."""

    def configure(shape, level="token", **more):
        if level == "token" and not more:
            return monkeypatch.setenv("KLIP_SHAPE", shape)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.toml"
        lines = [f'shape = "{shape}"', f'level = "{level}"']
        path.write_text("\n".join(lines + [f"{key} = {value}" for key, value in more.items()]))
        return monkeypatch.setenv("KLIP_CONFIG", str(path))

    return configure
