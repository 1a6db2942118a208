"""The trust region is recorded where users look for settings, and a run is held to its record."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from trl import GRPOConfig

from klip.adapters.trl import KlipGRPOTrainer
from klip.adapters.trl_record import FILE, check_resumed, in_card, record_of, recording, write
from klip.errors import KlipError
from klip.shapes import ByAge, Clip
from klip.tokens import TokenRegion
from tests.adapters.trl.world import logged, parameters, trainer

OURS = {"shape": "clip(low=0.2, high=0.28)", "gates": ["opsm(delta=0.5)"], "answer_marker": "#"}
SAVING = {"max_steps": 4, "num_iterations": 2, "save_strategy": "steps", "save_steps": 2}
WANTED = {
    "shape": "clip(low=0.2, high=0.28)",
    "level": "token",
    "gates": ["opsm(delta=0.5, anchor=old)"],
    "penalties": [],
    "answer_marker": "#",
    "code": "",
}


def made(folder, ours, **changes):
    return trainer(folder, KlipGRPOTrainer, ours=ours, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    whole = made(folder, OURS, **SAVING, report_to=["tensorboard"])
    whole.train()
    return folder, whole


def record(**changes):
    return {**WANTED, **changes}


def test_trackers_log_it_among_the_settings(run):
    """All trackers of transformers log `args.to_dict()`; TensorBoard's is read back here."""
    folder, whole = run
    settings = whole.args.to_dict()
    assert {f"klip_{name}": value for name, value in WANTED.items()}.items() <= settings.items()
    assert "klip_shape" in whole.args.to_sanitized_dict()
    assert json.loads(whole.args.to_json_string())["klip_level"] == "token"
    written = b"".join(path.read_bytes() for path in folder.rglob("events.out.tfevents.*"))
    assert b'"klip_shape": "clip(low=0.2, high=0.28)"' in written


def test_wandb_has_it_in_its_config(tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wandb's own
        short = made(tmp_path, OURS, max_steps=1, report_to=["wandb"])
        short.train()
        config = dict(wandb.run.config)
        wandb.finish()
    assert config["klip_shape"] == WANTED["shape"]
    assert config["klip_gates"] == WANTED["gates"]


def test_every_checkpoint_and_saved_model_has_it(run):
    folder, whole = run
    for name in ("checkpoint-2", "checkpoint-4"):
        assert json.loads((folder / name / FILE).read_text()) == WANTED
    whole.save_model(str(folder / "final"))
    assert json.loads((folder / "final" / FILE).read_text()) == WANTED
    assert (folder / "final" / "model.safetensors").exists()


def test_the_model_card_has_it(run):
    folder, _ = run
    card = (folder / "README.md").read_text()
    assert "### Trust region" in card
    assert "- shape: `clip(low=0.2, high=0.28)`" in card
    assert "- gates: `['opsm(delta=0.5, anchor=old)']`" in card
    assert card.index("### Trust region") < card.index("### Framework versions")
    assert card.index("- klip") < card.index("# Model Card")  # among the tags
    assert "penalties" not in card


def test_a_card_of_another_form_has_it_at_its_end():
    assert in_card("# Mine\n", {"shape": "clip"}).endswith("- shape: `clip`\n")


def test_the_settings_stay_the_users_class_and_file(run, tmp_path):
    folder, whole = run
    assert isinstance(whole.args, GRPOConfig)
    assert type(whole.args).__name__ == "GRPOConfig"
    read = torch.load(folder / "checkpoint-4" / "training_args.bin", weights_only=False)
    assert type(read) is GRPOConfig  # which is read where there is no Klip
    assert read.klip_shape == WANTED["shape"]
    given = GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to=[])
    one, other = (recording(given, record(shape=shape)) for shape in ("clip", "sapo"))
    assert (one.to_dict()["klip_shape"], other.to_dict()["klip_shape"]) == ("clip", "sapo")
    assert "klip_shape" not in given.to_dict()


OTHERS = {
    "shape": ({"shape": "spo"}, "shape='clip(low=0.2, high=0.28)'", "shape='spo(eps=0.2)'"),
    "width": ({"shape": "clip"}, "shape='clip(low=0.2, high=0.28)'", "shape='clip(eps=0.2)'"),
    "level": ({"level": "sequence-mean"}, "level='token'", "level='sequence-mean'"),
    "gates": ({"gates": []}, "gates=['opsm(delta=0.5, anchor=old)']", "gates=[]"),
    "marker": ({"answer_marker": None}, "answer_marker='#'", "answer_marker=None"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("resume", [True, "checkpoint-2"])
def test_another_region_is_not_resumed(run, name, resume):
    folder, _ = run
    change, before, now = OTHERS[name]
    again = made(folder, {**OURS, **change}, **SAVING)
    start = parameters(again).clone()
    with pytest.raises(KlipError) as told:
        again.train(resume_from_checkpoint=resume if resume is True else str(folder / resume))
    said = str(told.value)
    assert f"was trained with {before}, and this trainer has {now}:" in said
    assert "start a new run with model=" in said
    assert f"{FILE}" in said
    assert "\n" not in said
    assert torch.equal(parameters(again), start)  # before anything was loaded


def test_the_same_region_is_resumed_however_it_is_spelled(run, recwarn):
    folder, whole = run
    same = {**OURS, "shape": Clip(low=0.2, high=0.28), "gates": ["opsm"]}
    again = made(folder, same, **SAVING)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert torch.equal(parameters(again), parameters(whole))
    assert len(logged(again)) == 4
    assert not [w for w in recwarn if FILE in str(w.message)]


def test_a_checkpoint_without_a_record_is_resumed_with_a_warning(run, tmp_path):
    folder, whole = run
    bare = tmp_path / "checkpoint-2"
    bare.mkdir()
    for path in (folder / "checkpoint-2").iterdir():
        if path.name != FILE:
            (bare / path.name).write_bytes(path.read_bytes())
    again = made(tmp_path, OURS, **SAVING)
    with pytest.warns(
        UserWarning, match=r"checkpoint-2 has no klip.json.*goes on with shape='clip"
    ):
        again.train(resume_from_checkpoint=str(bare))
    assert torch.equal(parameters(again), parameters(whole))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"shape": 3}', "\xff"])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(KlipError, match=r"klip.json is not a record of Klip's: delete it"):
        check_resumed(tmp_path, WANTED)


def test_equal_regions_are_equal_in_other_words(tmp_path):
    write(tmp_path, record(shape="clip(low=0.2, high=0.2)"))
    check_resumed(tmp_path, record(shape="clip(eps=0.2)"))
    with pytest.raises(KlipError, match="shape='clip"):
        check_resumed(tmp_path, record(shape="clip(eps=0.3)"))


def test_klips_own_classes_may_have_their_place(tmp_path):
    write(tmp_path, record(shape="klip.adapters.prime_rl:IPO(eps=0.3)"))
    check_resumed(tmp_path, record(shape="klip.adapters.prime_rl:IPO(eps=0.3, cap=10000)"))


def test_no_code_of_a_checkpoint_runs(tmp_path):
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    write(tmp_path, record(shape=f"{trap}:Mine(a=1)"))
    with pytest.raises(KlipError, match=r"trap\.py:Mine"):
        check_resumed(tmp_path, WANTED)
    assert not (tmp_path / "sprung").exists()


def test_a_shape_of_the_users_own_has_a_digest_of_its_code(tmp_path):
    mine = Path("examples/my_shapes.py").resolve()
    from klip.shapes import parse

    name = next(line.split()[1].split("(")[0] for line in mine.read_text().splitlines()
                if line.startswith("class "))  # fmt: skip
    known = record_of(TokenRegion(parse(f"{mine}:{name}")))
    assert known["code"]
    write(tmp_path, known)
    check_resumed(tmp_path, known)
    with pytest.raises(KlipError, match="code="):
        check_resumed(tmp_path, {**known, "code": "0" * 12})


def test_thresholds_are_recorded_too():
    shape = Clip(eps=ByAge(fresh=0.2, half_life=2.0))
    assert "by-age(fresh=0.2" in record_of(TokenRegion(shape))["shape"]
