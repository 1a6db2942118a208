"""Shapes in other trainers: TRL, verl, prime-rl, Tinker, OpenRLHF, SkyRL, SB3, TorchRL and RLlib.

Each trainer has its module, which needs its library and PyTorch. The room knows shapes, theory,
tokens, runs and draw; only the commands import it.
"""
