# expect: environment
import torch
import torch.nn as nn
import os


def helper(x, os=None):
    return torch.relu(x)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return helper(x)
