"""One run of GRPO, an iteration after the other:

    sample completions, put them among the replayed, draw as many from there;
    a few epochs of minibatches:  token_loss(shape) -> Adam;
    count what was killed, and look at the held-out prompts now and then.

Every random number is a function of (seed, purpose, iteration), the same for all arms; so a run is
its weights, its optimiser and its replay buffer, and goes on from them exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from klip.engine.job import State, Stopped
from klip.engine.random import stream
from klip.errors import KlipError, NotFinite
from klip.lab.addition import MARKER, completion_length, problems
from klip.lab.config import TokenConfig
from klip.lab.counting import Tally
from klip.lab.explaining import Studied, explained, kept
from klip.lab.model import generate, mask_of, score
from klip.lab.warmup import (
    arrays_of,
    build,
    check_weights,
    encoded,
    held_out_accuracy,
    restore_into,
    rewards,
    set_weights,
)
from klip.runs.completions import Completion
from klip.shapes import Context, parse
from klip.shapes.context import OF_BATCH, TWO_RATIOS
from klip.tokens import (
    TokenLoss,
    after_marker,
    ages,
    grpo,
    part_position,
    token_context,
    token_loss,
)

Row = dict[str, Any]
GENTLER = "a smaller learning_rate, fewer epochs or a shape that bounds the multiplier may hold it"


class Completions(NamedTuple):
    """Completions with all that is known of them; rows of one prompt stand together."""

    prompt: Tensor
    """`[B, P]`"""
    completion: Tensor
    """`[B, T]`, padded"""
    old_log_prob: Tensor
    """`[B, T]`, when it was sampled"""
    advantage: Tensor
    """`[B]`"""
    version: Tensor
    """`[B]`, the iteration that sampled it"""

    def rows(self, index: Tensor) -> Completions:
        """The rows at an index."""
        return Completions(*(part[index] for part in self))


class Masks(NamedTuple):
    """Which tokens count, and which are the answer, `[B, T]` each."""

    mask: Tensor
    answer: Tensor


class TokenRun:
    """A run between two iterations; it begins with the arrays of its warm-up."""

    def __init__(self, c: TokenConfig, warmup: State) -> None:
        torch.set_num_threads(1)  # the bits depend on it
        self.config, self.shape, self.model = c, parse(c.shape).initial, build(c.warmup)
        set_weights(self.model, warmup)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=c.learning_rate)
        self.buffer: list[Completions] = []
        self.iteration = 0
        self.samples: list[Completion] = []

    def iterate(self, stop: Callable[[], bool] = lambda: False) -> Row:
        """Do one iteration, and return its row of metrics.

        Raises `NotFinite` if a number is not finite any more, and `Stopped` if `stop` says so; the
        run is then no whole state.
        """
        if stop():
            raise Stopped
        c, number = self.config, self.iteration
        row: Row = {"iteration": number + 1, "step": (number + 1) * c.batch}
        start = self._held_out(number, 1) if number == 0 else (None, None)
        fresh, about = self._sample()
        self.buffer = [*self.buffer, fresh][-(c.replay + 1) :]
        batch = self._drawn()
        begun = self._begun(batch)
        try:
            tally = self._learn(batch, begun, stop)
            check_weights(self.model)
        except NotFinite as error:
            raise NotFinite(f"{error.what} ({GENTLER})") from None
        last = number + 1 == c.iterations
        due = last or (number + 1) % c.evaluate_every == 0
        if due if c.keep_tokens else number + 1 == c.shown:
            self.samples = [*self.samples, *self._explain(batch, begun)]
        self.iteration += 1
        sampled, greedy = (
            self._held_out(self.iteration, c.final_samples if last else 1) if due else (None, None)
        )
        return {
            **row, **about, **tally.metrics(c.replay), "held_out": sampled, "greedy": greedy,
            "start_held_out": start[0], "start_greedy": start[1],
        }  # fmt: skip

    # -- the parts of an iteration ------------------------------------------------------------

    def _sample(self) -> tuple[Completions, Row]:
        """New completions of new prompts, scored."""
        c, number, digits = self.config, self.iteration, self.config.warmup.digits
        pairs = problems(stream(c.seed, "prompts", number), c.prompts, digits)
        pairs = pairs.repeat(c.completions, axis=0)
        prompts = encoded(pairs)
        shape = (completion_length(digits), c.batch)
        dice = stream(c.seed, "sampling", number).random(shape, np.float32)
        completions = generate(self.model, prompts, dice)
        with torch.no_grad():
            scored = score(self.model, prompts, completions)
        reward = torch.from_numpy(rewards(pairs, completions, digits))
        group = torch.arange(c.prompts).repeat_interleave(c.completions)
        advantage, mask = grpo(reward, group), mask_of(completions)
        about = {
            "return_mean": float(reward.mean()),
            "entropy": float(scored.entropy[mask].mean()),
            "length": float(mask.sum(-1).float().mean()),
            "silent": float((advantage.view(c.prompts, -1) == 0).all(-1).float().mean()),
        }
        version = torch.full((c.batch,), number)
        return Completions(prompts, completions, scored.log_prob, advantage, version), about

    def _drawn(self) -> Completions:
        """As many groups as were sampled, each drawn from any iteration still remembered."""
        c = self.config
        if c.replay == 0:
            return self.buffer[-1]
        whole = Completions(*(torch.cat(parts) for parts in zip(*self.buffer, strict=True)))
        groups = len(self.buffer) * c.prompts
        chosen = stream(c.seed, "replay", self.iteration).permutation(groups)[: c.prompts]
        rows = torch.from_numpy(chosen)[:, None] * c.completions + torch.arange(c.completions)
        return whole.rows(rows.flatten())

    def _begun(self, batch: Completions) -> Tensor | None:
        """`[B, T]`, log-probabilities as the iteration begins; None if the shape needs none."""
        if not self.shape.needs & (TWO_RATIOS | OF_BATCH):
            return None
        if self.config.replay == 0:
            return batch.old_log_prob
        with torch.no_grad():
            return score(self.model, batch.prompt, batch.completion).log_prob

    def _learn(self, batch: Completions, begun: Tensor | None, stop: Callable[[], bool]) -> Tally:
        c, tally, masks = self.config, Tally(self.config.replay), self._masks(batch)
        for epoch in range(c.epochs):
            order = stream(c.seed, "order", self.iteration, epoch).permutation(c.batch)
            for index in torch.from_numpy(order).chunk(c.minibatches):
                if stop():
                    raise Stopped
                part, own = batch.rows(index), Masks(*(mask[index] for mask in masks))
                loss, diagnostics = self._loss(part, own, None if begun is None else begun[index])
                self.optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), c.gradient_norm)
                self.optimiser.step()
                assert diagnostics is not None
                tally.add(diagnostics, own.answer)
        return tally

    def _masks(self, batch: Completions) -> Masks:
        mask = mask_of(batch.completion)
        return Masks(mask, after_marker(batch.completion, mask, [(MARKER,)]).mask)

    def _loss(self, part: Completions, masks: Masks, begun: Tensor | None) -> TokenLoss:
        scored = score(self.model, part.prompt, part.completion)
        return self._loss_of(scored.log_prob, part, masks, begun)

    def _loss_of(
        self, log_prob: Tensor, part: Completions, masks: Masks, begun: Tensor | None
    ) -> TokenLoss:
        context = self._context(part, masks, log_prob, begun)
        return token_loss(
            log_prob, part.old_log_prob, part.advantage, masks.mask, self.shape, context
        )

    def _context(
        self, part: Completions, masks: Masks, log_prob: Tensor, begun: Tensor | None
    ) -> Context:
        """The old policy is the sampler, which is the model itself as it was then."""
        position, length = part_position(masks.answer)
        age = ages(part.version, self.iteration)
        now: dict[str, Any] = {"age": age, "progress": self.iteration / self.config.iterations}
        return token_context(
            log_prob, part.old_log_prob, start_log_prob=begun,
            position=position, length=length, **now,
        )  # fmt: skip

    def _explain(self, batch: Completions, begun: Tensor | None) -> list[Completion]:
        """A few of the completions just learned from, token by token."""
        c, masks = self.config, self._masks(batch)
        with torch.no_grad():
            scored = score(self.model, batch.prompt, batch.completion)
            diagnostics = self._loss_of(scored.log_prob, batch, masks, begun).diagnostics
        assert diagnostics is not None
        age = self.iteration - batch.version
        learned = Studied(batch.prompt, batch.completion, age, c.completions)
        if not c.keep_tokens:
            return explained(learned, diagnostics)
        step = self.iteration + 1
        return kept(learned, diagnostics, masks.answer, scored.entropy, c.keep_tokens, step)

    def _held_out(self, place: int, samples: int) -> tuple[float, float]:
        c = self.config
        sampled = held_out_accuracy(self.model, c.warmup, c.held_out, samples, place)
        return sampled, held_out_accuracy(self.model, c.warmup, c.held_out, 0, place)

    # -- to and from a checkpoint -------------------------------------------------------------

    def arrays(self) -> State:
        """All that the next iteration depends on, and the samples."""
        arrays = arrays_of(self.model, self.optimiser)
        for place, batch in enumerate(self.buffer):
            arrays |= {f"buffer/{place}/{k}": v.numpy() for k, v in batch._asdict().items()}
        arrays["samples"] = np.frombuffer(Completion.to_json(self.samples), np.uint8)
        return arrays

    def restore(self, iteration: int, arrays: State) -> None:
        """Put a run where its checkpoint says."""
        restore_into(self.model, self.optimiser, iteration, arrays)
        places, fields = min(iteration, self.config.replay + 1), Completions._fields
        try:
            self.buffer = [
                Completions(*(torch.from_numpy(arrays[f"buffer/{k}/{f}"].copy()) for f in fields))
                for k in range(places)
            ]
            self.samples = Completion.from_json(arrays["samples"].tobytes())
        except (KeyError, ValueError, RuntimeError) as error:
            raise KlipError(f"its checkpoint is of another version of Klip: {error}") from None
        self.iteration = iteration
