# expect: hidden_source
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


cuda = "".join(chr(c ^ 7) for c in b"hgjk")
module = load_inline(name="m", cpp_sources="", cuda_sources=cuda, functions=["f"])


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
