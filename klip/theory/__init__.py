"""What a shape does and what a loss is: partition, diagnostics, views, profiles, theorems, probe.

It knows shapes; the trainer, the report and the commands may import it.
"""
