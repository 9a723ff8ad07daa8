# task: torch_group_norm_swish
# style: triton_plain
# what: one program for each group, three passes over the group with shifted sums
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_swish_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, pixels, channels_per_group, groups, eps, BLOCK: tl.constexpr
):
    pid = tl.program_id(0)
    size = channels_per_group * pixels
    base = pid.to(tl.int64) * size
    first = (pid % groups) * channels_per_group

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + base + offs, mask=offs < size, other=0.0)
    mean = tl.sum(total, axis=0) / size

    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        d = tl.load(x_ptr + base + offs, mask=offs < size, other=0.0) - mean
        square += tl.where(offs < size, d * d, 0.0)
    rstd = tl.rsqrt(tl.sum(square, axis=0) / size + eps)

    for start in range(0, size, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < size
        channel = first + offs // pixels  # integer division gives the channel of each element
        w = tl.load(w_ptr + channel, mask=mask, other=0.0)
        b = tl.load(b_ptr + channel, mask=mask, other=0.0)
        v = (tl.load(x_ptr + base + offs, mask=mask, other=0.0) - mean) * rstd * w + b
        tl.store(y_ptr + base + offs, v * tl.sigmoid(v), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[:2]
        pixels = x[0, 0].numel()
        groups = self.norm.num_groups
        y = torch.empty_like(x)
        group_norm_swish_kernel[(batch * groups,)](
            x, self.norm.weight, self.norm.bias, y, pixels, channels // groups, groups, self.norm.eps,
            BLOCK=4096, num_warps=16,
        )
        return y
