# task: torch_embedding_sum
# style: library_only
# what: replaces lookup and sum by the fused embedding_bag of the library
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        # A matrix of tokens has one bag for each row; no tensor of single rows is written.
        return F.embedding_bag(tokens, self.table.weight, mode="sum")
