"""What a trust region is: pure elementwise functions, for NumPy, JAX and PyTorch alike.

It knows no other room; every room may import it.
"""

from klip.shapes.algebra import (
    BySign,
    Discount,
    Gate,
    Gated,
    IcePop,
    MaxAge,
    Sum,
    Truncate,
    by_sign,
)
from klip.shapes.backend import (
    LOG_RATIO_LIMIT,
    Array,
    absolute,
    clip,
    derivative,
    exp,
    log,
    maximum,
    minimum,
    ratio,
    sigmoid,
    sign,
    sqrt,
    stop_gradient,
    tanh,
    where,
)
from klip.shapes.code import load_module
from klip.shapes.context import CONTEXT_FIELDS, NO_CONTEXT, Context, MissingContext
from klip.shapes.controllers import (
    ESPO,
    AdaptiveKL,
    Controller,
    DualAscent,
    ProportionalKL,
    TargetKL,
    TVStepSize,
)
from klip.shapes.hard import (
    Clip,
    ClipHigher,
    ClipPhi,
    DualClip,
    ImportanceSampling,
    PerSample,
    Reinforce,
    StrictClip,
)
from klip.shapes.names import NameUnknown, catalogue, parse
from klip.shapes.penalties import (
    KL,
    SPMA,
    SPPO,
    Chi2,
    FDivergence,
    Hellinger2,
    Kimi,
    KLInverseK3,
    KLk1,
    KLk2,
    KLk3,
    KLReverse,
    KLReverseK3,
    SPMAk1,
    TotalVariation,
)
from klip.shapes.probability import DCPO, DPPOKL, DPPOTV, TRGPPO, KPop, KPopMask
from klip.shapes.region import Feedback, Region
from klip.shapes.sample import Sample
from klip.shapes.shape import REFERENCE_BAND, Band, Edges, Penalty, Shape
from klip.shapes.soft import (
    ANO,
    P3O,
    PPORB,
    PSPO,
    SAPO,
    SPO,
    Asymmetric,
    DPODrift,
    Ramp,
    Scopic,
    SigmoidGate,
    SoftMin,
)
from klip.shapes.stale import A3PO, IMPACT, M2PO, P3OESS, VACO, GePPO, Weigh
from klip.shapes.stateful import (
    CTPO,
    TRPPO,
    TRPPORB,
    AgeConditioned,
    PositionAware,
    TrulyPPO,
)
from klip.shapes.thresholds import (
    AtAge,
    ByAge,
    ByEntropy,
    ByPosition,
    ByProgress,
    ByStep,
    FromEnd,
    PerAge,
    matched_at_ages,
)
from klip.shapes.value import (
    Parameter,
    ParameterError,
    Threshold,
    Value,
    check_needs,
    numbers,
    parameter,
    structure,
    with_numbers,
)
from klip.shapes.weights import ASPO, CISPO, GIPO, GPPO, TIS, TOPR
