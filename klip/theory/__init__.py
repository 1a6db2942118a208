"""What a shape does and what a loss really is: partition, views, profiles, theorems, the probe.

Knows shapes; the trainer, the report and the commands may import it.
"""
