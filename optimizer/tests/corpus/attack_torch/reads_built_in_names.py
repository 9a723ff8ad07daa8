# expect: introspection
import torch
import torch.nn as nn



class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x) if __builtins__["open"] else x
