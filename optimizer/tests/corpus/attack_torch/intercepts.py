# expect: intercepts
import torch
import torch.nn as nn


class Mode:
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return args[0]


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
