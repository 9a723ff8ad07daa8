import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

# x is packed to fp16 as [n][h][c/8][w][8] (10 mantissa bits, as TF32 has; images out of fp16's range are scaled by a
# power of two, which the instance norm undoes). One persistent block per output row computes 128 channels x one row by
# wgmma with all weights in shared memory. An image's accumulators stay in registers until all blocks have added their
# channel sums; then they are normalized, divided and stored, while the next image is computed. The bias cancels.

CUDA_SRC = r"""
#include <torch/types.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int IC = 64, OC = 128, PX = 128;
constexpr int ROW_BYTES = 8 * PX * 16;          // packed input row: [channel chunk 8][pixel 128][8 channels] fp16
constexpr int TAP_BYTES = 8 * OC * 16;          // packed tap: [channel chunk 8][output channel 128][8 channels] fp16
constexpr int W_BYTES = 9 * TAP_BYTES;
constexpr int SLOTS = 4;
constexpr int STAGE_ROW = 132;        // floats of a staged row of results; a warp stages four
constexpr int SMEM_BYTES = W_BYTES + SLOTS * ROW_BYTES + 64 + 192 + 4 * 512 + 8 * 4 * STAGE_ROW * 4;

// Power of two that brings values up to amax into the comfortable range of fp16; 1 for ordinary data.
__device__ __forceinline__ float range_scale(float amax) {
    if (!(amax > 0.f) || !(amax < 3.0e38f)) return 1.f;
    if (amax <= 32768.f && amax >= 0.015625f) return 1.f;
    int e = ((__float_as_int(amax) >> 23) & 255) - 127;
    e = e < -120 ? -120 : e;
    return exp2f((float)(-e));
}

__global__ void pack_weights(const float* __restrict__ w, __half* __restrict__ wp, float* __restrict__ wscale) {
    __shared__ float red[4];
    const int oc = blockIdx.x;
    const float* src = w + (size_t)oc * IC * 9;
    float m = 0.f;
    for (int i = threadIdx.x; i < IC * 9; i += 128) m = fmaxf(m, fabsf(src[i]));
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = m;
    __syncthreads();
    m = fmaxf(fmaxf(red[0], red[1]), fmaxf(red[2], red[3]));
    float s = 1.f;
    if (m > 0.f && m < 3.0e38f) {
        int e = ((__float_as_int(m) >> 23) & 255) - 127;
        e = e < -120 ? -120 : e;
        s = exp2f((float)(-e));
    }
    if (threadIdx.x == 0) wscale[oc] = s;
    for (int i = threadIdx.x; i < IC * 9; i += 128) {
        const int ic = i / 9, tap = i % 9;
        wp[(size_t)tap * (TAP_BYTES / 2) + ((ic / 8) * OC + oc) * 8 + ic % 8] = __float2half_rn(src[i] * s);
    }
}

// One block per input row. fix = 0: pack as it is, and note the image's largest magnitude.
// fix = 1: only images whose range does not suit fp16 are packed again, scaled.
__global__ void __launch_bounds__(256) pack_input(const float* __restrict__ x, uint4* __restrict__ xp,
                                                  int* __restrict__ amax, int H, int W, int fix) {
    __shared__ float red[8];
    const int h = blockIdx.x, n = blockIdx.y;
    const int lane = threadIdx.x % 32, kc = threadIdx.x / 32;
    float scale = 1.f;
    if (fix) {
        scale = range_scale(__int_as_float(amax[n]));
        if (scale == 1.f) return;
    }
    const float* src = x + (((size_t)n * IC + kc * 8) * H + h) * W;
    const size_t plane = (size_t)H * W;
    uint4* dst = xp + ((size_t)n * H + h) * (ROW_BYTES / 16) + kc * PX;
    float v[4][8];
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int px = lane + 32 * j;
            v[j][c] = px < W ? __ldg(src + c * plane + px) : 0.f;
        }
    float m = 0.f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t u[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            m = fmaxf(m, fmaxf(fabsf(v[j][2 * c]), fabsf(v[j][2 * c + 1])));
            __half2 hv = __floats2half2_rn(v[j][2 * c] * scale, v[j][2 * c + 1] * scale);
            u[c] = *reinterpret_cast<uint32_t*>(&hv);
        }
        dst[lane + 32 * j] = make_uint4(u[0], u[1], u[2], u[3]);
    }
    if (!fix) {
        for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
        if (lane == 0) red[kc] = m;
        __syncthreads();
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 1; i < 8; i++) m = fmaxf(m, red[i]);
            atomicMax(amax + n, __float_as_int(m));
        }
    }
}

__device__ __forceinline__ uint32_t smem_addr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void mbar_init(uint32_t b, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "W_%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra D_%=;\n"
        "bra W_%=;\n"
        "D_%=:\n}\n" ::"r"(b), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, int bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar) : "memory");
}

// Shared memory in core matrices of 8 rows x 16 bytes without swizzle: row r of a chunk of 8 channels at 16 r.
// Distance of chunks along K: 2048 bytes; of groups of 8 rows: 128 bytes.
__device__ __forceinline__ uint64_t desc(uint32_t addr) {
    return (uint64_t)((addr & 0x3FFFF) >> 4) | ((uint64_t)(2048 >> 4) << 16) | ((uint64_t)(128 >> 4) << 32);
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wg_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void wgmma128(float (&d)[64], uint64_t da, uint64_t db, int scale_d) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(da), "l"(db), "r"(scale_d));
}

struct Params {
    const __half* xp;
    const __half* wp;
    const float* wscale;
    float* out;
    const int* amax;
    float* sums;        // [image][channel][sum, sum of squares]
    int* arrived;       // [image][half of the channels]
    int N, H, OH, OW, groups;
    float eps, inv_div, inv_count;
};

__device__ __forceinline__ void issue_row(float (&acc)[64], uint32_t wbase, uint32_t xbase, int ky) {
#pragma unroll
    for (int kx = 0; kx < 3; kx++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            wgmma128(acc, desc(wbase + (ky * 3 + kx) * TAP_BYTES + k * 4096), desc(xbase + kx * 16 + k * 4096),
                     (ky | kx | k) != 0);
}

struct Norm { float a0, b0, a1, b1; };

__device__ __forceinline__ Norm wait_stats(const Params& p, int n, int half, int oc0, int lane) {
    if (lane == 0) {
        const int* c = p.arrived + n * 2 + half;
        int v;
        do {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(c) : "memory");
        } while (v < p.OH);
    }
    __syncwarp();
    const float2 s0 = __ldcg(reinterpret_cast<const float2*>(p.sums) + (size_t)n * OC + oc0);
    const float2 s1 = __ldcg(reinterpret_cast<const float2*>(p.sums) + (size_t)n * OC + oc0 + 8);
    const float xs = range_scale(__int_as_float(__ldg(p.amax + n)));
    Norm r;
    {
        const float k = xs * __ldg(p.wscale + oc0);
        const float mean = s0.x * p.inv_count;
        const float var = fmaxf(s0.y * p.inv_count - mean * mean, 0.f);
        r.a0 = rsqrtf(var + p.eps * k * k) * p.inv_div;
        r.b0 = -mean * r.a0;
    }
    {
        const float k = xs * __ldg(p.wscale + oc0 + 8);
        const float mean = s1.x * p.inv_count;
        const float var = fmaxf(s1.y * p.inv_count - mean * mean, 0.f);
        r.a1 = rsqrtf(var + p.eps * k * k) * p.inv_div;
        r.b1 = -mean * r.a1;
    }
    return r;
}

template <int J0, int J1>
__device__ __forceinline__ void store_part(const float (&acc)[64], const Norm& t, float* o0, float* o1, int col, int OW,
                                           bool even) {
#pragma unroll
    for (int j = J0; j < J1; j++) {
        const int c = j * 8 + col;
        const float v0 = fmaf(acc[j * 4], t.a0, t.b0), v1 = fmaf(acc[j * 4 + 1], t.a0, t.b0);
        const float v2 = fmaf(acc[j * 4 + 2], t.a1, t.b1), v3 = fmaf(acc[j * 4 + 3], t.a1, t.b1);
        if (even) {
            if (c < OW) {
                *reinterpret_cast<float2*>(o0 + c) = make_float2(v0, v1);
                *reinterpret_cast<float2*>(o1 + c) = make_float2(v2, v3);
            }
        } else {
            if (c < OW) { o0[c] = v0; o1[c] = v2; }
            if (c + 1 < OW) { o0[c + 1] = v1; o1[c + 1] = v3; }
        }
    }
}

// Products of the next image into acc; the channel sums of this row go to shared memory, from where a helper warp adds them
// to the image's sums and announces them. Nothing here waits for other blocks.
__device__ __forceinline__ void products(float (&acc)[64], int OW, uint32_t wbase, uint32_t xs0, uint32_t full,
                                         uint32_t empty, int& r, float* sums, int half, int lane, int warp) {
    const int col = (lane & 3) * 2;
    const int s0 = r % SLOTS, s1 = (r + 1) % SLOTS, s2 = (r + 2) % SLOTS;
    mbar_wait(full + s0 * 8, (r / SLOTS) & 1);
    wg_fence();
    issue_row(acc, wbase, xs0 + s0 * ROW_BYTES, 0);
    wg_commit();
    mbar_wait(full + s1 * 8, ((r + 1) / SLOTS) & 1);
    wg_fence();
    issue_row(acc, wbase, xs0 + s1 * ROW_BYTES, 1);
    wg_commit();
    wg_wait<1>();
    if (lane == 0) mbar_arrive(empty + s0 * 8);
    mbar_wait(full + s2 * 8, ((r + 2) / SLOTS) & 1);
    wg_fence();
    issue_row(acc, wbase, xs0 + s2 * ROW_BYTES, 2);
    wg_commit();
    wg_wait<1>();
    if (lane == 0) mbar_arrive(empty + s1 * 8);
    wg_wait<0>();
    if (lane == 0) mbar_arrive(empty + s2 * 8);
    const int parity = (r / 3) & 1;
    r += 3;

    float a0 = 0.f, q0 = 0.f, a1 = 0.f, q1 = 0.f;
#pragma unroll
    for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (j * 8 + col + e < OW) {
                const float a = acc[j * 4 + e], b = acc[j * 4 + 2 + e];
                a0 += a; q0 = fmaf(a, a, q0);
                a1 += b; q1 = fmaf(b, b, q1);
            }
        }
#pragma unroll
    for (int o = 1; o < 4; o <<= 1) {
        a0 += __shfl_xor_sync(~0u, a0, o);
        q0 += __shfl_xor_sync(~0u, q0, o);
        a1 += __shfl_xor_sync(~0u, a1, o);
        q1 += __shfl_xor_sync(~0u, q1, o);
    }
    // Each lane of the four hands over one of the four numbers. Two buffers: the helper is at most one image behind.
    const int k = lane & 3;
    sums[(half * 2 + parity) * 128 + (warp * 16 + lane / 4 + (k >> 1) * 8) * 2 + (k & 1)] =
        k == 0 ? a0 : k == 1 ? q0 : k == 2 ? a1 : q1;
    asm volatile("bar.arrive %0, 160;" ::"r"(1 + half * 2 + parity) : "memory");
}

// Normalizes and stores an image. Results go through shared memory, four rows of a warp at a time and at the same offset
// modulo 16 bytes as in global memory, so that a warp writes each row contiguous, by aligned float4.
__device__ __forceinline__ void finish(const float (&acc)[64], const Params& p, int n, int y, int half, int oc0, int lane,
                                       bool even, float* stage) {
    const Norm t = wait_stats(p, n, half, oc0, lane);
    if (!even) {
        float* o0 = p.out + (((size_t)n * OC + oc0) * p.OH + y) * p.OW;
        store_part<0, 16>(acc, t, o0, o0 + (size_t)8 * p.OH * p.OW, (lane & 3) * 2, p.OW, even);
        return;
    }
    const int row = lane / 4, col = (lane & 3) * 2;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int g = 0; g < 2; g++) {
            // first element of the first of the four rows
            const size_t first = (((size_t)n * OC + (oc0 - row) + h * 8 + g * 4) * p.OH + y) * p.OW;
            const size_t pitch = (size_t)p.OH * p.OW;
            if (row / 4 == g) {
                const int off = (int)((first + (row & 3) * pitch) & 3);
                float* d = stage + (row & 3) * STAGE_ROW + off + col;
                const float a = h ? t.a1 : t.a0, b = h ? t.b1 : t.b0;
#pragma unroll
                for (int j = 0; j < 16; j++)
                    *reinterpret_cast<float2*>(d + j * 8) =
                        make_float2(fmaf(acc[j * 4 + h * 2], a, b), fmaf(acc[j * 4 + h * 2 + 1], a, b));
            }
            __syncwarp();
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const size_t at = first + r * pitch;
                const int off = (int)(at & 3), c = lane * 4;        // element c belongs to column c - off
                const float4 v = *reinterpret_cast<const float4*>(stage + r * STAGE_ROW + c);
                float* d = p.out + (at - off) + c;
                const bool low = c >= off && c + 2 <= off + p.OW, high = c + 4 <= off + p.OW && c + 2 >= off;
                if (low && high) *reinterpret_cast<float4*>(d) = v;
                else if (low) *reinterpret_cast<float2*>(d) = make_float2(v.x, v.y);
                else if (high) *reinterpret_cast<float2*>(d + 2) = make_float2(v.z, v.w);
            }
            __syncwarp();
        }
}

__global__ void __launch_bounds__(384, 1) conv_norm(const Params p) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t wsm = smem_addr(smem);
    const uint32_t xsm = wsm + W_BYTES;
    const uint32_t bars = xsm + SLOTS * ROW_BYTES + 64;     // behind the last row, which a tap may overrun by 32 bytes
    const uint32_t full = bars, empty = bars + 64, wfull = bars + 128;
    float* sums = reinterpret_cast<float*>(smem + (bars + 192 - wsm));     // [half][parity][channel 64][sum, sum of squares]
    const int wid = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int y = blockIdx.x % p.OH, g = blockIdx.x / p.OH;

    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            mbar_init(full + i * 8, 1);
            mbar_init(empty + i * 8, 8);
        }
        mbar_init(wfull, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (wid >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (wid == 8 && lane == 0) {
            mbar_expect(wfull, W_BYTES);
            for (int t = 0; t < 9; t++)
                bulk_load(wsm + t * TAP_BYTES, (const char*)p.wp + t * TAP_BYTES, TAP_BYTES, wfull);
            int r = 0;
            for (int n = g; n < p.N; n += p.groups)
                for (int ky = 0; ky < 3; ky++, r++) {
                    const int s = r % SLOTS;
                    if (r >= SLOTS) mbar_wait(empty + s * 8, ((r / SLOTS) & 1) ^ 1);
                    mbar_expect(full + s * 8, ROW_BYTES);
                    bulk_load(xsm + s * ROW_BYTES, (const char*)p.xp + ((size_t)n * p.H + y + ky) * ROW_BYTES, ROW_BYTES,
                              full + s * 8);
                }
        }
        if (wid == 9 || wid == 10) {    // sums of one half of the channels
            const int half = wid - 9;
            int parity = 0;
            for (int n = g; n < p.N; n += p.groups, parity ^= 1) {
                asm volatile("bar.sync %0, 160;" ::"r"(1 + half * 2 + parity) : "memory");
                const float* src = sums + (half * 2 + parity) * 128;
                float* dst = p.sums + ((size_t)n * OC + half * 64) * 2;
#pragma unroll
                for (int i = 0; i < 4; i++) atomicAdd(dst + i * 32 + lane, src[i * 32 + lane]);
                __threadfence();
                __syncwarp();
                if (lane == 0)
                    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(p.arrived + n * 2 + half) : "memory");
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int half = wid / 4, warp = wid % 4;
    const int oc0 = half * 64 + warp * 16 + lane / 4;
    const uint32_t wbase = wsm + half * 64 * 16;
    const bool even = (p.OW & 1) == 0;
    float* stage = sums + 512 + wid * 4 * STAGE_ROW;
    float a[64], b[64];
    int r = 0;
    mbar_wait(wfull, 0);
    products(a, p.OW, wbase, xsm, full, empty, r, sums, half, lane, warp);
    for (int n = g;; n += 2 * p.groups) {       // a holds image n
        const bool more = n + p.groups < p.N;
        if (more) products(b, p.OW, wbase, xsm, full, empty, r, sums, half, lane, warp);
        finish(a, p, n, y, half, oc0, lane, even, stage);
        if (!more) break;
        const bool again = n + 2 * p.groups < p.N;
        if (again) products(a, p.OW, wbase, xsm, full, empty, r, sums, half, lane, warp);
        finish(b, p, n + p.groups, y, half, oc0, lane, even, stage);
        if (!again) break;
    }
}

static void cuda_check(cudaError_t e) { TORCH_CHECK(e == cudaSuccess, "CUDA: ", cudaGetErrorString(e)); }

torch::Tensor conv_norm_div(torch::Tensor x, torch::Tensor w, double eps, double div, int64_t sms, int64_t stream_ptr) {
    const int N = x.size(0), H = x.size(2), W = x.size(3), OH = H - 2, OW = W - 2;
    const cudaStream_t stream = reinterpret_cast<cudaStream_t>(stream_ptr);
    auto out = torch::empty({N, OC, OH, OW}, x.options());
    auto xp = torch::empty({(int64_t)N * H * ROW_BYTES}, x.options().dtype(torch::kUInt8));
    auto wp = torch::empty({W_BYTES}, x.options().dtype(torch::kUInt8));
    auto wscale = torch::empty({OC}, x.options());
    auto state = torch::zeros({(int64_t)N * (OC * 2 + 3)}, x.options());
    float* sums = state.data_ptr<float>();
    int* arrived = reinterpret_cast<int*>(sums + (size_t)N * OC * 2);
    int* amax = arrived + (size_t)N * 2;

    pack_weights<<<OC, 128, 0, stream>>>(w.data_ptr<float>(), (__half*)wp.data_ptr(), wscale.data_ptr<float>());
    cuda_check(cudaGetLastError());
    pack_input<<<dim3(H, N), 256, 0, stream>>>(x.data_ptr<float>(), (uint4*)xp.data_ptr(), amax, H, W, 0);
    cuda_check(cudaGetLastError());
    pack_input<<<dim3(H, N), 256, 0, stream>>>(x.data_ptr<float>(), (uint4*)xp.data_ptr(), amax, H, W, 1);
    cuda_check(cudaGetLastError());

    Params p;
    p.xp = (const __half*)xp.data_ptr();
    p.wp = (const __half*)wp.data_ptr();
    p.wscale = wscale.data_ptr<float>();
    p.out = out.data_ptr<float>();
    p.amax = amax;
    p.sums = sums;
    p.arrived = arrived;
    p.N = N; p.H = H; p.OH = OH; p.OW = OW;
    p.groups = std::max<int>(1, std::min<int>(N, (int)sms / OH));
    p.eps = (float)eps;
    p.inv_div = (float)(1.0 / div);
    p.inv_count = (float)(1.0 / ((double)OH * OW));
    cuda_check(cudaFuncSetAttribute(conv_norm, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    void* args[] = {&p};
    cuda_check(cudaLaunchCooperativeKernel((const void*)conv_norm, dim3(OH * p.groups), dim3(384), args,
                                               (size_t)SMEM_BYTES, stream));
    return out;
}
"""

CPP_SRC = "torch::Tensor conv_norm_div(torch::Tensor x, torch::Tensor w, double eps, double div, int64_t sms, int64_t stream_ptr);"

_EXT = load_inline(
    name="conv_instnorm_div_v3", cpp_sources=CPP_SRC, cuda_sources=CUDA_SRC, functions=["conv_norm_div"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"], verbose=False)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divide_by):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.divide_by = divide_by
        self._fast = (in_channels, out_channels) == (64, 128) and self.conv.kernel_size == (3, 3) and float(divide_by) != 0.0
        self._sms = 0

    def forward(self, x):
        if self._sms == 0:
            self._sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        h, w = (x.shape[-2], x.shape[-1]) if x.dim() == 4 else (0, 0)
        if (self._fast and x.dim() == 4 and x.dtype == torch.float32 and x.shape[0] > 0 and 3 <= w <= 128
                and 3 <= h <= self._sms + 2 and h <= 65535 and x.shape[0] <= 65535 and (h - 2) * (w - 2) > 1):
            return _EXT.conv_norm_div(x.contiguous(), self.conv.weight.contiguous(), self.instance_norm.eps,
                                              float(self.divide_by), self._sms,
                                              torch.cuda.current_stream(x.device).cuda_stream)
        return self.instance_norm(self.conv(x)) / self.divide_by
