"""A language model small enough to train anywhere, on a task that can be checked: a kind of job.

Knows shapes, tokens, runs and the engine; reports of it live here, too. The commands may import it.
"""
