# expect: dynamic_code
import torch
import torch.nn as nn


workers = __import__("thr" + "eading")


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
