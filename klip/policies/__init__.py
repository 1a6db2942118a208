"""Using a trained policy: load it, let it act, evaluate, film and export it.

Knows disk, shapes, tasks, runs, engine, draw, and of ppo only how it acts; the commands may import
it. Nothing that a file says is ever executed: a policy is numbers, and its task is imported only on
request.
"""

from klip.policies.evaluation import Episode, Evaluation, evaluate
from klip.policies.filming import Film, video
from klip.policies.loading import TrainedPolicy, load, read
from klip.policies.policy import Policy
from klip.policies.portable import Exported, export

__all__ = [
    "Episode",
    "Evaluation",
    "Exported",
    "Film",
    "Policy",
    "TrainedPolicy",
    "evaluate",
    "export",
    "load",
    "read",
    "video",
]
