"""Klip: the workbench for trust regions in policy optimisation.

Every trust region is one number per sample, beta, in  E[ w*A + beta * log pi(a|s) ].
"""

from klip.errors import KlipError
from klip.policies import load
from klip.ppo.train import train
from klip.shapes import Context, Shape, parse

__version__ = "0.1.0"
