"""Shapes in other trainers: of language models TRL, verl, prime-rl, Tinker, OpenRLHF, SkyRL,
NeMo-RL and AReaL, of control Stable-Baselines3, TorchRL and RLlib.

Each trainer has its module, which needs its library and PyTorch. The room knows shapes, theory,
tokens, runs and draw; only the commands import it.
"""
