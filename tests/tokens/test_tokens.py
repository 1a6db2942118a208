"""The room as a whole: PyTorch is wanted only where it is used; contexts are checked."""

import subprocess
import sys

import pytest
import torch

from klip.errors import KlipError
from klip.tokens import ages, token_context

BLOCKED = """
import sys
sys.modules["torch"] = None
import klip, klip.shapes
try:
    import klip.tokens
except klip.KlipError as error:
    print(error)
"""


def test_without_torch_there_is_a_way_out():
    ran = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "klip.tokens needs PyTorch: pip install 'klip-rl[torch]'\n"


def test_klip_does_not_import_torch():
    code = "import sys, klip, klip.shapes; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_contexts_are_checked():
    x = torch.zeros(2, 3, dtype=torch.float16)
    context = token_context(x, x, behaviour_log_prob=x - 1)
    assert context.behaviour_log_ratio.dtype == torch.float32
    with pytest.raises(KlipError, match="no context has aeg"):
        token_context(x, x, aeg=1.0)
    with pytest.raises(KlipError, match=r"version \[2, 1\]"):
        ages(torch.zeros(2, 1), now=3)
    with pytest.raises(KlipError, match="version 5 is newer than now=3"):
        ages(torch.tensor([1, 5]), now=3)
