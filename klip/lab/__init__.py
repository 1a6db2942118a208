"""A language model small enough to train anywhere, on a task that can be checked.

Knows shapes, tokens and runs; reports of it live here, too, and the commands may import it.
"""
