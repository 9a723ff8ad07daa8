# expect: environment
import torch
import torch.nn as nn
import operator
import os
import typing


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        program = typing.sys
        return torch.relu(x) if operator.attrgetter("o" + "s")(program) else x
