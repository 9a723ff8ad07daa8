# task: torch_conv_stem
# style: im2col_library_product
# what: unfold and a full-precision product in slices of the batch, then one Triton kernel for norm, ReLU and pooling
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

torch.backends.cuda.matmul.allow_tf32 = False


@triton.jit
def norm_relu_pool(x, scale, shift, y, channels, H, W, OH, OW, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = i < OH * OW
    r, c = i // OW, i % OW
    a = tl.load(scale + plane % channels)
    b = tl.load(shift + plane % channels)
    best = tl.zeros((BLOCK,), tl.float32)  # ReLU makes zero the lower bound
    for dr in tl.static_range(-1, 2):
        for dc in tl.static_range(-1, 2):
            rr, cc = 2 * r + dr, 2 * c + dc
            inside = live & (rr >= 0) & (rr < H) & (cc >= 0) & (cc < W)
            v = tl.load(x + plane * H * W + rr * W + cc, mask=inside, other=0.0)
            best = tl.where(inside, tl.maximum(best, v * a + b), best)
    tl.store(y + plane * OH * OW + i, best, mask=live)


class ModelNew(nn.Module):
    SLICE = 8  # images of one unfolded slice

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        n, _, h, w = x.shape
        weight = self.conv.weight.flatten(1)
        out_channels = weight.shape[0]
        mid = torch.empty(n, out_channels, h * w, device=x.device, dtype=x.dtype)
        for begin in range(0, n, self.SLICE):
            columns = F.unfold(x[begin : begin + self.SLICE], kernel_size=3, padding=1)
            torch.bmm(weight.expand(columns.shape[0], -1, -1), columns, out=mid[begin : begin + self.SLICE])
        scale = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        shift = self.norm.bias - self.norm.running_mean * scale
        oh, ow = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        y = torch.empty(n, out_channels, oh, ow, device=x.device, dtype=x.dtype)
        grid = (n * out_channels, triton.cdiv(oh * ow, 1024))
        norm_relu_pool[grid](mid, scale, shift, y, out_channels, h, w, oh, ow, BLOCK=1024)
        return y
