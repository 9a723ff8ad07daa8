"""Cross-entropy of each row against an integer label, with label smoothing."""

import torch
import torch.nn as nn

ROWS = 8192
CLASSES = 8192
SMOOTHING = 0.1


class Model(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        log_probabilities = torch.log_softmax(logits, dim=1)
        chosen = log_probabilities.gather(1, labels[:, None]).squeeze(1)
        return -(1 - self.smoothing) * chosen - self.smoothing * log_probabilities.mean(dim=1)


def get_inputs():
    return [torch.randn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return [SMOOTHING]
