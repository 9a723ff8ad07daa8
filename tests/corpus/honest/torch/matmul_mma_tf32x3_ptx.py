# task: torch_matmul
# style: inline_ptx_mma_tf32x3
# what: mma.sync m16n8k8 with three TF32 products and fp32 sums outside of the tensor cores, for fp32-level error
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cstdint>

constexpr int BM = 128, BN = 64, BK = 16, THREADS = 256;
constexpr int LDA = BK + 4, LDB = BN + 8;

__device__ __forceinline__ void split(float x, uint32_t& hi, uint32_t& lo) {
    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(hi) : "f"(x));
    float rest = x - __uint_as_float(hi);
    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(lo) : "f"(rest));
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 8 warps: 4 along the rows and 2 along the columns; a warp computes 32 x 32.
__global__ void __launch_bounds__(THREADS) gemm_tf32x3(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[BM * LDA];
    __shared__ float Bs[BK * LDB];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int group = lane >> 2, quad = lane & 3;
    const int wm = (warp & 3) * 32, wn = (warp >> 2) * 32;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    float total[2][4][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = tid; i < BM * BK; i += THREADS) {
            int m = i / BK, k = i % BK;
            As[m * LDA + k] = (m0 + m < M && k0 + k < K) ? A[(size_t)(m0 + m) * K + k0 + k] : 0.0f;
        }
        for (int i = tid; i < BK * BN; i += THREADS) {
            int k = i / BN, n = i % BN;
            Bs[k * LDB + n] = (k0 + k < K && n0 + n < N) ? B[(size_t)(k0 + k) * N + n0 + n] : 0.0f;
        }
        __syncthreads();
        // Tensor cores round their sums towards zero. Short sums that are added by the FP32 units keep the error small.
        float part[2][4][4] = {};
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 8) {
            uint32_t ah[2][4], al[2][4];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float* p = As + (wm + i * 16 + group) * LDA + kk + quad;
                split(p[0], ah[i][0], al[i][0]);
                split(p[8 * LDA], ah[i][1], al[i][1]);
                split(p[4], ah[i][2], al[i][2]);
                split(p[8 * LDA + 4], ah[i][3], al[i][3]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                uint32_t bh[2], bl[2];
                const float* p = Bs + (kk + quad) * LDB + wn + j * 8 + group;
                split(p[0], bh[0], bl[0]);
                split(p[4 * LDB], bh[1], bl[1]);
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
            #pragma unroll
            for (int j = 0; j < 4; ++j)
                #pragma unroll
                for (int e = 0; e < 4; ++e) total[i][j][e] += part[i][j][e];
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int r = m0 + wm + i * 16 + group + (e >> 1) * 8;
                const int c = n0 + wn + j * 8 + quad * 2 + (e & 1);
                if (r < M && c < N) C[(size_t)r * N + c] = total[i][j][e];
            }
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda() && a.is_contiguous() && b.is_contiguous());
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::empty({M, N}, a.options());
    dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    gemm_tf32x3<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""

mma_ext = load_inline(
    name="matmul_mma_tf32x3",
    cpp_sources="torch::Tensor matmul(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_source,
    functions=["matmul"],
    extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_90,code=sm_90"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return mma_ext.matmul(a.contiguous(), b.contiguous())
