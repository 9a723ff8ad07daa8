"""Convolution, batch normalization with stored statistics, ReLU and max pooling."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
IN_CHANNELS = 32
OUT_CHANNELS = 64
HEIGHT = 112
WIDTH = 112


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        x = self.conv(x)
        norm = self.norm
        # Stored statistics are used in either mode of the module.
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps)
        return F.max_pool2d(torch.relu(x), kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(BATCH, IN_CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [IN_CHANNELS, OUT_CHANNELS]
