"""A language model small enough to train anywhere, on a task that can be checked: a kind of job.

Knows shapes, tokens, runs and the engine; studies read its samples, and the commands may import it.
"""
