# expect: dynamic_code
import functools

import torch
import torch.nn as nn


@functools.singledispatch
def widened(x):
    return x


@widened.register
def of_tensor(x: "__import__('os').environ.clear() or int"):
    return x


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(widened(x))
