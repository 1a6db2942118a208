"""One PPO for every shape: collect, advantages, update, diagnostics; cohorts of runs as jobs.

Knows shapes, theory, tasks, runs and the engine; the lab and the commands may import it.
"""

from klip.ppo.config import Config, config

__all__ = ["Config", "config"]
