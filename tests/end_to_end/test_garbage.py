"""Every reader of files that may be a stranger's: a value or a line, never a traceback.

And never more than 500 MB, however little the file is. With KLIP_FUZZ=20 in the environment there
are twenty times as many files, other ones each time.
"""

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klip.engine.job import read_job
from klip.engine.listing import list_runs
from klip.engine.plan import read_plan
from klip.errors import KlipError
from klip.pages.writing import report_of
from klip.policies import read
from klip.policies.policy import policy_of
from klip.ppo.config import config
from klip.runs import RunFolder, config_id, folder_of, read_run
from klip.runs.checkpoint import Checkpoint, decode, encode
from klip.runs.store import METRICS, NEWEST
from klip.shapes import catalogue, parse
from klip.studies.packing import as_index, pack, unpack
from klip.studies.reading import read_study
from klip.studies.sound import odd_setting
from tests.garbage import ODD, spoilt
from tests.runs.test_checkpoint import about, sealed
from tests.studies.folders import config as made_up
from tests.studies.folders import make_study, rows, small
from tests.studies.leagues import PLAN as LEAGUE
from tests.studies.token_folders import make_experiment

LIMIT = 500_000  # kB of memory
TIMES = int(os.environ.get("KLIP_FUZZ", "1"))
few, some, many = (
    settings(max_examples=count * TIMES, derandomize=TIMES == 1) for count in (15, 60, 150)
)
PPO = config("CartPole-v1").stored
TOKENS = read_plan("scratchpad").configs[0].stored


@pytest.fixture(autouse=True)
def little_memory():
    """No reader takes more; a limit of the system's would end other libraries' threads."""
    with contextlib.suppress(OSError):  # from here on the peak counts, not from when we began
        Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    yield
    assert peak() - before < LIMIT


def peak():
    """The most memory that this process had, in kB."""
    try:
        text = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_memory_is_measured():
    """However much this process had before."""
    before = peak()
    del_me = np.ones(30_000_000)
    assert peak() - before > 150_000
    assert del_me.size


def answered(read, *given):
    """What a reader gives, or None after one line of explanation."""
    refusal = ""
    try:
        return read(*given)
    except KlipError as error:
        refusal = str(error)
    assert refusal
    assert "\n" not in refusal.replace("a\nb", "")  # one line, but for what it quotes of ours
    return None


@many
@given(spoilt(PPO) | spoilt(json.loads(json.dumps(TOKENS))) | ODD)
def test_configs(fields):
    if isinstance(fields, dict):
        answered(read_job, fields)
        answered(odd_setting, fields)


PLANS = {
    "ppo": {"about": "x", "seeds": 2, "config": {"steps": 1000, "lr": 1e-3},
            "runs": [{"tasks": ["CartPole-v1"], "shapes": ["clip"], "seeds": [0, 1]}]},
    "tokens": {"kind": "tokens", "seeds": 1, "config": {"iterations": 2, "warmup": {"steps": 9}},
               "runs": [{"group": "a", "arms": [{"name": "x", "shape": "clip"}]}]},
    "league": LEAGUE,
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANS)
def test_plans(kind, tmp_path):
    path = tmp_path / "plan.toml"

    @some
    @given(spoilt(PLANS[kind]))
    def tried(data):
        text = toml(data)
        if text is not None:
            path.write_text(text, errors="replace")
            answered(read_plan, path)

    tried()


def toml(data):
    """A document as TOML, or None where TOML has no word for a part of it."""

    def value(part):
        if isinstance(part, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in part.items()) + "}"
        if isinstance(part, list):
            return "[" + ", ".join(map(value, part)) + "]"
        if part is None:
            raise ValueError
        return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(
            json.dumps(part), json.dumps(part)
        )

    try:
        return "\n".join(f"{json.dumps(key)} = {value(part)}" for key, part in data.items())
    except ValueError:
        return None


@given(st.binary(max_size=200) | st.text("[]{}=\"'.# \nabc019-", max_size=80).map(str.encode))
@some
def test_plans_of_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)
    answered(read_plan, path)


NAMES = st.sampled_from([*catalogue(), "by-age", "truncate", "adaptive-kl", "by-sign", "none"])
NUMBERS = st.sampled_from(["0.2", "-1", "0", "1e400", "nan", "1_000", "9" * 400, "'x'", "None"])


def spelled(inner):
    arguments = st.lists(inner | NUMBERS | st.tuples(
        st.sampled_from(["eps", "b", "shape", "low", "x"]), inner | NUMBERS).map("=".join),
        max_size=3)  # fmt: skip
    call = st.tuples(NAMES, arguments).map(lambda pair: f"{pair[0]}({', '.join(pair[1])})")
    joined = st.tuples(inner, st.sampled_from([" * ", " + ", " - ", "**"]), inner).map("".join)
    return call | joined


@many
@given(st.recursive(NAMES, spelled, max_leaves=6))
def test_shapes(text):
    answered(parse, text)


ROW = next(iter(rows(made_up(**small()), 1)))


def test_metrics(tmp_path):
    """Also where a checkpoint vouches for them: whoever forges one forges the other."""
    count = iter(range(10**6))

    @few
    @given(st.lists(spoilt(ROW) | st.just(ROW) | ODD, min_size=1, max_size=3), st.booleans())
    def tried(lines, vouched):
        fields = made_up(seed=next(count), **small())
        path = folder_of(tmp_path, fields["task"], fields["shape"], fields["seed"],
                         config_id(fields))  # fmt: skip
        folder = RunFolder(path, fields)
        lines = [line | {"iteration": k} if isinstance(line, dict) and k == 1 else line
                 for k, line in enumerate(lines, 1)]  # fmt: skip
        text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        folder.save(1, {"w": np.zeros(2)})
        folder.close()
        (path / METRICS).write_bytes(text)
        if vouched:
            forge(path / NEWEST, text)
        assert answered(read_run, path) is not None

    tried()
    assert answered(list_runs, tmp_path)
    study = answered(read_study, tmp_path)
    assert len(study.runs) > 5
    assert answered(report_of(study).page)


def forge(file, text):
    """Make a checkpoint vouch for metrics."""
    import zlib

    point = decode(file.read_bytes())
    kept = {"metrics": zlib.compress(text, 1), "metrics_size": len(text)}
    kept["metrics_sha256"] = hashlib.sha256(text).hexdigest()
    fields = {name: getattr(point, name) for name in Checkpoint.__dataclass_fields__}
    file.write_bytes(encode(Checkpoint(**{**fields, **kept})))


@many
@given(spoilt(about()))
def test_checkpoints(said):
    try:
        json.dumps(said).encode()
    except UnicodeEncodeError:
        return
    answered(decode, sealed({**said, "sha256": "0" * 64}))


@some
@given(st.binary(max_size=300))
def test_checkpoints_of_any_bytes(data):
    assert answered(decode, data) is None


def packed(folder, tokens):
    """The index of a packed study, whose other files stay as they are."""
    runs, place = folder / "runs", folder / "packed"
    make_experiment(runs, seeds=1) if tokens else make_study(runs, seeds=1, **small())
    pack(read_study(runs), place)
    shutil.rmtree(runs)
    index = json.loads((place / "runs.json").read_text())
    del index["sha256"]
    return place, index


@pytest.mark.parametrize("tokens", [False, True])
def test_packs(tokens, tmp_path):
    place, index = packed(tmp_path, tokens)
    index["runs"] = index["runs"][:4]

    @some
    @given(spoilt(index))
    def tried(said):
        for entry in said.get("runs", []) if isinstance(said.get("runs"), list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("config"), dict):
                entry["id"] = config_id(entry["config"])  # or it would be refused at once
        (place / "runs.json").write_bytes(as_index(said))
        study = answered(unpack, place)
        if study is not None and study.runs:
            answered(lambda: report_of(study).page())

    tried()


@pytest.mark.parametrize("tokens", [False, True])
def test_tables_of_packs(tokens, tmp_path):
    """Columns that are missing, or hold what no trainer writes."""
    place, index = packed(tmp_path, tokens)
    file = sorted(place.glob("*.parquet"))[0]
    whole = pl.read_parquet(file)
    odd = st.sampled_from([None, float("nan"), float("inf"), -1.0, 0.0, 1e308, 5e-324])

    @few
    @given(st.data())
    def tried(data):
        names = [name for name in whole.columns if name != "run"]
        table = whole.drop(data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
        for name in data.draw(st.lists(st.sampled_from(table.columns[1:]), max_size=3)):
            fill = pl.lit(data.draw(odd), dtype=pl.Float64)
            at = data.draw(st.integers(-1, 3))
            where = pl.lit(True) if at < 0 else pl.int_range(pl.len()) == at
            column = pl.when(where).then(fill).otherwise(pl.col(name).cast(pl.Float64))
            table = table.with_columns(column.alias(name))
        table.write_parquet(file)
        index["files"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        (place / "runs.json").write_bytes(as_index(index))
        study = answered(unpack, place)
        if study is not None:
            answered(lambda: report_of(study).page())

    tried()


ARRAYS = {
    "policy.0.weight": np.zeros((4, 8), np.float32), "policy.0.bias": np.zeros(8, np.float32),
    "action.heads": np.array(2), "action.start": np.array(0),
    "observation.mean": np.zeros(4), "observation.variance": np.ones(4),
    "observation.count": np.array(1.0),
}  # fmt: skip


@some
@given(spoilt(PPO), st.dictionaries(st.sampled_from([*ARRAYS, "value.0.weight", "x"]),
       st.sampled_from([np.zeros(0), np.zeros((2, 2, 2)), np.array("x"), np.array(np.nan),
                        np.full(4, np.inf), np.zeros(4, bool), np.array(2**62), np.array(-1)]),
       max_size=3))  # fmt: skip
def test_policies(fields, odd):
    answered(policy_of, fields, {**ARRAYS, **odd})


@some
@given(st.binary(max_size=300) | spoilt(about()).map(json.dumps).map(str.encode))
def test_policies_of_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "policy.safetensors"
    path.write_bytes(data)
    assert answered(read, path) is None
