"""Stack of linear layers with ReLU, stored as attributes fc0, fc1, ..."""

import torch
import torch.nn as nn

ROWS = 2048
WIDTH = 512
LAYERS = 6


class Model(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.depth = layers
        for i in range(layers):
            setattr(self, f"fc{i}", nn.Linear(width, width))

    def forward(self, x):
        for i in range(self.depth):
            x = torch.relu(getattr(self, f"fc{i}")(x))
        return x


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, LAYERS]
