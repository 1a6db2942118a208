"""Gates over sequences are verl's own weights of the rollout correction."""

import pytest
import torch
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

from klip.tokens import token_context, token_multiplier
from tests.adapters.verl.batches import draw


@pytest.mark.parametrize(
    ("gate", "threshold"),
    [("sequence-tis(cap=1.5)", 1.5), ("sequence-mis(floor=0.7, cap=1.5)", "0.7_1.5")],
)
def test_a_gate_over_sequences_is_verls_weight(gate, threshold):
    batch = draw(seed=3, spread=0.1, drift=0.02)
    mask, old = batch["response_mask"], batch["old_log_prob"]
    sampler = old - 0.1 * torch.randn(old.shape, generator=torch.Generator().manual_seed(0))
    wanted, _ = compute_rollout_correction_weights(
        old - sampler, mask.float(), rollout_is="sequence", rollout_is_threshold=threshold
    )
    context = token_context(old, old, behaviour_log_prob=sampler)
    ones = torch.ones(len(old))
    found = token_multiplier(old, old, ones, mask, "is", context, gates=[gate])
    torch.testing.assert_close(found, torch.where(mask, wanted, 0.0), rtol=1e-5, atol=1e-6)
    assert 0 < int((found == 0)[mask].sum() + (found == 1.5)[mask].sum()) < mask.sum()
