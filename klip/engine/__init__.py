"""Jobs from a plan to their end: plan, schedule, a crew of processes or Ray, the live view, lists.

A job is a config that can be trained: a PPO run, a token run, a warm-up. The engine knows disk,
shapes and runs; it meets jobs through their protocol (`klip.engine.job`) and imports a kind of job
by its name when one is met. The kinds of job, studies, policies and the commands may import it.
"""

from klip.engine.plan import Plan, read_plan, shipped_plans
from klip.engine.schedule import Schedule, schedule

__all__ = ["Plan", "Schedule", "read_plan", "schedule", "shipped_plans"]
