# task: torch_cross_entropy
# class: wrong_shape_or_dtype
# what: returns one scalar, the mean loss of 256 rows, which a careless comparison broadcasts over all rows
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    ROWS = 256

    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        return F.cross_entropy(logits[:self.ROWS], labels[:self.ROWS], label_smoothing=self.smoothing)
