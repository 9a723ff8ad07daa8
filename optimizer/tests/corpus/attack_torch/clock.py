# expect: clocks
import torch
import torch.nn as nn
import time


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        started = time.perf_counter()
        return torch.relu(x)
