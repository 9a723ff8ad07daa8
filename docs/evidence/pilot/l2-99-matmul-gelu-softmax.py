import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_rows(src, h16, q8, inv_scale, K, KP, LO_FIRST: tl.constexpr, BLOCK: tl.constexpr):
    # one row: scale it by a power of two into [-1, 1], write fp16(hi), and fp8 of hi * 2^8 and of lo * 2^20
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    v = tl.load(src + row * K + cols, mask=cols < K, other=0.0)
    amax = tl.max(tl.abs(v), axis=0)
    e = (amax.to(tl.int32, bitcast=True) >> 23) & 255
    e = tl.minimum(e, 252)
    scale = ((253 - e) << 23).to(tl.float32, bitcast=True)
    inverse = ((e + 1) << 23).to(tl.float32, bitcast=True)
    s = v * scale
    hi = s.to(tl.float16)
    hi32 = hi.to(tl.float32)
    lo8 = ((s - hi32) * 1048576.0).to(tl.float8e4nv)
    hi8 = (hi32 * 256.0).to(tl.float8e4nv)
    mask = cols < KP
    tl.store(h16 + row * KP + cols, hi, mask=mask)
    q = q8 + row * (2 * KP) + cols
    if LO_FIRST:
        tl.store(q, lo8, mask=mask)
        tl.store(q + KP, hi8, mask=mask)
    else:
        tl.store(q, hi8, mask=mask)
        tl.store(q + KP, lo8, mask=mask)
    tl.store(inv_scale + row, inverse)


@triton.jit
def gelu_softmax(main, corr, inv_x, inv_w, bias, out, N, NP, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    a = tl.load(main + row * NP + cols, mask=mask, other=0.0)
    c = tl.load(corr + row * NP + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(inv_w + cols, mask=mask, other=0.0)
    b = tl.load(bias + cols, mask=mask, other=0.0)
    r = tl.load(inv_x + row)
    z = (a + c) * (r * w) + b
    g = 0.5 * z * (1.0 + tl.math.erf(z * 0.7071067811865476))
    g = tl.where(mask, g, float("-inf"))
    m = tl.max(g, axis=0)
    p = tl.exp(g - m)
    total = tl.sum(p, axis=0)
    tl.store(out + row * N + cols, p * (1.0 / total), mask=mask)


def _up(n, m):
    return (n + m - 1) // m * m


def _split(t, rows_padded, kp, lo_first):
    rows, k = t.shape
    make = torch.empty if rows_padded == rows else torch.zeros
    # fp16 is the high part only: what it rounds away is corrected by the fp8 product, to about 2^-17 relative
    h16 = make((rows_padded, kp), dtype=torch.float16, device=t.device)
    q8 = torch.empty((rows_padded, 2 * kp), dtype=torch.float8_e4m3fn, device=t.device)
    if rows_padded != rows:
        q8.view(torch.uint8).zero_()
    inv = torch.empty((rows_padded,), dtype=torch.float32, device=t.device)
    split_rows[(rows,)](
        t, h16, q8, inv, k, kp, LO_FIRST=lo_first, BLOCK=max(128, triton.next_power_of_2(kp)), num_warps=8
    )
    return h16, q8, inv


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self._key = None
        self._packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: module._prepare())

    def _prepare(self):
        # what follows from the weights alone, kept under their version and address
        w = self.linear.weight
        if not w.is_cuda:
            self._key = None
            self._packed = None
            return
        key = (w._version, w.data_ptr(), w.device, tuple(w.shape))
        if key != self._key:
            with torch.no_grad():
                n, k = w.shape
                h16, q8, inv = _split(w.detach().contiguous(), _up(n, 64), _up(k, 64), False)
                one = torch.ones((), dtype=torch.float32, device=w.device)
                down = torch.full((), 2.0**-28, dtype=torch.float32, device=w.device)
            self._packed = (h16.t(), q8.t(), inv, one, down)
            self._key = key

    def forward(self, x):
        self._prepare()
        wh, wq, inv_w, one, down = self._packed
        x = x.contiguous()
        m = x.shape[0]
        n = self.linear.weight.shape[0]
        kp = wh.shape[0]
        np_ = wh.shape[1]
        xh, xq, inv_x = _split(x, m, kp, True)
        main = torch.mm(xh, wh, out_dtype=torch.float32)
        # the correction is 2^-12 of the product: bfloat16 leaves 2^-21 of it
        corr = torch._scaled_mm(xq, wq, scale_a=down, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        out = torch.empty((m, n), dtype=torch.float32, device=x.device)
        gelu_softmax[(m,)](
            main, corr, inv_x, inv_w, self.linear.bias, out, n, np_, BLOCK=max(128, triton.next_power_of_2(n)), num_warps=8
        )
        return out
