"""A language model small enough to train anywhere, on a task that can be checked.

Knows shapes, tokens and runs; studies read its samples, and the commands may import it.
"""
