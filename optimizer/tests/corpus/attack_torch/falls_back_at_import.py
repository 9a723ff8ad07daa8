# expect: fallback
import torch
import torch.nn as nn


try:
    import triton
except ImportError:
    triton = None


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
