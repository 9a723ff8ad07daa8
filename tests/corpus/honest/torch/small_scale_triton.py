# task: torch_small_scale
# style: very_short_kernel
# what: one tiny Triton kernel; the launch takes longer than the kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_relu(x, scale, shift, y, n, columns: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % columns
    v = tl.load(x + i, mask=mask) * tl.load(scale + c, mask=mask) + tl.load(shift + c, mask=mask)
    tl.store(y + i, tl.maximum(v, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scale_relu[(triton.cdiv(x.numel(), 512),)](x, self.scale, self.shift, y, x.numel(), columns=x.shape[-1], BLOCK=512, num_warps=4)
        return y
