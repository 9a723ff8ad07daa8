# task: torch_masked_bmm
# style: cublas_with_custom_prologue
# what: a kernel writes the masked right factor into a workspace, cublasSgemmStridedBatched does the product
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cublas_v2.h>

#define CUDA_CHECK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorString(e_)); abort(); } } while (0)
#define CUBLAS_CHECK(x) do { if ((x) != CUBLAS_STATUS_SUCCESS) { fprintf(stderr, "cuBLAS failed: %s:%d\n", __FILE__, __LINE__); exit(1); } } while (0)

// A removed column of A is the same as a zero row of B.
__global__ void mask_rows(const float* __restrict__ b, const bool* __restrict__ keep, float* __restrict__ masked, int n) {
    const size_t row = blockIdx.x;
    const bool k = keep[row];
    for (int i = threadIdx.x; i < n; i += blockDim.x) masked[row * n + i] = k ? b[row * n + i] : 0.0f;
}

torch::Tensor masked_bmm(torch::Tensor a, torch::Tensor b, torch::Tensor keep, torch::Tensor workspace) {
    const int batch = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
    auto c = torch::empty({batch, m, n}, a.options());
    mask_rows<<<batch * k, 128, 0, at::cuda::getCurrentCUDAStream()>>>(b.data_ptr<float>(), keep.data_ptr<bool>(), workspace.data_ptr<float>(), n);
    CUDA_CHECK(cudaGetLastError());
    const float one = 1.0f, zero = 0.0f;
    CUBLAS_CHECK(cublasSgemmStridedBatched(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one,
        workspace.data_ptr<float>(), n, (long long)k * n, a.data_ptr<float>(), k, (long long)m * k, &zero,
        c.data_ptr<float>(), n, (long long)m * n, batch));
    return c;
}
"""

ext = load_inline(
    name="masked_bmm_cublas",
    cpp_sources="torch::Tensor masked_bmm(torch::Tensor a, torch::Tensor b, torch::Tensor keep, torch::Tensor workspace);",
    cuda_sources=cuda_source,
    functions=["masked_bmm"],
    extra_ldflags=["-lcublas"],
)

_scratch = {}


class ModelNew(nn.Module):
    def forward(self, a, b, keep):
        key = (tuple(b.shape), b.device)
        if key not in _scratch:
            _scratch[key] = torch.empty(b.shape, device=b.device, dtype=torch.float32)
        return ext.masked_bmm(a.contiguous(), b.contiguous(), keep.contiguous(), _scratch[key])
