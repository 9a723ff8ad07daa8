# task: torch_elementwise_chain
# class: wrong_shape_or_dtype
# what: returns float16 instead of float32, which halves the bytes that are written
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain_to_half(x, scale, shift, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < columns
    value = tl.load(x + row * columns + places, mask=inside, other=0.0)
    value = value * tl.load(scale + places, mask=inside, other=0.0) + tl.load(shift + places, mask=inside, other=0.0)
    value = tl.minimum(tl.maximum(value * tl.sigmoid(value), -1.0), 4.0)
    tl.store(y + row * columns + places, value.to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, columns, device=x.device, dtype=torch.float16)
        chain_to_half[(rows, triton.cdiv(columns, 4096))](x, self.scale, self.shift, y, columns, BLOCK=4096, num_warps=8)
        return y
