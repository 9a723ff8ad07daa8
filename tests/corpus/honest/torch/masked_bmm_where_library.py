# task: torch_masked_bmm
# style: library_only
# what: multiplies by the mask as fp32 with one small kernel on the right factor, then torch.bmm
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b, keep):
        # Rows of b that meet a removed column become zero.
        rows = torch.where(keep.unsqueeze(-1), b, b.new_zeros(()))
        return torch.bmm(a, rows)
