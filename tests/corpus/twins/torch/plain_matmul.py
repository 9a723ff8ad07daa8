# task: torch_matmul
# what: the product by the library under its default flags; the attack of this task without TF32
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)
