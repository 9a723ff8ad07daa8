# task: torch_cumulative_sum
# what: cumulative sum by the library; the twin of several attacks
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)
