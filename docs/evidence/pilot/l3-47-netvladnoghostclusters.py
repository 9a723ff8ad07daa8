import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <stdint.h>
#include <algorithm>

namespace {

constexpr int D = 512;        // feature size
constexpr int KC = 32;        // clusters
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int KSTEPS = D / 16;
constexpr int RING = 8;       // k steps of x in flight for each warp in pass 1
constexpr int FRAG_BYTES = KSTEPS * 4 * 32 * 16;   // packed clusters, high and low

__device__ __forceinline__ float4 ldx(const float* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

// two floats into a pair of high bf16 and a pair of low bf16
__device__ __forceinline__ void split2(float a, float b, uint32_t& hi, uint32_t& lo) {
    uint32_t h;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
    const float ra = a - __uint_as_float(h << 16);
    const float rb = b - __uint_as_float(h & 0xffff0000u);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(rb), "f"(ra));
    hi = h;
}

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Column n of the product tile j is cluster 16 (j / 2) + 4 (n / 2) + 2 (j % 2) + n % 2: so each lane holds
// four neighbouring clusters in two tiles.
__device__ __forceinline__ int cluster_of(int j, int n) {
    return 16 * (j >> 1) + 4 * (n >> 1) + 2 * (j & 1) + (n & 1);
}

// Pass 1: y = x @ clusters, and mean and sum of squared deviations of each column for each block.
__global__ void __launch_bounds__(THREADS, 2)
assign_kernel(const float* __restrict__ x, const float* __restrict__ clusters, float* __restrict__ y,
              float* __restrict__ part, int rows, int tiles) {
    extern __shared__ uint4 frag[];
    __shared__ float shift[WARPS][KC];
    __shared__ float wmean[WARPS][KC];
    __shared__ float wm2[WARPS][KC];
    __shared__ int wcount[WARPS];

    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int g = lane >> 2, t = lane & 3;

    // clusters as fragments: step s, tile j, lane: (b0, b1) high, (b0, b1) low
    for (int i = tid; i < KSTEPS * 4 * 32; i += THREADS) {
        const int l = i & 31, j = (i >> 5) & 3, s = i >> 7;
        const int c = cluster_of(j, l >> 2), d = 16 * s + 4 * (l & 3);
        uint4 f;
        split2(clusters[d * KC + c], clusters[(d + 1) * KC + c], f.x, f.z);
        split2(clusters[(d + 2) * KC + c], clusters[(d + 3) * KC + c], f.y, f.w);
        frag[i] = f;
    }
    __syncthreads();

    const int stride = gridDim.x * WARPS;
    int tile = warp * gridDim.x + blockIdx.x;
    float sum[8], sq[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) { sum[i] = 0.f; sq[i] = 0.f; }
    int count = 0;

    float4 r0[RING], r1[RING];
    const float *p0 = x, *p1 = x;
    if (tile < tiles) {
        p0 = x + (size_t)min(tile * 16 + g, rows - 1) * D + 4 * t;
        p1 = x + (size_t)min(tile * 16 + g + 8, rows - 1) * D + 4 * t;
#pragma unroll
        for (int i = 0; i < RING; ++i) {
            r0[i] = ldx(p0 + 16 * i);
            r1[i] = ldx(p1 + 16 * i);
        }
    }
    bool first = true;
    while (tile < tiles) {
        const int next = tile + stride;
        const int nt = next < tiles ? next : tile;
        const float* n0 = x + (size_t)min(nt * 16 + g, rows - 1) * D + 4 * t;
        const float* n1 = x + (size_t)min(nt * 16 + g + 8, rows - 1) * D + 4 * t;
        float acc[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) acc[j][i] = 0.f;

#pragma unroll 1
        for (int s0 = 0; s0 < KSTEPS; s0 += RING) {
            const bool last = s0 + RING >= KSTEPS;
            const float* q0 = last ? n0 : p0 + 16 * (s0 + RING);
            const float* q1 = last ? n1 : p1 + 16 * (s0 + RING);
#pragma unroll
            for (int i = 0; i < RING; ++i) {
                uint32_t ah[4], al[4];
                split2(r0[i].x, r0[i].y, ah[0], al[0]);
                split2(r1[i].x, r1[i].y, ah[1], al[1]);
                split2(r0[i].z, r0[i].w, ah[2], al[2]);
                split2(r1[i].z, r1[i].w, ah[3], al[3]);
                r0[i] = ldx(q0 + 16 * i);
                r1[i] = ldx(q1 + 16 * i);
                const uint4* fp = frag + (s0 + i) * 128 + lane;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const uint4 f = fp[j * 32];
                    mma(acc[j], ah, f.z, f.w);
                    mma(acc[j], al, f.x, f.y);
                    mma(acc[j], ah, f.x, f.y);
                }
            }
        }
        // acc[2 jj][2 h], acc[2 jj][2 h + 1], acc[2 jj + 1][2 h], acc[2 jj + 1][2 h + 1]: row g + 8 h, clusters 16 jj + 4 t ...
        if (first) {
            if (g == 0) {
#pragma unroll
                for (int jj = 0; jj < 2; ++jj)
                    *reinterpret_cast<float4*>(&shift[warp][16 * jj + 4 * t]) =
                        make_float4(acc[2 * jj][0], acc[2 * jj][1], acc[2 * jj + 1][0], acc[2 * jj + 1][1]);
            }
            __syncwarp();
            first = false;
        }
#pragma unroll
        for (int jj = 0; jj < 2; ++jj) {
            const float4 sh = *reinterpret_cast<const float4*>(&shift[warp][16 * jj + 4 * t]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = tile * 16 + g + 8 * h;
                if (row < rows) {
                    const float4 v = make_float4(acc[2 * jj][2 * h], acc[2 * jj][2 * h + 1],
                                                 acc[2 * jj + 1][2 * h], acc[2 * jj + 1][2 * h + 1]);
                    *reinterpret_cast<float4*>(y + (size_t)row * KC + 16 * jj + 4 * t) = v;
                    const float e0 = v.x - sh.x, e1 = v.y - sh.y, e2 = v.z - sh.z, e3 = v.w - sh.w;
                    sum[4 * jj + 0] += e0; sq[4 * jj + 0] += e0 * e0;
                    sum[4 * jj + 1] += e1; sq[4 * jj + 1] += e1 * e1;
                    sum[4 * jj + 2] += e2; sq[4 * jj + 2] += e2 * e2;
                    sum[4 * jj + 3] += e3; sq[4 * jj + 3] += e3 * e3;
                }
            }
        }
        count += min(16, rows - tile * 16);
        tile = next;
        p0 = n0;
        p1 = n1;
    }

#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int o = 4; o < 32; o <<= 1) {
            sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], o);
            sq[i] += __shfl_xor_sync(0xffffffffu, sq[i], o);
        }
    }
    if (g == 0) {
        const float inv = count > 0 ? 1.f / (float)count : 0.f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int c = 16 * (i >> 2) + 4 * t + (i & 3);
            const float m = sum[i] * inv;
            wmean[warp][c] = count > 0 ? shift[warp][c] + m : 0.f;
            wm2[warp][c] = count > 0 ? fmaxf(sq[i] - sum[i] * m, 0.f) : 0.f;
        }
        if (t == 0) wcount[warp] = count;
    }
    __syncthreads();
    if (tid < KC) {
        float n = 0.f, m = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            n += (float)wcount[w];
            m += (float)wcount[w] * wmean[w][tid];
        }
        m = n > 0.f ? m / n : 0.f;
        float m2 = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float e = wmean[w][tid] - m;
            m2 += wm2[w][tid] + (float)wcount[w] * e * e;
        }
        float* o = part + (size_t)blockIdx.x * (3 * KC);
        o[tid] = n;
        o[KC + tid] = m;
        o[2 * KC + tid] = m2;
    }
}

// The statistics of the whole batch: scale and shift of the normalization.
__global__ void __launch_bounds__(1024)
stats_kernel(const float* __restrict__ part, int blocks, const float* __restrict__ weight,
             const float* __restrict__ bias, float eps, double rows, float* __restrict__ scale_shift) {
    __shared__ double red[32][33];
    const int c = threadIdx.x & 31, p = threadIdx.x >> 5;
    double a = 0.0;
    for (int b = p; b < blocks; b += 32) {
        const float* o = part + (size_t)b * (3 * KC);
        a += (double)o[c] * (double)o[KC + c];
    }
    red[p][c] = a;
    __syncthreads();
    double mean = 0.0;
#pragma unroll
    for (int i = 0; i < 32; ++i) mean += red[i][c];
    mean /= rows;
    __syncthreads();
    a = 0.0;
    for (int b = p; b < blocks; b += 32) {
        const float* o = part + (size_t)b * (3 * KC);
        const double e = (double)o[KC + c] - mean;
        a += (double)o[2 * KC + c] + (double)o[c] * e * e;
    }
    red[p][c] = a;
    __syncthreads();
    if (p == 0) {
        double m2 = 0.0;
#pragma unroll
        for (int i = 0; i < 32; ++i) m2 += red[i][c];
        const double sc = (double)weight[c] / sqrt(m2 / rows + (double)eps);
        scale_shift[c] = (float)sc;
        scale_shift[KC + c] = (float)((double)bias[c] - mean * sc);
    }
}

// Pass 2: one block a sample. Dynamic shared memory: assignments as fragments.
__global__ void __launch_bounds__(THREADS, 2)
vlad_kernel(const float* __restrict__ x, const float* __restrict__ y, const float* __restrict__ scale_shift,
            const float* __restrict__ clusters2, float* __restrict__ out, int n_feat, int steps) {
    extern __shared__ uint4 frag[];
    __shared__ float asum_w[WARPS][KC];
    __shared__ float asum[KC];
    __shared__ float ssq[WARPS][KC];

    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int g = lane >> 2, t = lane & 3;
    // the last samples first: their rows may still lie in L2 from pass 1
    const int b = gridDim.x - 1 - blockIdx.x;
    const float* xb = x + (size_t)b * n_feat * D;
    const float* px = xb + 64 * warp + 4 * g;

    // item (step s, group gr): rows 16 s + t + 4 q, columns 64 warp + 32 gr + 4 g ... + 3
    float4 buf[2][4];
#pragma unroll
    for (int gr = 0; gr < 2; ++gr)
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const int r = t + 4 * q;
            buf[gr][q] = r < n_feat ? ldx(px + (size_t)r * D + 32 * gr) : make_float4(0.f, 0.f, 0.f, 0.f);
        }

    {
        const int cg = tid & 7;
        const float4 sc = *reinterpret_cast<const float4*>(scale_shift + 4 * cg);
        const float4 sh = *reinterpret_cast<const float4*>(scale_shift + KC + 4 * cg);
        const float* yb = y + (size_t)b * n_feat * KC + 4 * cg;
        __nv_bfloat16* fb = reinterpret_cast<__nv_bfloat16*>(frag);
        const int rows_padded = steps * 16;
        float s0 = 0.f, s1 = 0.f, s2 = 0.f, s3 = 0.f;
#pragma unroll 4
        for (int r = tid >> 3; r < rows_padded; r += THREADS / 8) {
            // rows_padded is a multiple of 16: the 4 rows of a warp are inside or outside together
            float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
            if (r < n_feat) v = *reinterpret_cast<const float4*>(yb + (size_t)r * KC);
            v.x = fmaf(v.x, sc.x, sh.x);
            v.y = fmaf(v.y, sc.y, sh.y);
            v.z = fmaf(v.z, sc.z, sh.z);
            v.w = fmaf(v.w, sc.w, sh.w);
            float m = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
#pragma unroll
            for (int o = 1; o < 8; o <<= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
            v.x = __expf(v.x - m);
            v.y = __expf(v.y - m);
            v.z = __expf(v.z - m);
            v.w = __expf(v.w - m);
            float sum = (v.x + v.y) + (v.z + v.w);
#pragma unroll
            for (int o = 1; o < 8; o <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
            const float inv = r < n_feat ? 1.f / sum : 0.f;
            float a[4] = {v.x * inv, v.y * inv, v.z * inv, v.w * inv};
            s0 += a[0]; s1 += a[1]; s2 += a[2]; s3 += a[3];
            const int s = r >> 4, rr = r & 15;
            const int tt = rr & 3, q = rr >> 2;
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const int j = 2 * (cg >> 2) + (u >> 1), n = 2 * (cg & 3) + (u & 1);
                const int idx = ((s * 4 + j) * 32 + n * 4 + tt) * 8 + q;
                const __nv_bfloat16 hi = __float2bfloat16_rn(a[u]);
                fb[idx] = hi;
                fb[idx + 4] = __float2bfloat16_rn(a[u] - __bfloat162float(hi));
            }
        }
#pragma unroll
        for (int o = 8; o < 32; o <<= 1) {
            s0 += __shfl_xor_sync(0xffffffffu, s0, o);
            s1 += __shfl_xor_sync(0xffffffffu, s1, o);
            s2 += __shfl_xor_sync(0xffffffffu, s2, o);
            s3 += __shfl_xor_sync(0xffffffffu, s3, o);
        }
        if (lane < 8) *reinterpret_cast<float4*>(&asum_w[warp][4 * lane]) = make_float4(s0, s1, s2, s3);
    }
    __syncthreads();
    if (tid < KC) {
        float s = 0.f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) s += asum_w[w][tid];
        asum[tid] = s;
    }

    float acc[2][2][4][4];
#pragma unroll
    for (int gr = 0; gr < 2; ++gr)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) acc[gr][m][j][i] = 0.f;

#pragma unroll 1
    for (int s = 0; s < steps; ++s) {
        const float* nx = px + (size_t)(16 * (s + 1)) * D;
        const int left = n_feat - 16 * (s + 1);
#pragma unroll
        for (int gr = 0; gr < 2; ++gr) {
            uint32_t ah[2][4], al[2][4];
            float4 (&v)[4] = buf[gr];
            split2(v[0].x, v[1].x, ah[0][0], al[0][0]);
            split2(v[0].y, v[1].y, ah[0][1], al[0][1]);
            split2(v[2].x, v[3].x, ah[0][2], al[0][2]);
            split2(v[2].y, v[3].y, ah[0][3], al[0][3]);
            split2(v[0].z, v[1].z, ah[1][0], al[1][0]);
            split2(v[0].w, v[1].w, ah[1][1], al[1][1]);
            split2(v[2].z, v[3].z, ah[1][2], al[1][2]);
            split2(v[2].w, v[3].w, ah[1][3], al[1][3]);
#pragma unroll
            for (int q = 0; q < 4; ++q) {
                const int r = t + 4 * q;
                v[q] = r < left ? ldx(nx + (size_t)r * D + 32 * gr) : make_float4(0.f, 0.f, 0.f, 0.f);
            }
            const uint4* fp = frag + s * 128 + lane;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint4 f = fp[j * 32];
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    mma(acc[gr][m][j], ah[m], f.z, f.w);
                    mma(acc[gr][m][j], al[m], f.x, f.y);
                    mma(acc[gr][m][j], ah[m], f.x, f.y);
                }
            }
        }
    }
    __syncthreads();

    // acc[gr][m][2 jj + u / 2][2 h + u % 2]: feature 64 warp + 32 gr + 4 g + 2 m + h, cluster 16 jj + 4 t + u
    float ss[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) ss[i] = 0.f;
#pragma unroll
    for (int jj = 0; jj < 2; ++jj) {
        const float4 as = *reinterpret_cast<const float4*>(&asum[16 * jj + 4 * t]);
#pragma unroll
        for (int gr = 0; gr < 2; ++gr)
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int d = 64 * warp + 32 * gr + 4 * g + 2 * m + h;
                    const float4 c2 = __ldg(reinterpret_cast<const float4*>(clusters2 + d * KC + 16 * jj + 4 * t));
                    float& v0 = acc[gr][m][2 * jj][2 * h];
                    float& v1 = acc[gr][m][2 * jj][2 * h + 1];
                    float& v2 = acc[gr][m][2 * jj + 1][2 * h];
                    float& v3 = acc[gr][m][2 * jj + 1][2 * h + 1];
                    v0 = fmaf(-as.x, c2.x, v0);
                    v1 = fmaf(-as.y, c2.y, v1);
                    v2 = fmaf(-as.z, c2.z, v2);
                    v3 = fmaf(-as.w, c2.w, v3);
                    ss[4 * jj + 0] = fmaf(v0, v0, ss[4 * jj + 0]);
                    ss[4 * jj + 1] = fmaf(v1, v1, ss[4 * jj + 1]);
                    ss[4 * jj + 2] = fmaf(v2, v2, ss[4 * jj + 2]);
                    ss[4 * jj + 3] = fmaf(v3, v3, ss[4 * jj + 3]);
                }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int o = 4; o < 32; o <<= 1) ss[i] += __shfl_xor_sync(0xffffffffu, ss[i], o);
    if (g == 0) {
        *reinterpret_cast<float4*>(&ssq[warp][4 * t]) = make_float4(ss[0], ss[1], ss[2], ss[3]);
        *reinterpret_cast<float4*>(&ssq[warp][16 + 4 * t]) = make_float4(ss[4], ss[5], ss[6], ss[7]);
    }
    __syncthreads();
    float total = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += ssq[w][lane];
    const float inv = 1.f / fmaxf(sqrtf(total), 1e-12f);
    float all = total * inv * inv;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) all += __shfl_xor_sync(0xffffffffu, all, o);
    const float factor = inv / fmaxf(sqrtf(all), 1e-12f);

    float* ob = out + (size_t)b * (D * KC);
#pragma unroll
    for (int jj = 0; jj < 2; ++jj) {
        const float f0 = __shfl_sync(0xffffffffu, factor, 16 * jj + 4 * t + 0);
        const float f1 = __shfl_sync(0xffffffffu, factor, 16 * jj + 4 * t + 1);
        const float f2 = __shfl_sync(0xffffffffu, factor, 16 * jj + 4 * t + 2);
        const float f3 = __shfl_sync(0xffffffffu, factor, 16 * jj + 4 * t + 3);
#pragma unroll
        for (int gr = 0; gr < 2; ++gr)
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int d = 64 * warp + 32 * gr + 4 * g + 2 * m + h;
                    __stcs(reinterpret_cast<float4*>(ob + d * KC + 16 * jj + 4 * t),
                           make_float4(acc[gr][m][2 * jj][2 * h] * f0, acc[gr][m][2 * jj][2 * h + 1] * f1,
                                       acc[gr][m][2 * jj + 1][2 * h] * f2, acc[gr][m][2 * jj + 1][2 * h + 1] * f3));
                }
    }
}

}  // namespace

torch::Tensor netvlad(torch::Tensor x, torch::Tensor clusters, torch::Tensor clusters2, torch::Tensor weight,
                      torch::Tensor bias, double eps, torch::Tensor fixed_scale_shift, bool training) {
    const c10::cuda::CUDAGuard guard(x.device());
    auto stream = at::cuda::getCurrentCUDAStream();
    const int batch = (int)x.size(0), n_feat = (int)x.size(1);
    const int rows = batch * n_feat;
    auto out = torch::empty({batch, D * KC}, x.options());
    if (batch == 0) return out;
    TORCH_CHECK(x.size(2) == D && clusters.size(0) == D && clusters.size(1) == KC, "sizes not supported");
    const int tiles = (rows + 15) / 16;
    const int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int blocks = std::max(1, std::min(2 * sms, (tiles + WARPS - 1) / WARPS));
    auto y = torch::empty({rows, KC}, x.options());
    auto part = torch::empty({blocks, 3 * KC}, x.options());
    auto scale_shift = training ? torch::empty({2 * KC}, x.options()) : fixed_scale_shift;
    const float* xp = x.data_ptr<float>();

    C10_CUDA_CHECK(cudaFuncSetAttribute(assign_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, FRAG_BYTES));
    assign_kernel<<<blocks, THREADS, FRAG_BYTES, stream>>>(xp, clusters.data_ptr<float>(), y.data_ptr<float>(),
                                                           part.data_ptr<float>(), rows, tiles);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (training) {
        stats_kernel<<<1, 1024, 0, stream>>>(part.data_ptr<float>(), blocks, weight.data_ptr<float>(),
                                             bias.data_ptr<float>(), (float)eps, (double)rows,
                                             scale_shift.data_ptr<float>());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    const int steps = (n_feat + 15) / 16;
    const int bytes = steps * 4 * 32 * 16;
    C10_CUDA_CHECK(cudaFuncSetAttribute(vlad_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 224 * 1024));
    vlad_kernel<<<batch, THREADS, bytes, stream>>>(xp, y.data_ptr<float>(), scale_shift.data_ptr<float>(),
                                                   clusters2.data_ptr<float>(), out.data_ptr<float>(), n_feat, steps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

CPP_SRC = """
#include <torch/extension.h>
torch::Tensor netvlad(torch::Tensor x, torch::Tensor clusters, torch::Tensor clusters2, torch::Tensor weight,
                      torch::Tensor bias, double eps, torch::Tensor fixed_scale_shift, bool training);
"""

_ext = load_inline(
    name="netvlad_two_pass",
    cpp_sources=CPP_SRC,
    cuda_sources=CUDA_SRC,
    functions=["netvlad"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, cluster_size, feature_size, ghost_clusters):
        super().__init__()
        self.feature_size = feature_size
        self.cluster_size = cluster_size
        self.ghost_clusters = ghost_clusters
        init_sc = 1 / (feature_size ** 0.5)
        clusters = cluster_size + ghost_clusters
        self.clusters = nn.Parameter(init_sc * torch.randn(feature_size, clusters))
        self.batch_norm = nn.BatchNorm1d(clusters)
        self.clusters2 = nn.Parameter(init_sc * torch.randn(1, feature_size, cluster_size))
        self.out_dim = self.cluster_size * feature_size

    def forward(self, x, mask=None):
        if x.device != self.clusters.device:
            raise ValueError(f"x.device {x.device} != cluster.device {self.clusters.device}")
        bn = self.batch_norm
        if self.training:
            fixed = bn.weight
        else:
            scale = bn.weight / torch.sqrt(bn.running_var + bn.eps)
            fixed = torch.cat([scale, bn.bias - bn.running_mean * scale])
        return _ext.netvlad(
            x.contiguous(),
            self.clusters.contiguous(),
            self.clusters2.contiguous(),
            bn.weight,
            bn.bias,
            bn.eps,
            fixed,
            self.training,
        )
