"""What a shape does, what a loss is: partition, diagnostics, views, profiles, theorems, probe.

Knows shapes; the trainer, the report and the commands may import it.
"""
