"""Plans: which shapes on which tasks with which seeds, in what order, and on which machines.

Knows the trainer, tasks and runs; the commands may import it.
"""

from klip.experiments.plan import Plan, read_plan, shipped_plans
from klip.experiments.schedule import Schedule, schedule

__all__ = ["Plan", "Schedule", "read_plan", "schedule", "shipped_plans"]
