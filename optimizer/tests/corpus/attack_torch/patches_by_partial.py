# expect: dynamic_code
import torch
import torch.nn as nn
from functools import partial


change = partial(setattr, torch.cuda)
change("synchronize", lambda *args: None)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
