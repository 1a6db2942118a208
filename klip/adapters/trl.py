"""A shape in TRL's GRPOTrainer: `KlipGRPOTrainer(shape="clip(low=0.2, high=0.28)", ...)`.

TRL's loss stays as it is, and none of it is copied. It gets the multiplier m `[B, T]` in place of
advantages, and no old log-probs: its own ratio is then 1, its own clipping has nothing to clip, and
it reduces `-m * ratio`, whose gradient is that of the shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import given_region, logged
from klip.adapters.trl_batch import (
    ANSWER,
    VERSION,
    Batch,
    across_processes,
    has_reference,
    look,
    mark,
    markers,
    metrics,
    reference_k3,
)
from klip.adapters.trl_settings import FIELDS, check, on_policy, say_on_policy
from klip.adapters.trl_stock import loss_of_trainer
from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.tokens import Diagnostics, Level, TokenRegion

try:
    import trl
    from accelerate.utils import gather_object  # type: ignore[import-not-found]
    from trl import GRPOConfig, GRPOTrainer
except ModuleNotFoundError:
    raise KlipError("klip.adapters.trl needs TRL: pip install 'klip-rl[trl]'") from None

__all__ = ["KlipGRPOTrainer", "loss_of_trainer"]

TRAINER = "TRL's GRPOTrainer"
_HOME = "trl.trainer.grpo_trainer"
_HIDDEN = frozenset({"advantages", "old_per_token_logps"})
_NOT_FIRED = (
    "TRL computed its loss without asking for log-probs in the way that 1.16 does, so the shape "
    f"would not act: Klip does not know TRL {trl.__version__}, or what has patched it; install "
    "trl==1.16.*"
)


@dataclass
class _State:
    """What the trainer remembers between its hooks."""

    region: TokenRegion
    given: Batch | None = None
    """a batch as TRL made it, while its loss is computed and log-probs are still missing"""
    shown: dict[str, Any] = field(default_factory=dict)
    """the same batch as TRL's loss sees it"""
    diagnostics: Diagnostics | None = None
    more: dict[str, float] = field(default_factory=dict)
    """metrics that the diagnostics do not have"""
    markers: list[tuple[int, ...]] = field(default_factory=list)
    still: int = 0
    """how many losses on the current completions had every ratio at 1; -1 after one had not"""
    warned: bool = False
    """whether the user was warned that the shape has nothing to act on"""


class KlipGRPOTrainer(GRPOTrainer):
    """GRPOTrainer with `shape` as its trust region; `loss_type` says how tokens are averaged.

    `shape`, `level`, `gates` and `penalties` are those of `klip.tokens.token_loss`, values or their
    spellings. With `answer_marker`, the tokens after it are the span "answer" and those before it
    the span "reasoning": each span has diagnostics, and a token's `position` is 0 in the reasoning
    and 1 in the answer, of a `length` of 2. A completion's `age` is the number of updates since it
    was sampled. All other arguments are GRPOTrainer's, by keyword after the third. Settings that
    would silently make the shape wrong are refused.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *,
        shape: str | Shape,
        level: str | Level = "token",
        gates: Sequence[str | Gate] = (),
        penalties: Sequence[str | Penalty] = (),
        answer_marker: str | None = None,
        **options: Any,
    ) -> None:
        _check_trainer()
        region = given_region(TRAINER, FIELDS, shape, level, gates, penalties)
        settings = GRPOConfig() if args is None else args
        sampler = settings.use_vllm or options.get("rollout_func") is not None
        check(settings, region, sampler)
        self._klip = _State(region)
        super().__init__(model, reward_funcs, args, **options)
        if answer_marker is not None:
            self._klip.markers = markers(
                lambda text: self._tokenizer.encode(text, add_special_tokens=False),
                answer_marker,
                self._tokenizer.unk_token_id,
            )
        if on_policy(self.args):
            self._klip.warned = True
            warnings.warn(say_on_policy(self.args), stacklevel=2)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch, with the step at which completions were sampled and their answers' masks."""
        if self.model.training:
            self._say_if_nothing_moved()
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rows = batch["completion_ids"]
        batch[VERSION] = torch.full((len(rows),), self.state.global_step, device=rows.device)
        if self._klip.markers:
            answer = mark(batch, self._klip.markers)
            batch[ANSWER] = answer.mask
            share = self.accelerator.gather(answer.found.float()).mean().item()
            self._klip_log()["klip/answer_found"].append(share)
        return batch

    def _get_per_token_logps_and_entropies(self, *args: Any, **named: Any) -> Any:
        """TRL's log-probs and entropies; during a loss, they also give the multiplier."""
        scored = super()._get_per_token_logps_and_entropies(*args, **named)
        klip = self._klip
        if klip.given is not None:
            given, klip.given = klip.given, None
            step = self.state.global_step
            klip.diagnostics = look(klip.region, given, scored[0], scored[1], step)
            klip.shown["advantages"] = klip.diagnostics.m
            if has_reference(klip.region):
                # TRL's own KL is then exactly 0, and the region's penalty replaces it.
                klip.shown["ref_per_token_logps"] = scored[0]
                k3 = reference_k3(klip.diagnostics, scored[0], given["ref_per_token_logps"])
                klip.more = {"reference_k3": k3}
        return scored

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss of the multiplier; its value is -m, reduced."""
        # `_HIDDEN` stays hidden until the multiplier exists: reading it too early then raises.
        klip = self._klip
        klip.given = inputs
        klip.shown = {name: value for name, value in inputs.items() if name not in _HIDDEN}
        try:
            loss: Tensor = super()._compute_loss(model, klip.shown)
        except KeyError as error:
            if klip.given is None:
                raise
            raise KlipError(_NOT_FIRED) from error
        finally:
            fired, klip.given, klip.shown = klip.given is None, None, {}
        if not fired:
            raise KlipError(_NOT_FIRED)
        self._log_diagnostics()
        return loss

    def _klip_log(self) -> Any:
        """Where TRL collects its metrics, by name."""
        return self._metrics["train" if self.model.training else "eval"]

    def _log_diagnostics(self) -> None:
        """Add our diagnostics to TRL's metrics; remove those of the ratio that is 1 by design."""
        klip, log = self._klip, self._klip_log()
        assert klip.diagnostics is not None  # the hook has fired
        row = across_processes(gather_object([metrics(klip.diagnostics) | klip.more]))
        klip.diagnostics = None
        for name, value in logged(row).items():
            log[name].append(value)
        for name in [name for name in log if name.startswith("clip_ratio/")]:
            del log[name]
        if has_reference(klip.region):
            log.pop("kl", None)
        if self.model.training:
            klip.still = klip.still + 1 if row["inert"] and klip.still >= 0 else -1

    def _say_if_nothing_moved(self) -> None:
        """Warn once if every ratio on the last completions was 1."""
        klip = self._klip
        if klip.still > 0 and not klip.warned:
            klip.warned = True
            warnings.warn(
                f"every ratio was exactly 1 in all {klip.still} losses on one batch of "
                "completions, so the shape had nothing to act on: the learning rate was 0, or "
                "every advantage was",
                stacklevel=2,
            )
        klip.still = 0


def _check_trainer() -> None:
    """Refuse a GRPOTrainer that is not TRL's own, or that is older than 1.16."""
    version = tuple(int(part) for part in trl.__version__.split(".")[:2])
    if version < (1, 16):
        raise KlipError(f"TRL {trl.__version__} is too old for a shape: install trl>=1.16")
    for item in (GRPOTrainer, trl.GRPOTrainer, GRPOTrainer._compute_loss):
        if item.__module__ != _HOME:
            raise KlipError(
                f"TRL's GRPOTrainer has been replaced by {item.__module__}.{item.__qualname__}, "
                "in whose loss the shape would not act: do not import what replaces it (Unsloth "
                "does so on import) in a process that trains with a shape"
            )
