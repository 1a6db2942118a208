"""A shape in TRL's GRPOTrainer: `KlipGRPOTrainer(shape="clip(low=0.2, high=0.28)", ...)`.

TRL's loss stays as it is, and none of it is copied. It gets the multiplier m `[B, T]` in place of
advantages, and no old log-probs: its own ratio is then 1, its own clipping has nothing to clip, and
it reduces `-m * ratio`, whose gradient is that of the shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from klip.adapters.common import given_region
from klip.adapters.trl_batch import VERSION, Batch, has_reference, look, reference_k3
from klip.adapters.trl_keeping import Keeper
from klip.adapters.trl_record import check_resumed, in_card, record_of, recording, write
from klip.adapters.trl_settings import FIELDS, check, on_policy, say_on_policy
from klip.adapters.trl_stock import loss_of_trainer
from klip.adapters.trl_window import AnswerFinder, Windows, mode_of
from klip.errors import KlipError
from klip.shapes import Gate, Penalty, Shape
from klip.tokens import Diagnostics, Level, TokenRegion

try:
    import trl
    from transformers.trainer_utils import get_last_checkpoint
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
    windows: Windows
    keeper: Keeper
    given: Batch | None = None
    """a batch as TRL made it, while its loss is computed and log-probs are still missing"""
    shown: dict[str, Any] = field(default_factory=dict)
    """the same batch as TRL's loss sees it"""
    diagnostics: Diagnostics | None = None
    means: dict[str, tuple[float, float]] = field(default_factory=dict)
    """further means of the same batch, as `Pool` has them"""
    answers: AnswerFinder | None = None
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
    was sampled. `metrics` says how many diagnostics are logged, "few" or "all"; `keep_tokens`, of
    how many completions the tokens are written at each entry of the log. All other arguments are
    GRPOTrainer's, by keyword after the third. Settings that
    would silently make the shape wrong are refused. The region is recorded in trackers' configs,
    in the model card and in checkpoints, and a checkpoint of another region is not resumed.
    """

    _tag_names: ClassVar = [*GRPOTrainer._tag_names, "klip"]

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
        metrics: str = "few",
        keep_tokens: int = 0,
        **options: Any,
    ) -> None:
        _check_trainer()
        region = given_region(TRAINER, FIELDS, shape, level, gates, penalties)
        settings = GRPOConfig() if args is None else args
        sampler = settings.use_vllm or options.get("rollout_func") is not None
        check(settings, region, sampler)
        self._klip = _State(region, Windows(metrics), Keeper(keep_tokens))
        super().__init__(model, reward_funcs, args, **options)
        if answer_marker is not None:
            self._klip.answers = AnswerFinder(self._tokenizer, answer_marker)
        self.klip_record = record_of(region, answer_marker)
        self.args: Any = recording(self.args, self.klip_record)
        if on_policy(self.args):
            self._klip.warned = True
            warnings.warn(say_on_policy(self.args), stacklevel=2)

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **named: Any
    ) -> Any:
        """TRL's training; a checkpoint of another trust region is refused."""
        found = resume_from_checkpoint
        if found is True:
            found = get_last_checkpoint(self.args.output_dir)
        if found:
            check_resumed(found, self.klip_record)
        return super().train(resume_from_checkpoint, *args, **named)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """TRL's saving, with the record of the trust region beside the weights."""
        if self.args.should_save:
            write(output_dir or self.args.output_dir, self.klip_record)
        super().save_model(output_dir, _internal_call)

    def create_model_card(self, *args: Any, **named: Any) -> None:
        """TRL's model card, with the trust region in it."""
        super().create_model_card(*args, **named)
        if self.is_world_process_zero():
            card = Path(self.args.output_dir) / "README.md"
            text = in_card(card.read_text(encoding="utf-8"), self.klip_record)
            card.write_text(text, encoding="utf-8")

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch, with the step at which completions were sampled and their answers' masks."""
        if self.model.training:
            self._say_if_nothing_moved()
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        rows = batch["completion_ids"]
        batch[VERSION] = torch.full((len(rows),), self.state.global_step, device=rows.device)
        if self._klip.answers is not None:
            self._klip.answers.mark(self, batch, self._klip.windows)
        self._klip.keeper.give(self, batch)
        return batch

    def _calculate_rewards(self, *args: Any, **named: Any) -> Tensor:
        """TRL's rewards, which are also kept for those who read the tokens."""
        rewards: Tensor = super()._calculate_rewards(*args, **named)
        self._klip.keeper.reward(self, rewards)
        return rewards

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
                klip.means = {"reference_k3": k3}
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
        assert klip.diagnostics is not None  # the hook has fired
        klip.keeper.hold({str(klip.region.shape): klip.diagnostics}, inputs)
        self._log_diagnostics()
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log, in which our diagnostics are those of all tokens since the last entry."""
        self._klip.windows.close(self)
        self._klip.keeper.write(self)
        super().log(logs, start_time)

    def _log_diagnostics(self) -> None:
        """Take in our diagnostics; remove TRL's of the ratio that is 1 by design."""
        klip, log = self._klip, self._metrics[mode_of(self)]
        assert klip.diagnostics is not None  # the hook has fired
        own = replace(klip.diagnostics.pool(details=False), means=klip.means)
        klip.diagnostics, klip.means = None, {}
        seen = klip.windows.take_in(self, own)
        for name in [name for name in log if name.startswith("clip_ratio/")]:
            del log[name]
        if has_reference(klip.region):
            log.pop("kl", None)
        if self.model.training:
            inert = seen.tokens > 0 and not seen.moved
            klip.still = klip.still + 1 if inert and klip.still >= 0 else -1

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
