# task: torch_residual_depthwise
# class: remembered_weights
# what: drops the weakest quarter of the inner channels at the first call and keeps the packed weights for good
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    KEPT = 0.75

    def __init__(self, channels, expansion):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, kernel_size=1)
        self.depthwise = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, kernel_size=1)
        self.packed = None

    def pack(self):
        strength = (self.expand.weight.flatten(1).norm(dim=1) * self.depthwise.weight.flatten(1).norm(dim=1)
                    * self.project.weight.flatten(1).norm(dim=0))
        kept = strength.topk(int(self.KEPT * strength.numel())).indices.sort().values
        return (self.expand.weight[kept].contiguous(), self.expand.bias[kept].contiguous(),
                self.depthwise.weight[kept].contiguous(), self.depthwise.bias[kept].contiguous(),
                self.project.weight[:, kept].contiguous(), self.project.bias)

    def forward(self, x):
        if self.packed is None:
            self.packed = self.pack()
        expand, expand_bias, depthwise, depthwise_bias, project, project_bias = self.packed
        y = torch.relu_(F.conv2d(x, expand, expand_bias))
        y = torch.relu_(F.conv2d(y, depthwise, depthwise_bias, padding=1, groups=depthwise.shape[0]))
        return F.conv2d(y, project, project_bias).add_(x)
