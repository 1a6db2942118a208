"""Jobs from a plan to their end: plan, schedule, a crew of processes or Ray, the live view, lists.

A job is a config that can be trained: a PPO run, a token run, a warm-up. The engine knows jobs by
their protocol (`klip.engine.job`) and imports a kind of job only when one is met, by its name.
Knows runs and shapes; the kinds of job and the commands may import it.
"""

from klip.engine.plan import Plan, read_plan, shipped_plans
from klip.engine.schedule import Schedule, schedule

__all__ = ["Plan", "Schedule", "read_plan", "schedule", "shipped_plans"]
