# expect: introspection
import torch
import torch.nn as nn
import sys


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x) if "FAST" in sys.modules["o" + "s"].environ else x
