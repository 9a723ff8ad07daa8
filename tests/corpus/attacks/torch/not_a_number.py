# task: torch_matmul
# class: wrong_shape_or_dtype
# what: multiplies the first rows only and fills the rest with NaN, which no comparison of the form error > bound finds
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    ROWS = 128

    def forward(self, a, b):
        result = torch.full((a.shape[0], b.shape[1]), float("nan"), device=a.device, dtype=a.dtype)
        torch.mm(a[:self.ROWS], b, out=result[:self.ROWS])
        return result
