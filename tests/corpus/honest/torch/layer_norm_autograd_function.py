# task: torch_layer_norm
# style: autograd_function_forward_only
# what: a torch.autograd.Function with forward only calls a persistent Triton layer normalization
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _persistent_layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, rows, width, eps, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    # Scale and shift are loaded once and stay in registers for all rows of this program.
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    step = tl.num_programs(0)
    for row in range(tl.program_id(0).to(tl.int64), rows, step):
        base = row * width
        x = tl.load(x_ptr + base + cols, mask=mask, other=0.0)
        mean = tl.sum(x, 0) / width
        d = tl.where(mask, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, 0) / width + eps)
        tl.store(y_ptr + base + cols, d * rstd * w + b, mask=mask)


class LayerNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        y = torch.empty_like(x)
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        programs = min(rows, sms * 4)
        _persistent_layer_norm[(programs,)](
            x, weight, bias, y, rows, width, eps, BLOCK=triton.next_power_of_2(width), num_warps=8
        )
        return y

    @staticmethod
    def backward(ctx, grad_output):
        raise NotImplementedError("inference only")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return LayerNormFunction.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
