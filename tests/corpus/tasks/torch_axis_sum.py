"""Sum of a tensor over its middle axis."""

import torch
import torch.nn as nn

BATCH = 64
LENGTH = 1024
WIDTH = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return []
