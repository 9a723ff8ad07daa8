# task: torch_linear_gelu
# style: cublaslt_load_inline
# what: cuBLASLt with bias epilogue, then an erf GELU kernel, because the GELU epilogue of cuBLASLt is the tanh form
import os
import warnings

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
os.environ.setdefault("MAX_JOBS", "8")
warnings.filterwarnings("ignore", message=".*TORCH_CUDA_ARCH_LIST.*")

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cublasLt.h>
#include <map>
#include <tuple>

#define CUBLAS_CHECK(x)                                                                              \
    do {                                                                                             \
        cublasStatus_t s = (x);                                                                      \
        if (s != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLASLt failed with " + std::to_string((int)s)); \
    } while (0)

namespace {

struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algo;
};

cublasLtHandle_t lt_handle() {
    static cublasLtHandle_t h = nullptr;
    if (h == nullptr) CUBLAS_CHECK(cublasLtCreate(&h));
    return h;
}

// Plans depend on shapes only. Pointers, the bias included, are set at each call.
Plan& plan_for(int64_t m, int64_t n, int64_t k, const void* bias, size_t workspace) {
    static std::map<std::tuple<int64_t, int64_t, int64_t>, Plan> cache;
    auto key = std::make_tuple(m, n, k);
    auto it = cache.find(key);
    if (it != cache.end()) return it->second;
    Plan p;
    cublasOperation_t t = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)));
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&p.w, CUDA_R_32F, k, n, k));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&p.x, CUDA_R_32F, k, m, k));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&p.y, CUDA_R_32F, n, m, n));
    cublasLtMatmulPreference_t preference;
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(lt_handle(), p.desc, p.w, p.x, p.y, p.y, preference, 1, &result, &found));
    TORCH_CHECK(found == 1, "cuBLASLt found no algorithm");
    p.algo = result.algo;
    cublasLtMatmulPreferenceDestroy(preference);
    return cache.emplace(key, p).first->second;
}

__global__ void gelu_in_place(float* __restrict__ y, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i * 4 + 3 < n) {
        float4 v = reinterpret_cast<float4*>(y)[i];
        v.x *= normcdff(v.x); v.y *= normcdff(v.y); v.z *= normcdff(v.z); v.w *= normcdff(v.w);
        reinterpret_cast<float4*>(y)[i] = v;
    } else {
        for (size_t j = i * 4; j < n; ++j) y[j] *= normcdff(y[j]);  // scalar tail
    }
}

}  // namespace

torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor workspace) {
    const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
    auto y = torch::empty({m, n}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    const void* bias_pointer = bias.data_ptr<float>();
    Plan& p = plan_for(m, n, k, bias_pointer, workspace.numel());
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_pointer, sizeof(bias_pointer)));
    const float one = 1.0f, zero = 0.0f;
    CUBLAS_CHECK(cublasLtMatmul(lt_handle(), p.desc, &one, w.data_ptr<float>(), p.w, x.data_ptr<float>(), p.x, &zero,
                                y.data_ptr<float>(), p.y, y.data_ptr<float>(), p.y, &p.algo,
                                workspace.data_ptr(), workspace.numel(), stream));
    const size_t total = y.numel();
    gelu_in_place<<<(unsigned)((total + 1023) / 1024), 256, 0, stream>>>(y.data_ptr<float>(), total);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

ext = load_inline(
    name="linear_gelu_cublaslt",
    cpp_sources="torch::Tensor linear_gelu(torch::Tensor x, torch::Tensor w, torch::Tensor bias, torch::Tensor workspace);",
    cuda_sources=cuda_source,
    functions=["linear_gelu"],
    extra_cuda_cflags=["-O3", "-std=c++17"],
    extra_ldflags=["-lcublasLt"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_bound):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.uniform_(self.linear.bias, -bias_bound, bias_bound)
        self._workspace = None

    def forward(self, x):
        if self._workspace is None:
            self._workspace = torch.empty(16 << 20, dtype=torch.uint8, device=x.device)
        return ext.linear_gelu(x.contiguous(), self.linear.weight, self.linear.bias, self._workspace)
