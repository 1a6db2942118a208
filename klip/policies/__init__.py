"""Using a trained policy: load it, let it act, evaluate, film and export it.

Knows runs, tasks, and of the trainer only how it acts; the commands may import it. Nothing that a
file says is ever executed: a policy is numbers, and its task is imported only when that is asked.
"""

from klip.policies.evaluation import Episode, Evaluation, evaluate
from klip.policies.loading import Trained, load, read
from klip.policies.policy import Policy
from klip.policies.portable import Exported, export
from klip.policies.video import Film, film

__all__ = [
    "Episode",
    "Evaluation",
    "Exported",
    "Film",
    "Policy",
    "Trained",
    "evaluate",
    "export",
    "film",
    "load",
    "read",
]
