"""A shape in RLlib's PPO, on the new API stack: a learner.

    config.learners(learner_class=ShapePPOLearner, learner_config_dict={"shape": "clip(eps=0.2)"})

RLlib's loss stays as it is, and none of it is copied. It is shown advantages of 0, which leaves the
critic, the entropy and RLlib's KL; the shape's objective is added to it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from klip.adapters.common import given_shape, logged, short_log
from klip.adapters.samples import policy_loss
from klip.errors import KlipError
from klip.shapes import NO_CONTEXT, Context, Shape

try:
    from ray.rllib.algorithms.ppo.ppo import PPOConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.learner.learner import POLICY_LOSS_KEY
    from ray.rllib.evaluation.postprocessing import Postprocessing
except ModuleNotFoundError:
    raise KlipError(
        "klip.adapters.rllib needs RLlib and PyTorch: pip install 'klip-rl[rllib]'"
    ) from None

__all__ = ["ShapePPOLearner"]

TRAINER = "RLlib's PPO"
FIELDS = ("old_log_prob", "entropy")
"""The context fields that reach its loss."""


class ShapePPOLearner(PPOTorchLearner):
    """RLlib's PPO learner with a shape as its trust region; with `clip` it is RLlib's own loss.

    The shape is `shape` in `learner_config_dict`, a shape or its spelling. Its numbers are logged
    as `klip/...` beside RLlib's. `clip_param` is refused unless it has RLlib's default, since the
    shape says it; RLlib's KL loss (`use_kl_loss`, on by default) and its critic stay as they are.
    """

    def build(self) -> None:
        """RLlib's, once the shape is known to be one."""
        self._klip_shape = shape_of(self.config)
        super().build()

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """-mean(J), and RLlib's other terms."""
        silent = dict(batch)
        silent[Postprocessing.ADVANTAGES] = torch.zeros_like(batch[Postprocessing.ADVANTAGES])
        others: Any = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=silent, fwd_out=fwd_out
        )
        module: Any = self.module[module_id].unwrapped()
        kind: Any = module.get_train_action_dist_cls()
        distribution = kind.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS])
        new: Tensor = distribution.logp(batch[Columns.ACTIONS])
        old, advantages = batch[Columns.ACTION_LOGP], batch[Postprocessing.ADVANTAGES]
        counts = batch.get(Columns.LOSS_MASK)
        counts = torch.ones_like(new, dtype=torch.bool) if counts is None else counts.bool()
        known = NO_CONTEXT
        if "entropy" in self._klip_shape.needs:
            known = Context(entropy=distribution.entropy().detach()[counts])
        loss, diagnostics = policy_loss(
            new[counts], old[counts], advantages[counts], self._klip_shape, known
        )
        assert diagnostics is not None
        row = diagnostics.metrics()
        shown = logged({name: row[name] for name in short_log(diagnostics.mark) if name in row})
        said = {POLICY_LOSS_KEY: loss.detach(), **shown}
        self.metrics.log_dict(said, key=module_id, window=1)
        whole: Tensor = others + loss
        return whole


def shape_of(config: Any) -> Shape:
    """The shape of a config; raises if it has none, or a setting that would be ignored."""
    given = dict(config.learner_config_dict or {}).get("shape")
    if given is None:
        raise KlipError(
            "the config has no shape: write config.learners(learner_class=ShapePPOLearner, "
            "learner_config_dict={'shape': 'clip(eps=0.2)'})"
        )
    usual = PPOConfig().clip_param  # type: ignore[no-untyped-call]
    if config.clip_param != usual:
        raise KlipError(
            f"clip_param={config.clip_param:g} would be ignored: leave it at RLlib's {usual:g} and "
            f"write shape='clip(eps={config.clip_param:g})'"
        )
    return given_shape(given, TRAINER, FIELDS)
