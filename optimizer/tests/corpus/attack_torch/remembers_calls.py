# expect: caches_results
import torch
import torch.nn as nn
from functools import lru_cache


class ModelNew(nn.Module):
    @lru_cache(maxsize=None)
    def forward(self, x):
        return torch.relu(x)
