"""RLlib with a shape: with a clip it is RLlib's own loss, in value, gradient and steps."""

import gymnasium as gym
import pytest
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import POLICY_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing

from klip.adapters.rllib import ShapePPOLearner
from klip.errors import KlipError

MODULE, N = "default_policy", 256


def learner(kind=PPOTorchLearner, shape=None, **training):
    """A learner of CartPole's policy, the same every time, without a cluster."""
    own = {} if shape is None else {"learner_config_dict": {"shape": shape}}
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .training(entropy_coeff=0.01, **training)
        .learners(learner_class=kind, **own)
        .debugging(seed=0)
    )
    env = gym.make("CartPole-v1")
    torch.manual_seed(0)
    made = config.build_learner(env=env)
    return made, config


def batch(made, seed=1, masked=False):
    draw = torch.Generator().manual_seed(seed)
    observations = torch.randn(N, 4, generator=draw)
    module = made.module[MODULE].unwrapped()
    with torch.no_grad():
        logits = module.forward_train({Columns.OBS: observations})[Columns.ACTION_DIST_INPUTS]
    actions = torch.randint(2, (N,), generator=draw)
    dist = module.get_train_action_dist_cls().from_logits(logits)
    rows = {
        Columns.OBS: observations,
        Columns.ACTIONS: actions,
        Columns.ACTION_LOGP: dist.logp(actions) - 0.25 * torch.randn(N, generator=draw),
        Columns.ACTION_DIST_INPUTS: logits + 0.1 * torch.randn(N, 2, generator=draw),
        Postprocessing.ADVANTAGES: torch.randn(N, generator=draw) + 0.2,
        Postprocessing.VALUE_TARGETS: torch.randn(N, generator=draw),
    }
    if masked:
        rows[Columns.LOSS_MASK] = torch.rand(N, generator=draw) < 0.7
    return rows


def loss_of(made, config, rows):
    module = made.module[MODULE].unwrapped()
    return made.compute_loss_for_module(
        module_id=MODULE, config=config, batch=rows, fwd_out=module.forward_train(rows)
    )


def gradient(made, config, rows):
    loss = loss_of(made, config, rows)
    parameters = [p for p in made.module[MODULE].parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return loss.detach(), torch.cat([g.flatten() for g in grads if g is not None])


@pytest.mark.parametrize("masked", [False, True])
def test_a_clip_is_rllibs_own(masked):
    stock, its = learner()
    ours, own = learner(ShapePPOLearner, f"clip(eps={its.clip_param})")
    rows = batch(stock, masked=masked)
    value, wanted = gradient(stock, its, rows)
    same, found = gradient(ours, own, rows)
    assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()
    assert same.item() == pytest.approx(value.item(), rel=1e-5)
    seen = ours.metrics.peek(MODULE)
    assert 0.05 < float(seen["klip/kill"]) < 0.5
    assert float(seen[POLICY_LOSS_KEY]) == pytest.approx(
        float(stock.metrics.peek(MODULE)[POLICY_LOSS_KEY].detach()), rel=1e-4, abs=1e-6
    )


def test_steps_are_rllibs_own():
    ends = []
    for kind, shape in ((PPOTorchLearner, None), (ShapePPOLearner, "clip(eps=0.3)")):
        made, config = learner(kind, shape)
        rows = {k: x.double() if x.is_floating_point() else x for k, x in batch(made).items()}
        made.module[MODULE].double()  # so that rounding does not grow over the steps
        parameters = list(made.module[MODULE].parameters())
        optimiser = torch.optim.Adam(parameters, 3e-3)
        for _ in range(20):
            optimiser.zero_grad()
            loss_of(made, config, rows).backward()
            optimiser.step()
        ends.append(torch.cat([p.detach().flatten() for p in parameters]))
    assert (ends[1] - ends[0]).abs().max() <= 1e-10 * ends[0].abs().max()


@pytest.fixture(scope="module")
def cluster():
    """Ray on one core, without which RLlib builds no algorithm; it ends with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token into the user's home
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_whole_run_is_rllibs_own(cluster):
    """`algo.train()`, twice: what was sampled, the losses and the parameters at the end."""
    runs = []
    for kind, shape in ((PPOTorchLearner, None), (ShapePPOLearner, "clip(eps=0.3)")):
        sizes = {"train_batch_size_per_learner": 128, "minibatch_size": 64, "num_epochs": 6}
        _, config = learner(kind, shape, lr=1e-2, **sizes)
        config = config.env_runners(num_env_runners=0).learners(num_learners=0)
        algorithm = config.build_algo()
        module = algorithm.learner_group._learner.module[MODULE]
        start = torch.cat([p.detach().flatten().clone() for p in module.parameters()])
        first, last = algorithm.train(), algorithm.train()
        end = torch.cat([p.detach().flatten() for p in module.parameters()])
        algorithm.stop()
        runs.append((first, last, start, end))
    (first, last, start, end), (ours_first, ours, ours_start, ours_end) = runs
    assert torch.equal(start, ours_start)
    assert (end - start).abs().max() > 0.05
    assert (ours_end - end).abs().max() < 1e-4 * end.abs().max()  # 12 steps of Adam in float32
    for stock, own in ((first, ours_first), (last, ours)):
        name = "episode_return_mean"
        assert own["env_runners"][name] == stock["env_runners"][name]
        for loss in (POLICY_LOSS_KEY, "vf_loss"):
            theirs, found = (float(row["learners"][MODULE][loss]) for row in (stock, own))
            assert found == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert float(ours["learners"][MODULE]["klip/kill"]) > 0.02  # the clip had something to do


def test_another_shape_goes_elsewhere():
    stock, its = learner()
    rows = batch(stock)
    _, plain = gradient(stock, its, rows)
    _, found = gradient(*learner(ShapePPOLearner, "spo"), rows)
    assert torch.isfinite(found).all()
    assert not torch.allclose(found, plain)


@pytest.mark.parametrize(
    ("shape", "training", "message"),
    [
        (None, {}, "the config has no shape"),
        ("clip", {"clip_param": 0.1}, r"clip_param=0.1 would be ignored"),
        ("age-conditioned", {}, "needs age"),
        ("adaptive-kl", {}, "adapts between updates"),
    ],
)
def test_refusals(shape, training, message):
    with pytest.raises(KlipError, match=message):
        learner(ShapePPOLearner, shape, **training)
