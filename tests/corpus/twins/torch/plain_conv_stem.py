# task: torch_conv_stem
# what: convolution, normalization, ReLU in place, pooling; the twin of several attacks
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        x = self.conv(x)
        norm = self.norm
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps)
        return F.max_pool2d(torch.relu_(x), kernel_size=3, stride=2, padding=1)
