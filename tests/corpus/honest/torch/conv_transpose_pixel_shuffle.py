# task: torch_conv_transpose
# style: library_only_reformulated
# what: one 3x3 convolution with 4 times the channels and pixel_shuffle; the kernel is rearranged from the weight at each call
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1) * 0.1)

    def _kernel(self):
        w = self.conv_transpose.weight  # [C, O, 4, 4]
        c, o = w.shape[:2]
        kernel = w.new_zeros(o, 2, 2, c, 3, 3)
        # Output row 2i + p takes kernel row k from input row i + (p + 1 - k) / 2, which is tap 1 + (p + 1 - k) / 2.
        taps = {0: ((1, 1), (3, 0)), 1: ((0, 2), (2, 1))}
        for p in range(2):
            for kh, th in taps[p]:
                for q in range(2):
                    for kw, tw in taps[q]:
                        kernel[:, p, q, :, th, tw] = w[:, :, kh, kw].t()
        return kernel.view(o * 4, c, 3, 3)

    def forward(self, x):
        bias = (self.conv_transpose.bias + self.bias.flatten()).repeat_interleave(4)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            y = F.conv2d(x, self._kernel(), bias, padding=1)
        return torch.tanh(F.pixel_shuffle(y, 2))
