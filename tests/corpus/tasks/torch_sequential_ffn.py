"""Feed-forward part of a transformer as nn.Sequential, with the input added."""

import torch
import torch.nn as nn

ROWS = 4096
WIDTH = 768
HIDDEN = 3072


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

    def forward(self, x):
        return x + self.net(x)


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
