"""Causal depthwise convolution over time, SiLU, and a product with a gate."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 16
CHANNELS = 1024
LENGTH = 2048
TAPS = 4


class Model(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.taps = taps
        self.conv = nn.Conv1d(channels, channels, kernel_size=taps, groups=channels)

    def forward(self, x, gate):
        y = self.conv(F.pad(x, (self.taps - 1, 0)))
        return F.silu(y) * gate


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH), torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, TAPS]
