# task: torch_linear_gelu
# style: weights_packed_by_version
# what: bf16x3 mma.sync; the weight is split into two bf16 parts lazily, keyed on weight._version and its address
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <cstdint>

constexpr int BM = 64, BN = 64, BK = 32, THREADS = 128;
constexpr int PAIRS = BK / 2, LD = PAIRS + 4;   // in pairs of bf16, padded against bank conflicts

__device__ __forceinline__ uint32_t pack(float lower, float upper) {
    const uint32_t a = __bfloat16_as_ushort(__float2bfloat16_rn(lower));
    const uint32_t b = __bfloat16_as_ushort(__float2bfloat16_rn(upper));
    return a | (b << 16);
}
__device__ __forceinline__ float rest(float x) { return x - __bfloat162float(__float2bfloat16_rn(x)); }

// Row-major fp32 to two arrays of bf16 pairs. The inner size is even.
__global__ void split_pairs(const float* __restrict__ w, uint32_t* __restrict__ hi, uint32_t* __restrict__ lo, int64_t pairs) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) return;
    const float a = w[2 * i], b = w[2 * i + 1];
    hi[i] = pack(a, b);
    lo[i] = pack(rest(a), rest(b));
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ __launch_bounds__(THREADS) void linear_gelu_kernel(const float* __restrict__ x, const uint32_t* __restrict__ w_hi,
        const uint32_t* __restrict__ w_lo, const float* __restrict__ bias, float* __restrict__ y, int M, int N, int K) {
    __shared__ uint32_t xh[BM * LD], xl[BM * LD], wh[BN * LD], wl[BN * LD];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = lane >> 2, quad = lane & 3;
    const int wm = (warp & 1) * 32, wn = (warp >> 1) * 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, kp = K / 2;
    float total[2][4][4] = {};
    for (int p0 = 0; p0 < kp; p0 += PAIRS) {
        for (int i = threadIdx.x; i < BM * PAIRS; i += THREADS) {
            const int r = i / PAIRS, p = i % PAIRS;
            float a = 0.0f, b = 0.0f;
            if (m0 + r < M && p0 + p < kp) {
                const float2 v = *reinterpret_cast<const float2*>(x + (size_t)(m0 + r) * K + 2 * (p0 + p));
                a = v.x; b = v.y;
            }
            xh[r * LD + p] = pack(a, b);
            xl[r * LD + p] = pack(rest(a), rest(b));
            const bool inside = n0 + r < N && p0 + p < kp;   // BM equals BN
            wh[r * LD + p] = inside ? w_hi[(size_t)(n0 + r) * kp + p0 + p] : 0u;
            wl[r * LD + p] = inside ? w_lo[(size_t)(n0 + r) * kp + p0 + p] : 0u;
        }
        __syncthreads();
        float part[2][4][4] = {};
        #pragma unroll
        for (int s = 0; s < PAIRS; s += 8) {
            uint32_t ah[2][4], al[2][4];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int base = (wm + i * 16 + group) * LD + s + quad;
                ah[i][0] = xh[base]; ah[i][1] = xh[base + 8 * LD]; ah[i][2] = xh[base + 4]; ah[i][3] = xh[base + 8 * LD + 4];
                al[i][0] = xl[base]; al[i][1] = xl[base + 8 * LD]; al[i][2] = xl[base + 4]; al[i][3] = xl[base + 8 * LD + 4];
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int base = (wn + j * 8 + group) * LD + s + quad;
                const uint32_t bh[2] = { wh[base], wh[base + 4] }, bl[2] = { wl[base], wl[base + 4] };
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    mma(part[i][j], al[i], bh);
                    mma(part[i][j], ah[i], bl);
                    mma(part[i][j], ah[i], bh);
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j)
                for (int e = 0; e < 4; ++e) total[i][j][e] += part[i][j][e];
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 4; ++e) {
                const int r = m0 + wm + i * 16 + group + (e >> 1) * 8, c = n0 + wn + j * 8 + quad * 2 + (e & 1);
                if (r < M && c < N) {
                    const float v = total[i][j][e] + bias[c];
                    y[(size_t)r * N + c] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
                }
            }
}

std::vector<torch::Tensor> pack_weight(torch::Tensor w) {
    TORCH_CHECK(w.size(1) % 2 == 0, "the inner size must be even");
    auto options = w.options().dtype(torch::kInt32);
    auto hi = torch::empty({w.size(0), w.size(1) / 2}, options), lo = torch::empty({w.size(0), w.size(1) / 2}, options);
    const int64_t pairs = hi.numel();
    split_pairs<<<(unsigned)((pairs + 255) / 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(w.data_ptr<float>(),
        reinterpret_cast<uint32_t*>(hi.data_ptr<int>()), reinterpret_cast<uint32_t*>(lo.data_ptr<int>()), pairs);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {hi, lo};
}

torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor hi, torch::Tensor lo, torch::Tensor bias) {
    const int M = x.size(0), K = x.size(1), N = hi.size(0);
    auto y = torch::empty({M, N}, x.options());
    dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    linear_gelu_kernel<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(),
        reinterpret_cast<const uint32_t*>(hi.data_ptr<int>()), reinterpret_cast<const uint32_t*>(lo.data_ptr<int>()),
        bias.data_ptr<float>(), y.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

CPP_SOURCE = """
std::vector<torch::Tensor> pack_weight(torch::Tensor w);
torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor hi, torch::Tensor lo, torch::Tensor bias);
"""

ext = load_inline(name="linear_gelu_bf16x3", cpp_sources=CPP_SOURCE, cuda_sources=CUDA_SOURCE,
                  functions=["pack_weight", "linear_gelu"], extra_cuda_cflags=["-O3", "-std=c++17"])


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)
        self._packed_key, self._packed = None, None

    def _weights(self):
        w = self.linear.weight
        key = (w._version, w.data_ptr(), w.device)
        if key != self._packed_key:  # new contents or a new place
            self._packed_key, self._packed = key, ext.pack_weight(w)
        return self._packed

    def forward(self, x):
        hi, lo = self._weights()
        return ext.linear_gelu(x.contiguous(), hi, lo, self.linear.bias)
