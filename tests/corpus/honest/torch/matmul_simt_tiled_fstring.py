# task: torch_matmul
# style: load_inline_fstring
# what: classic fp32 tile product, 128x128x8 with 8x8 values for each thread; tile sizes come in by f-string
import math
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

BM, BN, BK = 128, 128, 8
TM, TN = 8, 8
THREADS = (BM // TM) * (BN // TN)

cuda_source = f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

constexpr int BM = {BM}, BN = {BN}, BK = {BK}, TM = {TM}, TN = {TN};
constexpr int THREADS = {THREADS};

__global__ void __launch_bounds__(THREADS, 2) sgemm(const float* __restrict__ A, const float* __restrict__ B,
                                                    float* __restrict__ C, int M, int N, int K)
{{
    __shared__ float As[BK][BM + 4];   // transposed; the padding avoids bank conflicts of the stores
    __shared__ float Bs[BK][BN];
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int ty = threadIdx.x / (BN / TN), tx = threadIdx.x % (BN / TN);
    float acc[TM][TN] = {{}};
    for (int k0 = 0; k0 < K; k0 += BK) {{
        #pragma unroll
        for (int i = threadIdx.x; i < BM * BK; i += THREADS) {{
            const int m = i / BK, k = i % BK;
            As[k][m] = (row0 + m < M && k0 + k < K) ? A[(size_t)(row0 + m) * K + k0 + k] : 0.0f;
        }}
        #pragma unroll
        for (int i = threadIdx.x; i < BK * BN; i += THREADS) {{
            const int k = i / BN, n = i % BN;
            Bs[k][n] = (k0 + k < K && col0 + n < N) ? B[(size_t)(k0 + k) * N + col0 + n] : 0.0f;
        }}
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BK; ++k) {{
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[k][ty * TM + i];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx + j * (BN / TN)];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }}
        __syncthreads();
    }}
    #pragma unroll
    for (int i = 0; i < TM; ++i) {{
        const int r = row0 + ty * TM + i;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {{
            const int c = col0 + tx + j * (BN / TN);
            if (r < M && c < N) C[(size_t)r * N + c] = acc[i][j];
        }}
    }}
}}

torch::Tensor matmul_cuda(torch::Tensor a, torch::Tensor b) {{
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    TORCH_CHECK(b.size(0) == K, "inner sizes disagree");
    auto c = torch::empty({{M, N}}, a.options());
    dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    sgemm<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}}
"""

matmul_ext = load_inline(
    name=f"sgemm_{BM}x{BN}x{BK}",
    cpp_sources="torch::Tensor matmul_cuda(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_source,
    functions=["matmul_cuda"],
    extra_cuda_cflags=["-O3", "--ptxas-options=-v"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return matmul_ext.matmul_cuda(a.contiguous(), b.contiguous())
