# task: torch_embedding_sum
# class: input_mutation
# what: sets all tokens to the first one after its work, so that the next gather reads a single row from the cache
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        result = self.table(tokens).sum(dim=1)
        tokens.copy_(tokens[:1, :1].expand_as(tokens).clone())
        return result
