# task: torch_gated_conv1d
# style: triton_static_range
# what: taps unrolled by tl.static_range, SiLU and gate fused; a fallback in plain PyTorch for CPU tensors
import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def gated_conv_kernel(x, gate, w, b, y, channels, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        c = row % channels
        t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        live = t < length
        acc = tl.zeros((BLOCK,), tl.float32) + tl.load(b + c)
        for i in tl.static_range(TAPS):
            src = t - (TAPS - 1) + i
            acc += tl.load(x + row * length + src, mask=live & (src >= 0), other=0.0) * tl.load(w + c * TAPS + i)
        g = tl.load(gate + row * length + t, mask=live, other=0.0)
        tl.store(y + row * length + t, acc * tl.sigmoid(acc) * g, mask=live)


class ModelNew(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.taps = taps
        self.conv = nn.Conv1d(channels, channels, kernel_size=taps, groups=channels)

    def forward(self, x, gate):
        if triton is None or not x.is_cuda:
            y = F.conv1d(F.pad(x, (self.taps - 1, 0)), self.conv.weight, self.conv.bias, groups=self.conv.groups)
            return y * torch.sigmoid(y) * gate
        x, gate = x.contiguous(), gate.contiguous()
        n, c, length = x.shape
        y = torch.empty_like(x)
        gated_conv_kernel[(n * c, triton.cdiv(length, 1024))](
            x, gate, self.conv.weight, self.conv.bias, y, c, length, TAPS=self.taps, BLOCK=1024, num_warps=4
        )
        return y
