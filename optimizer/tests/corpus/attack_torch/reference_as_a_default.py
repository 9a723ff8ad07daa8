# expect: uses_reference
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, inner=Model):
        super().__init__()
        self.inner = inner(width)

    def forward(self, x):
        return self.inner(x)
