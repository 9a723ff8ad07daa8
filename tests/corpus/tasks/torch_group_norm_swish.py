"""Group normalization followed by Swish."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 256
GROUPS = 16
HEIGHT = 64
WIDTH = 64


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = self.norm(x)
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
