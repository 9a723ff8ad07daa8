# expect: environment
import typing

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: typing.Any):
        torch.os.environ.clear()
        return torch.relu(x)
