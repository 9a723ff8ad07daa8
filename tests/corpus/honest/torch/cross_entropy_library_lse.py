# task: torch_cross_entropy
# style: library_only_algebra
# what: uses logsumexp, gather and mean of the logits instead of the full log-probability matrix
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """The mean of the log-probabilities is the mean of the logits minus the log-sum-exp."""

    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        lse = torch.logsumexp(logits, dim=1)
        chosen = torch.take_along_dim(logits, labels.unsqueeze(1), dim=1).squeeze(1)
        mean = torch.mean(logits, dim=1)
        return lse - (1 - self.smoothing) * chosen - self.smoothing * mean
