"""Residual block: pointwise expansion, depthwise convolution, pointwise projection, and the input added."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
EXPANSION = 4
HEIGHT = 56
WIDTH = 56


class Model(nn.Module):
    def __init__(self, channels, expansion):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, kernel_size=1)
        self.depthwise = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, kernel_size=1)

    def forward(self, x):
        y = torch.relu(self.expand(x))
        y = torch.relu(self.depthwise(y))
        return x + self.project(y)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, EXPANSION]
