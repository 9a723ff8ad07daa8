import os

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <torch/extension.h>
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t width, double eps);
"""

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cstdint>

constexpr int THREADS = 256;
constexpr int PIECE = 32768;          // elements of one sample that one block reduces
constexpr int GROUP = 4;              // samples for which a block keeps weight and bias
constexpr int VECS = 2;               // float4 per thread in the normalization

__device__ __forceinline__ void take(float v, float shift, float& s, float& q) {
    float d = v - shift;
    s += d;
    q = fmaf(d, d, q);
}

__device__ __forceinline__ void finish_block(float s, float q, float shift, double count, double2* out) {
    __shared__ float shared_s[THREADS / 32];
    __shared__ float shared_q[THREADS / 32];
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        s += __shfl_xor_sync(0xffffffffu, s, o);
        q += __shfl_xor_sync(0xffffffffu, q, o);
    }
    if ((threadIdx.x & 31) == 0) {
        shared_s[threadIdx.x >> 5] = s;
        shared_q[threadIdx.x >> 5] = q;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double ts = 0.0, tq = 0.0;
        for (int i = 0; i < THREADS / 32; ++i) {
            ts += (double)shared_s[i];
            tq += (double)shared_q[i];
        }
        double m2 = tq - ts * ts / count;
        *out = make_double2((double)shift + ts / count, m2 > 0.0 ? m2 : (m2 == m2 ? 0.0 : m2));
    }
}

__global__ void __launch_bounds__(THREADS) stats_vec(const float4* __restrict__ x, double2* __restrict__ part,
                                                     int64_t width4, int pieces) {
    const int64_t sample = blockIdx.x / pieces;
    const int64_t piece = blockIdx.x % pieces;
    const int64_t begin = piece * (PIECE / 4);
    const int64_t left = width4 - begin;
    const int count = (int)(left < PIECE / 4 ? left : PIECE / 4);
    const float4* p = x + sample * width4 + begin;
    const float shift = __ldg(reinterpret_cast<const float*>(p));
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    float q[4] = {0.f, 0.f, 0.f, 0.f};
    if (count == PIECE / 4) {
        constexpr int BATCH = 8;
        #pragma unroll 1
        for (int i = 0; i < PIECE / 4; i += THREADS * BATCH) {
            float4 v[BATCH];
            #pragma unroll
            for (int k = 0; k < BATCH; ++k) v[k] = __ldg(p + i + k * THREADS + threadIdx.x);
            #pragma unroll
            for (int k = 0; k < BATCH; ++k) {
                take(v[k].x, shift, s[0], q[0]);
                take(v[k].y, shift, s[1], q[1]);
                take(v[k].z, shift, s[2], q[2]);
                take(v[k].w, shift, s[3], q[3]);
            }
        }
    } else {
        for (int i = threadIdx.x; i < count; i += THREADS) {
            float4 v = __ldg(p + i);
            take(v.x, shift, s[0], q[0]);
            take(v.y, shift, s[1], q[1]);
            take(v.z, shift, s[2], q[2]);
            take(v.w, shift, s[3], q[3]);
        }
    }
    finish_block((s[0] + s[1]) + (s[2] + s[3]), (q[0] + q[1]) + (q[2] + q[3]), shift, 4.0 * (double)count, part + blockIdx.x);
}

__global__ void __launch_bounds__(THREADS) stats_scalar(const float* __restrict__ x, double2* __restrict__ part,
                                                        int64_t width, int pieces) {
    const int64_t sample = blockIdx.x / pieces;
    const int64_t piece = blockIdx.x % pieces;
    const int64_t begin = piece * PIECE;
    const int64_t left = width - begin;
    const int count = (int)(left < PIECE ? left : PIECE);
    const float* p = x + sample * width + begin;
    const float shift = __ldg(p);
    float s = 0.f, q = 0.f;
    for (int i = threadIdx.x; i < count; i += THREADS) take(__ldg(p + i), shift, s, q);
    finish_block(s, q, shift, (double)count, part + blockIdx.x);
}

__global__ void combine(const double2* __restrict__ part, float2* __restrict__ stats, int64_t width, int pieces, double eps) {
    const double2* p = part + (int64_t)blockIdx.x * pieces;
    double n = 0.0, mean = 0.0, m2 = 0.0;
    for (int i = threadIdx.x; i < pieces; i += 32) {
        const int64_t left = width - (int64_t)i * PIECE;
        const double c = (double)(left < PIECE ? left : (int64_t)PIECE);
        const double2 v = p[i];
        const double total = n + c;
        const double d = v.x - mean;
        mean += d * (c / total);
        m2 += v.y + d * d * (n * c / total);
        n = total;
    }
    for (int o = 16; o > 0; o >>= 1) {
        const double on = __shfl_xor_sync(0xffffffffu, n, o);
        const double om = __shfl_xor_sync(0xffffffffu, mean, o);
        const double oq = __shfl_xor_sync(0xffffffffu, m2, o);
        const double total = n + on;
        if (total > 0.0) {
            // symmetric in both partners, so that all lanes agree
            const double d = om - mean;
            mean = (mean * n + om * on) / total;
            m2 = m2 + oq + d * d * (n * on / total);
            n = total;
        }
    }
    if (threadIdx.x == 0) stats[blockIdx.x] = make_float2((float)mean, (float)(1.0 / sqrt(m2 / (double)width + eps)));
}

__device__ __forceinline__ float4 apply(float4 v, float2 st, float4 w, float4 b) {
    float4 r;
    r.x = fmaf((v.x - st.x) * st.y, w.x, b.x);
    r.y = fmaf((v.y - st.x) * st.y, w.y, b.y);
    r.z = fmaf((v.z - st.x) * st.y, w.z, b.z);
    r.w = fmaf((v.w - st.x) * st.y, w.w, b.w);
    return r;
}

template <bool AFFINE>
__global__ void __launch_bounds__(THREADS) normalize_vec(const float4* __restrict__ x, const float4* __restrict__ weight,
                                                         const float4* __restrict__ bias, const float2* __restrict__ stats,
                                                         float4* __restrict__ y, int64_t width4, int64_t samples,
                                                         int64_t chunks, int64_t groups) {
    const int64_t group = groups - 1 - (int64_t)blockIdx.x / chunks;
    const int64_t chunk = (int64_t)blockIdx.x % chunks;
    const int64_t first = chunk * (THREADS * VECS) + threadIdx.x;
    const int64_t s0 = group * GROUP;
    float4 v[GROUP][VECS];
    float4 w[VECS], b[VECS];
    #pragma unroll
    for (int g = GROUP - 1; g >= 0; --g) {
        #pragma unroll
        for (int k = 0; k < VECS; ++k) {
            const int64_t i = first + k * THREADS;
            if (s0 + g < samples && i < width4) v[g][k] = __ldcs(x + (s0 + g) * width4 + i);
        }
    }
    #pragma unroll
    for (int k = 0; k < VECS; ++k) {
        const int64_t i = first + k * THREADS;
        w[k] = make_float4(1.f, 1.f, 1.f, 1.f);
        b[k] = make_float4(0.f, 0.f, 0.f, 0.f);
        if (AFFINE && i < width4) {
            w[k] = __ldg(weight + i);
            b[k] = __ldg(bias + i);
        }
    }
    #pragma unroll
    for (int g = GROUP - 1; g >= 0; --g) {
        if (s0 + g < samples) {
            const float2 st = __ldg(stats + s0 + g);
            #pragma unroll
            for (int k = 0; k < VECS; ++k) {
                const int64_t i = first + k * THREADS;
                if (i < width4) __stcs(y + (s0 + g) * width4 + i, apply(v[g][k], st, w[k], b[k]));
            }
        }
    }
}

template <bool AFFINE>
__global__ void __launch_bounds__(THREADS) normalize_scalar(const float* __restrict__ x, const float* __restrict__ weight,
                                                            const float* __restrict__ bias, const float2* __restrict__ stats,
                                                            float* __restrict__ y, int64_t width, int64_t total) {
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < total; i += step) {
        const int64_t sample = i / width;
        const int64_t f = i - sample * width;
        const float2 st = __ldg(stats + sample);
        float r = (__ldg(x + i) - st.x) * st.y;
        if (AFFINE) r = fmaf(r, __ldg(weight + f), __ldg(bias + f));
        y[i] = r;
    }
}

// ---- one pass: a block keeps its slice of one sample in registers, of the weight and most of the bias in shared memory ----

constexpr int OT = 512;                        // threads of a block
constexpr int ROWS = 16;                       // float4 of one sample per thread
constexpr int SLICE = OT * ROWS * 4;           // 32768 elements of the normalized shape per block
constexpr int KEPT = 12;                       // rows of the bias that stay in shared memory, beside all rows of the weight
constexpr int ONE_PASS_SMEM = (ROWS + KEPT) * OT * 16;
constexpr int PREFETCHES = 8;
constexpr int PREFETCH_BYTES = SLICE * 4 / PREFETCHES;
constexpr int MAX_BLOCKS = 160;
constexpr unsigned long long EMPTY = 0xffffffffffffffffull;

__device__ __forceinline__ float4 load_hinted(const float4* p, uint64_t policy) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;\n"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p), "l"(policy));
    return v;
}

__device__ __forceinline__ void prefetch_slice(const float* slice) {
    if (threadIdx.x < PREFETCHES) {
        const char* p = reinterpret_cast<const char*>(slice) + threadIdx.x * PREFETCH_BYTES;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(p), "r"(PREFETCH_BYTES) : "memory");
    }
}

__global__ void __launch_bounds__(OT, 1) one_pass(const float* __restrict__ x, const float* __restrict__ weight,
                                                  const float* __restrict__ bias, float* __restrict__ y,
                                                  unsigned long long* __restrict__ part, int samples, int64_t width, double eps) {
    extern __shared__ __align__(128) unsigned char raw[];
    float4* ws = reinterpret_cast<float4*>(raw);
    float4* bs = ws + ROWS * OT;
    __shared__ float sh_s[OT / 32];
    __shared__ float sh_q[OT / 32];
    __shared__ float2 sh_stat;

    const int tid = threadIdx.x;
    const int lane = tid & 31;
    const int warp = tid >> 5;
    const int blocks = gridDim.x;
    const int64_t offset = (int64_t)blockIdx.x * SLICE;
    const float4* wp = reinterpret_cast<const float4*>(weight + offset) + tid;
    const float4* bp = reinterpret_cast<const float4*>(bias + offset) + tid;

    uint64_t keep, stream_through;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(keep));
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(stream_through));

    prefetch_slice(x + offset);
    // every word of the exchange is emptied in this call, before any block may publish or wait
    for (int m = tid; m < samples; m += OT) {
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;\n" ::"l"(part + (int64_t)m * blocks + blockIdx.x), "l"(EMPTY) : "memory");
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) ws[r * OT + tid] = load_hinted(wp + r * OT, stream_through);   // read back by the same thread only
    #pragma unroll
    for (int r = 0; r < KEPT; ++r) bs[r * OT + tid] = load_hinted(bp + r * OT, stream_through);
    cooperative_groups::this_grid().sync();

    #pragma unroll 1
    for (int m = 0; m < samples; ++m) {
        const float* slice = x + (int64_t)m * width + offset;
        const float4* xp = reinterpret_cast<const float4*>(slice) + tid;
        float4 v[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) v[r] = load_hinted(xp + r * OT, stream_through);
        const float shift = __ldg(slice);
        float s[2] = {0.f, 0.f};
        float q[2] = {0.f, 0.f};
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            take(v[r].x, shift, s[0], q[0]);
            take(v[r].y, shift, s[1], q[1]);
            take(v[r].z, shift, s[0], q[0]);
            take(v[r].w, shift, s[1], q[1]);
        }
        float bsum = s[0] + s[1];
        float bsq = q[0] + q[1];
        #pragma unroll
        for (int o = 16; o > 0; o >>= 1) {
            bsum += __shfl_xor_sync(0xffffffffu, bsum, o);
            bsq += __shfl_xor_sync(0xffffffffu, bsq, o);
        }
        if (lane == 0) {
            sh_s[warp] = bsum;
            sh_q[warp] = bsq;
        }
        __syncthreads();
        if (m + 1 < samples) prefetch_slice(slice + width);      // the present slice has arrived: the next one starts towards L2
        float4 b[ROWS - KEPT];
        #pragma unroll
        for (int r = KEPT; r < ROWS; ++r) b[r - KEPT] = load_hinted(bp + r * OT, keep);

        if (warp == 0) {
            double ts = lane < OT / 32 ? (double)sh_s[lane] : 0.0;
            double tq = lane < OT / 32 ? (double)sh_q[lane] : 0.0;
            #pragma unroll
            for (int o = 8; o > 0; o >>= 1) {
                ts += __shfl_xor_sync(0xffffffffu, ts, o);
                tq += __shfl_xor_sync(0xffffffffu, tq, o);
            }
            unsigned long long* row = part + (int64_t)m * blocks;
            if (lane == 0) {
                const double n = (double)SLICE;
                const float mean = (float)((double)shift + ts / n);
                double m2 = tq - ts * (ts / n);
                if (m2 < 0.0) m2 = 0.0;
                unsigned long long bits = ((unsigned long long)__float_as_uint((float)m2) << 32) | __float_as_uint(mean);
                if (bits == EMPTY) bits = 0x7fffffff7fffffffull;
                asm volatile("st.relaxed.gpu.global.u64 [%0], %1;\n" ::"l"(row + blockIdx.x), "l"(bits) : "memory");
            }
            __syncwarp();
            float means[MAX_BLOCKS / 32];
            double sum = 0.0, m2 = 0.0;
            #pragma unroll
            for (int i = 0; i < MAX_BLOCKS / 32; ++i) {
                const int k = i * 32 + lane;
                means[i] = 0.f;
                if (k < blocks) {
                    unsigned long long bits;
                    do {
                        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];\n" : "=l"(bits) : "l"(row + k) : "memory");
                    } while (bits == EMPTY);
                    means[i] = __uint_as_float((unsigned)bits);
                    m2 += (double)__uint_as_float((unsigned)(bits >> 32));
                    sum += (double)means[i];
                }
            }
            __syncwarp();
            #pragma unroll
            for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
            const double mean = sum / (double)blocks;
            double dev = 0.0;
            #pragma unroll
            for (int i = 0; i < MAX_BLOCKS / 32; ++i) {
                if (i * 32 + lane < blocks) {
                    const double d = (double)means[i] - mean;
                    dev += d * d;
                }
            }
            m2 += dev * (double)SLICE;
            #pragma unroll
            for (int o = 16; o > 0; o >>= 1) m2 += __shfl_xor_sync(0xffffffffu, m2, o);
            if (lane == 0) sh_stat = make_float2((float)mean, (float)(1.0 / sqrt(m2 / (double)width + eps)));
        }
        __syncthreads();
        const float2 st = sh_stat;

        float4* yp = reinterpret_cast<float4*>(y + (int64_t)m * width + offset) + tid;
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float4 bv = r < KEPT ? bs[(r < KEPT ? r : 0) * OT + tid] : b[r < KEPT ? 0 : r - KEPT];
            __stcs(yp + r * OT, apply(v[r], st, ws[r * OT + tid], bv));
        }
    }
}

torch::Tensor layer_norm_two_pass(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, bool affine, int64_t width, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous float32 on the GPU expected");
    TORCH_CHECK(width > 0 && x.numel() % width == 0, "the normalized shape does not divide the input");
    if (affine) {
        TORCH_CHECK(weight.is_cuda() && weight.scalar_type() == torch::kFloat32 && weight.is_contiguous() && weight.numel() == width, "weight");
        TORCH_CHECK(bias.is_cuda() && bias.scalar_type() == torch::kFloat32 && bias.is_contiguous() && bias.numel() == width, "bias");
    }
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    const int64_t samples = x.numel() / width;
    if (samples == 0) return y;
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    const int pieces = (int)((width + PIECE - 1) / PIECE);
    TORCH_CHECK(samples * (int64_t)pieces < (int64_t)2147483647, "too many pieces");
    auto part = torch::empty({samples * pieces * 2}, x.options().dtype(torch::kFloat64));
    auto stats = torch::empty({samples * 2}, x.options());
    double2* pp = reinterpret_cast<double2*>(part.data_ptr<double>());
    float2* st = reinterpret_cast<float2*>(stats.data_ptr<float>());
    const float* xp = x.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    const float* wp = affine ? weight.data_ptr<float>() : nullptr;
    const float* bp = affine ? bias.data_ptr<float>() : nullptr;
    const bool aligned = ((reinterpret_cast<uintptr_t>(xp) | reinterpret_cast<uintptr_t>(yp) | reinterpret_cast<uintptr_t>(wp) |
                           reinterpret_cast<uintptr_t>(bp)) & 15) == 0;
    const bool vec = aligned && width % 4 == 0;
    const unsigned blocks1 = (unsigned)(samples * pieces);
    if (vec) {
        stats_vec<<<blocks1, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(xp), pp, width / 4, pieces);
    } else {
        stats_scalar<<<blocks1, THREADS, 0, stream>>>(xp, pp, width, pieces);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    combine<<<(unsigned)samples, 32, 0, stream>>>(pp, st, width, pieces, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (vec) {
        const int64_t width4 = width / 4;
        const int64_t chunks = (width4 + THREADS * VECS - 1) / (THREADS * VECS);
        const int64_t groups = (samples + GROUP - 1) / GROUP;
        const unsigned blocks = (unsigned)(chunks * groups);
        if (affine) {
            normalize_vec<true><<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(xp), reinterpret_cast<const float4*>(wp),
                reinterpret_cast<const float4*>(bp), st, reinterpret_cast<float4*>(yp), width4, samples, chunks, groups);
        } else {
            normalize_vec<false><<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const float4*>(xp), nullptr, nullptr, st,
                reinterpret_cast<float4*>(yp), width4, samples, chunks, groups);
        }
    } else {
        const int64_t total = samples * width;
        int64_t want = (total + THREADS - 1) / THREADS;
        if (want > 132 * 32) want = 132 * 32;
        if (affine) {
            normalize_scalar<true><<<(unsigned)want, THREADS, 0, stream>>>(xp, wp, bp, st, yp, width, total);
        } else {
            normalize_scalar<false><<<(unsigned)want, THREADS, 0, stream>>>(xp, nullptr, nullptr, st, yp, width, total);
        }
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
torch::Tensor layer_norm_one_pass(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t width, double eps) {
    const c10::cuda::CUDAGuard guard(x.device());
    const int64_t samples = x.numel() / width;
    const int64_t blocks = width / SLICE;
    auto y = torch::empty_like(x);
    auto part = torch::empty({samples * blocks}, x.options().dtype(torch::kInt64));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    C10_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(one_pass), cudaFuncAttributeMaxDynamicSharedMemorySize, ONE_PASS_SMEM));
    const float* xp = x.data_ptr<float>();
    const float* wp = weight.data_ptr<float>();
    const float* bp = bias.data_ptr<float>();
    float* yp = y.data_ptr<float>();
    unsigned long long* pp = reinterpret_cast<unsigned long long*>(part.data_ptr<int64_t>());
    int count = (int)samples;
    void* args[] = {(void*)&xp, (void*)&wp, (void*)&bp, (void*)&yp, (void*)&pp, (void*)&count, (void*)&width, (void*)&eps};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(one_pass), dim3((unsigned)blocks), dim3(OT), args,
                                               (size_t)ONE_PASS_SMEM, stream));
    return y;
}

bool fits_one_pass(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t width) {
    const int64_t samples = x.numel() / width;
    if (width % SLICE != 0 || samples < 1 || samples > 1000000) return false;
    const uintptr_t bits = reinterpret_cast<uintptr_t>(x.data_ptr<float>()) | reinterpret_cast<uintptr_t>(weight.data_ptr<float>()) |
                           reinterpret_cast<uintptr_t>(bias.data_ptr<float>());
    if (bits & 15) return false;
    static int processors = 0;
    if (processors == 0) {
        int device = 0, n = 0;
        C10_CUDA_CHECK(cudaGetDevice(&device));
        C10_CUDA_CHECK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
        processors = n;
    }
    const int64_t blocks = width / SLICE;
    return blocks <= processors && blocks <= MAX_BLOCKS && 4 * blocks >= processors;
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t width, double eps) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "x: contiguous float32 on the GPU expected");
    TORCH_CHECK(weight.is_cuda() && weight.scalar_type() == torch::kFloat32 && weight.is_contiguous() && weight.numel() == width, "weight");
    TORCH_CHECK(bias.is_cuda() && bias.scalar_type() == torch::kFloat32 && bias.is_contiguous() && bias.numel() == width, "bias");
    TORCH_CHECK(width > 0 && x.numel() % width == 0, "the normalized shape does not divide the input");
    if (fits_one_pass(x, weight, bias, width)) return layer_norm_one_pass(x, weight, bias, width, eps);
    return layer_norm_two_pass(x, weight, bias, true, width, eps);
}
"""

ext = load_inline(
    name="layer_norm_kept_weight_ext",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=["layer_norm"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    """Layer normalization in one pass: samples stay on the chip between statistics and output."""

    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.ln.weight.contiguous()
        bias = self.ln.bias.contiguous()
        return ext.layer_norm(x.contiguous(), weight, bias, weight.numel(), self.ln.eps)
