# expect: patches
import torch
import torch.nn as nn


class Later:
    pass


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        y = torch.empty_like(x)
        y.__class__ = Later
        return y
