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

constexpr int CIN = 64, COUT = 128, TAPS = 9;
constexpr int TW = 126;                                   // conv columns of a strip; 128 input columns
constexpr int THREADS = 256;
constexpr int SLOTS = 5;                                  // input rows in the ring
constexpr int SLOT_BYTES = 128 * CIN * 2;
constexpr int WEIGHT_UNITS = TAPS * 4 * 8 * 32;           // 16 bytes each
constexpr int WEIGHT_BYTES = WEIGHT_UNITS * 16;
constexpr int SMEM_BYTES = WEIGHT_BYTES + SLOTS * SLOT_BYTES + 512;

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void ldsm4(uint32_t (&r)[4], uint32_t a) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}

__device__ __forceinline__ void mma16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Eight channels of one pixel: loaded from eight planes, stored as 16 bytes of fp16.
__device__ __forceinline__ void load8(float (&v)[8], const float* __restrict__ p, int plane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = __ldg(p + (size_t)i * plane);
}

__device__ __forceinline__ void store8(unsigned char* slot, const float (&v)[8], int px, int chunk) {
    uint32_t h[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 hh = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
        h[i] = *reinterpret_cast<const uint32_t*>(&hh);
    }
    *reinterpret_cast<uint4*>(slot + px * 128 + ((chunk ^ ((px >> 1) & 7)) << 4)) = make_uint4(h[0], h[1], h[2], h[3]);
}

__device__ __forceinline__ int wrap5(int s) { return s >= 5 ? s - 5 : s; }

// Lanes that differ in the bit WIDTH share 2 * WIDTH sums: each keeps the sum of one half.
template <int WIDTH>
__device__ __forceinline__ void fold(float (&v)[32], int lane) {
    const bool up = (lane & WIDTH) != 0;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        const float keep = up ? v[WIDTH + i] : v[i];
        const float give = up ? v[i] : v[WIDTH + i];
        v[i] = keep + __shfl_xor_sync(0xffffffffu, give, WIDTH);
    }
}

// Block that owns a step when `total` steps are cut into `blocks` even ranges.
__device__ __forceinline__ int owner(int step, int total, int blocks) {
    return (int)(((long long)(step + 1) * blocks - 1) / total);
}

// Raw convolution without bias, and sums and squares per strip, block and channel.
// A strip is an image by 126 conv columns, a step two conv rows of it. A block walks over consecutive steps.
template <bool PAIRS>
__global__ void __launch_bounds__(THREADS, 1)
conv_sums(const float* __restrict__ x, const uint4* __restrict__ packed, float* __restrict__ out, float* __restrict__ partial,
          int H, int W, int tiles_x, int per_strip, int total, int slots) {
    extern __shared__ __align__(128) unsigned char smem[];
    const uint4* weights = reinterpret_cast<const uint4*>(smem);
    unsigned char* ring = smem + WEIGHT_BYTES;
    const uint32_t ring_addr = smem_addr(ring);
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, g = lane >> 2, q = lane & 3;
    const int wm = warp & 3, wn = warp >> 2, wrow = wm >> 1, wcol = (wm & 1) * 64;
    const int HC = H - 2, WC = W - 2, plane = H * W;
    const size_t out_plane = (size_t)HC * WC;

    for (int i = tid; i < WEIGHT_UNITS; i += THREADS) reinterpret_cast<uint4*>(smem)[i] = __ldg(packed + i);

    // this lane's row of the matrices: pixels are even ones in rows 0 to 7, odd ones in rows 8 to 15
    const int odd = (lane >> 3) & 1, khalf = lane >> 4, lrow = lane & 7;
    const uint32_t lane_px = (uint32_t)(wcol + 2 * lrow + odd);
    const int fill_px = tid & 127, fill_chunk = tid >> 7;

    const int start = (int)((long long)blockIdx.x * total / gridDim.x);
    const int end = (int)((long long)(blockIdx.x + 1) * total / gridDim.x);
    float run[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int base = 0;

    for (int step = start; step < end; ++step) {
        const int strip = step / per_strip, pair = step - strip * per_strip;
        const int n = strip / tiles_x, x0 = (strip - n * tiles_x) * TW;
        const int y0 = 2 * pair;
        const float* column = x + (size_t)n * CIN * plane + min(x0 + fill_px, W - 1);

        if (step == start || pair == 0) {
            base = 0;
            for (int r = 0; r < 4; ++r) {
                const float* line = column + (size_t)min(y0 + r, H - 1) * W;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float v[8];
                    load8(v, line + (size_t)(fill_chunk + 2 * i) * 8 * plane, plane);
                    store8(ring + r * SLOT_BYTES, v, fill_px, fill_chunk + 2 * i);
                }
            }
            __syncthreads();
        }
        const bool more = step + 1 < end && pair + 1 < per_strip;
        const float* line_a = column + (size_t)min(y0 + 4, H - 1) * W;
        const float* line_b = column + (size_t)min(y0 + 5, H - 1) * W;
        unsigned char* slot_a = ring + wrap5(base + 4) * SLOT_BYTES;
        unsigned char* slot_b = ring + base * SLOT_BYTES;

        float acc[4][8][4];
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
            for (int t = 0; t < 8; ++t)
#pragma unroll
                for (int c = 0; c < 4; ++c) acc[m][t][c] = 0.0f;

#pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int dy = tap / 3, dx = tap - 3 * dy;
            if (tap == 3) __syncthreads();               // nobody reads the first row any more
            float v[8];
            const bool fetch = more && tap < 8;
            const int chunk = fill_chunk + 2 * (tap & 3);
            if (fetch) load8(v, (tap < 4 ? line_a : line_b) + (size_t)chunk * 8 * plane, plane);

            const uint32_t row_addr = ring_addr + (uint32_t)wrap5(base + wrow + dy) * SLOT_BYTES + (lane_px + dx) * 128u;
            const uint32_t swizzle = (uint32_t)((lrow + ((odd + dx) >> 1)) & 7);
            const uint4* wt = weights + (tap * 4 * 8 + wn * 4) * 32 + lane;
            uint32_t a[2][4][4];
            uint4 b[2][4];
            auto load = [&](int buf, int kc) {
                const uint32_t at = row_addr + (((uint32_t)(2 * kc + khalf) ^ swizzle) << 4);
#pragma unroll
                for (int m = 0; m < 4; ++m) ldsm4(a[buf][m], at + m * 2048u);
#pragma unroll
                for (int p = 0; p < 4; ++p) b[buf][p] = wt[(kc * 8 + p) * 32];
            };
            load(0, 0);
#pragma unroll
            for (int kc = 0; kc < 4; ++kc) {
                if (kc < 3) load((kc + 1) & 1, kc + 1);
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const uint4 w = b[kc & 1][p];
#pragma unroll
                    for (int m = 0; m < 4; ++m) mma16(acc[m][2 * p], a[kc & 1][m], w.x, w.y);
#pragma unroll
                    for (int m = 0; m < 4; ++m) mma16(acc[m][2 * p + 1], a[kc & 1][m], w.z, w.w);
                }
            }
            if (fetch) store8(tap < 4 ? slot_a : slot_b, v, fill_px, chunk);
        }

        // results, and their sums over the warp's 64 pixels
        const int y = y0 + wrow, limit = min(WC, x0 + TW);
        const int xbase = x0 + wcol + 2 * g;
        if (y < HC) {
            float* o = out + ((size_t)n * COUT + wn * 64 + 2 * q) * out_plane + (size_t)y * WC + xbase;
#pragma unroll
            for (int t = 0; t < 8; ++t) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float* oc = o + (size_t)(t * 8 + c) * out_plane;
#pragma unroll
                    for (int m = 0; m < 4; ++m) {
                        const bool ok0 = xbase + 16 * m < limit, ok1 = xbase + 16 * m + 1 < limit;
                        if (PAIRS) {
                            if (ok0) *reinterpret_cast<float2*>(oc + 16 * m) = make_float2(acc[m][t][c], acc[m][t][2 + c]);
                        } else {
                            if (ok0) oc[16 * m] = acc[m][t][c];
                            if (ok1) oc[16 * m + 1] = acc[m][t][2 + c];
                        }
                        if (!ok0) acc[m][t][c] = 0.0f;
                        if (!ok1) acc[m][t][2 + c] = 0.0f;
                    }
                }
            }
            float sums[32];
#pragma unroll
            for (int t = 0; t < 8; ++t) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float s = 0.0f, sq = 0.0f;
#pragma unroll
                    for (int m = 0; m < 4; ++m) {
                        s += acc[m][t][c] + acc[m][t][2 + c];
                        sq = fmaf(acc[m][t][c], acc[m][t][c], sq);
                        sq = fmaf(acc[m][t][2 + c], acc[m][t][2 + c], sq);
                    }
                    sums[2 * t + c] = s;
                    sums[16 + 2 * t + c] = sq;
                }
            }
            fold<16>(sums, lane);
            fold<8>(sums, lane);
            fold<4>(sums, lane);
#pragma unroll
            for (int i = 0; i < 4; ++i) run[i] += sums[i];
        }
        if (step + 1 == end || pair + 1 == per_strip) {
            const int slot = blockIdx.x - owner(strip * per_strip, total, gridDim.x);
            float* p = partial + ((size_t)(strip * slots + slot) * 4 + wm) * (2 * COUT) + (lane >> 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int t = ((lane >> 3) & 1) * 4 + ((lane >> 2) & 1) * 2 + (i >> 1);
                p[2 * (wn * 64 + t * 8 + 2 * q + (i & 1))] = run[i];
                run[i] = 0.0f;
            }
        }
        base = wrap5(base + 2);
        __syncthreads();
    }
}

// In place: (value - mean) * rstd / divide_by. One block for a plane; the last written planes come first, they are in L2.
template <bool VEC>
__global__ void __launch_bounds__(256)
normalize(float* __restrict__ out, const float* __restrict__ partial, const float* __restrict__ inv_w, int plane, int tiles_x,
          int per_strip, int total, int blocks, int slots, double eps, double divide_by) {
    const int id = gridDim.x - 1 - blockIdx.x, n = id / COUT, ch = id % COUT;
    double s = 0.0, sq = 0.0;
    for (int tx = 0; tx < tiles_x; ++tx) {
        const int strip = n * tiles_x + tx;
        const int used = owner((strip + 1) * per_strip - 1, total, blocks) - owner(strip * per_strip, total, blocks) + 1;
        const float* p = partial + (size_t)strip * slots * 4 * (2 * COUT) + 2 * ch;
        for (int i = 0; i < used * 4; ++i) {
            const float2 v = __ldg(reinterpret_cast<const float2*>(p + (size_t)i * (2 * COUT)));
            s += v.x;
            sq += v.y;
        }
    }
    const double factor = __ldg(inv_w);
    const double mean = s / plane;
    const double var = fmax(sq / plane - mean * mean, 0.0) * factor * factor;
    const double mul = factor / (sqrt(var + eps) * divide_by);
    const float m = (float)mul, a = (float)(-mean * mul);
    float* o = out + (size_t)id * plane;
    if (VEC) {
        float4* o4 = reinterpret_cast<float4*>(o);
        const int count = plane / 4;
        int i = threadIdx.x;
        for (; i + 768 < count; i += 1024) {
            float4 v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = o4[i + 256 * j];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                o4[i + 256 * j] = make_float4(fmaf(v[j].x, m, a), fmaf(v[j].y, m, a), fmaf(v[j].z, m, a), fmaf(v[j].w, m, a));
        }
        for (; i < count; i += 256) {
            const float4 v = o4[i];
            o4[i] = make_float4(fmaf(v.x, m, a), fmaf(v.y, m, a), fmaf(v.z, m, a), fmaf(v.w, m, a));
        }
    } else {
        for (int i = threadIdx.x; i < plane; i += 256) o[i] = fmaf(o[i], m, a);
    }
}

}  // namespace

torch::Tensor conv_instance_norm(torch::Tensor x, torch::Tensor packed, torch::Tensor inv_w, double eps, double divide_by) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat, "x has to be contiguous f32 on the device");
    TORCH_CHECK(x.dim() == 4 && x.size(1) == CIN, "x has to have 64 channels");
    const c10::cuda::CUDAGuard guard(x.device());
    const int N = (int)x.size(0), H = (int)x.size(2), W = (int)x.size(3);
    const int HC = H - 2, WC = W - 2;
    TORCH_CHECK(HC > 0 && WC > 0, "the image is too small");
    auto out = torch::empty({N, COUT, HC, WC}, x.options());
    if (N == 0) return out;
    const int tiles_x = (WC + TW - 1) / TW, per_strip = (HC + 1) / 2;
    const int total = N * tiles_x * per_strip;
    const int sms = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
    const int blocks = total < sms ? total : sms;
    const int least = total / blocks;
    const int slots = (per_strip + least - 1) / least + 1;
    auto partial = torch::empty({(int64_t)N * tiles_x * slots * 4 * 2 * COUT}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    static const cudaError_t set_a =
        cudaFuncSetAttribute(conv_sums<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    static const cudaError_t set_b =
        cudaFuncSetAttribute(conv_sums<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES);
    TORCH_CHECK(set_a == cudaSuccess && set_b == cudaSuccess, "shared memory could not be asked for");
    const uint4* pk = reinterpret_cast<const uint4*>(packed.data_ptr());
    float* po = out.data_ptr<float>();
    float* pp = partial.data_ptr<float>();
    if (WC % 2 == 0)
        conv_sums<true><<<blocks, THREADS, SMEM_BYTES, stream>>>(x.data_ptr<float>(), pk, po, pp, H, W, tiles_x, per_strip, total, slots);
    else
        conv_sums<false><<<blocks, THREADS, SMEM_BYTES, stream>>>(x.data_ptr<float>(), pk, po, pp, H, W, tiles_x, per_strip, total, slots);
    cudaError_t launched = cudaGetLastError();
    TORCH_CHECK(launched == cudaSuccess, cudaGetErrorString(launched));
    const int plane = HC * WC;
    if (plane % 4 == 0)
        normalize<true><<<N * COUT, 256, 0, stream>>>(po, pp, inv_w.data_ptr<float>(), plane, tiles_x, per_strip, total, blocks, slots,
                                                      eps, divide_by);
    else
        normalize<false><<<N * COUT, 256, 0, stream>>>(po, pp, inv_w.data_ptr<float>(), plane, tiles_x, per_strip, total, blocks, slots,
                                                       eps, divide_by);
    launched = cudaGetLastError();
    TORCH_CHECK(launched == cudaSuccess, cudaGetErrorString(launched));
    return out;
}
"""

CPP_SOURCE = (
    "torch::Tensor conv_instance_norm(torch::Tensor x, torch::Tensor packed, torch::Tensor inv_w, double eps, double divide_by);"
)

_ext = load_inline(
    name="nightshift_conv_instance_norm",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["conv_instance_norm"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


def _pack(weight):
    """Weights as fp16, scaled by a power of two, in the order of the fragments; and what undoes the scale."""
    exponent = torch.frexp(weight.abs().max().clamp_min(1e-30))[1]
    factor = torch.ldexp(torch.ones((), device=weight.device), 4 - exponent)
    w = (weight * factor).half().permute(2, 3, 0, 1).reshape(9, 8, 2, 8, 4, 2, 4, 2)
    packed = w.permute(0, 4, 1, 3, 6, 2, 5, 7).contiguous().reshape(-1)
    return packed, (1.0 / factor).reshape(1)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divide_by):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.divide_by = divide_by
        self._fits = (in_channels, out_channels, kernel_size) == (64, 128, 3)
        self._key = None
        self._packed = None

    def _weights(self):
        w = self.conv.weight
        key = (w.data_ptr(), w._version, w.device)
        if key != self._key:
            self._packed = _pack(w.detach())
            self._key = key
        return self._packed

    def forward(self, x):
        if not self._fits:
            return self.instance_norm(self.conv(x)) / self.divide_by
        packed, inv_w = self._weights()
        return _ext.conv_instance_norm(x.contiguous(), packed, inv_w, self.instance_norm.eps, float(self.divide_by))
