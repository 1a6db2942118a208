"""The custom loss sends Tinker the weights that its own losses have.

Tinker's client turns a loss into one weight per token, and its server differentiates the model.
The client is the package's own where that is installed (0.36), and a stand-in that does the same
everywhere; the server is a bigram model, so that gradients of parameters can be compared.
"""

import asyncio
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from klip.adapters.tinker import loss
from klip.errors import KlipError
from klip.theory.diagnostics import FATES
from klip.tokens import MeanOfMeans, SequenceMean, token_multiplier

VOCABULARY = 7


class Server:
    """A model of one table, which knows weighted cross-entropy and nothing of shapes."""

    def __init__(self):
        torch.manual_seed(0)
        self.table = torch.randn(VOCABULARY, VOCABULARY).requires_grad_(True)

    def logprobs(self, tokens, targets):
        rows = torch.log_softmax(self.table[tokens], -1)
        return rows.gather(-1, targets[:, None])[:, 0]

    def gradient(self, value):
        (found,) = torch.autograd.grad(value, self.table)
        return found


class StandIn:
    """What `TrainingClient.forward_backward_custom` does, step by step."""

    def __init__(self, server):
        self.server = server

    def datum(self, tokens, **inputs):
        held = {k: SimpleNamespace(to_torch=lambda x=x: x) for k, x in inputs.items()}
        return SimpleNamespace(model_input=tokens, loss_fn_inputs=held)

    def run(self, data, function):
        pairs = [(d.model_input, d.loss_fn_inputs["target_tokens"].to_torch()) for d in data]
        leaves = [self.server.logprobs(*pair).detach().requires_grad_(True) for pair in pairs]
        value, metrics = function(data, leaves)
        value.backward()
        assert all(leaf.grad is not None for leaf in leaves)
        weights = [-leaf.grad for leaf in leaves]
        surrogate = sum(
            -(weight * self.server.logprobs(*pair)).sum()
            for weight, pair in zip(weights, pairs, strict=True)
        )
        return self.server.gradient(surrogate), metrics | {"loss:sum": value.item()}


class Tinker(StandIn):
    """The package's own client, with the server in the place of its two calls to the network."""

    def datum(self, tokens, **inputs):
        import tinker

        held = {k: tinker.TensorData.from_torch(x) for k, x in inputs.items()}
        return tinker.Datum(tinker.ModelInput.from_ints(tokens.tolist()), held)

    def run(self, data, function):
        import tinker
        from tinker.lib.public_interfaces.training_client import TrainingClient

        server, found = self.server, []

        class Done:
            def __init__(self, result):
                self.result = result

            async def result_async(self, timeout=None):
                return self.result

        class Client(TrainingClient):
            def __init__(self):
                self.holder = None

            async def forward_async(self, data, loss_fn, loss_fn_config=None):
                assert loss_fn == "cross_entropy"
                return Done(self.output(data)[0])

            async def forward_backward_async(self, data, loss_fn, loss_fn_config=None):
                output, value = self.output(data)
                found.append(server.gradient(value))
                return Done(output)

            def output(self, data):
                outputs, value = [], torch.zeros(())
                for datum in data:
                    assert datum.loss_fn_inputs.keys() == {"target_tokens", "weights"}
                    tokens = torch.tensor(datum.model_input.to_ints())
                    row = server.logprobs(tokens, datum.loss_fn_inputs["target_tokens"].to_torch())
                    value = value - (row * datum.loss_fn_inputs["weights"].to_torch()).sum()
                    outputs.append({"logprobs": tinker.TensorData.from_torch(row.detach())})
                result = tinker.ForwardBackwardOutput(
                    loss_fn_output_type="array", loss_fn_outputs=outputs,
                    metrics={"loss:sum": value.item()},
                )  # fmt: skip
                return result, value

        async def whole():
            future = await Client().forward_backward_custom_async(data, function)
            return await future.result_async()

        metrics = asyncio.run(whole()).metrics
        (gradient,) = found
        return gradient, metrics


@pytest.fixture(
    params=[
        StandIn,
        pytest.param(
            Tinker, marks=pytest.mark.skipif(not find_spec("tinker"), reason="tinker is not here")
        ),
    ]
)
def client(request):
    return request.param(Server())


def batch(client, seed=0, masked=True, prompt=2, reach=0.5):
    """(data, rows): some data of different lengths, and the same numbers as tensors."""
    rng, data, rows = np.random.default_rng(seed), [], []
    for length in rng.integers(4, 12, 5):
        tokens, targets = torch.as_tensor(rng.integers(0, VOCABULARY, (2, length)))
        sampled = torch.arange(length) >= prompt
        old = client.server.logprobs(tokens, targets).detach() + reach * torch.as_tensor(
            rng.normal(size=length), dtype=torch.float32
        )
        row = {
            "logprobs": torch.where(sampled, old, 0.0),
            "advantages": torch.where(sampled, float(rng.normal()), 0.0),
            "mask": sampled.float(),
        }
        data.append(client.datum(tokens, target_tokens=targets, **row))
        if not masked:
            data[-1].loss_fn_inputs.pop("mask")
        rows.append(SimpleNamespace(tokens=tokens, targets=targets, **row))
    return data, rows


def own(client, rows, formula):
    """The gradient of one of Tinker's own losses, a sum over tokens."""
    total = 0
    for row in rows:
        new = client.server.logprobs(row.tokens, row.targets)
        log_w = new - row.logprobs
        objective = formula(log_w.exp(), log_w, new, row.advantages)
        total = total - torch.where(row.mask > 0, objective, 0.0).sum()
    return client.server.gradient(total), total.item()


def importance_sampling(w, log_w, new, a):
    return w * a


def ppo(w, log_w, new, a, low=0.8, high=1.2):
    return torch.minimum(w * a, w.clamp(low, high) * a)


def narrow_ppo(w, log_w, new, a):
    return ppo(w, log_w, new, a, 0.9, 1.1)


def cispo(w, log_w, new, a):
    return w.clamp(0.8, 1.2).detach() * new * a


def dro(w, log_w, new, a):
    return new * a - 0.5 * 0.05 * log_w**2


@pytest.mark.parametrize(
    ("formula", "shape"),
    [
        (importance_sampling, "is"),
        (ppo, "clip(eps=0.2)"),
        (narrow_ppo, "clip(eps=0.1)"),
        (cispo, "cispo(floor=0.8, cap=1.2)"),
        (dro, "kimi(tau=0.05)"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
@pytest.mark.parametrize("seed", range(3))
def test_its_own_losses_are_shapes(client, formula, shape, seed):
    data, rows = batch(client, seed)
    wanted, value = own(client, rows, formula)
    found, metrics = client.run(data, loss(shape, metrics="all"))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    if formula in (importance_sampling, ppo, narrow_ppo):  # the others' value is up to a constant
        assert metrics["loss:sum"] == pytest.approx(value, rel=1e-5)
    assert sum(metrics[f"klip/{fate}"] for fate in FATES) == pytest.approx(1)
    assert metrics.get("klip/kill", metrics.get("klip/kill@0.2")) > 0


def test_without_a_mask_the_tokens_with_an_advantage_count(client):
    data, _ = batch(client)
    bare, _ = batch(client, masked=False)
    one, said = client.run(data, loss("spo(eps=0.2)"))
    other, also = client.run(bare, loss("spo(eps=0.2)"))
    assert torch.equal(one, other)
    assert said == also
    with pytest.raises(KlipError, match=r"data\[0\].*no 'mask': clip.* pulls on tokens without"):
        client.run(bare, loss("clip + kl-k3(b=0.1)"))
    client.run(data, loss("clip + kl-k3(b=0.1)"))


def test_a_prompt_is_never_pulled_on(client):
    """Its recorded log-probs are zeros, far from the model's own."""
    data, rows = batch(client, prompt=3)
    found, _ = client.run(data, loss("kl-k2(b=1)"))
    wanted, _ = own(client, rows, lambda w, log_w, new, a: w * a - 0.5 * log_w**2)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_levels_and_reducers(client):
    """GSPO: the ratio of a sequence, and a mean over sequences of the means over their tokens."""
    data, rows = batch(client)
    function = loss("clip(eps=0.1)", level=SequenceMean(), reducer=MeanOfMeans())
    found, _ = client.run(data, function)
    total = 0
    for row in rows:
        chosen = row.mask > 0
        log_w = (client.server.logprobs(row.tokens, row.targets) - row.logprobs)[chosen].mean()
        a = row.advantages[chosen][0]
        w = log_w.exp()
        total = total - torch.minimum(w * a, w.clamp(0.9, 1.1) * a) / len(rows)
    torch.testing.assert_close(found, client.server.gradient(total), rtol=1e-5, atol=1e-7)


def test_gates_and_penalties_are_those_of_token_loss(client):
    words = {"gates": ["opsm(delta=0.05)"], "penalties": ["kl-k3(b=0.3)"]}
    data, rows = batch(client, reach=1.0)
    got, _ = client.run(data, loss("clip", level="sequence-mean", **words))
    total = 0.0
    for row in rows:
        now = client.server.logprobs(row.tokens, row.targets)
        m = token_multiplier(
            now[None], row.logprobs[None], row.advantages[None], row.mask[None], "clip",
            level="sequence-mean", **words,
        )  # fmt: skip
        total = total - (m[0] * now).sum()
    wanted = client.server.gradient(total)
    assert torch.allclose(got, wanted, rtol=1e-4, atol=1e-6)
    plain, _ = client.run(data, loss("clip", level="sequence-mean"))
    assert not torch.allclose(plain, wanted, rtol=1e-2)


def test_a_penalty_needs_a_mask(client):
    bare, _ = batch(client, masked=False)
    with pytest.raises(KlipError, match=r"no 'mask': kl-k3\(b=0.3\) pulls on tokens without"):
        client.run(bare, loss("clip", penalties=["kl-k3(b=0.3)"]))


def test_few_numbers_come_back_unless_all_are_asked_for(client):
    data, _ = batch(client)
    few, every = (client.run(data, loss("clip", metrics=which))[1] for which in ("few", "all"))
    ours, theirs = ({name for name in row if name.startswith("klip/")} for row in (few, every))
    assert len(ours) < 15 < 40 < len(theirs)
    assert ours < theirs
    assert {"klip/zeroed", "klip/kill", "klip/pull"} <= ours
    with pytest.raises(KlipError, match="metrics='some' must be 'few' or 'all'"):
        loss("clip", metrics="some")


def test_what_a_datum_brings_reaches_the_shape(client):
    data, rows = batch(client)
    with pytest.raises(KlipError, match=r"no 'age': age-conditioned\(.*\) needs it"):
        client.run(data, loss("age-conditioned"))
    for datum, row in zip(data, rows, strict=True):
        like = client.datum(row.tokens, age=torch.full_like(row.mask, 3.0)).loss_fn_inputs
        datum.loss_fn_inputs["age"] = like["age"]
    _, metrics = client.run(data, loss("max-age(limit=2) * clip"))
    assert metrics["klip/pull"] == 0
    _, metrics = client.run(data, loss("max-age(limit=3) * clip"))
    assert metrics["klip/pull"] > 0


def test_a_reference_that_a_datum_brings():
    client = StandIn(Server())
    data, rows = batch(client)
    for datum, row in zip(data, rows, strict=True):
        held = SimpleNamespace(to_torch=lambda row=row: row.logprobs - 0.5)
        datum.loss_fn_inputs["reference_logprobs"] = held
    shape = "klip.tokens.penalties:ReferenceKL(b=0.5, estimator=k1)"
    found, _ = client.run(data, loss(shape))
    wanted, _ = own(client, rows, lambda w, log_w, new, a: w * a - 0.5 * new)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("key", ["logprobs", "advantages"])
def test_what_is_missing_is_named(client, key):
    data, _ = batch(client)
    del data[2].loss_fn_inputs[key]
    with pytest.raises(KlipError, match=rf"data\[2\].loss_fn_inputs has no '{key}'"):
        client.run(data, loss())


def test_log_probs_that_were_not_recorded_are_refused(client):
    data, rows = batch(client)
    for datum, row in zip(data, rows, strict=True):
        zeros = client.datum(row.tokens, logprobs=torch.zeros_like(row.logprobs))
        datum.loss_fn_inputs["logprobs"] = zeros.loss_fn_inputs["logprobs"]
    with pytest.raises(KlipError, match="were not recorded"):
        client.run(data, loss())


def test_ratios_of_one_are_warned_of(client):
    data, _ = batch(client, reach=0.0)
    with pytest.warns(UserWarning, match="every ratio is 1"):
        client.run(data, loss())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("kl(b=1)", "closed-form KL"),
        ("adaptive-kl", "Tinker keeps no state"),
        ("truncate(cap=2) * clip", "behaviour_log_ratio .* does not reach the loss in Tinker"),
        ("clap", "no shape is called"),
        (0.2, "must be a shape or its spelling"),
    ],
)
def test_what_would_be_wrong_in_silence_is_refused(shape, message):
    with pytest.raises(KlipError, match=message):
        loss(shape)


def test_inputs_of_other_lengths_are_refused():
    client = StandIn(Server())
    data, rows = batch(client)
    data[1].loss_fn_inputs["advantages"] = SimpleNamespace(to_torch=lambda: torch.ones(1))
    with pytest.raises(KlipError, match=r"data\[1\]: advantages \[1\] .* must both be \[T\]"):
        client.run(data, loss())
    with pytest.raises(KlipError, match="no data"):
        loss()([], [])
    with pytest.raises(KlipError, match=r"must both be \[T\]"):
        loss()([data[0]], [torch.zeros(len(rows[0].tokens), 2)])
