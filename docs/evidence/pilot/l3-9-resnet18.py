import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

# The network is small work in many steps: launches and pauses take the time. In training mode all of it runs as one
# cooperative kernel with barriers of the grid between the steps; batch statistics come from the call's own values.

CUDA_SRC = r"""#include <torch/types.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// The whole network in one cooperative kernel. Activations are NHWC; what a convolution reads is fp16 (10 mantissa bits, as
// TF32 has), what it makes is f32. Convolutions are implicit products of tiles 64 pixels x 64 channels, split along K where
// that fills the device; all slices of a unit (at most 9 of 64) are in flight at once.
constexpr int THREADS = 256;
constexpr int MAXBLK = 9;
constexpr int TILE_BYTES = 64 * 128;
constexpr int SMEM_BYTES = 2 * MAXBLK * TILE_BYTES;

struct Conv {
    const __half* in;       // [N][H][W][IC]; the first: padded [N][H+6][Wp][4]
    const __half* w;        // [OC][K]
    float* y;               // [M][OC]
    float* stats;           // [sum OC][sum of squares OC], or null: the sums are made where y is read
    const float* gamma;
    const float* beta;
    int H, W, IC, lic, OW, OHW, OC, ks, stride, pad, M, nt, nblk, bps, splits, units;
    float eps;
};
struct Params {
    Conv c[20];
    const float* x;
    __half* xpad;
    float* zero;            // to be zeroed: results of split products
    __half* act[2];
    float* z;
    float* feat;
    const float* fcw;
    const float* fcb;
    float* out;
    unsigned* barrier;
    long long zero_vec;     // in float4
    int N, H, W, Hp, Wp, PH, PW, classes;
    int OH0, OW0;
    signed char c1[8], c2[8], ds[8];
};

__device__ __forceinline__ uint32_t smem_addr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void cp16(uint32_t dst, const void* src, bool ok) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(ok ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void ldsm4(uint32_t (&r)[4], uint32_t addr) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Release and acquire by one thread between barriers of the block order all writes before against the reads after, which
// go past L1 (cp.async.cg and __ldcg).
__device__ __forceinline__ void grid_sync(unsigned* c, unsigned& target) {
    target += gridDim.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned v;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(c) : "memory");
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(c) : "memory");
        } while (v < target);
    }
    __syncthreads();
}

// Unit u of a convolution: tile and slice of K
__device__ __forceinline__ void unit_of(const Conv& c, int u, int& m0, int& n0, int& kb0, int& kb1) {
    const int split = u % c.splits, tile = u / c.splits;
    n0 = tile % c.nt * 64;
    m0 = tile / c.nt * 64;
    kb0 = split * c.bps;
    kb1 = min(kb0 + c.bps, c.nblk);
}

// Weights of a unit, which do not depend on what the grid still computes. One group of copies.
__device__ __forceinline__ void load_b(const Conv& c, int u, uint32_t smem) {
    int m0, n0, kb0, kb1;
    unit_of(c, u, m0, n0, kb0, kb1);
    const int ch = threadIdx.x % 8, row = threadIdx.x / 8, K = c.nblk * 64;
    const __half* src = c.w + (size_t)(n0 + row) * K + kb0 * 64 + ch * 8;
    uint32_t dst = smem + MAXBLK * TILE_BYTES + row * 128 + ((ch ^ (row & 7)) * 16);
    for (int b = kb0; b < kb1; b++) {
        cp16(dst, src, true);
        cp16(dst + 32 * 128, src + (size_t)32 * K, true);
        src += 64;
        dst += TILE_BYTES;
    }
    cp_commit();
}

__device__ __forceinline__ void load_a(const Conv& c, int m0, int kb0, int kb1, uint32_t smem, const Params& p) {
    const int ch = threadIdx.x % 8, row = threadIdx.x / 8;
    int iy0[2], ix0[2], at[2];
    const __half* base[2];
    bool in_m[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int m = m0 + row + i * 32;
        in_m[i] = m < c.M;
        const int mm = in_m[i] ? m : 0;
        const int n = mm / c.OHW, r = mm - n * c.OHW, oy = r / c.OW, ox = r - oy * c.OW;
        iy0[i] = oy * c.stride - c.pad;
        ix0[i] = ox * c.stride - c.pad;
        base[i] = c.in + (size_t)n * c.H * c.W * c.IC;
        at[i] = ((iy0[i] * c.W + ix0[i]) << c.lic) + (c.ks == 7 ? (ch / 4 * c.W * 4 + ch % 4 * 8) : ch * 8);
    }
    const uint32_t dst0 = smem + row * 128 + ((ch ^ (row & 7)) * 16);
    const int mask = (1 << c.lic) - 1;
#pragma unroll
    for (int j = 0; j < MAXBLK; j++) {
        const int kb = kb0 + j;
        if (kb < kb1) {
            if (c.ks == 7) {        // padded input of 4 channels: a row of taps is 32 neighbours, a slice is two rows
                const bool row7 = kb * 2 + ch / 4 < 7;
                const int off = row7 ? kb * 2 * c.W * 4 : 0;
#pragma unroll
                for (int i = 0; i < 2; i++) cp16(dst0 + j * TILE_BYTES + i * 32 * 128, base[i] + at[i] + off, in_m[i] && row7);
            } else {
                const int k = kb * 64, tap = k >> c.lic, ty = (tap * 11) >> 5, tx = tap - ty * 3;      // tap / 3, up to 8
                const int off = ((ty * c.W + tx) << c.lic) + (k & mask);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const bool ok = in_m[i] && (unsigned)(iy0[i] + ty) < (unsigned)c.H && (unsigned)(ix0[i] + tx) < (unsigned)c.W;
                    cp16(dst0 + j * TILE_BYTES + i * 32 * 128, base[i] + (ok ? at[i] + off : 0), ok);
                }
            }
        }
        cp_commit();
    }
}

template <int J>
__device__ __forceinline__ void compute_block(float (&acc)[4][4], uint32_t smem, int nb) {
    if (J < nb) {       // the same for all threads
        cp_wait<MAXBLK - 1 - J>();
        __syncthreads();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int am = (warp & 3) * 16 + lane % 16, bn = (warp >> 2) * 32 + (lane & 7) + (lane >> 4) * 8;
        const uint32_t a = smem + J * TILE_BYTES, b = smem + (MAXBLK + J) * TILE_BYTES;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t fa[4], fb[2][4];
            ldsm4(fa, a + am * 128 + (((k * 2 + lane / 16) ^ (am & 7)) * 16));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int n = bn + h * 16;
                ldsm4(fb[h], b + n * 128 + (((k * 2 + ((lane >> 3) & 1)) ^ (n & 7)) * 16));
            }
#pragma unroll
            for (int t = 0; t < 4; t++) mma(acc[t], fa, fb[t / 2][(t & 1) * 2], fb[t / 2][(t & 1) * 2 + 1]);
        }
    }
}

__device__ __forceinline__ void conv_unit(const Conv& c, int u, bool have_b, uint32_t smem, float* red, const Params& p) {
    int m0, n0, kb0, kb1;
    unit_of(c, u, m0, n0, kb0, kb1);
    if (!have_b) {
        __syncthreads();
        load_b(c, u, smem);
    }
    load_a(c, m0, kb0, kb1, smem, p);
    if (c.stats && threadIdx.x < 128) red[threadIdx.x] = 0.f;
    float acc[4][4];
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) acc[t][e] = 0.f;
    const int nb = kb1 - kb0;
    compute_block<0>(acc, smem, nb);
    compute_block<1>(acc, smem, nb);
    compute_block<2>(acc, smem, nb);
    compute_block<3>(acc, smem, nb);
    compute_block<4>(acc, smem, nb);
    compute_block<5>(acc, smem, nb);
    compute_block<6>(acc, smem, nb);
    compute_block<7>(acc, smem, nb);
    compute_block<8>(acc, smem, nb);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m = m0 + (warp & 3) * 16 + lane / 4, nl = (warp >> 2) * 32 + (lane & 3) * 2;
    float* y = c.y + (size_t)m * c.OC + n0 + nl;
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (m + h * 8 < c.M) {
                float* d = y + (size_t)h * 8 * c.OC + t * 8;
                if (c.splits == 1)
                    *reinterpret_cast<float2*>(d) = make_float2(acc[t][h * 2], acc[t][h * 2 + 1]);
                else
                    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(d), "f"(acc[t][h * 2]),
                                 "f"(acc[t][h * 2 + 1]) : "memory");
            }
    if (c.stats) {      // rows beyond M are zero
#pragma unroll
        for (int t = 0; t < 4; t++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float s = acc[t][e] + acc[t][2 + e], q = acc[t][e] * acc[t][e] + acc[t][2 + e] * acc[t][2 + e];
#pragma unroll
                for (int o = 4; o < 32; o <<= 1) {
                    s += __shfl_xor_sync(~0u, s, o);
                    q += __shfl_xor_sync(~0u, q, o);
                }
                if (lane < 4) {
                    atomicAdd(red + nl + t * 8 + e, s);
                    atomicAdd(red + 64 + nl + t * 8 + e, q);
                }
            }
        __syncthreads();
        if (threadIdx.x < 128) atomicAdd(c.stats + (threadIdx.x / 64) * c.OC + n0 + threadIdx.x % 64, red[threadIdx.x]);
    }
}

// The units of one or two convolutions that read the same input
__device__ __forceinline__ void conv_phase(const Conv& a, const Conv* b, uint32_t smem, float* red, const Params& p) {
    const int all = a.units + (b ? b->units : 0);
    bool have_b = true;
    for (int u = blockIdx.x; u < all; u += gridDim.x) {
        if (u < a.units) conv_unit(a, u, have_b, smem, red, p);
        else conv_unit(*b, u - a.units, have_b, smem, red, p);
        have_b = false;
    }
}
__device__ __forceinline__ void prefetch_b(const Conv& a, const Conv* b, uint32_t smem) {
    const int u = blockIdx.x;
    if (u < a.units) load_b(a, u, smem);
    else if (b && u < a.units + b->units) load_b(*b, u - a.units, smem);
}

__device__ __forceinline__ void scale_shift(float sum, float sq, int M, float gamma, float beta, float eps, float& a, float& b) {
    const float mean = sum / M, var = fmaxf(sq / M - mean * mean, 0.f);
    a = gamma * rsqrtf(var + eps);
    b = beta - mean * a;
}
__device__ __forceinline__ void scale_shift4(const Conv& c, int ch, float (&a)[4], float (&b)[4]) {
    const float4 s = __ldcg(reinterpret_cast<const float4*>(c.stats + ch));
    const float4 q = __ldcg(reinterpret_cast<const float4*>(c.stats + c.OC + ch));
    const float4 g = __ldg(reinterpret_cast<const float4*>(c.gamma + ch));
    const float4 e = __ldg(reinterpret_cast<const float4*>(c.beta + ch));
    scale_shift(s.x, q.x, c.M, g.x, e.x, c.eps, a[0], b[0]);
    scale_shift(s.y, q.y, c.M, g.y, e.y, c.eps, a[1], b[1]);
    scale_shift(s.z, q.z, c.M, g.z, e.z, c.eps, a[2], b[2]);
    scale_shift(s.w, q.w, c.M, g.w, e.w, c.eps, a[3], b[3]);
}
__device__ __forceinline__ void store_half4(__half* d, float x, float y, float z, float w) {
    const __half2 h0 = __floats2half2_rn(x, y), h1 = __floats2half2_rn(z, w);
    uint2 u;
    u.x = *reinterpret_cast<const uint32_t*>(&h0);
    u.y = *reinterpret_cast<const uint32_t*>(&h1);
    *reinterpret_cast<uint2*>(d) = u;
}

// Normalization with known sums, elementwise; OC is a multiple of 4.
__device__ __forceinline__ void apply_known(const Conv& c, bool block_end, __half* act, float* z) {
    const int per = c.OC / 4, items = c.M * per;      // per divides the number of threads
    const int tid = blockIdx.x * THREADS + threadIdx.x;
    float a[4], b[4];
    scale_shift4(c, tid % per * 4, a, b);
    for (int i = tid; i < items; i += gridDim.x * THREADS) {
        const float4 v = __ldcg(reinterpret_cast<const float4*>(c.y) + i);
        float4 r = make_float4(fmaf(v.x, a[0], b[0]), fmaf(v.y, a[1], b[1]), fmaf(v.z, a[2], b[2]), fmaf(v.w, a[3], b[3]));
        if (block_end) {
            const float4 id = __ldcg(reinterpret_cast<const float4*>(z) + i);
            r.x += id.x; r.y += id.y; r.z += id.z; r.w += id.w;
        }
        r.x = fmaxf(r.x, 0.f); r.y = fmaxf(r.y, 0.f); r.z = fmaxf(r.z, 0.f); r.w = fmaxf(r.w, 0.f);
        if (block_end) reinterpret_cast<float4*>(z)[i] = r;
        store_half4(act + (size_t)i * 4, r.x, r.y, r.z, r.w);
    }
}

template <bool BLOCK>
__device__ __forceinline__ void group_sum(float (&v)[4], float* red) {
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) v[e] += __shfl_xor_sync(~0u, v[e], o);
    if (BLOCK) {
        __syncthreads();
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int e = 0; e < 4; e++) red[(threadIdx.x / 32) * 4 + e] = v[e];
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[e] = 0.f;
#pragma unroll
            for (int w = 0; w < THREADS / 32; w++) v[e] += red[w * 4 + e];
        }
    }
}

// Sums and normalization of two channels at a time by a warp or a block. d: the convolution beside the block, or null.
template <bool BLOCK>
__device__ __forceinline__ void apply_owner(const Conv& c, const Conv* d, bool block_end, __half* act, float* z, float* feat,
                                            int N, float* red) {
    const int G = BLOCK ? THREADS : 32;
    const int t = BLOCK ? threadIdx.x : threadIdx.x % 32;
    const int first = BLOCK ? blockIdx.x : blockIdx.x + gridDim.x * (threadIdx.x / 32);
    const int step = BLOCK ? gridDim.x : gridDim.x * (THREADS / 32);
    for (int g = first; g < c.OC / 2; g += step) {
        const int ch = g * 2;
        float s[4] = {0.f, 0.f, 0.f, 0.f}, a0, b0, a1, b1, da0 = 0.f, db0 = 0.f, da1 = 0.f, db1 = 0.f;
#pragma unroll 4
        for (int m = t; m < c.M; m += G) {
            const float2 v = __ldcg(reinterpret_cast<const float2*>(c.y + (size_t)m * c.OC + ch));
            s[0] += v.x; s[1] += v.y;
            s[2] = fmaf(v.x, v.x, s[2]); s[3] = fmaf(v.y, v.y, s[3]);
        }
        group_sum<BLOCK>(s, red);
        scale_shift(s[0], s[2], c.M, c.gamma[ch], c.beta[ch], c.eps, a0, b0);
        scale_shift(s[1], s[3], c.M, c.gamma[ch + 1], c.beta[ch + 1], c.eps, a1, b1);
        if (d) {
            s[0] = s[1] = s[2] = s[3] = 0.f;
#pragma unroll 4
            for (int m = t; m < d->M; m += G) {
                const float2 v = __ldcg(reinterpret_cast<const float2*>(d->y + (size_t)m * d->OC + ch));
                s[0] += v.x; s[1] += v.y;
                s[2] = fmaf(v.x, v.x, s[2]); s[3] = fmaf(v.y, v.y, s[3]);
            }
            group_sum<BLOCK>(s, red);
            scale_shift(s[0], s[2], d->M, d->gamma[ch], d->beta[ch], d->eps, da0, db0);
            scale_shift(s[1], s[3], d->M, d->gamma[ch + 1], d->beta[ch + 1], d->eps, da1, db1);
        }
        const int images = feat ? N : 1, per = feat ? c.OHW : c.M;
        for (int n = 0; n < images; n++) {
            float f[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 4
            for (int i = t; i < per; i += G) {
                const size_t o = (size_t)(n * per + i) * c.OC + ch;
                const float2 v = __ldcg(reinterpret_cast<const float2*>(c.y + o));
                float x = fmaf(v.x, a0, b0), y = fmaf(v.y, a1, b1);
                if (block_end) {
                    if (d) {
                        const float2 w = __ldcg(reinterpret_cast<const float2*>(d->y + o));
                        x += fmaf(w.x, da0, db0);
                        y += fmaf(w.y, da1, db1);
                    } else {
                        const float2 w = __ldcg(reinterpret_cast<const float2*>(z + o));
                        x += w.x;
                        y += w.y;
                    }
                }
                x = fmaxf(x, 0.f);
                y = fmaxf(y, 0.f);
                if (feat) {
                    f[0] += x;
                    f[1] += y;
                } else {
                    if (block_end) *reinterpret_cast<float2*>(z + o) = make_float2(x, y);
                    *reinterpret_cast<__half2*>(act + o) = __floats2half2_rn(x, y);
                }
            }
            if (feat) {
                group_sum<BLOCK>(f, red);
                if (t == 0) *reinterpret_cast<float2*>(feat + (size_t)n * c.OC + ch) = make_float2(f[0] / per, f[1] / per);
            }
        }
    }
}

// The same where a group of threads can keep its values: at most R pixels for each thread. Everything that is read is
// asked for before the sums are reduced.
template <bool BLOCK, int R>
__device__ __forceinline__ void apply_kept(const Conv& c, const Conv* d, bool block_end, __half* act, float* z, float* feat,
                                           int N, float* red) {
    const int G = BLOCK ? THREADS : 32;
    const int t = BLOCK ? threadIdx.x : threadIdx.x % 32;
    const int first = BLOCK ? blockIdx.x : blockIdx.x + gridDim.x * (threadIdx.x / 32);
    const int step = BLOCK ? gridDim.x : gridDim.x * (THREADS / 32);
    const float* side = d ? d->y : z;
    for (int g = first; g < c.OC / 2; g += step) {
        const int ch = g * 2;
        float2 v[R], w[R], dg = {0.f, 0.f}, db = {0.f, 0.f};
        const float2 cg = __ldg(reinterpret_cast<const float2*>(c.gamma + ch));
        const float2 cb = __ldg(reinterpret_cast<const float2*>(c.beta + ch));
        if (d) {
            dg = __ldg(reinterpret_cast<const float2*>(d->gamma + ch));
            db = __ldg(reinterpret_cast<const float2*>(d->beta + ch));
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int m = t + r * G;
            v[r] = w[r] = make_float2(0.f, 0.f);
            if (m < c.M) {
                v[r] = __ldcg(reinterpret_cast<const float2*>(c.y + m * c.OC + ch));
                if (block_end) w[r] = __ldcg(reinterpret_cast<const float2*>(side + m * c.OC + ch));
            }
        }
        float s[4] = {0.f, 0.f, 0.f, 0.f}, a0, b0, a1, b1, da0 = 1.f, db0 = 0.f, da1 = 1.f, db1 = 0.f;
#pragma unroll
        for (int r = 0; r < R; r++) {
            s[0] += v[r].x; s[1] += v[r].y;
            s[2] = fmaf(v[r].x, v[r].x, s[2]); s[3] = fmaf(v[r].y, v[r].y, s[3]);
        }
        group_sum<BLOCK>(s, red);
        scale_shift(s[0], s[2], c.M, cg.x, cb.x, c.eps, a0, b0);
        scale_shift(s[1], s[3], c.M, cg.y, cb.y, c.eps, a1, b1);
        if (d) {
            s[0] = s[1] = s[2] = s[3] = 0.f;
#pragma unroll
            for (int r = 0; r < R; r++) {
                s[0] += w[r].x; s[1] += w[r].y;
                s[2] = fmaf(w[r].x, w[r].x, s[2]); s[3] = fmaf(w[r].y, w[r].y, s[3]);
            }
            group_sum<BLOCK>(s, red);
            scale_shift(s[0], s[2], d->M, dg.x, db.x, d->eps, da0, db0);
            scale_shift(s[1], s[3], d->M, dg.y, db.y, d->eps, da1, db1);
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            const int m = t + r * G;
            float x = fmaf(v[r].x, a0, b0), y = fmaf(v[r].y, a1, b1);
            if (block_end) {
                x += fmaf(w[r].x, da0, db0);
                y += fmaf(w[r].y, da1, db1);
            }
            v[r] = make_float2(fmaxf(x, 0.f), fmaxf(y, 0.f));
            if (m < c.M && !feat) {
                if (block_end) *reinterpret_cast<float2*>(z + m * c.OC + ch) = v[r];
                *reinterpret_cast<__half2*>(act + m * c.OC + ch) = __floats2half2_rn(v[r].x, v[r].y);
            }
        }
        if (feat)
            for (int n = 0; n < N; n++) {
                float f[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
                for (int r = 0; r < R; r++) {
                    const int m = t + r * G - n * c.OHW;
                    if (m >= 0 && m < c.OHW) {
                        f[0] += v[r].x;
                        f[1] += v[r].y;
                    }
                }
                group_sum<BLOCK>(f, red);
                if (t == 0)
                    *reinterpret_cast<float2*>(feat + (size_t)n * c.OC + ch) = make_float2(f[0] / c.OHW, f[1] / c.OHW);
            }
    }
}

__device__ __forceinline__ void apply(const Conv& c, const Conv* d, bool block_end, __half* act, float* z, float* feat, int N,
                                      float* red) {
    if (c.stats) apply_known(c, block_end, act, z);
    else if (c.M <= 128) apply_kept<false, 4>(c, d, block_end, act, z, feat, N, red);
    else if (c.M <= 512) apply_kept<true, 2>(c, d, block_end, act, z, feat, N, red);
    else if (c.M <= 2048) apply_kept<true, 8>(c, d, block_end, act, z, feat, N, red);
    else apply_owner<true>(c, d, block_end, act, z, feat, N, red);
}

__global__ void __launch_bounds__(THREADS, 1) resnet(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char smem_raw[];
    __shared__ float red[128];
    const uint32_t smem = smem_addr(smem_raw);
    unsigned target = 0;
    const int tid = blockIdx.x * THREADS + threadIdx.x, all = gridDim.x * THREADS;

    prefetch_b(p.c[0], nullptr, smem);
    {   // input to padded fp16 NHWC4, and zeros for split products
        const int items = p.N * p.Hp * p.Wp, plane = p.H * p.W;
#pragma unroll 2
        for (int i = tid; i < items; i += all) {
            const int line = i / p.Wp, xp = i - line * p.Wp, n = line / p.Hp, yp = line - n * p.Hp;
            const int x = xp - 3, y = yp - 3;
            float a = 0.f, b = 0.f, c = 0.f;
            if (x >= 0 && x < p.W && y >= 0 && y < p.H) {
                const float* s = p.x + (size_t)n * 3 * plane + (size_t)y * p.W + x;
                a = __ldg(s);
                b = __ldg(s + plane);
                c = __ldg(s + 2 * plane);
            }
            store_half4(p.xpad + (size_t)i * 4, a, b, c, 0.f);
        }
        for (long long i = tid; i < p.zero_vec; i += all) reinterpret_cast<float4*>(p.zero)[i] = make_float4(0.f, 0.f, 0.f, 0.f);
    }
    grid_sync(p.barrier, target);
    conv_phase(p.c[0], nullptr, smem, red, p);
    grid_sync(p.barrier, target);

    const Conv* side = p.ds[0] >= 0 ? &p.c[p.ds[0]] : nullptr;
    prefetch_b(p.c[p.c1[0]], side, smem);
    {   // normalization, relu, maximum of 3 x 3 with stride 2
        const Conv& c = p.c[0];
        const int items = p.N * p.PH * p.PW * 16, ch = tid % 16 * 4;       // 16 divides the number of threads
        float a[4], b[4];
        scale_shift4(c, ch, a, b);
        for (int i = tid; i < items; i += all) {
            const int px = i / 16, line = px / p.PW, ox = px - line * p.PW, n = line / p.PH, oy = line - n * p.PH;
            float4 r = make_float4(0.f, 0.f, 0.f, 0.f);     // after relu nothing is less
#pragma unroll
            for (int dy = -1; dy < 2; dy++)
#pragma unroll
                for (int dx = -1; dx < 2; dx++) {
                    const int y = oy * 2 + dy, x = ox * 2 + dx;
                    if (y >= 0 && y < p.OH0 && x >= 0 && x < p.OW0) {
                        const float4 v = __ldcg(reinterpret_cast<const float4*>(c.y + ((size_t)(n * p.OH0 + y) * p.OW0 + x) * 64 + ch));
                        r.x = fmaxf(r.x, fmaf(v.x, a[0], b[0]));
                        r.y = fmaxf(r.y, fmaf(v.y, a[1], b[1]));
                        r.z = fmaxf(r.z, fmaf(v.z, a[2], b[2]));
                        r.w = fmaxf(r.w, fmaf(v.w, a[3], b[3]));
                    }
                }
            reinterpret_cast<float4*>(p.z)[i] = r;
            store_half4(p.act[0] + (size_t)i * 4, r.x, r.y, r.z, r.w);
        }
    }
    grid_sync(p.barrier, target);

    for (int k = 0; k < 8; k++) {
        const Conv& c1 = p.c[p.c1[k]];
        const Conv& c2 = p.c[p.c2[k]];
        const Conv* d = p.ds[k] >= 0 ? &p.c[p.ds[k]] : nullptr;
        conv_phase(c1, d, smem, red, p);
        grid_sync(p.barrier, target);
        prefetch_b(c2, nullptr, smem);
        apply(c1, nullptr, false, p.act[1], p.z, nullptr, p.N, red);
        grid_sync(p.barrier, target);
        conv_phase(c2, nullptr, smem, red, p);
        grid_sync(p.barrier, target);
        if (k < 7) prefetch_b(p.c[p.c1[k + 1]], p.ds[k + 1] >= 0 ? &p.c[p.ds[k + 1]] : nullptr, smem);
        apply(c2, d, true, p.act[0], p.z, k == 7 ? p.feat : nullptr, p.N, red);
        grid_sync(p.barrier, target);
    }

    const int lane = threadIdx.x % 32;
    for (int o = blockIdx.x + gridDim.x * (threadIdx.x / 32); o < p.classes; o += gridDim.x * (THREADS / 32)) {
        float4 w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = __ldg(reinterpret_cast<const float4*>(p.fcw + (size_t)o * 512) + i * 32 + lane);
        const float bias = __ldg(p.fcb + o);
        for (int n = 0; n < p.N; n++) {
            float s = 0.f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 f = __ldcg(reinterpret_cast<const float4*>(p.feat + (size_t)n * 512) + i * 32 + lane);
                s = fmaf(f.x, w[i].x, fmaf(f.y, w[i].y, fmaf(f.z, w[i].z, fmaf(f.w, w[i].w, s))));
            }
#pragma unroll
            for (int q = 16; q; q >>= 1) s += __shfl_xor_sync(~0u, s, q);
            if (lane == 0) p.out[(size_t)n * p.classes + o] = s + bias;
        }
    }
}

static void cuda_check(cudaError_t e) { TORCH_CHECK(e == cudaSuccess, "CUDA: ", cudaGetErrorString(e)); }

// Parameters of the network and, kept under their versions and addresses, the packed weights of the convolutions.
struct Net {
    std::vector<torch::Tensor> conv, gamma, beta;
    torch::Tensor fcw, fcb;
    std::vector<double> eps;
    std::vector<int64_t> stride, c1, c2, ds;
    std::vector<torch::Tensor> packed;
    std::vector<std::pair<const void*, int64_t>> seen;
};
static std::vector<Net>& nets = *new std::vector<Net>();     // never destroyed: the device may be gone by then

int64_t make_net(std::vector<torch::Tensor> conv, std::vector<torch::Tensor> gamma, std::vector<torch::Tensor> beta,
                 torch::Tensor fcw, torch::Tensor fcb, std::vector<double> eps, std::vector<int64_t> stride,
                 std::vector<int64_t> c1, std::vector<int64_t> c2, std::vector<int64_t> ds) {
    TORCH_CHECK(conv.size() == 20 && c1.size() == 8, "not the expected network");
    Net n;
    n.conv = conv; n.gamma = gamma; n.beta = beta; n.fcw = fcw; n.fcb = fcb;
    n.eps = eps; n.stride = stride; n.c1 = c1; n.c2 = c2; n.ds = ds;
    nets.push_back(std::move(n));
    return (int64_t)nets.size() - 1;
}

static void pack(Net& net) {
    std::vector<std::pair<const void*, int64_t>> now;
    for (const auto& t : net.conv) now.emplace_back(t.data_ptr(), (int64_t)t._version());
    if (now == net.seen) return;
    net.packed.clear();
    for (const auto& t : net.conv) {
        const int64_t oc = t.size(0), ic = t.size(1), ks = t.size(2);
        const auto w = t.detach();
        if (ks == 7) {
            auto q = torch::zeros({oc, 8, 8, 4}, w.options().dtype(torch::kHalf));
            q.slice(1, 0, 7).slice(2, 0, 7).slice(3, 0, ic).copy_(w.permute({0, 2, 3, 1}));
            net.packed.push_back(q);
        } else {
            net.packed.push_back(w.permute({0, 2, 3, 1}).contiguous().to(torch::kHalf));
        }
    }
    net.seen = now;
}

torch::Tensor run_net(int64_t id, torch::Tensor x, int64_t sms, int64_t stream_ptr) {
    const cudaStream_t stream = reinterpret_cast<cudaStream_t>(stream_ptr);
    Net& net = nets.at(id);
    pack(net);
    Params p;
    const int64_t N = x.size(0), H = x.size(2), W = x.size(3);
    p.N = N; p.H = H; p.W = W;
    p.Hp = H + 6;
    p.Wp = (W + 9) / 2 * 2;
    auto out_size = [](int64_t n, int64_t k, int64_t s) { return (n + 2 * (k / 2) - k) / s + 1; };
    p.OH0 = out_size(H, 7, 2);
    p.OW0 = out_size(W, 7, 2);
    p.PH = out_size(p.OH0, 3, 2);
    p.PW = out_size(p.OW0, 3, 2);

    // geometry
    int64_t h[20], w[20], oh[20], ow[20];
    h[0] = p.Hp; w[0] = p.Wp; oh[0] = p.OH0; ow[0] = p.OW0;
    int64_t ch = p.PH, cw = p.PW, act = N * ch * cw * 64;
    for (int k = 0; k < 8; k++) {
        const int a = net.c1[k], b = net.c2[k], d = net.ds[k];
        p.c1[k] = a; p.c2[k] = b; p.ds[k] = d;
        h[a] = ch; w[a] = cw;
        oh[a] = out_size(ch, 3, net.stride[a]);
        ow[a] = out_size(cw, 3, net.stride[a]);
        if (d >= 0) { h[d] = ch; w[d] = cw; oh[d] = oh[a]; ow[d] = ow[a]; }
        h[b] = oh[b] = ch = oh[a];
        w[b] = ow[b] = cw = ow[a];
        act = std::max(act, N * ch * cw * net.conv[b].size(0));
    }
    TORCH_CHECK(N * ch * cw > 1, "Expected more than 1 value per channel when training");
    int64_t at = 0;
    auto take = [&](int64_t bytes) { const int64_t o = at; at += (bytes + 255) / 256 * 256; return o; };
    int64_t y_at[20], stats_at[20];
    for (int pass = 0; pass < 2; pass++) {      // results of split products first, in one piece
        for (int i = 0; i < 20; i++) {
            Conv& c = p.c[i];
            if (pass == 0) {
                const auto& wt = net.conv[i];
                c.OC = wt.size(0); c.IC = i == 0 ? 4 : wt.size(1);
                c.lic = 0;
                while ((1 << c.lic) < c.IC) c.lic++;
                TORCH_CHECK((1 << c.lic) == c.IC, "channels have to be a power of two");
                c.ks = wt.size(2);
                c.stride = net.stride[i]; c.pad = i == 0 ? 0 : c.ks / 2;
                c.H = h[i]; c.W = w[i]; c.OW = ow[i]; c.OHW = oh[i] * ow[i];
                c.M = N * oh[i] * ow[i];
                c.nblk = i == 0 ? 4 : c.ks * c.ks * c.IC / 64;
                c.nt = c.OC / 64;
                const int64_t tiles = (c.M + 63) / 64 * c.nt;
                const bool known = c.OC == 64;
                int64_t want = known || c.ks == 1 ? 1 : std::max<int64_t>(1, sms / tiles);
                c.bps = std::min<int64_t>(MAXBLK, (c.nblk + want - 1) / want);
                c.splits = (c.nblk + c.bps - 1) / c.bps;
                TORCH_CHECK(!known || c.splits == 1, "sums need whole products");
                c.units = tiles * c.splits;
                c.eps = (float)net.eps[i];
                c.w = reinterpret_cast<const __half*>(net.packed[i].data_ptr());
                c.gamma = net.gamma[i].data_ptr<float>();
                c.beta = net.beta[i].data_ptr<float>();
            }
            if ((c.splits > 1) == (pass == 0)) y_at[i] = take((int64_t)c.M * c.OC * 4);
        }
        if (pass == 0) p.zero_vec = at / 16;
    }
    const int64_t xpad_at = take(N * p.Hp * p.Wp * 8), a0_at = take(act * 2), a1_at = take(act * 2), z_at = take(act * 4);
    const int64_t feat_at = take(N * 512 * 4), clear_at = take(256);
    for (int i = 0; i < 20; i++) stats_at[i] = p.c[i].OC == 64 ? take(128 * 4) : -1;
    auto work = torch::empty({at}, x.options().dtype(torch::kUInt8));
    char* base = reinterpret_cast<char*>(work.data_ptr());
    auto out = torch::empty({N, net.fcw.size(0)}, x.options());
    cuda_check(cudaMemsetAsync(base + clear_at, 0, at - clear_at, stream));

    p.x = x.data_ptr<float>();
    p.xpad = reinterpret_cast<__half*>(base + xpad_at);
    p.zero = reinterpret_cast<float*>(base);
    p.act[0] = reinterpret_cast<__half*>(base + a0_at);
    p.act[1] = reinterpret_cast<__half*>(base + a1_at);
    p.z = reinterpret_cast<float*>(base + z_at);
    p.feat = reinterpret_cast<float*>(base + feat_at);
    p.barrier = reinterpret_cast<unsigned*>(base + clear_at);
    p.fcw = net.fcw.data_ptr<float>();
    p.fcb = net.fcb.data_ptr<float>();
    p.out = out.data_ptr<float>();
    p.classes = net.fcw.size(0);
    for (int i = 0; i < 20; i++) {
        p.c[i].y = reinterpret_cast<float*>(base + y_at[i]);
        p.c[i].stats = stats_at[i] >= 0 ? reinterpret_cast<float*>(base + stats_at[i]) : nullptr;
        p.c[i].in = p.act[0];
    }
    p.c[0].in = p.xpad;
    for (int k = 0; k < 8; k++) p.c[p.c2[k]].in = p.act[1];

    static bool ready = false;
    if (!ready) {
        cuda_check(cudaFuncSetAttribute(resnet, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
        ready = true;
    }
    void* args[] = {&p};
    cuda_check(cudaLaunchCooperativeKernel((const void*)resnet, dim3((unsigned)sms), dim3(THREADS), args, (size_t)SMEM_BYTES,
                                           stream));
    return out;
}
"""

CPP_SRC = """
int64_t make_net(std::vector<torch::Tensor> conv, std::vector<torch::Tensor> gamma, std::vector<torch::Tensor> beta,
                 torch::Tensor fcw, torch::Tensor fcb, std::vector<double> eps, std::vector<int64_t> stride,
                 std::vector<int64_t> c1, std::vector<int64_t> c2, std::vector<int64_t> ds);
torch::Tensor run_net(int64_t id, torch::Tensor x, int64_t sms, int64_t stream_ptr);
"""

_EXT = load_inline(
    name="resnet18_one_kernel_v3", cpp_sources=CPP_SRC, cuda_sources=CUDA_SRC, functions=["make_net", "run_net"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"], verbose=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_channels, out_channels, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(out + identity)


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.in_channels = 64
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(BasicBlock, 64, 2, stride=1)
        self.layer2 = self._make_layer(BasicBlock, 128, 2, stride=2)
        self.layer3 = self._make_layer(BasicBlock, 256, 2, stride=2)
        self.layer4 = self._make_layer(BasicBlock, 512, 2, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * BasicBlock.expansion, num_classes)
        self._net = None
        self._sms = 0
        self.register_load_state_dict_post_hook(self._forget)

    @staticmethod
    def _forget(module, incompatible):
        module._net = None

    def _make_layer(self, block, out_channels, blocks, stride=1):
        downsample = None
        if stride != 1 or self.in_channels != out_channels * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.in_channels, out_channels * block.expansion, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels * block.expansion),
            )
        layers = [block(self.in_channels, out_channels, stride, downsample)]
        self.in_channels = out_channels * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.in_channels, out_channels))
        return nn.Sequential(*layers)

    def _make_net(self, device):
        convs, norms, c1, c2, ds = [self.conv1], [self.bn1], [], [], []

        def add(conv, norm):
            convs.append(conv)
            norms.append(norm)
            return len(convs) - 1

        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            for b in layer:
                c1.append(add(b.conv1, b.bn1))
                c2.append(add(b.conv2, b.bn2))
                ds.append(add(b.downsample[0], b.downsample[1]) if b.downsample is not None else -1)
        self._sms = torch.cuda.get_device_properties(device).multi_processor_count
        self._net = (id(self), _EXT.make_net([c.weight for c in convs], [n.weight for n in norms], [n.bias for n in norms],
                                             self.fc.weight, self.fc.bias, [n.eps for n in norms],
                                             [c.stride[0] for c in convs], c1, c2, ds))

    def forward(self, x):
        if self.training:
            if self._net is None or self._net[0] != id(self):
                self._make_net(x.device)
            return _EXT.run_net(self._net[1], x.contiguous(), self._sms, torch.cuda.current_stream(x.device).cuda_stream)
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))
