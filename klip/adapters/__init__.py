"""Trainers that people have: a shape carried into TRL, verl, prime-rl, Tinker and SB3.

One module a trainer, none imported by another room; each needs its library, and PyTorch.
"""
