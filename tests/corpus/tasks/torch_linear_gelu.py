"""Linear layer with a small bias, followed by GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 4096
IN_FEATURES = 2048
OUT_FEATURES = 4096
BIAS_BOUND = 1e-3


class Model(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES, BIAS_BOUND]
