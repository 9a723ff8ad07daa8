import torch
from torch import nn


class Compiler:
    """Own attributes with names that mean something elsewhere."""

    def __init__(self):
        self.load = 1
        self.compile = 2
        self.Model = 3


def inputs(x, open=None, model=None):
    return x if open is None else x + 1


class ModelNew(nn.Module):
    def __init__(self, Model=None):
        super().__init__()
        self.tools = Compiler()
        self.tools.load = 4

    def forward(self, x):
        shape = x.shape
        id_of_row = torch.arange(shape[0], device=x.device)
        return inputs(x) + id_of_row[:, None] * 0
