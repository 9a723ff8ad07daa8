# task: torch_linear_gelu
# style: cute_dsl_with_triton_fallback
# what: elementwise GELU in the CuTe DSL where cutlass is installed, in Triton otherwise; the product is torch.addmm
import torch
import torch.nn as nn

try:
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    HAS_CUTE = True
except ImportError:
    cutlass = cute = from_dlpack = None
    HAS_CUTE = False

import triton
import triton.language as tl

if HAS_CUTE:

    @cute.kernel
    def gelu_device(y: cute.Tensor):
        tid, _, _ = cute.arch.thread_idx()
        bid, _, _ = cute.arch.block_idx()
        bdim, _, _ = cute.arch.block_dim()
        i = bid * bdim + tid
        if i < cute.size(y):
            v = y[i]
            y[i] = 0.5 * v * (1.0 + cute.math.erf(v * 0.7071067811865476))

    @cute.jit
    def gelu_host(y: cute.Tensor):
        threads = 256
        blocks = (cute.size(y) + threads - 1) // threads
        gelu_device(y).launch(grid=(blocks, 1, 1), block=(threads, 1, 1))


@triton.jit
def gelu_triton(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=i < n)


_compiled = {}  # compiled kernels by number of elements


def gelu_(y: torch.Tensor) -> torch.Tensor:
    flat = y.view(-1)
    if HAS_CUTE and torch.cuda.current_stream() == torch.cuda.default_stream():
        view = from_dlpack(flat)
        if flat.numel() not in _compiled:
            _compiled[flat.numel()] = cute.compile(gelu_host, view)
        _compiled[flat.numel()](view)
    else:
        gelu_triton[(triton.cdiv(flat.numel(), 4096),)](flat, flat.numel(), BLOCK=4096, num_warps=8)
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        return gelu_(y)
