"""Watch a stock TRL trainer: which tokens its own clip zeroes, and what other shapes would have.

    trainer = GRPOTrainer(...)
    trainer.add_callback(KlipWatch(trainer, instead=["sapo", "cispo(cap=5)"]))

The watcher reads the log-probs that TRL computes anyway, detached. It draws no random number and
returns what TRL's own functions return, so a watched run has the parameters of one that is not
watched, bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import OF_SAMPLER, check_fields
from klip.adapters.trl_batch import VERSION, look
from klip.adapters.trl_keeping import Keeper
from klip.adapters.trl_settings import FIELDS, own_region
from klip.adapters.trl_window import AnswerFinder, Windows
from klip.errors import KlipError
from klip.shapes import Clip
from klip.tokens import SequenceSum, TokenRegion, beside
from klip.tokens.instead import Others, regions, says

try:
    from transformers import TrainerCallback
    from trl import GRPOTrainer, RLOOTrainer
except ModuleNotFoundError:
    raise KlipError("klip.adapters.trl_watch needs TRL: pip install 'klip-rl[trl]'") from None

__all__ = ["KlipWatch"]

OLD = "klip_old_per_token_logps"
"""`[B, T]`, of which RLOO's trainer keeps only the sums."""
_HOMES = {GRPOTrainer: "trl.trainer.grpo_trainer", RLOOTrainer: "trl.trainer.rloo_trainer"}


class KlipWatch(TrainerCallback):
    """Reports what a stock trainer's trust region does to its tokens; it changes nothing.

    The diagnostics are logged as `klip/...` among TRL's metrics: of all tokens, by span, by age and
    by entropy. `instead/NAME/zeroed` is what each shape in `instead` would have done to the same
    tokens, and `instead/NAME/of_zeroed/pull` how much of the gradient that the trainer zeroed it
    would have left. `says()` puts the last entry into sentences. The hooks are there from the
    beginning to the end of `train`.

    Args:
        trainer: TRL's GRPOTrainer or RLOOTrainer
        instead: shapes or their spellings; regions with a level as a mapping by name
        answer_marker: the text after which the answer follows, for the spans answer and reasoning
        metrics: "few" or "all"
        every: of how many losses one is looked at
        keep_tokens: of how many completions the tokens are written at each entry of the log

    """

    def __init__(
        self,
        trainer: Any,
        instead: Others = (),
        *,
        answer_marker: str | None = None,
        metrics: str = "few",
        every: int = 1,
        keep_tokens: int = 0,
    ) -> None:
        self._kind = _kind_of(trainer)
        self.region = _region_of(trainer, self._kind)
        self.instead = regions(instead)
        _check_known(trainer, self._kind, self.instead)
        if every < 1:
            raise KlipError(f"every={every} must be 1 or more losses")
        self._trainer, self._every, self._losses = trainer, every, 0
        self._windows, self._keeper = Windows(metrics), Keeper(keep_tokens)
        self._row: dict[str, float] = {}
        self._scored: list[tuple[Tensor, Tensor | None]] | None = None
        """what TRL scored since the hook began to listen; None while it does not"""
        self._answers = None
        if answer_marker is not None:
            self._answers = AnswerFinder(trainer._tokenizer, answer_marker)

    def says(self) -> list[str]:
        """What the others would have done to the tokens of the last entry, a sentence each."""
        return says(self._row, str(self.region.shape))

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Put the hooks in place; those that a run left which was broken off make room."""
        callbacks = self._trainer.callback_handler.callbacks
        if sum(isinstance(callback, KlipWatch) for callback in callbacks) > 1:
            raise KlipError(
                "the trainer has two KlipWatch callbacks, which would log under the same names: "
                "give one of them all shapes, as in instead=['sapo', 'spo']"
            )
        self._scored, self._losses = None, 0
        for name in _HOOKED:
            hook = getattr(self, f"_on_{name.lstrip('_')}")
            setattr(self._trainer, name, _around(_own(self._trainer, name), hook))

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Take the hooks away; what somebody else had put there stays."""
        for name in _HOOKED:
            own = _own(self._trainer, name)
            vars(self._trainer).pop(name, None)
            if own != getattr(self._trainer, name):
                setattr(self._trainer, name, own)

    def _on_get_per_token_logps_and_entropies(
        self, call: Callable[[], Any], *args: Any, **named: Any
    ) -> Any:
        scored = call()
        if self._scored is not None:
            entropy = None if scored[1] is None else scored[1].detach()
            self._scored.append((scored[0].detach(), entropy))
        return scored

    def _on_generate_and_score_completions(self, call: Callable[[], Any], inputs: Any) -> Any:
        self._scored = []
        try:
            batch = call()
        finally:
            scored, self._scored = self._scored, None
        rows = batch["completion_ids"]
        batch[VERSION] = torch.full((len(rows),), self._trainer.state.global_step).to(rows.device)
        if self._kind is RLOOTrainer:
            batch[OLD] = scored[0][0]  # the first that it scores is the policy that sampled
        if self._answers is not None:
            self._answers.mark(self._trainer, batch, self._windows)
        self._keeper.give(self._trainer, batch)
        return batch

    def _on_calculate_rewards(self, call: Callable[[], Any], *args: Any, **named: Any) -> Any:
        rewards = call()
        self._keeper.reward(self._trainer, rewards)
        return rewards

    def _on_compute_loss(self, call: Callable[[], Any], model: Any, inputs: Any) -> Any:
        self._scored = []
        try:
            loss = call()
        finally:
            scored, self._scored = self._scored, None
        self._losses += 1
        if (self._losses - 1) % self._every == 0:
            if not scored:
                raise KlipError(
                    "TRL computed its loss without asking for log-probs in the way that 1.16 does, "
                    "so there is nothing to watch: install trl==1.16.*, without what replaces its "
                    "trainer"
                )
            self._look(inputs, *scored[-1])
        return loss

    def _on_log(self, call: Callable[[], Any], *args: Any, **named: Any) -> Any:
        self._row = self._windows.close(self._trainer) or self._row
        self._keeper.write(self._trainer)
        return call()

    def _look(self, inputs: Mapping[str, Any], log_prob: Tensor, entropy: Tensor | None) -> None:
        batch, now = dict(inputs), self._trainer.state.global_step
        if self._kind is RLOOTrainer:
            batch["old_per_token_logps"] = batch[OLD]
        own = look(self.region, batch, log_prob, entropy, now)
        others = {
            name: look(region, batch, log_prob, entropy, now)
            for name, region in self.instead.items()
        }
        self._windows.take_in(self._trainer, beside(own, others, details=False))
        self._keeper.hold({str(self.region.shape): own, **others}, batch)


_HOOKED = (
    "_generate_and_score_completions",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
    "_compute_loss",
    "log",
)


def _around(function: Callable[..., Any], hook: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which `hook` calls once; the hook also gets the arguments."""

    def hooked(*args: Any, **named: Any) -> Any:
        return hook(functools.partial(function, *args, **named), *args, **named)

    hooked.klip_around = function  # type: ignore[attr-defined]
    return hooked


def _own(trainer: Any, name: str) -> Callable[..., Any]:
    """A function of the trainer's, without a hook."""
    function = getattr(trainer, name)
    own: Callable[..., Any] = getattr(function, "klip_around", function)
    return own


def _kind_of(trainer: Any) -> Any:
    """GRPOTrainer or RLOOTrainer; raises if its loss is not TRL's own."""
    for kind, home in _HOMES.items():
        if isinstance(trainer, kind):
            loss = type(trainer)._compute_loss
            if loss.__module__ == home:
                return kind
            if loss.__module__.startswith("klip."):
                raise KlipError(
                    f"{type(trainer).__name__} logs its own diagnostics: the watcher is for TRL's "
                    "own trainers"
                )
            raise KlipError(
                f"the loss of {type(trainer).__name__} is {loss.__module__}.{loss.__qualname__}, "
                "not TRL's own, and its settings do not say what it does: watch a stock "
                f"{kind.__name__}"
            )
    raise KlipError(
        f"{type(trainer).__name__} cannot be watched: give TRL's GRPOTrainer or RLOOTrainer, as in "
        "KlipWatch(trainer)"
    )


def _region_of(trainer: Any, kind: Any) -> TokenRegion:
    args = trainer.args
    if kind is RLOOTrainer:
        high = args.epsilon if args.epsilon_high is None else args.epsilon_high
        return TokenRegion(Clip(low=args.epsilon, high=high), SequenceSum())
    return own_region(args, _has_sampler(trainer))


def _has_sampler(trainer: Any) -> bool:
    return bool(trainer.args.use_vllm or getattr(trainer, "rollout_func", None) is not None)


def _check_known(trainer: Any, kind: Any, others: Mapping[str, TokenRegion]) -> None:
    """Refuse a region that needs what does not reach the loss of this trainer."""
    known = FIELDS
    if kind is RLOOTrainer or trainer.args.beta == 0:
        known = known - {"reference_log_ratio"}
    if kind is RLOOTrainer or not _has_sampler(trainer):
        known = known - OF_SAMPLER
    for name, region in others.items():
        try:
            check_fields(region.parts, f"this {kind.__name__}", known)
        except KlipError as error:
            raise KlipError(f"instead {name}: {error}") from None
