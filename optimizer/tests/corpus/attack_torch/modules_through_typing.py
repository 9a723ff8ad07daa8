# expect: introspection
import typing

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x: typing.Any):
        typing.sys.modules.clear()
        return torch.relu(x)
