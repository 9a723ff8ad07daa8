# task: torch_linear_gelu
# style: addmm_with_fused_epilogue
# what: the library does the product without bias; one Triton kernel adds the bias and applies GELU in place
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu_kernel(y_ptr, bias_ptr, total, columns, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < total
    v = tl.load(y_ptr + offs, mask=mask) + tl.load(bias_ptr + offs % columns, mask=mask)
    # 1 / sqrt(2)
    gelu = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y_ptr + offs, gelu, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        y = torch.mm(x, self.linear.weight.t())
        total = y.numel()
        bias_gelu_kernel[(triton.cdiv(total, 2048),)](y, self.linear.bias, total, y.shape[1], BLOCK=2048, num_warps=8)
        return y
