"""Shapes for language models: one `[B, T]` loss in PyTorch, its diagnostics, spans and groups.

It knows shapes and theory; adapters to trainers and the commands may import it.
"""

from klip.errors import KlipError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise KlipError("klip.tokens needs PyTorch: pip install 'klip-rl[torch]'") from None

from klip.tokens.context import ages, token_context
from klip.tokens.diagnostics import Diagnostics
from klip.tokens.gates import CPPO, OPSM, SequenceMIS, SequenceTIS, SequenceTrust
from klip.tokens.groups import dr_grpo, grpo, rloo
from klip.tokens.instead import beside
from klip.tokens.levels import (
    GeometricMean,
    Level,
    PrefixMean,
    PrefixSum,
    SequenceMean,
    SequenceSum,
    Token,
    View,
)
from klip.tokens.loss import TokenLoss, token_loss, token_multiplier
from klip.tokens.packing import Packing
from klip.tokens.penalties import ReferenceKL
from klip.tokens.pool import Pool, pooled
from klip.tokens.reducers import (
    ConstantLength,
    Denominator,
    MeanOfMeans,
    MeanOfSums,
    Reducer,
    TokenMean,
)
from klip.tokens.region import TokenRegion
from klip.tokens.spans import (
    Span,
    after_marker,
    after_text,
    find_marker,
    first,
    last,
    part_position,
)

__all__ = [
    "CPPO",
    "OPSM",
    "ConstantLength",
    "Denominator",
    "Diagnostics",
    "GeometricMean",
    "Level",
    "MeanOfMeans",
    "MeanOfSums",
    "Packing",
    "Pool",
    "PrefixMean",
    "PrefixSum",
    "Reducer",
    "ReferenceKL",
    "SequenceMIS",
    "SequenceMean",
    "SequenceSum",
    "SequenceTIS",
    "SequenceTrust",
    "Span",
    "Token",
    "TokenLoss",
    "TokenMean",
    "TokenRegion",
    "View",
    "after_marker",
    "after_text",
    "ages",
    "beside",
    "dr_grpo",
    "find_marker",
    "first",
    "grpo",
    "last",
    "part_position",
    "pooled",
    "rloo",
    "token_context",
    "token_loss",
    "token_multiplier",
]
