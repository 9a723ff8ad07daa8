# task: torch_elementwise_chain
# style: crlf_line_endings
# what: Triton over the flat tensor, the column by integer division; this file has CRLF line endings
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_chain(x_ptr, a_ptr, b_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % columns
    x = tl.load(x_ptr + i, mask=mask)
    a = tl.load(a_ptr + c, mask=mask)
    b = tl.load(b_ptr + c, mask=mask)
    x = x * a + b
    x = x / (1.0 + tl.exp(-x))
    x = tl.where(x < -1.0, -1.0, tl.where(x > 4.0, 4.0, x))
    tl.store(y_ptr + i, x, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        nn.Module.__init__(self)
        self.scale = nn.Parameter(torch.ones(columns))
        self.shift = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        fused_chain[(triton.cdiv(n, 2048),)](x, self.scale, self.shift, y, n, x.shape[-1], BLOCK=2048, num_warps=8)
        return y
