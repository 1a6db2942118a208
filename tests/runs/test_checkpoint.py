"""A checkpoint is what was written, in every byte, or it is `Damaged`."""

import hashlib
import json
import os
import resource
import zlib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save as save_tensors

from klip.runs import Checkpoint, Damaged
from klip.runs.checkpoint import decode, encode, read
from tests.runs.folders import fields

DTYPES = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
          np.uint64, np.float16, np.float32, np.float64, np.complex64]  # fmt: skip
MARKED = '"sha256":"' + "0" * 64 + '"'
any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
)
any_text = st.text(st.characters(codec="utf-8"), max_size=40)
any_name = st.from_regex(
    r"[A-Za-z_]\w{0,20}", fullmatch=True, alphabet=st.characters(codec="ascii")
)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_name, inner, max_size=3),
    max_leaves=6,
)


def checkpoint(config=None, metrics=b'{"iteration": 1}\n', **more):
    """A small one that is whole."""
    given = {
        "config": fields() if config is None else config,
        "iteration": 1,
        "arrays": {"w": np.arange(6, dtype=np.float32), "count": np.array(3)},
        "metrics": zlib.compress(metrics),
        "metrics_size": len(metrics),
        "metrics_sha256": hashlib.sha256(metrics).hexdigest(),
        "machines": ({"since": 0, "jax": "1"},),
        "history": ("it was moved",),
    }
    return Checkpoint(**{**given, **more})


WHOLE = encode(checkpoint())


def same(a, b):
    """Whether two are alike in every field and every bit."""

    def bits(point):
        arrays = {n: (x.dtype, x.shape, x.tobytes()) for n, x in point.arrays.items()}
        return {**vars(point), "arrays": arrays}

    return bits(a) == bits(b)


@settings(max_examples=60)
@given(
    st.dictionaries(any_text.filter(lambda name: name != "metrics" and name != "__metadata__"),
                    any_array, max_size=4),
    st.dictionaries(any_name, any_json, max_size=3),
    any_text,
    st.lists(any_text, max_size=2),
    st.binary(max_size=60),
)  # fmt: skip
@example({MARKED: np.ones(1)}, {"sha256": "0" * 64}, MARKED, [MARKED], MARKED.encode())
@example({}, {}, 'say "no" \\ \n ü 💥 "sha256":"', [], b"")
def test_what_is_written_is_read(arrays, more, reason, history, metrics):
    """Every dtype and shape, in all bits; whatever stands in the texts."""
    config = {**more, **fields()}
    made = checkpoint(
        config, metrics, arrays=arrays, status="failed", reason=reason, history=tuple(history)
    )
    data = encode(made)
    found = decode(data)
    assert same(found, made)
    assert found.metrics_text() == metrics
    assert encode(found) == data
    assert encode(made) == data


def test_the_order_of_arrays_does_not_matter():
    names = [f"layer/{k}" for k in range(20)]
    made = {name: np.arange(k, dtype=np.float32) for k, name in enumerate(names)}
    turned = {name: made[name] for name in names[::-1]}
    assert encode(checkpoint(arrays=made)) == encode(checkpoint(arrays=turned))


def test_memory_order_does_not_matter():
    a = np.arange(6.0).reshape(2, 3)
    (found,) = decode(encode(checkpoint(arrays={"a": a.T}))).arrays.values()
    np.testing.assert_array_equal(found, a.T)


def damaged(data):
    with pytest.raises(Damaged) as caught:
        decode(data).metrics_text()
    text = str(caught.value)
    assert text
    assert text.isprintable()
    return text


def test_no_byte_can_be_changed():
    for place in range(len(WHOLE)):
        for bits in (1, 0x80, 0xFF):
            data = bytearray(WHOLE)
            data[place] ^= bits
            damaged(bytes(data))


def test_no_byte_can_be_missing():
    for size in range(len(WHOLE)):
        damaged(WHOLE[:size])
    assert "cut short" in damaged(b"")


@given(st.binary(min_size=1, max_size=100))
@example(b"\0")
@example(WHOLE)
def test_nothing_can_be_appended(more):
    damaged(WHOLE + more)
    damaged(more + WHOLE)


@given(st.binary(max_size=300))
@example(b"\xff" * 8)
@example((2).to_bytes(8, "little") + b"{}")
@example((2**63).to_bytes(8, "little") + b"{}" * 50)
def test_no_other_bytes_are_a_checkpoint(data):
    damaged(data)


def sealed(about, arrays=None, header=None):
    """A file of hostile content whose checksum is right; `header` is put in verbatim."""
    if header is None:
        arrays = {"metrics": np.zeros(0, np.uint8)} if arrays is None else arrays
        text = about if isinstance(about, str) else json.dumps({"sha256": "0" * 64, **about})
        data = save_tensors(arrays, {"klip": text.replace('"sha256": "', '"sha256":"')})
    else:
        data = len(header).to_bytes(8, "little") + header
    mark = b'\\"sha256\\":\\"'
    place = data.index(mark) + len(mark)
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:place] + digest + data[place + 64 :]


def about(**more):
    """What a whole file says about itself, with something else in it."""
    said = json.loads(json.loads(WHOLE[8 : 8 + WHOLE[0] + 256 * WHOLE[1]])["__metadata__"]["klip"])
    said |= {"sha256": "0" * 64, "metrics_size": 0,
             "metrics_sha256": hashlib.sha256().hexdigest()}  # fmt: skip
    if "config" in more:
        said["id"] = hashlib.sha256(
            json.dumps(more["config"], sort_keys=True).encode()
        ).hexdigest()[:10]
    return {**said, **more}


def test_the_hostile_files_below_are_read_when_harmless():
    """So that what is refused below is refused for what is hostile about it."""
    assert decode(sealed(about())).iteration == 1
    assert decode(sealed(about(config=fields(seed=3)))).config["seed"] == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"config": fields(task="a\x1b[2Jb")}, "task is not a line"),
        ({"config": fields(task="a\nb")}, "task is not a line"),
        ({"config": fields(shape="clip\u202e")}, "shape is not a line"),
        ({"config": fields(shape="x" * 301)}, "shape is not a line"),
        ({"config": fields(task=["CartPole-v1"])}, "task is not a line"),
        ({"config": {**fields(), "a\x1b[2J": 1}}, "'a\\x1b[2J', which is no name"),
        ({"config": {**fields(), "a | `b`": 1}}, "which is no name"),
        ({"config": {**fields(), "": 1}}, "which is no name"),
        ({"config": {**fields(), "\u202ea": 1}}, "which is no name"),
        ({"config": {**fields(), "a" * 301: 1}}, "which is no name"),
        ({"config": {**fields(), "warmup": {"../x": 1}}}, "'../x', which is no name"),
        ({"config": {**fields(), "hidden": [{"x\ny": 1}]}}, "which is no name"),
        ({"config": {**fields(), "seed": "0"}}, "not a count"),
        ({"config": fields(seed=-1)}, "not a count"),
        ({"config": fields(seed=2**70)}, "not a count"),
        ({"config": {"task": "a"}}, "seed"),
        ({"config": {"seed": 0}}, "task"),
        ({"config": []}, "incomplete"),
        ({"config": None}, "incomplete"),
        ({"config": fields(seed=1), "id": "0123456789"}, "id is not that"),
        ({"id": None}, "id is not that"),
        ({"iteration": -1}, "not a count"),
        ({"iteration": True}, "not a count"),
        ({"iteration": 1.0}, "not a count"),
        ({"iteration": "1\x1b"}, "not a count"),
        ({"metrics_size": -5}, "not a count"),
        ({"metrics_size": 10**4000}, "not a count"),
        ({"metrics_size": 2**63 - 1}, "copy of the metrics"),
        ({"status": "well\x07"}, "its status is"),
        ({"status": None}, "its status is"),
        ({"machines": 5}, "incomplete"),
        ({"machines": [5]}, "incomplete"),
        ({"history": 5}, "incomplete"),
        ({"format": 2}, "format 2"),
        ({"format": float("inf")}, "not one of Klip's"),
        ({"format": None}, "not one of Klip's"),
    ],
)
def test_a_right_checksum_is_not_enough(more, message):
    assert message in damaged(sealed(about(**more)))


@pytest.mark.parametrize("name", ["config", "iteration", "metrics_size", "status", "reason", "id",
                                  "machines", "history", "format", "metrics_sha256"])  # fmt: skip
def test_nothing_can_be_left_out(name):
    said = about()
    del said[name]
    damaged(sealed(said))


def test_metrics_must_be_there():
    assert "incomplete" in damaged(sealed(about(), arrays={"w": np.zeros(1)}))


@pytest.mark.parametrize("depth", [5, 300, 900, 980, 990, 1000, 3000, 100_000])
def test_deep_nesting(depth):
    """It breaks the stack neither on reading nor on hashing the config."""
    nested = "[" * depth + "]" * depth
    mark = json.dumps({**about(), "config": {**fields(), "x": "HERE"}}).replace('"HERE"', nested)
    damaged(sealed(mark))


@pytest.mark.parametrize(
    "tensors",
    [
        '"metrics":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        '"w":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}',
        '"w":{"dtype":"F64","shape":[9223372036854775807,0],"data_offsets":[0,0]}',
        '"w":{"dtype":"F64","shape":[18446744073709551615,0],"data_offsets":[0,0]}',
        '"w":{"dtype":"F64","shape":[99999999999999999999,0],"data_offsets":[0,0]}',
        '"w":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]}',
        '"w":{"dtype":"pickle","shape":[0],"data_offsets":[0,0]}',
        '"w":{"dtype":"U8","shape":[' + ",".join("1" * 90) + ',0],"data_offsets":[0,0]}',
        '"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}',
        '"w":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}',
        '"w":5',
        '"metrics":null',
        '"metrics":' + "[" * 5000 + "]" * 5000,
    ],
)
def test_headers_that_lie(tensors):
    said = json.dumps(json.dumps(about(), separators=(",", ":")))
    header = f'{{"__metadata__":{{"klip":{said}}},{tensors}}}'.encode()
    with little_memory():
        damaged(sealed(None, header=header))


@contextmanager
def little_memory(extra=200 << 20):
    """Nothing more than that can be allocated within."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("claimed", [0, 10, 2**20, 2**40, 2**62])
def test_a_bomb_of_metrics_is_not_inflated(claimed):
    """A file of 100 kB whose metrics would be 100 MB."""
    press = zlib.compressobj(1)
    bomb = b"".join([*(press.compress(b"\n" * 2**20) for _ in range(100)), press.flush()])
    arrays = {"metrics": np.frombuffer(bomb, np.uint8)}
    data = sealed(about(metrics_size=claimed, metrics_sha256="0" * 64), arrays)
    assert len(data) < 2**20
    with little_memory(50 << 20):
        assert "copy of the metrics" in damaged(data)


@pytest.mark.parametrize("metrics", [b"", b"junk", zlib.compress(b"other"), WHOLE])
def test_metrics_that_are_others(metrics):
    made = checkpoint(metrics=b"mine\n")
    arrays = {"metrics": np.frombuffer(metrics, np.uint8)}
    said = about(metrics_size=made.metrics_size, metrics_sha256=made.metrics_sha256)
    assert "copy of the metrics" in damaged(sealed(said, arrays))


def test_metrics_that_end_early():
    """Deflated text that was cut, with a checksum of the file that is right."""
    made = checkpoint(metrics=b"a line of some length\n" * 50)
    for size in range(len(made.metrics) - 5):  # the rest is zlib's own checksum
        with pytest.raises(Damaged):
            replace(made, metrics=made.metrics[:size]).metrics_text()


def test_files_that_are_none(tmp_path):
    """A message that names the file, whatever stands in its place."""
    for name, message in (("none", "No such file"), ("folder", "not a file"), ("pipe", "not a")):
        path = tmp_path / name
        if name == "folder":
            path.mkdir()
        if name == "pipe":
            os.mkfifo(path)
        with pytest.raises(Damaged, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)


def test_names_of_files_are_shown_safely(tmp_path):
    path = tmp_path / "a\x1b[2J\udcff"
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="cut short") as caught:
        read(path)
    assert str(caught.value).isprintable()


def test_covers():
    made = checkpoint(metrics=b"one\n")
    assert made.covers(b"one\n")
    assert made.covers(b"one\ntwo\n")
    for other in (b"", b"one", b"One\n", b"two\none\n"):
        assert not made.covers(other)
    assert checkpoint(metrics=b"").covers(b"anything")
