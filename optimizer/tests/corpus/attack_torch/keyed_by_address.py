# expect: caches_results
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.results = {}

    def forward(self, x):
        key = x.data_ptr()
        if key not in self.results:
            self.results[key] = torch.relu(x)
        return self.results[key]
