# task: torch_layer_norm
# style: triton_heuristics
# what: one program per row, block size and warps from triton.heuristics, mean then centred variance
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["width"]),
        "num_warps": lambda args: 4 if args["width"] <= 1024 else (8 if args["width"] <= 8192 else 16),
    }
)
@triton.jit
def ln_fwd(X, Y, W, B, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    x = tl.load(X + row * width + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / width
    centred = tl.where(mask, x - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / width
    rstd = 1.0 / tl.sqrt(var + eps)
    w = tl.load(W + cols, mask=mask, other=0.0)
    b = tl.load(B + cols, mask=mask, other=0.0)
    tl.store(Y + row * width + cols, centred * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            # Triton needs a GPU. On the CPU the module stays usable for tests.
            mean = x.mean(-1, keepdim=True)
            var = (x - mean).pow(2).mean(-1, keepdim=True)
            return (x - mean) * torch.rsqrt(var + self.norm.eps) * self.norm.weight + self.norm.bias
        shape = x.shape
        x2 = x.reshape(-1, shape[-1])
        y = torch.empty_like(x2)
        ln_fwd[(x2.shape[0],)](x2, y, self.norm.weight, self.norm.bias, shape[-1], self.norm.eps)
        return y.view(shape)
