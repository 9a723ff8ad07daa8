# expect: uses_reference
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.inner = Model(width)

    def forward(self, x):
        return self.inner(x)
