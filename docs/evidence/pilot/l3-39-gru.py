import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"

_CPP = "torch::Tensor gru_forward(torch::Tensor x, torch::Tensor h0, torch::Tensor wpack, torch::Tensor bias);"

_CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_fp16.h>
#include <stdint.h>

// A cluster of 8 blocks computes one layer for up to 8 rows of the batch; a block owns 32 hidden units (96 gate rows).
// A state is kept as [rank 8][hi, lo][batch row 8][32 units] halfs; the padding of a rank avoids bank conflicts.
constexpr int H = 256;
constexpr int CL = 8;
constexpr int PLANE = 8 * 64;                 // bytes of [8][32] halfs
constexpr int RANK = 2 * PLANE + 16;
constexpr int STATE = CL * RANK;
constexpr int CW = 12;                        // warps of the hidden product; four more do the input product
constexpr int THREADS = (CW + 4) * 32;
constexpr int GATES = 256;                    // threads of the gates: 32 units x 8 rows
constexpr int CHUNK = 4;                      // steps of an input product
constexpr int MAT = 16 * 6 * 32;              // uint4 of one packed matrix of a block
constexpr int SROW = 80;                      // bytes of a row of the staging area
constexpr int SPLANE = 8 * SROW;

constexpr int OFF_BAR = 0;                    // hbar[2], ifull[2], iempty[2]
constexpr int OFF_BIAS = 128;                 // [4][32] floats
constexpr int OFF_STAGE = OFF_BIAS + 512;     // [hi, lo][8][SROW bytes]
constexpr int OFF_H = OFF_STAGE + 2 * SPLANE; // two states
constexpr int OFF_IN = OFF_H + 2 * STATE;     // the inputs of a chunk
constexpr int OFF_PART = OFF_IN + CHUNK * STATE;         // [4 k groups][r, z, n][32][8] floats
constexpr int OFF_IP = OFF_PART + 4 * 3 * 256 * 4;       // input products: [2][CHUNK][r, z, n][32][8] floats
constexpr int OFF_W = OFF_IP + 2 * CHUNK * 3 * 256 * 4;  // W_ih hi and lo, as fragments
constexpr int SMEM = OFF_W + 2 * MAT * 16;
static_assert(OFF_H % 16 == 0 && OFF_IN % 16 == 0 && OFF_IP % 16 == 0 && OFF_PART % 16 == 0 && OFF_W % 16 == 0, "alignment");

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
    uint32_t ok;
    do {
        asm volatile(
            "{\n\t.reg .pred p;\n\t"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(ok)
            : "r"(bar), "r"(parity)
            : "memory");
    } while (!ok);
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t map_rank(uint32_t addr, uint32_t rank) {
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
    return r;
}
__device__ __forceinline__ void send(uint32_t addr, uint4 v, uint32_t bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(addr), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w), "r"(bar)
                 : "memory");
}
__device__ __forceinline__ uint4 load_now(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ void store_now(uint4* p, uint4 v) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// a word of ones (two fp16 NaNs that no conversion makes) is not written yet
__device__ __forceinline__ bool missing(uint4 v) {
    return v.x == 0xffffffffu || v.y == 0xffffffffu || v.z == 0xffffffffu || v.w == 0xffffffffu;
}
__device__ __forceinline__ void mma(float (&c)[4], uint4 a, uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// fp16 hi in the low half, fp16 of the rest in the high half
__device__ __forceinline__ uint32_t split(float v) {
    const __half hi = __float2half_rn(v);
    const __half lo = __float2half_rn(v - __half2float(hi));
    return (uint32_t)__half_as_ushort(hi) | ((uint32_t)__half_as_ushort(lo) << 16);
}
__device__ __forceinline__ float sigmoid_(float v) { return __fdividef(1.f, 1.f + __expf(-v)); }
__device__ __forceinline__ float tanh_(float v) { return 1.f - __fdividef(2.f, 1.f + __expf(2.f * v)); }

struct Frag {
    uint4 hi0, hi1, lo0, lo1;
};
__device__ __forceinline__ Frag load_frag(const unsigned char* p) {
    Frag f;
    f.hi0 = *reinterpret_cast<const uint4*>(p);
    f.hi1 = *reinterpret_cast<const uint4*>(p + 16);
    f.lo0 = *reinterpret_cast<const uint4*>(p + PLANE);
    f.lo1 = *reinterpret_cast<const uint4*>(p + PLANE + 16);
    return f;
}

__global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(THREADS, 1)
gru_kernel(const float* __restrict__ x, const float* __restrict__ h0, const uint4* __restrict__ wpack,
           const float* __restrict__ bias, uint4* gbuf, float* __restrict__ out, int T, int B, int I, int L, int NB, int G) {
    extern __shared__ __align__(128) unsigned char sm[];
    const uint32_t sm0 = (uint32_t)__cvta_generic_to_shared(sm);
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int rank = blockIdx.x & (CL - 1);
    const int cid = blockIdx.x / CL;
    const int layer = cid / G;
    const int b0 = (cid % G) * NB;
    const int nb = min(NB, B - b0);
    const uint32_t hbar = sm0 + OFF_BAR, ifull = hbar + 16, iempty = hbar + 32;
    const uint4* wmine = wpack + (size_t)(layer * CL + rank) * 4 * MAT;

    {
        uint4* z = reinterpret_cast<uint4*>(sm + OFF_H);
        for (int i = tid; i < (2 + CHUNK) * STATE / 16; i += THREADS) z[i] = make_uint4(0, 0, 0, 0);
        uint4* w = reinterpret_cast<uint4*>(sm + OFF_W);
        for (int i = tid; i < 2 * MAT; i += THREADS) w[i] = wmine[2 * MAT + i];
        if (tid < 128) {
            reinterpret_cast<float*>(sm + OFF_BIAS)[tid] = bias[(size_t)layer * 4 * H + (tid >> 5) * H + rank * 32 + lane];
        }
        if (tid == 0) {
            mbar_init(hbar, 1);
            mbar_init(hbar + 8, 1);
            for (int i = 0; i < 2; ++i) {
                mbar_init(ifull + 8 * i, 4);
                mbar_init(iempty + 8 * i, GATES / 32);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
    }
    __syncthreads();
    for (int i = tid; i < nb * H; i += THREADS) {
        const int b = i / H, k = i % H;
        const uint32_t p = split(h0[((size_t)layer * B + b0 + b) * H + k]);
        unsigned char* q = sm + OFF_H + STATE + (k >> 5) * RANK + b * 64 + (k & 31) * 2;   // the state before step 0
        *reinterpret_cast<uint16_t*>(q) = (uint16_t)(p & 0xffff);
        *reinterpret_cast<uint16_t*>(q + PLANE) = (uint16_t)(p >> 16);
    }
    const uint32_t expected = (uint32_t)nb * H * 4;
    if (tid == 0) {
        if (T >= 2) mbar_expect(hbar, expected);
        if (T >= 3) mbar_expect(hbar + 8, expected);
    }
    __syncthreads();
    cluster_sync();

    const int g = lane >> 2, t4 = lane & 3;
    if (warp >= CW) {
        // input products, CHUNK steps at once: a warp has three of the six row tiles and two of the steps
        const int ft = tid - CW * 32, inner = ft & 63, brow = ft >> 6;
        const int mh = (warp - CW) & 1, sg = (warp - CW) >> 1;
        const uint4* wsm = reinterpret_cast<const uint4*>(sm + OFF_W) + mh * 3 * 32 + lane;
        const unsigned char* in0 = sm + OFF_IN + sg * 2 * STATE + (t4 >> 1) * RANK + g * 64 + (t4 & 1) * 32;
        const int chunks = (T + CHUNK - 1) / CHUNK;
        for (int c = 0; c < chunks; ++c) {
            {
                uint4 v[CHUNK][4];
                const uint4* src = gbuf + (((size_t)(layer - 1) * T + (size_t)c * CHUNK) * B + b0 + brow) * 64 + inner;
                const float* xs = x + ((size_t)c * CHUNK * B + b0 + brow) * I + inner * 4;
#pragma unroll
                for (int st = 0; st < CHUNK; ++st) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        if (2 * i + brow < nb && c * CHUNK + st < T) {
                            if (layer > 0) {
                                v[st][i] = load_now(src + ((size_t)st * B + 2 * i) * 64);
                            } else if (inner * 4 < I) {
                                v[st][i] = *reinterpret_cast<const uint4*>(xs + ((size_t)st * B + 2 * i) * I);
                            }
                        }
                    }
                }
                asm volatile("bar.sync 3, 128;" ::: "memory");   // the chunk before has been read
#pragma unroll
                for (int st = 0; st < CHUNK; ++st) {
                    unsigned char* slot = sm + OFF_IN + st * STATE + (inner >> 3) * RANK;
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int row = 2 * i + brow;
                        if (row < nb && c * CHUNK + st < T) {
                            if (layer > 0) {
                                while (missing(v[st][i])) v[st][i] = load_now(src + ((size_t)st * B + 2 * i) * 64);
                                *reinterpret_cast<uint4*>(slot + ((inner >> 2) & 1) * PLANE + row * 64 + (inner & 3) * 16) = v[st][i];
                            } else if (inner * 4 < I) {
                                const uint32_t w0 = split(__uint_as_float(v[st][i].x)), w1 = split(__uint_as_float(v[st][i].y));
                                const uint32_t w2 = split(__uint_as_float(v[st][i].z)), w3 = split(__uint_as_float(v[st][i].w));
                                unsigned char* q = slot + row * 64 + (inner & 7) * 8;
                                *reinterpret_cast<uint2*>(q) = make_uint2(__byte_perm(w0, w1, 0x5410), __byte_perm(w2, w3, 0x5410));
                                *reinterpret_cast<uint2*>(q + PLANE) =
                                    make_uint2(__byte_perm(w0, w1, 0x7632), __byte_perm(w2, w3, 0x7632));
                            }
                        }
                    }
                }
                __syncwarp();
                asm volatile("bar.sync 3, 128;" ::: "memory");
            }
            float a[3][2][4];
#pragma unroll
            for (int m = 0; m < 3; ++m) {
#pragma unroll
                for (int st = 0; st < 2; ++st) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) a[m][st][i] = 0.f;
                }
            }
#pragma unroll 1
            for (int k = 0; k < 4; ++k) {
                const Frag f0 = load_frag(in0 + k * 2 * RANK);
                const Frag f1 = load_frag(in0 + k * 2 * RANK + STATE);
                const uint32_t bhi[2][8] = {{f0.hi0.x, f0.hi0.y, f0.hi0.z, f0.hi0.w, f0.hi1.x, f0.hi1.y, f0.hi1.z, f0.hi1.w},
                                            {f1.hi0.x, f1.hi0.y, f1.hi0.z, f1.hi0.w, f1.hi1.x, f1.hi1.y, f1.hi1.z, f1.hi1.w}};
                const uint32_t blo[2][8] = {{f0.lo0.x, f0.lo0.y, f0.lo0.z, f0.lo0.w, f0.lo1.x, f0.lo1.y, f0.lo1.z, f0.lo1.w},
                                            {f1.lo0.x, f1.lo0.y, f1.lo0.z, f1.lo0.w, f1.lo1.x, f1.lo1.y, f1.lo1.z, f1.lo1.w}};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    uint4 ah[3], al[3];
#pragma unroll
                    for (int m = 0; m < 3; ++m) {
                        ah[m] = wsm[((k * 4 + j) * 6 + m) * 32];
                        al[m] = wsm[MAT + ((k * 4 + j) * 6 + m) * 32];
                    }
#pragma unroll
                    for (int m = 0; m < 3; ++m) {
#pragma unroll
                        for (int st = 0; st < 2; ++st) mma(a[m][st], ah[m], bhi[st][2 * j], bhi[st][2 * j + 1]);
                    }
#pragma unroll
                    for (int m = 0; m < 3; ++m) {
#pragma unroll
                        for (int st = 0; st < 2; ++st) mma(a[m][st], ah[m], blo[st][2 * j], blo[st][2 * j + 1]);
                    }
#pragma unroll
                    for (int m = 0; m < 3; ++m) {
#pragma unroll
                        for (int st = 0; st < 2; ++st) mma(a[m][st], al[m], bhi[st][2 * j], bhi[st][2 * j + 1]);
                    }
                }
            }
            if (c >= 2) {
                mbar_wait(iempty + 8 * (c & 1), ((c >> 1) + 1) & 1);
                __syncwarp();
            }
            float* ip = reinterpret_cast<float*>(sm + OFF_IP) + ((c & 1) * CHUNK + sg * 2) * 768 + g * 8 + t4 * 2;
#pragma unroll
            for (int m = 0; m < 3; ++m) {
                const int mt = mh * 3 + m;              // gate mt / 2, units from (mt % 2) * 16
#pragma unroll
                for (int st = 0; st < 2; ++st) {
                    float* q = ip + st * 768 + (mt >> 1) * 256 + (mt & 1) * 128;
                    *reinterpret_cast<float2*>(q) = make_float2(a[m][st][0], a[m][st][1]);
                    *reinterpret_cast<float2*>(q + 64) = make_float2(a[m][st][2], a[m][st][3]);
                }
            }
            __syncwarp();
            if (lane == 0) mbar_arrive(ifull + 8 * (c & 1));
        }
    } else {
        const int mg = warp % 3;            // gate: r, z, n
        const int kg = warp / 3;            // quarter of k
        uint4 whi[4][2], wlo[4][2];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int f = 0; f < 2; ++f) {
                const int at = ((kg * 4 + j) * 6 + mg * 2 + f) * 32 + lane;
                whi[j][f] = wmine[at];
                wlo[j][f] = wmine[MAT + at];
            }
        }
        const int fragoff = (kg * 2 + (t4 >> 1)) * RANK + g * 64 + (t4 & 1) * 32;
        float* part = reinterpret_cast<float*>(sm + OFF_PART);

        // the gates' threads: 32 units x 8 rows of the batch
        const int u = tid >> 3, b = tid & 7;
        const bool gates = tid < GATES, active = gates && b < nb;
        float h = active ? h0[((size_t)layer * B + b0 + b) * H + rank * 32 + u] : 0.f;

        for (int s = 0; s < T; ++s) {
            if (s > 0) {
                const uint32_t bar = hbar + 8 * ((s - 1) & 1);
                mbar_wait(bar, ((s - 1) >> 1) & 1);
                if (tid == 0 && s + 1 <= T - 2) mbar_expect(bar, expected);
                __syncwarp();
            }
            {
                const Frag f = load_frag(sm + OFF_H + ((s + 1) & 1) * STATE + fragoff);
                const uint32_t bhi[8] = {f.hi0.x, f.hi0.y, f.hi0.z, f.hi0.w, f.hi1.x, f.hi1.y, f.hi1.z, f.hi1.w};
                const uint32_t blo[8] = {f.lo0.x, f.lo0.y, f.lo0.z, f.lo0.w, f.lo1.x, f.lo1.y, f.lo1.z, f.lo1.w};
                float m[2][4], c[2][4];
#pragma unroll
                for (int f2 = 0; f2 < 2; ++f2) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        m[f2][i] = 0.f;
                        c[f2][i] = 0.f;
                    }
                }
#pragma unroll
                for (int j = 0; j < 4; ++j) {
#pragma unroll
                    for (int f2 = 0; f2 < 2; ++f2) mma(m[f2], whi[j][f2], bhi[2 * j], bhi[2 * j + 1]);
#pragma unroll
                    for (int f2 = 0; f2 < 2; ++f2) mma(c[f2], whi[j][f2], blo[2 * j], blo[2 * j + 1]);
#pragma unroll
                    for (int f2 = 0; f2 < 2; ++f2) mma(c[f2], wlo[j][f2], bhi[2 * j], bhi[2 * j + 1]);
                }
                float* q = part + (kg * 3 + mg) * 256 + g * 8 + t4 * 2;
#pragma unroll
                for (int f2 = 0; f2 < 2; ++f2) {
                    *reinterpret_cast<float2*>(q + f2 * 128) = make_float2(m[f2][0] + c[f2][0], m[f2][1] + c[f2][1]);
                    *reinterpret_cast<float2*>(q + f2 * 128 + 64) = make_float2(m[f2][2] + c[f2][2], m[f2][3] + c[f2][3]);
                }
            }
            if (gates && s % CHUNK == 0) {
                const int c = s / CHUNK;
                mbar_wait(ifull + 8 * (c & 1), (c >> 1) & 1);
                __syncwarp();
            }
            asm volatile("bar.sync 1, 384;" ::: "memory");
            if (gates) {
                if (active) {
                    const float* pb = reinterpret_cast<const float*>(sm + OFF_BIAS) + u;
                    const float* ip = reinterpret_cast<const float*>(sm + OFF_IP) + (s % (2 * CHUNK)) * 768 + tid;
                    float sr = pb[0] + ip[0], sz = pb[32] + ip[256], si = pb[64] + ip[512], sh = pb[96];
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        const float* q = part + k * 768 + tid;
                        sr += q[0];
                        sz += q[256];
                        sh += q[512];
                    }
                    const float r = sigmoid_(sr);
                    const float z = sigmoid_(sz);
                    const float n = tanh_(si + r * sh);
                    h = n + z * (h - n);
                    const uint32_t packed = split(h);
                    unsigned char* q = sm + OFF_STAGE + b * SROW + u * 2;
                    *reinterpret_cast<uint16_t*>(q) = (uint16_t)(packed & 0xffff);
                    *reinterpret_cast<uint16_t*>(q + SPLANE) = (uint16_t)(packed >> 16);
                    if (layer + 1 == L) out[((size_t)s * B + b0 + b) * H + rank * 32 + u] = h;
                }
                asm volatile("bar.sync 2, 256;" ::: "memory");
                // 16 bytes per lane: warp w sends this block's 32 units to rank w
                if (s + 1 < T) {
                    const uint32_t addr = map_rank(sm0 + OFF_H + (s & 1) * STATE + rank * RANK, warp);
                    const uint32_t bar = map_rank(hbar + 8 * (s & 1), warp);
                    for (int c = lane; c < 8 * nb; c += 32) {
                        const uint4 w = *reinterpret_cast<const uint4*>(sm + OFF_STAGE + ((c >> 2) & 1) * SPLANE + (c >> 3) * SROW + (c & 3) * 16);
                        send(addr + ((c >> 2) & 1) * PLANE + (c >> 3) * 64 + (c & 3) * 16, w, bar);
                    }
                }
                if (layer + 1 < L && tid < 8 * nb) {
                    const int c = tid;
                    const uint4 w = *reinterpret_cast<const uint4*>(sm + OFF_STAGE + ((c >> 2) & 1) * SPLANE + (c >> 3) * SROW + (c & 3) * 16);
                    store_now(gbuf + (((size_t)layer * T + s) * B + b0 + (c >> 3)) * 64 + rank * 8 + (c & 7), w);
                }
                if (s % CHUNK == CHUNK - 1) {
                    __syncwarp();
                    if (lane == 0) mbar_arrive(iempty + 8 * ((s / CHUNK) & 1));
                }
            }
            __syncwarp();
        }
    }
    __syncwarp();
    cluster_sync();
}

torch::Tensor gru_forward(torch::Tensor x, torch::Tensor h0, torch::Tensor wpack, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() == 3 && x.scalar_type() == torch::kFloat32, "x");
    TORCH_CHECK(h0.is_cuda() && h0.is_contiguous() && h0.dim() == 3 && h0.scalar_type() == torch::kFloat32, "h0");
    const c10::cuda::CUDAGuard guard(x.device());
    const int T = x.size(0), B = x.size(1), I = x.size(2), L = h0.size(0);
    TORCH_CHECK(h0.size(1) == B && h0.size(2) == H && I % 4 == 0 && I <= H, "shapes");
    TORCH_CHECK(reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16 == 0, "alignment");
    auto out = torch::empty({T, B, H}, x.options());
    if (out.numel() == 0) return out;
    int G = (B + 7) / 8;
    if (G < 2 && B >= 2) G = 2;
    const int NB = (B + G - 1) / G;
    G = (B + NB - 1) / NB;
    auto stream = at::cuda::getCurrentCUDAStream();
    auto gbuf = torch::empty({std::max<int64_t>((int64_t)(L - 1) * T * B * H, 1)}, x.options().dtype(torch::kInt32));
    C10_CUDA_CHECK(cudaMemsetAsync(gbuf.data_ptr<int>(), 0xff, gbuf.numel() * 4, stream));
    static bool set = false;
    if (!set) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(gru_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM));
        set = true;
    }
    gru_kernel<<<CL * G * L, THREADS, SMEM, stream>>>(
        x.data_ptr<float>(), h0.data_ptr<float>(), reinterpret_cast<const uint4*>(wpack.data_ptr()), bias.data_ptr<float>(),
        reinterpret_cast<uint4*>(gbuf.data_ptr<int>()), out.data_ptr<float>(), T, B, I, L, NB, G);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

_ext = load_inline(
    name="gru_wavefront_v3",
    cpp_sources=_CPP,
    cuda_sources=_CUDA,
    functions=["gru_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


def _fragments(w):
    # [768, 256] fp16 -> [block 8][k group 4][j 4][gate 3][half 2][lane = g 8 x t 4][register = k half 2 x row half 2][pair 2]
    v = w.view(3, 8, 2, 2, 8, 4, 4, 4, 2, 2)
    return v.permute(1, 5, 7, 0, 2, 4, 6, 8, 3, 9).reshape(8, -1)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers=3, bias=True, batch_first=False):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers, bias, batch_first, dropout=0, bidirectional=False)
        self.batch_first = batch_first
        self._own = hidden_size == 256 and input_size <= 256 and input_size % 4 == 0
        self._key = None
        self._packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: module._prepare())

    def _prepare(self):
        # fp16 hi and lo fragments of the weights, kept under the version and the address of the weights
        if not self._own:
            return
        weights = self.gru._flat_weights
        key = [(w._version, w.data_ptr()) for w in weights]
        if key == self._key:
            return
        gru = self.gru
        device = weights[0].device
        if device.type != "cuda":
            return
        packs = []
        biases = []
        with torch.no_grad():
            for l in range(gru.num_layers):
                wi = getattr(gru, f"weight_ih_l{l}").detach().float()
                wh = getattr(gru, f"weight_hh_l{l}").detach().float()
                full = torch.zeros(768, 256, device=device)
                full[:, : wi.shape[1]] = wi
                parts = []
                for w in (wh.contiguous(), full):
                    # hi + lo keep 22 bits of a weight: three products, more exact than the reference's TF32
                    hi = w.half()
                    lo = (w - hi.float()).half()
                    parts.append(_fragments(hi))
                    parts.append(_fragments(lo))
                packs.append(torch.stack(parts, dim=1))
                if gru.bias:
                    bi = getattr(gru, f"bias_ih_l{l}").detach().view(3, 256)
                    bh = getattr(gru, f"bias_hh_l{l}").detach().view(3, 256)
                else:
                    bi = bh = torch.zeros(3, 256, device=device)
                biases.append(torch.stack([bi[0] + bh[0], bi[1] + bh[1], bi[2], bh[2]]))
            self._packed = (torch.stack(packs).contiguous(), torch.stack(biases).float().contiguous())
        self._key = key

    def forward(self, x, h0):
        if not self._own:
            return self.gru(x, h0)[0]
        self._prepare()
        weights, bias = self._packed
        single = x.dim() == 2
        if single:
            x = x.unsqueeze(1)
            h0 = h0.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        out = _ext.gru_forward(x.contiguous(), h0.contiguous(), weights, bias)
        if single:
            return out.squeeze(1)
        if self.batch_first:
            return out.transpose(0, 1).contiguous()
        return out
