"""Jobs by names that tell them apart: each in brief, with the settings in which they differ.

    clip                  everything at its usual value, as the paper has it
    clip, lr 0.001        another learning rate; beside it lies one without, or with yet another

Jobs that bear the same label differ in their seed alone, so a mean over them means something.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from klip.engine.job import USUAL, Fields, Job, kind_in
from klip.errors import KlipError
from klip.shapes.names import brief

CODE = {"code": "code", "task_code": "task's code"}
"""Fields with digests of somebody's code, and how they are called."""


def labels(configs: Sequence[Fields]) -> list[str]:
    """A label of each config on disk, which is the same for those that differ in their seed alone.

    A setting is named where configs of the task differ in it and this one has not the usual value.
    Nothing of a config is executed.

    >>> clip = {"task": "Hopper-v4", "shape": "clip(eps=0.2)", "seed": 0}
    >>> labels([clip, {**clip, "seed": 1}, {**clip, "lr": 0.001}])
    ['clip', 'clip', 'clip, lr 0.001']
    """
    named = [""] * len(configs)
    tasks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, config in enumerate(configs):
        tasks[str(config.get("kind", USUAL)), str(config.get("task"))].append(place)
    for places in tasks.values():
        together = [json.loads(json.dumps(dict(configs[place]))) for place in places]
        for place, label in zip(places, _of_one_task(together), strict=True):
            named[place] = label
    return named


def labels_of(jobs: Sequence[Job]) -> list[str]:
    """The labels of jobs."""
    return labels([job.stored for job in jobs])


def _of_one_task(configs: Sequence[Fields]) -> list[str]:
    plain_labels = [_label(config) for config in configs]
    settings = [_settings(config) for config in configs]
    names = dict.fromkeys(name for each in settings for name in each)
    differing = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    usual = _usual(configs[0])
    shapes: dict[str, set[str]] = defaultdict(set)
    codes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for label, config in zip(plain_labels, configs, strict=True):
        shapes[label].add(str(config.get("shape")))
        for name in CODE:
            codes[label, name].add(str(config.get(name, "")))
    made = []
    for label, config, each in zip(plain_labels, configs, settings, strict=True):
        unusual = (name for name in differing if each.get(name) != usual.get(name))
        marks = [f"{name} {plain(each.get(name))}" for name in unusual]
        if len(shapes[label]) > 1:
            marks.append(brief(str(config.get("shape"))))
        marks += [
            f"{word} {config.get(name) or 'unknown'}"
            for name, word in CODE.items()
            if len(codes[label, name]) > 1
        ]
        made.append(", ".join([label, *marks]))
    return made


def plain(value: Any) -> str:
    """A setting's value as a person writes it.

    >>> plain(1000000), plain(0.0003), plain([64, 64])
    ('1,000,000', '0.0003', '64-64')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return "-".join(map(plain, value)) if isinstance(value, (list, tuple)) else str(value)


def _label(config: Fields) -> str:
    """A config in brief, or its shape where its kind is not known."""
    try:
        return kind_in(config).label(config)
    except (KlipError, KeyError):
        return str(config.get("shape", "?"))


def _settings(config: Fields) -> Mapping[str, Any]:
    try:
        return kind_in(config).settings(config)
    except KlipError:
        return {}


def _usual(config: Fields) -> Mapping[str, Any]:
    try:
        return kind_in(config).usual(str(config.get("task")))
    except KlipError:
        return {}
