import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor



@triton.jit
def split_kernel(x_ptr, o_ptr, K: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, M):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = (r[:, None] < M) & (k[None, :] < K)
    v = tl.load(x_ptr + r[:, None].to(tl.int64) * K + k[None, :], mask=m, other=0.0)
    h = v.to(tl.bfloat16)
    l = (v - h.to(tl.float32)).to(tl.bfloat16)
    o = o_ptr + r[:, None].to(tl.int64) * (2 * K) + k[None, :]
    tl.store(o, h, mask=m)
    tl.store(o + K, l, mask=m)


def _set_blocks(nargs):
    nargs["a_desc"].block_shape = [nargs["BM"], nargs["BK"]]
    nargs["b_desc"].block_shape = [nargs["BN"], nargs["BK"]]


def _config(bm, bn, bk, fused, stages):
    return triton.Config(
        {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "FUSED": fused},
        num_stages=stages,
        num_warps=8,
        pre_hook=_set_blocks,
    )


@triton.autotune(
    configs=[
        _config(128, 256, 64, False, 3),
        _config(128, 256, 64, False, 4),
        _config(128, 256, 64, True, 2),
        _config(128, 256, 32, True, 4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def gemm_kernel(a_desc, b_desc, o_ptr, mb_ptr, bias_ptr, gw_ptr, gb_ptr, M, eps,
                N: tl.constexpr, K: tl.constexpr, GS: tl.constexpr,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                GROUP: tl.constexpr, FUSED: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn: tl.constexpr = N // BN
    width = GROUP * nn
    gid = pid // width
    first = gid * GROUP
    gsz = min(nm - first, GROUP)
    pm = first + (pid % width) % gsz
    pn = (pid % width) // gsz
    om = pm * BM
    on = pn * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    KT: tl.constexpr = K // BK
    if FUSED:
        for i in range(KT):
            k = i * BK
            ah = a_desc.load([om, k])
            bh = b_desc.load([on, k])
            al = a_desc.load([om, K + k])
            bl = b_desc.load([on, K + k])
            acc = tl.dot(al, bh.T, acc)
            acc = tl.dot(ah, bl.T, acc)
            acc = tl.dot(ah, bh.T, acc)
    else:
        for i in range(3 * KT):
            # low * high, high * low, high * high
            ka = i * BK + tl.where(i < KT, K, -KT * BK)
            ka = tl.where(i < 2 * KT, ka, (i - 2 * KT) * BK)
            kb = tl.where(i < 2 * KT, i * BK, (i - 2 * KT) * BK)
            a = a_desc.load([om, ka])
            b = b_desc.load([on, kb])
            acc = tl.dot(a, b.T, acc)
    n = on + tl.arange(0, BN)
    acc = acc + tl.load(mb_ptr + n)[None, :]
    acc = acc / (1.0 + tl.exp(-acc))
    acc = acc + tl.load(bias_ptr + n)[None, :]
    G: tl.constexpr = BN // GS
    v = tl.reshape(acc, (BM, G, GS))
    mean = tl.sum(v, axis=2) * (1.0 / GS)
    v = v - mean[:, :, None]
    rstd = tl.rsqrt(tl.sum(v * v, axis=2) * (1.0 / GS) + eps)
    v = v * rstd[:, :, None]
    acc = tl.reshape(v, (BM, BN))
    acc = acc * tl.load(gw_ptr + n)[None, :] + tl.load(gb_ptr + n)[None, :]
    m = om + tl.arange(0, BM)
    tl.store(o_ptr + m[:, None].to(tl.int64) * N + n[None, :], acc, mask=(m < M)[:, None])


def _split(x, rows, k):
    out = torch.empty((rows, 2 * k), device=x.device, dtype=torch.bfloat16)
    block = min(1024, triton.next_power_of_2(k))
    split_kernel[(triton.cdiv(rows, 4), triton.cdiv(k, block))](x, out, k, block, 4, rows, num_warps=4)
    return out


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, num_groups, bias_shape):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self._packed = None
        self._packed_key = None

    def _weights(self):
        # high and low halves of the weight, kept under its address and version
        w = self.matmul.weight
        key = (w.data_ptr(), w._version, w.device)
        if self._packed_key != key:
            self._packed = _split(w.detach().contiguous(), w.shape[0], w.shape[1])
            self._packed_key = key
        return self._packed

    def forward(self, x):
        n, k = self.matmul.weight.shape
        group = n // self.group_norm.num_groups
        if n % 256 or k % 64 or 256 % group:
            raise NotImplementedError("sizes not supported")
        x = x.contiguous()
        m = x.shape[0]
        out = torch.empty((m, n), device=x.device, dtype=torch.float32)
        if m == 0:
            return out
        ws = self._weights()
        xs = _split(x, m, k)
        a_desc = TensorDescriptor.from_tensor(xs, [128, 64])
        b_desc = TensorDescriptor.from_tensor(ws, [256, 64])
        grid = lambda meta: (triton.cdiv(m, meta["BM"]) * (n // meta["BN"]),)
        gemm_kernel[grid](
            a_desc,
            b_desc,
            out,
            self.matmul.bias,
            self.bias,
            self.group_norm.weight,
            self.group_norm.bias,
            m,
            self.group_norm.eps,
            N=n,
            K=k,
            GS=group,
        )
        return out
