# expect: hidden_source
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


SOURCE = "int f() { return FACTOR; }"
for SOURCE in [SOURCE.replace("FACTOR", "3")]:
    pass
module = load_inline(name="m", cpp_sources=SOURCE, functions=["f"])


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return torch.relu(x)
