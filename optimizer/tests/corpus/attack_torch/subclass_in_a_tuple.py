# expect: tensor_subclass
import torch
from torch import Tensor, nn


class Later(Tensor, metaclass=type):
    pass


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return x.as_subclass(Later)
