import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cstdint>

namespace {

constexpr int CIN = 8, COUT = 64, GROUPS = 16;
constexpr int TW = 64;                     // conv columns of a block
constexpr int BANDS = 11;                  // bands of 4 conv rows of a block
constexpr int THREADS = 128;
constexpr int LW = 68;                     // columns staged; also the units of 16 bytes of a tile row
constexpr int ROWS = 6;                    // input rows of a band
constexpr int STAGE_FLOATS = CIN * ROWS * LW;
constexpr int TILE_UNITS = ROWS * LW;
constexpr int TAPS = 10;                   // nine and one of zeros
constexpr int W_UNITS = TAPS * COUT;
constexpr int POOL_PITCH = 17;

struct __align__(128) Shared {
    float stage[STAGE_FLOATS];
    uint4 hi[TILE_UNITS];                  // a unit is the eight channels of a pixel
    uint4 lo[TILE_UNITS];
    uint4 w_hi[W_UNITS];                   // a unit is the eight channels of a tap and an output channel
    uint4 w_lo[W_UNITS];
    float pool[COUT * POOL_PITCH];
    float2 meta[COUT];                     // sign * bias, sign
    float2 base[COUT];                     // sign * (bias - shift), sign
    float back[COUT];                      // sign * shift
    float shift[GROUPS];
    float sums[4][2][GROUPS];
    float red[4];
};

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// No swizzle, K-major: eight rows of 16 bytes are a core matrix; the next eight rows follow after 128 bytes, the other
// half of K after `lead` units of 16 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t addr, uint32_t lead) {
    return (uint64_t)((addr >> 4) & 0x3fffu) | ((uint64_t)lead << 16) | ((uint64_t)8 << 32);
}

__device__ __forceinline__ void wgmma(float (&d)[8][4], uint64_t a, uint64_t b, int accumulate) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n\t}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b), "r"(accumulate));
}

template <bool VEC>
__device__ __forceinline__ void fill_stage(float* stage, const float* __restrict__ image, int y0, int x0, int H, int W) {
    if (VEC) {
        for (int i = threadIdx.x; i < CIN * ROWS * (LW / 4); i += THREADS) {
            const int q = i % (LW / 4), line = i / (LW / 4);
            const int y = y0 + line % ROWS, x = x0 + 4 * q, c = line / ROWS;
            const bool in = y < H && x < W;
            const float* src = in ? image + ((size_t)c * H + y) * W + x : image;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(smem_addr(stage + line * LW + 4 * q)), "l"(src), "r"(in ? 16 : 0) : "memory");
        }
    } else {
        for (int i = threadIdx.x; i < STAGE_FLOATS; i += THREADS) {
            const int q = i % LW, line = i / LW;
            const int y = y0 + line % ROWS, x = x0 + q, c = line / ROWS;
            const bool in = y < H && x < W;
            const float* src = in ? image + ((size_t)c * H + y) * W + x : image;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                         :: "r"(smem_addr(stage + i)), "l"(src), "r"(in ? 4 : 0) : "memory");
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Lanes that differ in BIT share the 2 * HALF values: each keeps one half, joined by OP.
template <int HALF, int BIT, bool MAXIMUM, int N>
__device__ __forceinline__ void fold(float (&v)[N], int lane) {
    const bool up = (lane & BIT) != 0;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const float keep = up ? v[HALF + i] : v[i];
        const float other = __shfl_xor_sync(0xffffffffu, up ? v[i] : v[HALF + i], BIT);
        v[i] = MAXIMUM ? fmaxf(keep, other) : keep + other;
    }
}

// Sums about the shift of each group, and maxima over the four rows. Value t * 4 + c * 2 + h of `best` is of the
// channel 8 t + 2 q + c and of the pixel g + 8 h of the warp; value k * 8 + t of `sums` is the sum (k = 0) or the sum of squares.
template <bool FULL>
__device__ __forceinline__ void absorb(const float (&acc)[4][8][4], float inv, const float2* __restrict__ base, int q, int rows,
                                       bool ok0, bool ok1, float (&best)[32], float (&sums)[16]) {
#pragma unroll
    for (int t = 0; t < 8; ++t) {
        float total = 0.0f, square = 0.0f;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const float2 b = base[t * 8 + 2 * q + c];
            float sum = 0.0f, top0 = -3.0e38f, top1 = -3.0e38f;
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const float d0 = fmaf(acc[m][t][c], inv, b.x);
                const float d1 = fmaf(acc[m][t][2 + c], inv, b.x);
                top0 = fmaxf(top0, d0);
                top1 = fmaxf(top1, d1);
                const float e0 = FULL || (ok0 && m < rows) ? d0 : 0.0f;
                const float e1 = FULL || (ok1 && m < rows) ? d1 : 0.0f;
                sum += e0 + e1;
                square = fmaf(e0, e0, square);
                square = fmaf(e1, e1, square);
            }
            total = fmaf(b.y, sum, total);
            best[t * 4 + c * 2] = top0;
            best[t * 4 + c * 2 + 1] = top1;
        }
        sums[t] = total;
        sums[8 + t] = square;
    }
}

__device__ __forceinline__ void store_pool(const Shared& sh, float* __restrict__ out, int n, int band, int px0, int PH, int PW) {
    if (band >= PH) return;
#pragma unroll
    for (int j = 0; j < COUT * 16 / THREADS; ++j) {
        const int i = threadIdx.x + j * THREADS, ch = i >> 4, px = px0 + (i & 15);
        if (px < PW) out[(((size_t)n * COUT + ch) * PH + band) * PW + px] = sh.pool[ch * POOL_PITCH + (i & 15)] + sh.back[ch];
    }
}

// Convolution (three products of split fp16), sums per group, and the maximum of sign * value over 4x4 cells.
template <bool VEC>
__global__ void __launch_bounds__(THREADS, 3)
conv_pool(const float* __restrict__ x, const uint4* __restrict__ packed, const float* __restrict__ meta_in, float* __restrict__ out,
          double* __restrict__ partial, int H, int W, int tiles_x, int segments) {
    extern __shared__ __align__(128) unsigned char raw[];
    Shared& sh = *reinterpret_cast<Shared*>(raw);
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
    const int tx = blockIdx.x % tiles_x, seg = (blockIdx.x / tiles_x) % segments, n = blockIdx.x / (tiles_x * segments);
    const int HC = H - 2, WC = W - 2, PH = HC / 4, PW = WC / 4;
    const int x0 = tx * TW;
    const int bands = (HC + 3) / 4;
    const int band0 = seg * BANDS, band1 = min(bands, band0 + BANDS);
    const float* image = x + (size_t)n * CIN * H * W;

    fill_stage<VEC>(sh.stage, image, band0 * 4, x0, H, W);
    for (int i = tid; i < 2 * W_UNITS; i += THREADS) sh.w_hi[i] = __ldg(packed + i);         // w_lo follows w_hi
    if (tid < COUT) sh.meta[tid] = make_float2(__ldg(meta_in + tid), __ldg(meta_in + COUT + tid));
    const float inv_w = __ldg(meta_in + 2 * COUT);

    const uint32_t hi_addr = smem_addr(sh.hi), lo_addr = smem_addr(sh.lo);
    const uint32_t wh_addr = smem_addr(sh.w_hi), wl_addr = smem_addr(sh.w_lo);

    float run[2] = {0.0f, 0.0f};
    const int col = x0 + 16 * warp + g;
    const bool ok0 = col < WC, ok1 = col + 8 < WC;
    const bool cols_full = x0 + 16 * warp + 16 <= WC;

    for (int band = band0; band < band1; ++band) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (band > band0) store_pool(sh, out, n, band - 1, x0 >> 2, PH, PW);

        // the staged band into registers, its largest magnitude
        float v[4][8];
        float top = 0.0f;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int i = tid + r * THREADS;
            if (i < TILE_UNITS) {
                const int y = i / LW, c0 = i % LW;
#pragma unroll
                for (int c = 0; c < CIN; ++c) {
                    v[r][c] = sh.stage[(c * ROWS + y) * LW + c0];
                    top = fmaxf(top, fabsf(v[r][c]));
                }
            }
        }
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
        if (lane == 0) sh.red[warp] = top;
        __syncthreads();
        if (band + 1 < band1) fill_stage<VEC>(sh.stage, image, (band + 1) * 4, x0, H, W);
        top = fmaxf(fmaxf(sh.red[0], sh.red[1]), fmaxf(sh.red[2], sh.red[3]));
        int e = (int)(__float_as_uint(top) >> 23) & 255;
        if (e == 255) e = 138;
        e = max(e, 12);
        const float scale = __uint_as_float((uint32_t)(min(265 - e, 254)) << 23);       // 2^(11 - exponent)
        const float inv = (1.0f / scale) * inv_w;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int i = tid + r * THREADS;
            if (i < TILE_UNITS) {
                uint32_t h[4], l[4];
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const float a = v[r][2 * c] * scale, b = v[r][2 * c + 1] * scale;
                    const __half2 hh = __floats2half2_rn(a, b);
                    const float2 back = __half22float2(hh);
                    const __half2 ll = __floats2half2_rn(a - back.x, b - back.y);
                    h[c] = *reinterpret_cast<const uint32_t*>(&hh);
                    l[c] = *reinterpret_cast<const uint32_t*>(&ll);
                }
                sh.hi[i] = make_uint4(h[0], h[1], h[2], h[3]);
                sh.lo[i] = make_uint4(l[0], l[1], l[2], l[3]);
            }
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();

        // row m of the band by 64 channels is acc[m]; a step of 16 values of K is two taps
        float acc[4][8][4];
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
            for (int t = 0; t < 8; ++t)
#pragma unroll
                for (int c = 0; c < 4; ++c) acc[m][t][c] = 0.0f;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 5; ++k) {
            const int first = ((2 * k) / 3) * LW + (2 * k) % 3;
            const int second = k < 4 ? ((2 * k + 1) / 3) * LW + (2 * k + 1) % 3 : first + 1;
            const uint32_t at = (uint32_t)first * 16u, lead = (uint32_t)(second - first);
            const uint64_t bh = descriptor(wh_addr + k * (2 * COUT * 16), COUT), bl = descriptor(wl_addr + k * (2 * COUT * 16), COUT);
#pragma unroll
            for (int m = 0; m < 4; ++m) wgmma(acc[m], descriptor(lo_addr + at + m * (LW * 16), lead), bh, k > 0);
#pragma unroll
            for (int m = 0; m < 4; ++m) wgmma(acc[m], descriptor(hi_addr + at + m * (LW * 16), lead), bl, 1);
#pragma unroll
            for (int m = 0; m < 4; ++m) wgmma(acc[m], descriptor(hi_addr + at + m * (LW * 16), lead), bh, 1);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

        if (band == band0) {
            // the first pixel of the block gives each group a shift, so that the sums of squares do not cancel
            if (warp == 0 && (lane == 0 || lane == 2)) {
#pragma unroll
                for (int t = 0; t < 8; ++t) {
                    const float2 mt = sh.meta[t * 8 + 2 * q];
                    sh.shift[2 * t + (lane >> 1)] = mt.y * fmaf(acc[0][t][0], inv, mt.x);
                }
            }
            __syncthreads();
            if (tid < COUT) {
                const float2 mt = sh.meta[tid];
                const float back = mt.y * sh.shift[tid >> 2];
                sh.base[tid] = make_float2(mt.x - back, mt.y);
                sh.back[tid] = back;
            }
            __syncthreads();
        }
        const int rows = min(4, HC - band * 4);
        float best[32], sums[16];
        if (cols_full && rows == 4) absorb<true>(acc, inv, sh.base, q, 4, true, true, best, sums);
        else absorb<false>(acc, inv, sh.base, q, rows, ok0, ok1, best, sums);
        fold<8, 16, false>(sums, lane);
        fold<4, 8, false>(sums, lane);
        fold<2, 4, false>(sums, lane);
        run[0] += sums[0];
        run[1] += sums[1];

        // four lanes share a cell: each finishes a quarter of the channels
        fold<16, 4, true>(best, lane);
        fold<8, 8, true>(best, lane);
        const int t0 = ((lane >> 2) & 1) * 4 + ((lane >> 3) & 1) * 2;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int ch = (t0 + (i >> 2)) * 8 + 2 * q + ((i >> 1) & 1);
            sh.pool[ch * POOL_PITCH + 4 * warp + 2 * (i & 1) + (lane >> 4)] = best[i];
        }
    }

    // lanes hold: bit 4 sum or squares, bits 3 and 2 the upper bits of t, bit 1 the half of the 8 channels
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        run[i] += __shfl_xor_sync(0xffffffffu, run[i], 1);
        const int t = ((lane >> 3) & 1) * 4 + ((lane >> 2) & 1) * 2 + i;
        if ((lane & 1) == 0) sh.sums[warp][lane >> 4][2 * t + ((lane >> 1) & 1)] = run[i];
    }
    __syncthreads();
    store_pool(sh, out, n, band1 - 1, x0 >> 2, PH, PW);
    if (tid < GROUPS) {
        double a = 0.0, b = 0.0;
        for (int w = 0; w < 4; ++w) { a += sh.sums[w][0][tid]; b += sh.sums[w][1][tid]; }
        const double k = sh.shift[tid];
        const double count = 4.0 * (min(WC, x0 + TW) - x0) * (min(HC, band1 * 4) - band0 * 4);
        double* p = partial + (size_t)blockIdx.x * (2 * GROUPS) + 2 * tid;
        p[0] = a + count * k;
        p[1] = b + 2.0 * k * a + count * k * k;
    }
}

// In place on the pooled values: normalization, scale, clamp. One block for an image and a group.
__global__ void __launch_bounds__(256)
finish(float* __restrict__ out, const double* __restrict__ partial, int parts, double count, float eps, const float* __restrict__ gamma,
       const float* __restrict__ beta, const float* __restrict__ scale, float low, float high, int plane) {
    const int n = blockIdx.x / GROUPS, grp = blockIdx.x % GROUPS;
    double a = 0.0, b = 0.0;
    const double* p = partial + (size_t)n * parts * (2 * GROUPS) + 2 * grp;
    for (int i = 0; i < parts; ++i) {
        a += __ldg(p + (size_t)i * (2 * GROUPS));
        b += __ldg(p + (size_t)i * (2 * GROUPS) + 1);
    }
    const double mean = a / count;
    const double var = fmax(b / count - mean * mean, 0.0);
    const double exact = 1.0 / sqrt(var + (double)eps);
    float mul[4], add[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        const int ch = grp * 4 + c;
        const double gm = __ldg(gamma + ch), bt = __ldg(beta + ch), sc = __ldg(scale + ch);
        mul[c] = (float)fabs(exact * gm * sc);
        add[c] = (float)((bt - mean * exact * gm) * sc);
    }
    float4* o = reinterpret_cast<float4*>(out + ((size_t)n * COUT + grp * 4) * plane);
    for (int i = threadIdx.x; i < plane; i += 256) {
        const float4 v = o[i];
        float r[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int at = 4 * i + j;
            const int c = (at >= plane) + (at >= 2 * plane) + (at >= 3 * plane);
            const float m0 = c == 0 ? mul[0] : c == 1 ? mul[1] : c == 2 ? mul[2] : mul[3];
            const float a0 = c == 0 ? add[0] : c == 1 ? add[1] : c == 2 ? add[2] : add[3];
            const float y = fmaf(r[j], m0, a0);
            const float z = y < low ? low : y;
            r[j] = z > high ? high : z;
        }
        o[i] = make_float4(r[0], r[1], r[2], r[3]);
    }
}

}  // namespace

torch::Tensor conv_norm_pool(torch::Tensor x, torch::Tensor packed, torch::Tensor meta, torch::Tensor gamma, torch::Tensor beta,
                             torch::Tensor scale, double eps, double low, double high) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat, "x has to be contiguous f32 on the device");
    TORCH_CHECK(x.dim() == 4 && x.size(1) == CIN, "x has to have 8 channels");
    const c10::cuda::CUDAGuard guard(x.device());
    const int N = (int)x.size(0), H = (int)x.size(2), W = (int)x.size(3);
    const int HC = H - 2, WC = W - 2, PH = HC / 4, PW = WC / 4;
    TORCH_CHECK(PH > 0 && PW > 0, "the image is too small");
    auto out = torch::empty({N, COUT, PH, PW}, x.options());
    if (N == 0) return out;
    const int tiles_x = (WC + TW - 1) / TW, bands = (HC + 3) / 4, segments = (bands + BANDS - 1) / BANDS;
    const int parts = tiles_x * segments;
    auto partial = torch::empty({(int64_t)N * parts * 2 * GROUPS}, x.options().dtype(torch::kDouble));
    auto stream = at::cuda::getCurrentCUDAStream();
    const float* px = x.data_ptr<float>();
    const uint4* pk = reinterpret_cast<const uint4*>(packed.data_ptr());
    const bool vec = W % 4 == 0 && (reinterpret_cast<uintptr_t>(px) & 15) == 0;
    static const cudaError_t set_a =
        cudaFuncSetAttribute(conv_pool<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
    static const cudaError_t set_b =
        cudaFuncSetAttribute(conv_pool<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
    TORCH_CHECK(set_a == cudaSuccess && set_b == cudaSuccess, "shared memory could not be asked for");
    if (vec)
        conv_pool<true><<<N * parts, THREADS, sizeof(Shared), stream>>>(px, pk, meta.data_ptr<float>(), out.data_ptr<float>(),
                                                                        partial.data_ptr<double>(), H, W, tiles_x, segments);
    else
        conv_pool<false><<<N * parts, THREADS, sizeof(Shared), stream>>>(px, pk, meta.data_ptr<float>(), out.data_ptr<float>(),
                                                                         partial.data_ptr<double>(), H, W, tiles_x, segments);
    cudaError_t launched = cudaGetLastError();
    TORCH_CHECK(launched == cudaSuccess, cudaGetErrorString(launched));
    finish<<<N * GROUPS, 256, 0, stream>>>(out.data_ptr<float>(), partial.data_ptr<double>(), parts, 4.0 * HC * WC, (float)eps,
                                           gamma.data_ptr<float>(), beta.data_ptr<float>(), scale.data_ptr<float>(), (float)low,
                                           (float)high, PH * PW);
    launched = cudaGetLastError();
    TORCH_CHECK(launched == cudaSuccess, cudaGetErrorString(launched));
    return out;
}
"""

CPP_SOURCE = """
torch::Tensor conv_norm_pool(torch::Tensor x, torch::Tensor packed, torch::Tensor meta, torch::Tensor gamma, torch::Tensor beta,
                             torch::Tensor scale, double eps, double low, double high);
"""

_ext = load_inline(
    name="nightshift_conv_norm_pool",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["conv_norm_pool"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


def _pack(weight, bias, gamma, scale):
    """Weights as split fp16 by tap, channel and input channel, and sign and bias of each channel.

    A channel whose gamma * scale is negative is computed with the opposite sign, so that the pool is a maximum everywhere.
    """
    sign = torch.where(gamma * scale.reshape(-1) < 0, -1.0, 1.0).to(torch.float32)
    w = weight * sign[:, None, None, None]
    exponent = torch.frexp(w.abs().max().clamp_min(1e-30))[1]
    factor = torch.ldexp(torch.ones((), device=w.device), 12 - exponent)
    w = (w * factor).permute(2, 3, 0, 1).reshape(9, 64, 8)
    # high and low part together keep 22 bits, nearly those of f32
    high = w.half()
    low = (w - high.float()).half()
    zero = torch.zeros_like(high[:1])
    packed = torch.cat([high, zero, low, zero]).contiguous()
    meta = torch.cat([sign * bias, sign, (1.0 / factor).reshape(1)]).contiguous()
    return packed, meta


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups, scale_shape, maxpool_kernel_size, clamp_min, clamp_max):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        self.scale = nn.Parameter(torch.ones(scale_shape))
        self.maxpool = nn.MaxPool2d(kernel_size=maxpool_kernel_size)
        self.clamp_min = clamp_min
        self.clamp_max = clamp_max
        self._fits = (
            (in_channels, out_channels, kernel_size, num_groups, maxpool_kernel_size) == (8, 64, 3, 16, 4)
            and tuple(scale_shape) == (64, 1, 1)
        )
        self._key = None
        self._packed = None

    def _weights(self):
        tensors = (self.conv.weight, self.conv.bias, self.group_norm.weight, self.scale)
        key = tuple((t.data_ptr(), t._version, t.device) for t in tensors)
        if key != self._key:
            self._packed = _pack(*(t.detach() for t in tensors))
            self._key = key
        return self._packed

    def forward(self, x):
        if not self._fits:
            x = self.group_norm(self.conv(x)) * self.scale
            return torch.clamp(self.maxpool(x), self.clamp_min, self.clamp_max)
        packed, meta = self._weights()
        return _ext.conv_norm_pool(
            x.contiguous(), packed, meta, self.group_norm.weight.detach(), self.group_norm.bias.detach(), self.scale.detach(),
            self.group_norm.eps, float(self.clamp_min), float(self.clamp_max),
        )
