# expect: hands_over
import torch
import torch.nn as nn
from torch.jit import script as faster


@faster
def helper(x):
    return x


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
