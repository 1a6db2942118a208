"""A run on disk: its config, its metrics, its checkpoints, its lock.

Knows disk, and theory for the names of diagnostics; trainers write runs, reports and
policies read them.
"""

from klip.runs.checkpoint import LONGEST_NAME, Checkpoint, Damaged, config_id
from klip.runs.files import DiskTrouble
from klip.runs.lock import Busy
from klip.runs.record import Record, final_return, read_run, run_paths
from klip.runs.store import ChangedMachine, RunFolder, folder_of

__all__ = [
    "LONGEST_NAME",
    "Busy",
    "ChangedMachine",
    "Checkpoint",
    "Damaged",
    "DiskTrouble",
    "Record",
    "RunFolder",
    "config_id",
    "final_return",
    "folder_of",
    "read_run",
    "run_paths",
]
