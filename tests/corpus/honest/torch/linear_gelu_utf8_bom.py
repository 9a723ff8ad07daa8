# task: torch_linear_gelu
# style: utf8_bom_unicode
# what: the file begins with a byte order mark and has Unicode comments; library product, then GELU with Φ by erfc
import torch
import torch.nn as nn
import triton
import triton.language as tl

# GELU(x) = x · Φ(x), Φ(x) = ½ · (1 + erf(x / √2)) — exact form, no tanh approximation.


@triton.jit
def gelu_rows(y_ptr, bias_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < columns
    v = tl.load(y_ptr + row * columns + c, mask=mask, other=0.0)
    v += tl.load(bias_ptr + c, mask=mask, other=0.0)
    φ = 0.5 + 0.5 * tl.erf(v * 0.7071067811865476)  # ½ (1 + erf)
    tl.store(y_ptr + row * columns + c, v * φ, mask=mask)


class ModelNew(nn.Module):
    """Größe und Form wie im Referenzmodell."""

    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)

    def forward(self, x):
        y = x @ self.linear.weight.T
        rows, columns = y.shape
        gelu_rows[(rows, triton.cdiv(columns, 2048))](y, self.linear.bias, columns, BLOCK=2048)
        return y
