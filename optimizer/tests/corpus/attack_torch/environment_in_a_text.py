# expect: environment
import torch
import torch.nn as nn
import os
import typing


def forward_of(x: "o" "s.environ"):
    return x


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x) if typing.get_type_hints(forward_of) else x
