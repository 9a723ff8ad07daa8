import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("packed", torch.empty(width, width), persistent=False)
        self.register_load_state_dict_post_hook(ModelNew.repack_hook)

    def repack_hook(self, _incompatible):
        with torch.no_grad():
            self.packed = self.linear.weight.t().contiguous()

    def forward(self, x):
        return torch.addmm(self.linear.bias, x, self.packed)
