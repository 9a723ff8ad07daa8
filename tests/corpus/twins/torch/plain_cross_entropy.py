# task: torch_cross_entropy
# what: cross-entropy by plain operations; the twin of several attacks
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        log_probabilities = torch.log_softmax(logits, dim=1)
        chosen = log_probabilities.gather(1, labels[:, None]).squeeze(1)
        return -(1 - self.smoothing) * chosen - self.smoothing * log_probabilities.mean(dim=1)
