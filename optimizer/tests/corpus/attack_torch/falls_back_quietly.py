# expect: fallback
import torch
import torch.nn as nn
from contextlib import suppress


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        with suppress(RuntimeError):
            return kernel(x)
        return torch.relu(x)
