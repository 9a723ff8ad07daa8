# task: torch_softmax
# class: wrong_shape_or_dtype
# what: computes one row and returns it expanded to all rows with a stride of zero
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x[:1], dim=1).expand(x.shape)
