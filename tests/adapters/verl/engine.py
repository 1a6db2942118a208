"""A run of verl's own engine on the CPU: `python -m tests.adapters.verl.engine RESULT.json`.

Everything but the device is verl's: the FSDP engine with its optimiser, its microbatches and the
clipping of its gradients, `ppo_loss`, the entropy term, and the way by which it finds a loss. It
is told of a platform `cpu` in the way that it offers to makers of hardware. Stock and klip start
from the same random model and see the same batches; klip is never imported here but by verl.
"""

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import set_platform

SEQUENCES, PROMPT, RESPONSE, VOCABULARY = 16, 4, 12, 40
ROUNDS, EPOCHS, MINIBATCH = 3, 4, 8


class CPU(PlatformCUDA):
    device_name = vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def communication_backend_name(self):
        return "gloo"


def build(model, loss_mode, **fields):
    """(engine, loss function), as verl's worker makes them."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import (
        FSDPActorConfig,
        FSDPEngineConfig,
        FSDPOptimizerConfig,
        HFModelConfig,
        PolicyLossConfig,
    )
    from verl.workers.engine import EngineRegistry
    from verl.workers.utils.losses import ppo_loss

    whole = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32")
    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_epochs=EPOCHS,
        ppo_mini_batch_size=MINIBATCH,
        ppo_micro_batch_size_per_gpu=4,
        fsdp_config=FSDPEngineConfig(
            strategy="fsdp2", mixed_precision=whole, use_torch_compile=False, use_dynamic_bsz=False
        ),
        policy_loss=PolicyLossConfig(loss_mode=loss_mode),
        optim=FSDPOptimizerConfig(lr=2e-3, total_training_steps=100),
        entropy_coeff=0.01,
        **fields,
    )
    engine = EngineRegistry.new(
        model_type="language_model",
        backend="fsdp2",
        model_config=HFModelConfig(
            path=model,
            load_tokenizer=False,
            use_remove_padding=False,
            enable_gradient_checkpointing=False,
            override_config={"attn_implementation": "eager"},
        ),
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    return engine, partial(ppo_loss, config=actor)


def tokens(rng):
    """A batch of random completions of ragged lengths, in the layout that the engine takes."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    ids = torch.as_tensor(rng.integers(1, VOCABULARY, (SEQUENCES, PROMPT + RESPONSE)))
    lengths = torch.as_tensor(rng.integers(3, RESPONSE + 1, (SEQUENCES, 1)))
    mask = (torch.arange(RESPONSE) < lengths).long()
    attention = torch.cat([torch.ones(SEQUENCES, PROMPT, dtype=torch.long), mask], 1)
    data = TensorDict(
        {
            "prompts": ids[:, :PROMPT].clone(),
            "responses": ids[:, PROMPT:].clone(),
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": attention.cumsum(-1) - 1,
            "response_mask": mask,
            "advantages": mask * torch.as_tensor(rng.normal(size=(SEQUENCES, 1))).float(),
        },
        batch_size=SEQUENCES,
    )
    data = left_right_2_no_padding(data)
    tu.assign_non_tensor(
        data,
        temperature=1.0,
        calculate_entropy=True,
        global_batch_size=MINIBATCH,
        micro_batch_size_per_gpu=4,
        use_dynamic_bsz=False,
        use_remove_padding=False,
    )
    return data


def train(model, loss_mode, **fields):
    """(parameters, metrics of each update) after some rounds of several epochs."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    engine, loss_function = build(model, loss_mode, **fields)
    rng = np.random.default_rng(0)
    seen = []
    for number in range(ROUNDS):
        data = tokens(rng)
        with engine.eval_mode():
            output = engine.infer_batch(data)["model_output"]
        data["old_log_probs"] = no_padding_2_padding(output["log_probs"], data)
        data["rollout_log_probs"] = data["old_log_probs"] - 0.3  # an engine that differs
        minibatches = tu.make_iterator(data, MINIBATCH, EPOCHS, number, {"shuffle": True})
        with engine.train_mode():
            for minibatch in minibatches:
                metrics = engine.train_batch(minibatch, loss_function)["metrics"]
                seen.append({key: _number(value) for key, value in metrics.items()})
    state = engine.module.state_dict()
    return {name: value.full_tensor().clone() for name, value in state.items()}, seen


def _number(metric):
    return metric.aggregate() if hasattr(metric, "aggregate") else float(np.mean(metric))


def main(result):
    torch.set_num_threads(1)
    set_platform(CPU())
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    from verl.workers.engine import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    EngineRegistry.register("language_model", "fsdp2", "cpu")(FSDPEngineWithLMHead)
    with tempfile.TemporaryDirectory() as model:
        torch.manual_seed(0)
        start = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                max_position_embeddings=64,
            )
        )
        start.save_pretrained(model)
        os.environ["KLIP_SHAPE"] = "dual-clip(low=0.2, high=0.28, cap=3)"
        runs = {
            "stock": train(model, "vanilla", clip_ratio_high=0.28),
            "ours": train(model, "klip", clip_ratio_high=0.28),
        }
        os.environ["KLIP_SHAPE"] = "is"
        runs["without a trust region"] = train(model, "klip")
        os.environ["KLIP_WATCH"] = "sapo; is"
        os.environ |= {"KLIP_KEEP_TOKENS": "2", "KLIP_KEEP_IN": str(Path(result).parent.resolve())}
        plugin = sys.modules["klip.adapters.verl"]
        plugin.watch_losses(plugin.pooled_by_verl)
        runs["watched"] = train(model, "vanilla", clip_ratio_high=0.28)
    stock = runs["stock"][0]
    report = {
        name: {
            "difference": max((stock[k] - p).abs().max().item() for k, p in parameters.items()),
            "moved": max(
                (p - parameters[k]).abs().max().item() for k, p in start.state_dict().items()
            ),
            "metrics": metrics,
        }
        for name, (parameters, metrics) in runs.items()
    }
    Path(result).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
