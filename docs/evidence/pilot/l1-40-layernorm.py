import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

CUDA_SRC = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cstdint>

// Rows of 4194304 values. 128 resident blocks; each owns 32768 columns of every row. Two rows of x are on the chip (shared
// memory, and registers for the rest), weight is in registers, bias comes from L2 for each row. While row r is normalized,
// row r+2 takes its places, and the statistics of row r+1 are published halfway.
// Each thread reads only the places of shared memory that its own asynchronous copies wrote.
constexpr int NT = 256;
constexpr int WARPS = NT / 32;
constexpr int CTAS = 128;
constexpr int K = 32;                 // float4 per thread and row
constexpr int KR = 4;                 // of them in registers, the last ones
constexpr int KS = K - KR;            // of them in shared memory
constexpr int BATCH = 4;              // float4 of bias that are loaded at once
constexpr int SLICE4 = NT * K;        // float4 per block and row
constexpr int64_t ROW4 = static_cast<int64_t>(SLICE4) * CTAS;
constexpr int SMEM = 2 * KS * NT * 16;

__device__ __forceinline__ float4 ld_stream(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}
__device__ __forceinline__ void cp16(uint32_t dst, const float4* src, uint64_t pol) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "l"(pol) : "memory");
}
__device__ __forceinline__ void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void merge(float& m, float& q, float om, float oq, float half_n) {
    const float d = om - m;
    m = 0.5f * (m + om);
    q = q + oq + d * d * half_n;
}
__device__ __forceinline__ void add4(float& s, float& q, const float4& v, float shift) {
    const float a = v.x - shift, b = v.y - shift, c = v.z - shift, d = v.w - shift;
    s += (a + b) + (c + d);
    q = fmaf(a, a, q);
    q = fmaf(b, b, q);
    q = fmaf(c, c, q);
    q = fmaf(d, d, q);
}

__device__ __forceinline__ float4 ld_keep(const float4* p, uint64_t pol) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p), "l"(pol));
    return v;
}

// Mean and sum of squared deviations of this thread's K float4.
__device__ __forceinline__ void thread_stats(const float4* xs, const float4 (&xr)[KR], float& m, float& q) {
    const float shift = xr[0].x;
    float s[2] = {0.f, 0.f}, t[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < KS; ++k) add4(s[k & 1], t[k & 1], xs[k * NT], shift);
#pragma unroll
    for (int k = 0; k < KR; ++k) add4(s[k & 1], t[k & 1], xr[k], shift);
    const float sum = s[0] + s[1];
    m = sum * (1.0f / (4 * K));
    q = fmaxf(t[0] + t[1] - sum * m, 0.0f);
    m += shift;
}

// Joins the threads of the block and writes its slot. The slots of a row are read by every warp before the next use of part.
__device__ __forceinline__ void publish(float m, float q, float2* part, unsigned long long* slot) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float half_n = 2 * K;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        merge(m, q, __shfl_xor_sync(0xffffffffu, m, d), __shfl_xor_sync(0xffffffffu, q, d), half_n);
        half_n *= 2.0f;
    }
    if (lane == 0) part[warp] = make_float2(m, q);
    __syncthreads();
    if (warp == 0) {
        const float2 p = part[lane & (WARPS - 1)];
        m = p.x;
        q = p.y;
#pragma unroll
        for (int d = 1; d < WARPS; d <<= 1) {
            merge(m, q, __shfl_xor_sync(0xffffffffu, m, d), __shfl_xor_sync(0xffffffffu, q, d), half_n);
            half_n *= 2.0f;
        }
        if (lane == 0) {
            const unsigned long long w = (static_cast<unsigned long long>(__float_as_uint(q)) << 32) | __float_as_uint(m);
            asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(slot), "l"(w) : "memory");
        }
    }
}

// Every warp waits for the slots of a row and joins them.
__device__ __forceinline__ void collect(const unsigned long long* slots, float eps, float& mean, float& rstd) {
    const int lane = threadIdx.x & 31;
    // A slot is all ones until its block has written it: no sum of squares has that pattern.
    unsigned long long w[4];
    bool ready;
    do {
        ready = true;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w[i]) : "l"(slots + i * 32 + lane) : "memory");
            ready = ready && w[i] != ~0ull;
        }
    } while (!ready);
    __syncwarp();
    float m[4], q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        m[i] = __uint_as_float(static_cast<uint32_t>(w[i]));
        q[i] = __uint_as_float(static_cast<uint32_t>(w[i] >> 32));
    }
    float half_n = 2.0f * SLICE4;
    merge(m[0], q[0], m[1], q[1], half_n);
    merge(m[2], q[2], m[3], q[3], half_n);
    half_n *= 2.0f;
    merge(m[0], q[0], m[2], q[2], half_n);
    half_n *= 2.0f;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        merge(m[0], q[0], __shfl_xor_sync(0xffffffffu, m[0], d), __shfl_xor_sync(0xffffffffu, q[0], d), half_n);
        half_n *= 2.0f;
    }
    mean = m[0];
    rstd = 1.0f / sqrtf(q[0] * (1.0f / (4 * ROW4)) + eps);
}

__device__ __forceinline__ float4 normalized(const float4& v, float mean, float rstd, const float4& w, const float4& b) {
    return make_float4(fmaf((v.x - mean) * rstd, w.x, b.x), fmaf((v.y - mean) * rstd, w.y, b.y),
                       fmaf((v.z - mean) * rstd, w.z, b.z), fmaf((v.w - mean) * rstd, w.w, b.w));
}

struct Pointers {
    const float4* x;               // this thread's first place in the row that is loaded next
    const float4* b;
    float4* y;                     // and in the row that is written
    unsigned long long* slots;     // of the row that is normalized
    uint64_t once, keep;           // policies of L2
};

// Normalizes a row out of one buffer (xs, xr), refills it with the row after the next (if far), and publishes the statistics
// of the next row (if more), which is in the other buffer (os, orr).
__device__ __forceinline__ void step(Pointers& p, float4* xs, float4 (&xr)[KR], const float4* os, const float4 (&orr)[KR],
                                     const float4 (&g)[K], float2* part, bool more, bool far, float eps) {
    const uint32_t xs_a = static_cast<uint32_t>(__cvta_generic_to_shared(xs));
    float4 b[2][BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) b[0][i] = ld_keep(p.b + i * NT, p.keep);
    float mean, rstd;
    collect(p.slots, eps, mean, rstd);
    p.slots += CTAS;
#pragma unroll
    for (int c = 0; c < K / BATCH; ++c) {
        if (c + 1 < K / BATCH) {
#pragma unroll
            for (int i = 0; i < BATCH; ++i) b[(c + 1) & 1][i] = ld_keep(p.b + ((c + 1) * BATCH + i) * NT, p.keep);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int k = c * BATCH + i;
            const float4 v = k < KS ? xs[k * NT] : xr[k < KS ? 0 : k - KS];
            __stcs(p.y + k * NT, normalized(v, mean, rstd, g[k], b[c & 1][i]));
            if (far) {
                if (k < KS)
                    cp16(xs_a + k * NT * 16, p.x + k * NT, p.once);
                else
                    xr[k < KS ? 0 : k - KS] = ld_stream(p.x + k * NT);
            }
        }
        if (c == K / BATCH / 2 - 1) {
            cp_commit();
            if (more) {
                cp_wait<1>();      // everything but what was just requested: the next row is there
                float m, q;
                thread_stats(os, orr, m, q);
                publish(m, q, part, p.slots + blockIdx.x);
            }
        }
    }
    cp_commit();
    p.x += ROW4;
    p.y += ROW4;
}

__global__ void __launch_bounds__(NT, 1)
ln_rows(const float4* __restrict__ x, const float4* __restrict__ g, const float4* __restrict__ b, float4* __restrict__ y,
        unsigned long long* slots, int rows, float eps) {
    extern __shared__ __align__(128) float4 sm[];
    __shared__ float2 part[WARPS];
    const int tid = threadIdx.x;
    float4* xs0 = sm + tid;
    float4* xs1 = sm + KS * NT + tid;
    const int64_t col = static_cast<int64_t>(blockIdx.x) * SLICE4 + tid;
    Pointers p;
    p.x = x + col;
    p.b = b + col;
    p.y = y + col;
    p.slots = slots;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p.once));
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p.keep));

    float4 xr0[KR], xr1[KR], gr[K];
    const uint32_t a0 = static_cast<uint32_t>(__cvta_generic_to_shared(xs0));
    const uint32_t a1 = static_cast<uint32_t>(__cvta_generic_to_shared(xs1));
#pragma unroll
    for (int k = 0; k < KR; ++k) xr0[k] = ld_stream(p.x + (KS + k) * NT);
#pragma unroll
    for (int k = 0; k < KS; ++k) cp16(a0 + k * NT * 16, p.x + k * NT, p.once);
    cp_commit();
    p.x += ROW4;
#pragma unroll
    for (int k = 0; k < KR; ++k) xr1[k] = rows > 1 ? ld_stream(p.x + (KS + k) * NT) : make_float4(0.f, 0.f, 0.f, 0.f);
    if (rows > 1) {
#pragma unroll
        for (int k = 0; k < KS; ++k) cp16(a1 + k * NT * 16, p.x + k * NT, p.once);
    }
    cp_commit();
    p.x += ROW4;
#pragma unroll
    for (int k = 0; k < K; ++k) gr[k] = ld_stream(g + col + k * NT);

    {
        cp_wait<1>();
        float m, q;
        thread_stats(xs0, xr0, m, q);
        publish(m, q, part, p.slots + blockIdx.x);
    }
    for (int r = 0; r < rows; r += 2) {
        step(p, xs0, xr0, xs1, xr1, gr, part, r + 1 < rows, r + 2 < rows, eps);
        if (r + 1 < rows) step(p, xs1, xr1, xs0, xr0, gr, part, r + 2 < rows, r + 3 < rows, eps);
    }
}

// Rows of any other length: one block per row.
__device__ float block_sum(float v, float* buf) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    __syncthreads();
    if (lane == 0) buf[warp] = v;
    __syncthreads();
    float t = buf[lane % (NT / 32)];
#pragma unroll
    for (int d = NT / 64; d > 0; d >>= 1) t += __shfl_xor_sync(0xffffffffu, t, d);
    return t;
}
__global__ void __launch_bounds__(NT)
ln_any(const float* __restrict__ x, const float* __restrict__ g, const float* __restrict__ b, float* __restrict__ y, int64_t n,
       float eps) {
    __shared__ float buf[NT / 32];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float s = 0.f;
    for (int64_t i = threadIdx.x; i < n; i += NT) s += x[i];
    const float mean = block_sum(s, buf) / static_cast<float>(n);
    s = 0.f;
    for (int64_t i = threadIdx.x; i < n; i += NT) s = fmaf(x[i] - mean, x[i] - mean, s);
    const float rstd = 1.0f / sqrtf(block_sum(s, buf) / static_cast<float>(n) + eps);
    for (int64_t i = threadIdx.x; i < n; i += NT) y[i] = fmaf((x[i] - mean) * rstd, g[i], b[i]);
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && w.is_contiguous() && b.is_contiguous(), "contiguous tensors of the device");
    TORCH_CHECK(x.scalar_type() == torch::kFloat32 && w.scalar_type() == torch::kFloat32, "f32");
    int sms = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, x.get_device()));
    const auto addresses = reinterpret_cast<uintptr_t>(x.data_ptr()) | reinterpret_cast<uintptr_t>(w.data_ptr()) |
                           reinterpret_cast<uintptr_t>(b.data_ptr());
    if (w.numel() != 4 * ROW4 || sms < CTAS || addresses % 16 != 0) {
        const int64_t n = w.numel();
        ln_any<<<static_cast<unsigned>(x.numel() / n), NT, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, static_cast<float>(eps));
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return y;
    }
    int rows = static_cast<int>(x.numel() / (4 * ROW4));
    auto slots = torch::empty({rows, CTAS}, x.options().dtype(torch::kInt64));
    auto stream = c10::cuda::getCurrentCUDAStream();
    C10_CUDA_CHECK(cudaMemsetAsync(slots.data_ptr(), 0xff, sizeof(int64_t) * CTAS * rows, stream));
    C10_CUDA_CHECK(cudaFuncSetAttribute(ln_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
    const float4* xp = reinterpret_cast<const float4*>(x.data_ptr<float>());
    const float4* gp = reinterpret_cast<const float4*>(w.data_ptr<float>());
    const float4* bp = reinterpret_cast<const float4*>(b.data_ptr<float>());
    float4* yp = reinterpret_cast<float4*>(y.data_ptr<float>());
    unsigned long long* sp = reinterpret_cast<unsigned long long*>(slots.data_ptr());
    float e = static_cast<float>(eps);
    void* args[] = {&xp, &gp, &bp, &yp, &sp, &rows, &e};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(ln_rows), dim3(CTAS), dim3(NT), args, SMEM, stream));
    return y;
}
"""

_ext = load_inline(
    name="layer_norm_rows_v3",
    cpp_sources="torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    cuda_sources=CUDA_SRC,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        return _ext.layer_norm(x.contiguous(), self.ln.weight, self.ln.bias, self.ln.eps)
