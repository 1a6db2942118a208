"""Compiled programs between processes: whole, bounded, nobody else's, no effect on bits."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from klip.engine import programs
from klip.engine.programs import Annex, cache_folder, kept_programs
from klip.errors import KlipError


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A cache of this test's own, outside of the one that all tests share."""
    monkeypatch.setattr(programs, "_nested", False)
    monkeypatch.setenv("KLIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def add(annex, name, data):
    """What JAX does when it has compiled something."""
    (annex.folder / f"{name}-cache").write_bytes(data)


def held(annex):
    return {path.name: path.read_bytes() for path in annex.folder.iterdir()}


def annexed(folder):
    folder.mkdir(exist_ok=True)
    return Annex(folder)


def test_what_one_process_compiles_the_next_one_finds(tmp_path):
    first = annexed(tmp_path / "store")
    add(first, "jit_update", b"code")
    beside = annexed(tmp_path / "store")
    assert held(beside) == {}, "not yet exchanged"
    first.exchange()
    beside.exchange()
    assert held(beside) == held(first)
    assert held(annexed(tmp_path / "store")) == {"jit_update-cache": b"code"}
    first.close()
    assert not first.folder.exists()


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: bytes([d[0] ^ 1]) + d[1:], lambda d: b""]
)
def test_a_damaged_program_is_never_loaded(tmp_path, damage):
    first = annexed(tmp_path / "store")
    add(first, "jit_update", b"a long program")
    add(first, "jit_prepare", b"another")
    first.close()
    (path,) = (tmp_path / "store").glob("jit_update*")
    path.write_bytes(damage(path.read_bytes()))
    assert held(annexed(tmp_path / "store")) == {"jit_prepare-cache": b"another"}
    assert not path.exists(), "it makes room for a whole one"


def test_a_half_written_program_of_a_killed_process_is_not_in_the_store(store):
    with kept_programs():
        (folder,) = store.glob("*/annex-*")
        script = (
            "import os, sys; from pathlib import Path; from klip.engine.programs import Annex\n"
            "annex = Annex(Path(sys.argv[1])); (annex.folder / 'half-cache').write_bytes(b'ha')\n"
            "print(annex.folder, flush=True); os.kill(os.getpid(), 9)"
        )
        command = [sys.executable, "-c", script, str(folder.parent)]
        left = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    assert os.path.isdir(left)
    with kept_programs():
        assert not os.path.exists(left), "the dead leave nothing"
        (folder,) = store.glob("*/annex-*")
        assert not list(folder.iterdir())


def test_many_at_once_leave_whole_programs(store):
    def work(i):
        annex = programs._annex(store)
        for k in range(20):
            add(annex, f"program-{k}", bytes(1000) + bytes([k]))
            annex.exchange()
        annex.close()

    threads = [threading.Thread(target=work, args=[i]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    annex = programs._annex(store)
    assert held(annex) == {f"program-{k}-cache": bytes(1000) + bytes([k]) for k in range(20)}


def test_what_vanishes_while_one_looks_costs_nobody_the_cache(store):
    """Another process may end, or drop a damaged program, between a look and the next."""
    annex = programs._annex(store)
    add(annex, "jit_update", b"code")
    annex.close()
    for name in ("annex-1-gone", "jit_gone-cache.00000000"):
        (annex.store / name).symlink_to(annex.store / "nowhere")
    later = programs._annex(store)
    assert later is not None
    assert held(later) == {"jit_update-cache": b"code"}


def test_the_oldest_programs_make_room(store, monkeypatch):
    monkeypatch.setattr(programs, "BOUND", 2500)
    annex = programs._annex(store)
    for k in range(4):
        add(annex, f"program-{k}", bytes(1000))
    annex.close()
    for path in annex.store.glob("program*"):
        when = 1000 + int(path.name[8])
        os.utime(path, (when, when))
    assert held(programs._annex(store)).keys() == {"program-2-cache", "program-3-cache"}


def test_a_folder_that_others_can_write_is_refused(store):
    store.mkdir()
    store.chmod(0o777)
    with pytest.raises(KlipError, match="KLIP_CACHE=off"), kept_programs():
        pass


def test_a_folder_that_cannot_be_written_is_gone_without(tmp_path, store, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KLIP_CACHE", str(tmp_path / "file" / "below"))
    import jax

    before = jax.config.jax_compilation_cache_dir
    with kept_programs() as exchange:
        exchange()
        assert jax.config.jax_compilation_cache_dir == before, "JAX is told of no folder"


def test_where_the_store_is(monkeypatch, tmp_path):
    monkeypatch.setenv("KLIP_CACHE", "off")
    assert cache_folder() is None
    monkeypatch.setenv("KLIP_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("KLIP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "klip"


def test_kinds_without_jax_do_without(store):
    with kept_programs(("torch",)):
        assert not store.exists()


def test_a_loaded_program_gives_the_same_bits_and_is_not_compiled_again(store, monkeypatch):
    import jax

    monkeypatch.setattr(programs, "QUICK", 0.0)
    hits = []
    jax.monitoring.register_event_listener(
        lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None
    )
    x = np.linspace(-1, 1, 1001, dtype=np.float32)

    def program(x):
        return jax.numpy.tanh(x @ jax.numpy.outer(x, x)).sum() * jax.numpy.exp(x)

    plain = np.asarray(jax.jit(program)(x)).tobytes()
    before = jax.config.jax_compilation_cache_dir
    for found in (0, 1):
        with kept_programs():
            jax.clear_caches()
            hits.clear()
            assert np.asarray(jax.jit(program)(x)).tobytes() == plain
            assert bool(hits) == bool(found)
    assert jax.config.jax_compilation_cache_dir == before
