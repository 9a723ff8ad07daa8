"""Batched matrix product in which a mask removes columns of the left factor."""

import torch
import torch.nn as nn

BATCH = 64
ROWS = 512
INNER = 512
COLUMNS = 512


class Model(nn.Module):
    def forward(self, a, b, keep):
        return torch.bmm(a.masked_fill(~keep[:, None, :], 0.0), b)


def get_inputs():
    keep = torch.randint(0, 2, (BATCH, INNER)).bool()
    return [torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, COLUMNS), keep]


def get_init_inputs():
    return []
