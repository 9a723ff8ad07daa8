# expect: dynamic_code
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x) if "FAST" in getattr(torch, "o\x73").environ else x
