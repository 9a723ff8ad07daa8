# expect: fallback
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        try:
            return kernel(x)
        except Exception:
            return torch.relu(x)
