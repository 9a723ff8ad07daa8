# task: torch_elementwise_chain
# style: triton_2d_grid
# what: one pass over the tensor with a tile of rows and columns; scale and shift are read once for each tile
import torch
import torch.nn as nn

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except ImportError:  # pragma: no cover
    HAS_TRITON = False

if HAS_TRITON:

    @triton.jit
    def chain_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, rows, cols, lo, hi, BM: tl.constexpr, BN: tl.constexpr):
        m = tl.program_id(1) * BM + tl.arange(0, BM)
        n = tl.program_id(0) * BN + tl.arange(0, BN)
        mask_n = n < cols
        scale = tl.load(scale_ptr + n, mask=mask_n, other=0.0)
        shift = tl.load(shift_ptr + n, mask=mask_n, other=0.0)
        offs = m[:, None].to(tl.int64) * cols + n[None, :]
        mask = (m[:, None] < rows) & mask_n[None, :]
        v = tl.load(x_ptr + offs, mask=mask, other=0.0)
        v = v * scale[None, :] + shift[None, :]
        v = v * tl.sigmoid(v)
        v = tl.minimum(tl.maximum(v, lo), hi)
        tl.store(y_ptr + offs, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        if not HAS_TRITON or not x.is_cuda:
            v = torch.addcmul(self.shift, x, self.scale)
            return (v * torch.sigmoid(v)).clamp_(-1.0, 4.0)
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        BM, BN = 4, 1024
        grid = (triton.cdiv(cols, BN), triton.cdiv(rows, BM))
        chain_kernel[grid](x, self.scale, self.shift, y, rows, cols, -1.0, 4.0, BM=BM, BN=BN, num_warps=8)
        return y
