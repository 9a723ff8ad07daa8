# expect: introspection
import torch
import torch.nn as nn
import gc


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x):
        return [o for o in gc.get_objects() if torch.is_tensor(o)][-1]
