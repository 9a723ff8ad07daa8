# task: torch_residual_depthwise
# what: the block by the library; the attack without the kernel that is never launched
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels, expansion):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, kernel_size=1)
        self.depthwise = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, kernel_size=1)

    def forward(self, x):
        y = torch.relu(self.expand(x))
        y = torch.relu(self.depthwise(y))
        return x + self.project(y)
