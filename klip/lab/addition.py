"""Addition with a scratchpad: the column sums are the reasoning, what follows `#` is the answer.

    47+85=   7+5=12,4+8+1=13#132$

The digits of a column may come in any order, and `;` may stand for `,`: there are many ways to
write the same reasoning. An answer counts whatever the reasoning, so long as the whole has this
form. Right means right: the reward is 0 or 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Ids = NDArray[np.int64]

VOCABULARY: Final = "0123456789+=,;#$_"
"""`#` comes before the answer, `$` ends it, `_` is padding."""
MARKER: Final = VOCABULARY.index("#")
END: Final = VOCABULARY.index("$")
PAD: Final = VOCABULARY.index("_")
_IDS: Final = {sign: i for i, sign in enumerate(VOCABULARY)}


def encode(text: str) -> list[int]:
    """Ids of a text.

    >>> encode("1+2")
    [1, 10, 2]
    """
    return [_IDS[sign] for sign in text]


def decode(ids: Sequence[int]) -> str:
    """The text of ids.

    >>> decode([1, 10, 2])
    '1+2'
    """
    return "".join(VOCABULARY[i] for i in ids)


def prompt(a: int, b: int) -> str:
    """The prompt for a sum.

    >>> prompt(47, 85)
    '47+85='
    """
    return f"{a}+{b}="


def prompt_length(digits: int) -> int:
    """How many tokens every prompt has."""
    return 2 * digits + 2


def completion_length(digits: int) -> int:
    """How many tokens the longest right completion has, its end included.

    >>> completion_length(2) == len("5+7=12,4+8+1=13#132$")
    True
    """
    return 7 + 9 * (digits - 1) + digits + 2


def scratchpad(
    a: int,
    b: int,
    digits: int,
    chance: Generator | None = None,
    slip: float = 0.0,
    forget: float = 0.0,
) -> str:
    """A completion; with `chance`, in one of its spellings and with mistakes.

    A column has another sum, and the answer another digit, with probability `slip` each; a carry
    is forgotten with probability `forget`. What follows a mistake is consistent with it, so it
    shows in the answer.

    >>> scratchpad(47, 85, 2)
    '7+5=12,4+8+1=13#132$'
    """
    text, answer, carry = "", "", 0
    for place in range(digits):
        x, y = a // 10**place % 10, b // 10**place % 10
        kept = carry
        if chance is not None and carry and chance.random() < forget:
            kept = 0
        total, terms, sign = x + y + kept, [x, y, 1][: 2 + kept], ","
        if chance is not None:
            if chance.random() < slip:
                total = (total + int(chance.integers(1, 19))) % 19
            chance.shuffle(terms)
            sign = ",;"[chance.integers(2)]
        text += f"{sign if text else ''}{'+'.join(map(str, terms))}={total}"
        carry, answer = total // 10, f"{total % 10}{answer}"
    answer = f"{carry or ''}{answer}"
    if chance is not None and chance.random() < slip:
        place = int(chance.integers(len(answer)))
        other = (int(answer[place]) + int(chance.integers(1, 10))) % 10
        answer = f"{answer[:place]}{other}{answer[place + 1 :]}"
    return f"{text}#{answer}$"


def is_right(a: int, b: int, digits: int, completion: str) -> bool:
    """Whether a completion has the form of a scratchpad and ends in the sum.

    >>> is_right(47, 85, 2, "5+7=12,8+4+1=13#132$"), is_right(47, 85, 2, "#132$")
    (True, False)
    """
    form = rf"\d\+\d=\d\d?([,;]\d\+\d(\+\d)?=\d\d?){{{digits - 1}}}#(\d+)\$"
    match = re.fullmatch(form, completion)
    return match is not None and match[3] == str(a + b)


def problems(chance: Generator, count: int, digits: int, held_out: bool = False) -> Ids:
    """Pairs of numbers `[count, 2]`, none of which is ever both for training and held out.

    >>> problems(np.random.default_rng(0), 2, digits=2).shape
    (2, 2)
    """
    kept = np.empty((0, 2), np.int64)
    while len(kept) < count:
        pairs = chance.integers(10 ** (digits - 1), 10**digits, size=(4 * count + 16, 2))
        kept = np.concatenate([kept, pairs[_is_held_out(pairs) == held_out]])
    return kept[:count]


def _is_held_out(pairs: Ids) -> NDArray[np.bool_]:
    """An eighth of all pairs, by a hash that has nothing to do with sums or carries."""
    mixed = (pairs[:, 0] * 7919 + pairs[:, 1] * 104729) * 2654435761 % 2**32
    return np.asarray(mixed >> 29 == 0)
