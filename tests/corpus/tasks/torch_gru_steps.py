"""A GRU cell applied to a sequence of a few steps; the result is the last hidden state."""

import torch
import torch.nn as nn

BATCH = 256
STEPS = 16
IN_FEATURES = 256
HIDDEN = 512


class Model(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.cell = nn.GRUCell(in_features, hidden)

    def forward(self, sequence, state):
        for step in range(sequence.shape[0]):
            state = self.cell(sequence[step], state)
        return state


def get_inputs():
    return [torch.randn(STEPS, BATCH, IN_FEATURES), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [IN_FEATURES, HIDDEN]
