"""A language model small enough to train anywhere, on a task that can be checked: a kind of job.

Knows shapes, theory, tokens, runs and engine; only the engine imports it, by name.
"""
