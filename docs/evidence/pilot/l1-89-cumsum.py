import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

_CPP = "torch::Tensor scan_last(torch::Tensor x);"

_CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr int J = 4;                       // float4 per thread and tile
constexpr int SEG = 32 * 4 * J;            // elements of a warp in a tile
constexpr int TILE = SEG * WARPS;

template <bool VEC>
__device__ __forceinline__ float4 load4(const float* p, long long i, long long n) {
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (VEC) {
        if (i < n) v = __ldcs(reinterpret_cast<const float4*>(p + i));
    } else {
        if (i < n) v.x = p[i];
        if (i + 1 < n) v.y = p[i + 1];
        if (i + 2 < n) v.z = p[i + 2];
        if (i + 3 < n) v.w = p[i + 3];
    }
    return v;
}

template <bool VEC>
__device__ __forceinline__ void store4(float* p, long long i, long long n, float4 v) {
    if (VEC) {
        if (i < n) __stcs(reinterpret_cast<float4*>(p + i), v);
    } else {
        if (i < n) p[i] = v.x;
        if (i + 1 < n) p[i + 1] = v.y;
        if (i + 2 < n) p[i + 2] = v.z;
        if (i + 3 < n) p[i + 3] = v.w;
    }
}

template <bool VEC>
__global__ void __launch_bounds__(THREADS, 2)
scan_rows(const float* __restrict__ x, float* __restrict__ y, long long n) {
    __shared__ float totals[2][WARPS];
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const float* px = x + (long long)blockIdx.x * n;
    float* py = y + (long long)blockIdx.x * n;
    const int mine = warp * SEG + lane * 4;

    float4 cur[J], nxt[J];
#pragma unroll
    for (int j = 0; j < J; ++j) cur[j] = load4<VEC>(px, (long long)mine + j * 128, n);

    float carry = 0.f;
    int parity = 0;
    for (long long t = 0; t < n; t += TILE) {
        const bool more = t + TILE < n;
        if (more) {
#pragma unroll
            for (int j = 0; j < J; ++j) nxt[j] = load4<VEC>(px, t + TILE + mine + j * 128, n);
        }
        float inc[J];
#pragma unroll
        for (int j = 0; j < J; ++j) {
            cur[j].y += cur[j].x;
            cur[j].z += cur[j].y;
            cur[j].w += cur[j].z;
            inc[j] = cur[j].w;
        }
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
#pragma unroll
            for (int j = 0; j < J; ++j) {
                const float u = __shfl_up_sync(0xffffffffu, inc[j], o);
                if (lane >= o) inc[j] += u;
            }
        }
        float run = 0.f;
#pragma unroll
        for (int j = 0; j < J; ++j) {
            const float tot = __shfl_sync(0xffffffffu, inc[j], 31);
            float ex = __shfl_up_sync(0xffffffffu, inc[j], 1);
            ex = lane == 0 ? 0.f : ex;
            inc[j] = ex + run;
            run += tot;
        }
        if (lane == 0) totals[parity][warp] = run;
        __syncthreads();
        float v = totals[parity][lane & (WARPS - 1)];
#pragma unroll
        for (int o = 1; o < WARPS; o <<= 1) {
            const float u = __shfl_up_sync(0xffffffffu, v, o, WARPS);
            if ((lane & (WARPS - 1)) >= o) v += u;
        }
        const float before = __shfl_sync(0xffffffffu, v, warp == 0 ? 0 : warp - 1);
        const float base = carry + (warp == 0 ? 0.f : before);
        carry += __shfl_sync(0xffffffffu, v, WARPS - 1);
        parity ^= 1;
#pragma unroll
        for (int j = 0; j < J; ++j) {
            const float off = base + inc[j];
            float4 r = cur[j];
            r.x += off;
            r.y += off;
            r.z += off;
            r.w += off;
            store4<VEC>(py, t + mine + j * 128, n, r);
        }
        if (more) {
#pragma unroll
            for (int j = 0; j < J; ++j) cur[j] = nxt[j];
        }
    }
}

torch::Tensor scan_last(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "float32, contiguous, on the device");
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    const long long n = x.size(-1);
    const long long rows = x.numel() / n;
    TORCH_CHECK(rows < (1LL << 31), "too many rows");
    const float* px = x.data_ptr<float>();
    float* py = y.data_ptr<float>();
    auto stream = at::cuda::getCurrentCUDAStream();
    const bool vec = n % 4 == 0 && reinterpret_cast<uintptr_t>(px) % 16 == 0 && reinterpret_cast<uintptr_t>(py) % 16 == 0;
    if (vec) {
        scan_rows<true><<<(unsigned)rows, THREADS, 0, stream>>>(px, py, n);
    } else {
        scan_rows<false><<<(unsigned)rows, THREADS, 0, stream>>>(px, py, n);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

_ext = load_inline(
    name="row_scan_v1",
    cpp_sources=_CPP,
    cuda_sources=_CUDA,
    functions=["scan_last"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        d = self.dim if self.dim >= 0 else self.dim + x.dim()
        if d != x.dim() - 1:
            # the scan along another dimension than the last is left to PyTorch
            return torch.cumsum(x, dim=self.dim)
        return _ext.scan_last(x.contiguous())
