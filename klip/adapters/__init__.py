"""Shapes in other trainers: TRL, verl, prime-rl, Tinker and Stable-Baselines3.

Each trainer has its module, which needs its library and PyTorch. The room knows shapes, theory,
tokens, runs and draw; only the commands import it.
"""
