"""A run on disk: its config, its metrics, its parameters.

Knows nothing of training; the trainer writes here, the report reads.
"""

from klip.runs.store import RunFolder, final_return, folder_of, read_metrics, read_status

__all__ = ["RunFolder", "final_return", "folder_of", "read_metrics", "read_status"]
