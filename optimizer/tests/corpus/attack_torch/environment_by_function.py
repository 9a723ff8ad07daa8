# expect: environment
import torch
import torch.nn as nn
from os import environ as e


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x) if "FAST" in e else x
