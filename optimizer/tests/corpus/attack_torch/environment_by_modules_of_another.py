# expect: environment
import torch
import torch.nn as nn
import os
import typing


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        program = typing.sys.modules[__name__]
        return torch.relu(x) if "FAST" in program.__dict__["o" + "s"].environ else x
