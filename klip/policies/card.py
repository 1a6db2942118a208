"""The model card of an exported policy: what it is, how it was trained, what it returns.

A run's names, versions and numbers come from a file that anybody may have written. They appear in
the card as text: Markdown and HTML in them mean nothing.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from klip.errors import KlipError
from klip.policies.evaluation import Evaluation
from klip.policies.loading import TrainedPolicy
from klip.policies.policy import Policy
from klip.ppo.config import Config
from klip.shapes import parse
from klip.tasks import Box, Discrete

_LONGEST = 400  # characters of anything that a file says
_MACHINES = 20

CITATION = """\
@article{colletti2026klip,
  title  = {{KLip-PPO}: A per-sample {KL} perspective on {PPO-Clip}},
  author = {Colletti, Riccardo and Holzinger, Robin},
  year   = {2026},
  note   = {Preprint}
}"""


def escape(text: object) -> str:
    r"""Text that Markdown and HTML show as it is, on one line.

    >>> escape("<script>_x_|[a](b)")
    '&lt;script&gt;\\_x\\_\\|\\[a\\](b)'
    """
    line = "".join(c if c.isprintable() else "?" for c in str(text)[:_LONGEST])
    marked = re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", html.escape(line, quote=False))
    # a bare address would become a link
    return marked.replace("://", ":&#47;/").replace("www.", "www&#46;").replace("@", "&#64;")


def model_card(
    trained: TrainedPolicy,
    result: Evaluation | None,
    onnx: float | None,
    not_written: Sequence[str],
) -> str:
    """The README.md of an export, as Markdown.

    Args:
        trained: the policy and its run
        result: the evaluation to show, if there was one
        onnx: how far the graph's outputs lie from ours; None if there is no graph
        not_written: files that are not in the export, each with the reason

    """
    policy = trained.policy
    config = policy.config
    parts = [
        "---\nlibrary_name: klip\ntags:\n- reinforcement-learning\n- ppo\n---",
        f"# {escape(config['shape'])} on {escape(policy.task)}",
        "A policy trained by PPO with Klip, the workbench for trust regions.",
        "## Use it",
        '```python\nimport klip\n\npolicy = klip.load("path/to/this/folder")\n'
        "action = policy.act(observation)\n```",
        _what_it_takes(policy),
        *_onnx(policy, onnx, not_written),
        "## Trust region",
        _shape(str(config["shape"])),
        "## Returns",
        _returns(trained, result),
        "## How it was trained",
        _training(trained),
        "## Files",
        _files(onnx is not None),
        "## Licence and citation",
        "Klip is under the Apache License 2.0. This policy is its author's: whoever publishes it "
        "says here under which licence.",
        f"```bibtex\n{CITATION}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def given(policy: Policy) -> str:
    """What a policy's actions are, in words."""
    match policy.action:
        case Box(low=low):
            return f"{low.size} real numbers within the task's bounds ({low.dtype})"
        case Discrete(n=n):
            return f"one of {n} choices, counted from {int(policy.start)}"
        case multi:
            return f"{len(multi.n)} choices, of {', '.join(map(str, multi.n))}"


def _what_it_takes(policy: Policy) -> str:
    return (
        f"It takes observations `[{policy.observation_size}]` or `[N, {policy.observation_size}]` "
        f"and gives {given(policy)}. `policy.act(observation, deterministic=False, rng=rng)` "
        "samples."
    )


def _onnx(policy: Policy, difference: float | None, not_written: Sequence[str]) -> list[str]:
    if difference is None:
        return [f"Not in this folder: {escape(line)}." for line in not_written]
    raw = "`mean`, `log_std`" if policy.layout.gaussian else "`logits`"
    return [
        "Without Klip, in any ONNX runtime:",
        "```python\nimport numpy as np\nimport onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("policy.onnx")\n'
        "batch = np.atleast_2d(np.asarray(observation, np.float64))\n"
        'action = session.run(["action"], {"observation": batch})[0]\n```',
        "Its input is `observation`, float64 `[N, D]`, as the environment gives it: normalisation "
        f"is part of the graph. Its outputs are `action` (deterministic) and {raw}. On thousands "
        f"of random observations, and on those of the evaluation below, they were within "
        f"{difference:.1e} of Klip's own, relative to the largest of 1, the output and the "
        "normalised observation; 1e-5 is allowed.",
    ]


def _shape(text: str) -> str:
    """The shape and its formula; a user's own shape is not imported to find it."""
    if ":" in text:
        return (
            f"{escape(text)}: a shape of the author's own. Its formula is in their code, which "
            "was not run to write this card."
        )
    try:
        value = parse(text)
    except KlipError:
        return f"{escape(text)}: not a shape that this version of Klip knows."
    return f"{escape(text)}\n\n```text\n{value.formula}\n```"


def _returns(trained: TrainedPolicy, result: Evaluation | None) -> str:
    parts = []
    final = trained.final_return
    if final is not None:
        parts.append(
            f"While training: **{final:.1f}**, the mean over the last tenth of the steps (the "
            "paper's definition), of episodes with sampled actions."
        )
        parts.append(_curve(trained.rows))
    if result is None:
        parts.append("It was not evaluated when this folder was written.")
    else:
        r = result.as_dict()
        how = "deterministic" if result.deterministic else "sampled"
        parts.append(
            f"Evaluated on {escape(result.task)}, {len(result.episodes)} episodes of seed "
            f"{result.seed}, {how} actions, statistics frozen:"
        )
        numbers = {
            "mean return": f"{r['mean']:.1f}",
            "std over episodes": f"{r['std']:.1f}",
            "smallest, largest": f"{r['min']:.1f}, {r['max']:.1f}",
            "mean length": f"{r['length_mean']:.1f}",
            "ended by the task": str(r["terminated"]),
            "ended by the time limit": str(r["truncated"]),
            "unstable in MuJoCo": str(r["unstable"]),
        }
        parts.append(_table(("evaluation", ""), list(numbers.items())))
    return "\n\n".join(parts)


def _curve(rows: Sequence[Mapping[str, Any]]) -> str:
    """The learning curve in ten lines: means over the iterations of each tenth."""
    tenths = []
    for part in np.array_split(np.arange(len(rows)), min(10, len(rows))):
        known = [rows[i]["return_mean"] for i in part if rows[i]["return_mean"] is not None]
        mean = f"{np.mean(known):.1f}" if known else "-"
        tenths.append((f"{rows[part[-1]]['step']:,d}", mean))
    return _table(("up to step", "mean return"), tenths)


def _training(trained: TrainedPolicy) -> str:
    config = trained.policy.config
    batch = _count(config, "envs") * _count(config, "rollout")
    done = f"{trained.iteration * batch:,d} steps, {trained.iteration} iterations"
    parts = [f"{done}, seed {_count(config, 'seed')}; the run is {escape(trained.status)}."]
    known = [f.name for f in dataclasses.fields(Config)]
    fields = [(name, escape(json.dumps(config[name]))) for name in known if name in config]
    parts.append(_table(("config", ""), fields))
    for machine in trained.machines[-_MACHINES:]:
        about = [(escape(k), escape(v)) for k, v in machine.items() if k != "since"]
        since = escape(machine.get("since", 0))
        parts.append(_table((f"from iteration {since}", ""), about[:_MACHINES]))
    return "\n\n".join(parts)


def _files(onnx: bool) -> str:
    rows = [
        ("policy.safetensors", "parameters, statistics, action description, with a checksum"),
        ("config.json", "what the run was a function of"),
        *([("policy.onnx", "the deterministic policy as a graph")] * onnx),
    ]
    return _table(("file", "what"), rows)


def _table(header: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    lines = [header, ("---", "---"), *rows]
    return "\n".join(f"| {name} | {value} |" for name, value in lines)


def _count(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise KlipError(f"its config says {name}={str(value)[:40]!r}, and that is a count")
    return value
