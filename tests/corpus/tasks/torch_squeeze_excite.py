"""Squeeze-and-excitation: channel means, two small linear layers, and a scale for each channel."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 256
REDUCED = 64
HEIGHT = 56
WIDTH = 56


class Model(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.squeeze = nn.Linear(channels, reduced)
        self.excite = nn.Linear(reduced, channels)

    def forward(self, x):
        s = x.mean(dim=(2, 3))
        s = torch.relu(self.squeeze(s))
        s = torch.sigmoid(self.excite(s))
        return x * s[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, REDUCED]
