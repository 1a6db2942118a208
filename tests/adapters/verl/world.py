"""verl's `ppo_loss` with a batch of its own layout: padded, or nested as in its newer trainers."""

from types import SimpleNamespace

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from verl.utils import tensordict_utils as tu
from verl.workers.utils import losses

from tests.adapters.verl.batches import actor

PROMPT, RESPONSE = 3, 6
MARKER = "#"


class Letters:
    """A tokenizer of one letter a token; the eighth letter is the marker."""

    def decode(self, ids, **_):
        return "".join(MARKER if i == 7 else chr(ord("a") + i) for i in ids)

    def encode(self, text, **_):
        return [7 if c == MARKER else ord(c) - ord("a") for c in text]


def config_of(name="vanilla", tokenizer=True, **fields):
    """verl's config of a loss, with the tokenizer that its worker has loaded."""
    config = actor(name, **fields)
    if tokenizer:
        config.model_config = SimpleNamespace(tokenizer=Letters())
    return config


def microbatch(
    seed=0, rows=4, *, nested=False, sampler=True, versions=None, scores=True, last=True, of=None
):
    """(model output without entropy, data) of ragged completions, as a worker's loss gets them."""
    rng = np.random.default_rng(seed)
    lengths = torch.as_tensor(np.r_[RESPONSE, rng.integers(2, RESPONSE + 1, rows - 1)])
    mask = (torch.arange(RESPONSE) < lengths[:, None]).long()
    ids = torch.as_tensor(rng.integers(0, 7, (rows, RESPONSE)))
    ids[:, 1] = 7
    prompts = torch.as_tensor(rng.integers(8, 20, (rows, PROMPT)))
    attention = torch.cat([torch.ones(rows, PROMPT, dtype=torch.long), mask], 1)
    attention[0, 0] = 0  # a prompt of its own length, padded on the left
    old = torch.as_tensor(-rng.uniform(0.5, 3, (rows, RESPONSE)), dtype=torch.float32)
    tensors = {
        "prompts": prompts,
        "responses": ids,
        "attention_mask": attention,
        "response_mask": mask,
        "old_log_probs": old,
        "advantages": mask * torch.as_tensor(rng.normal(size=(rows, 1)), dtype=torch.float32),
    }
    if sampler:
        tensors["rollout_log_probs"] = old - 0.3
    if scores:
        tensors["rm_scores"] = mask * torch.arange(rows)[:, None] / mask.sum(-1, keepdim=True)
    if nested:
        attention[0, 0] = 1
        tensors.pop("attention_mask")
        own = {name: x for name, x in tensors.items() if name != "prompts"}
        tensors |= {name: ragged(x, lengths) for name, x in own.items()}
        tensors["prompts"] = ragged(prompts, torch.full_like(lengths, PROMPT))
    data = TensorDict(tensors, batch_size=rows)
    if versions is not None:
        stack = [NonTensorData(version) for version in versions]
        data["max_global_steps"] = NonTensorStack.from_list(stack)
    sizes = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": of or rows}
    tu.assign_non_tensor(data, update_lr_scheduler=last, **sizes)
    counts = attention.sum(-1)
    moved = torch.as_tensor(rng.normal(0, 0.3, (rows, RESPONSE)), dtype=torch.float32)
    return {"log_probs": whole(old + moved, lengths, counts).requires_grad_(True)}, data


def ragged(x, lengths):
    rows = [row[:n] for row, n in zip(x, lengths.tolist(), strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def whole(x, lengths, counts):
    """Numbers of responses `[B, T]` where verl's engine has them: one place early, all in a row."""
    out = torch.zeros(int(counts.sum()))
    end = 0
    for row, n, count in zip(x, lengths.tolist(), counts.tolist(), strict=True):
        end += count
        out[end - n - 1 : end - 1] = row[:n]
    return out


def compute(config, output, data):
    """(value, gradient, metrics by plain numbers) of verl's own `ppo_loss`."""
    value, metrics = losses.ppo_loss(config, output, data)
    (slope,) = torch.autograd.grad(value, output["log_probs"])
    numbers = {name: x.aggregate() for name, x in metrics.items() if hasattr(x, "aggregate")}
    return value.detach(), slope, numbers
