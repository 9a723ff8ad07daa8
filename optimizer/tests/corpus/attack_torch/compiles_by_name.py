# expect: hands_over
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.compiled = getattr(torch, "compile")(nn.Linear(width, width))

    def forward(self, x):
        return self.compiled(x)
