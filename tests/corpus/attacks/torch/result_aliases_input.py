# task: torch_cumulative_sum
# class: wrong_shape_or_dtype
# what: sums in place and returns a view of the input's storage in the place of a new tensor
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1, out=x).view(x.shape)
