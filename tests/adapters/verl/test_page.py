"""What docs/verl.md says is so."""

import re
import shlex
import tomllib

from klip.adapters import doctor
from klip.adapters.verl_settings import Settings
from klip.shapes import Shape, parse
from klip.tokens import Level
from klip.tokens.region import named
from tests.adapters.verl.test_verl import SAME
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "verl.md").read_text(encoding="utf-8")


def test_code_blocks_run_in_order():
    names = {"__name__": "docs_verl"}
    blocks = BLOCK.findall(PAGE)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/verl.md", "exec"), names)


def test_the_file_is_read():
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    said = tomllib.loads(text)
    assert isinstance(parse(said["shape"]), Shape)
    Settings(**said | {"shape": parse(said["shape"])})
    for name in re.findall(r"geometric-mean\([^)]*\)", PAGE):
        named(Level, name)


def test_commands_give_settings_that_verl_takes():
    shell = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    lines = shell.replace("\\\n", " ").splitlines()
    runs = [
        [word for word in shlex.split(line) if "=" in word]
        for line in lines
        if "loss_mode=klip" in line
    ]
    assert len(runs) == 3
    for run in runs:
        assert doctor.composed(run).actor_rollout_ref.actor.policy_loss.loss_mode == "klip"
    assert doctor.worker_variables(runs[1]) == {"KLIP_SHAPE": "clip(low=0.2, high=0.28)"}


def test_the_table_names_the_shapes_that_are_tested():
    rows = re.findall(r"^\| (`.*?`) \| (`.*?`) \|", PAGE, re.MULTILINE)
    said = {}
    for modes, shapes in rows:
        spelled = [parse(text).name for text in re.findall(r"`([^`]*)`", shapes)]
        said |= dict(zip(re.findall(r"`([^`]*)`", modes), spelled, strict=True))
    assert said.pop("geo_mean") == "is"
    assert said == {name: parse(shape).name for name, (_, shape, _) in SAME.items()}
