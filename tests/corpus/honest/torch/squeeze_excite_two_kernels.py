# task: torch_squeeze_excite
# style: multi_kernel_pipeline
# what: channel means and the scale in Triton, the two small layers by torch.addmm in between
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def plane_mean(x, mean, pixels, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, pixels, BLOCK):
        i = start + tl.arange(0, BLOCK)
        acc += tl.load(x + plane * pixels + i, mask=i < pixels, other=0.0)
    tl.store(mean + plane, tl.sum(acc, axis=0) / pixels)


@triton.jit
def plane_scale(x, logits, y, pixels, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    s = tl.sigmoid(tl.load(logits + plane))
    v = tl.load(x + plane * pixels + i, mask=i < pixels)
    tl.store(y + plane * pixels + i, v * s, mask=i < pixels)


class ModelNew(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.squeeze = nn.Linear(channels, reduced)
        self.excite = nn.Linear(reduced, channels)

    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        pixels = h * w
        mean = torch.empty((n, c), device=x.device, dtype=x.dtype)
        plane_mean[(n * c,)](x, mean, pixels, BLOCK=1024, num_warps=4)
        hidden = torch.addmm(self.squeeze.bias, mean, self.squeeze.weight.t()).clamp_min_(0)
        logits = torch.addmm(self.excite.bias, hidden, self.excite.weight.t())
        y = torch.empty_like(x)
        plane_scale[(n * c, triton.cdiv(pixels, 1024))](x, logits, y, pixels, BLOCK=1024, num_warps=4)
        return y
