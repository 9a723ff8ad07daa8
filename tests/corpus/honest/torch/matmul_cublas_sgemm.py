# task: torch_matmul
# style: cublas_load_inline
# what: cublasSgemm through the handle of PyTorch, bound to the current stream
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>

#define CUBLAS_CHECK(call) { cublasStatus_t s_ = (call); if (s_ != CUBLAS_STATUS_SUCCESS) { fprintf(stderr, "cuBLAS error %d at line %d\\n", (int)s_, __LINE__); abort(); } }

torch::Tensor sgemm(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    torch::Tensor c = torch::empty({m, n}, a.options());
    // The handle already carries the current stream and a workspace.
    cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
    float alpha = 1.0f, beta = 0.0f;
    CUBLAS_CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, b.data_ptr<float>(), n,
                             a.data_ptr<float>(), k, &beta, c.data_ptr<float>(), n));
    return c;
}
"""

blas = load_inline(
    name="matmul_cublas_sgemm",
    cpp_sources="torch::Tensor sgemm(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["sgemm"],
    extra_ldflags=["-lcublas"],
    with_cuda=True,
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return blas.sgemm(a.contiguous(), b.contiguous())
