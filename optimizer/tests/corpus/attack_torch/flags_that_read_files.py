# expect: build
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


SOURCE = "int f() { return FACTOR; }"
module = load_inline(name="m", cpp_sources=SOURCE, functions=["f"], extra_cflags=["-include", "../../candidate.py"])


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
