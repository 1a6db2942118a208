"""No hub, no threads: these tests need neither."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch

torch.set_num_threads(1)
