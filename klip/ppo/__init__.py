"""One PPO for every shape: collect, advantages, update, diagnostics; cohorts of runs; workers.

Knows shapes, theory, tasks and runs; experiments and the commands may import it.
"""

from klip.ppo.config import Config, config

__all__ = ["Config", "config"]
