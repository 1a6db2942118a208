"""Trainers that people have: a shape carried into TRL, verl, prime-rl, Tinker and SB3.

Each trainer has its module, which needs its library and PyTorch. Knows shapes, theory, tokens and
draw; only the commands import it.
"""
