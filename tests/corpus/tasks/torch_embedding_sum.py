"""Embedding lookup, summed over the tokens of each sequence."""

import torch
import torch.nn as nn

VOCABULARY = 50000
WIDTH = 256
SEQUENCES = 4096
LENGTH = 64


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        return self.table(tokens).sum(dim=1)


def get_inputs():
    return [torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
