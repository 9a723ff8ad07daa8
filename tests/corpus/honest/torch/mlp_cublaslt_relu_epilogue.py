# task: torch_mlp
# style: cublaslt_load_inline
# what: three cuBLASLt products with RELU_BIAS and BIAS epilogues in one C++ call
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublasLt.h>

#define LT_CHECK(x) TORCH_CHECK((x) == CUBLAS_STATUS_SUCCESS, "cuBLASLt call failed: " #x)

class Lt {
public:
    Lt() { LT_CHECK(cublasLtCreate(&handle_)); }
    // y[m, n] = act(x[m, k] * w[n, k]^T + bias)
    void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& y, bool relu, at::Tensor& workspace) {
        const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
        cublasLtMatmulDesc_t desc;
        LT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        cublasOperation_t trans = CUBLAS_OP_T;
        LT_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof(trans)));
        cublasLtEpilogue_t epilogue = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        LT_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
        const void* bias_ptr = bias.data_ptr<float>();
        LT_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_ptr, sizeof(bias_ptr)));
        cublasLtMatrixLayout_t lw, lx, ly;
        LT_CHECK(cublasLtMatrixLayoutCreate(&lw, CUDA_R_32F, k, n, k));
        LT_CHECK(cublasLtMatrixLayoutCreate(&lx, CUDA_R_32F, k, m, k));
        LT_CHECK(cublasLtMatrixLayoutCreate(&ly, CUDA_R_32F, n, m, n));
        cublasLtMatmulPreference_t pref;
        LT_CHECK(cublasLtMatmulPreferenceCreate(&pref));
        size_t bytes = workspace.numel();
        LT_CHECK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
        cublasLtMatmulHeuristicResult_t found[1];
        int count = 0;
        LT_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, desc, lw, lx, ly, ly, pref, 1, found, &count));
        TORCH_CHECK(count == 1, "no cuBLASLt algorithm");
        float alpha = 1.f, beta = 0.f;
        LT_CHECK(cublasLtMatmul(handle_, desc, &alpha, w.data_ptr<float>(), lw, x.data_ptr<float>(), lx, &beta, y.data_ptr<float>(), ly,
                                y.data_ptr<float>(), ly, &found[0].algo, workspace.data_ptr(), bytes, at::cuda::getCurrentCUDAStream()));
        cublasLtMatmulPreferenceDestroy(pref);
        cublasLtMatrixLayoutDestroy(ly);
        cublasLtMatrixLayoutDestroy(lx);
        cublasLtMatrixLayoutDestroy(lw);
        cublasLtMatmulDescDestroy(desc);
    }
private:
    cublasLtHandle_t handle_ = nullptr;
};

at::Tensor mlp(at::Tensor x, std::vector<at::Tensor> weights, std::vector<at::Tensor> biases, at::Tensor workspace) {
    static Lt lt;
    TORCH_CHECK(weights.size() == biases.size() && !weights.empty());
    at::Tensor current = x.contiguous();
    for (size_t i = 0; i < weights.size(); ++i) {
        at::Tensor next = at::empty({current.size(0), weights[i].size(0)}, x.options());
        lt.linear(current, weights[i], biases[i], next, i + 1 < weights.size(), workspace);
        current = next;
    }
    return current;
}
"""

mlp_ext = load_inline(
    name="mlp_cublaslt",
    cpp_sources="at::Tensor mlp(at::Tensor x, std::vector<at::Tensor> weights, std::vector<at::Tensor> biases, at::Tensor workspace);",
    cuda_sources=SRC,
    functions=["mlp"],
    extra_ldflags=["-lcublasLt", "-lcublas"],
)


class ModelNew(nn.Module):
    NAMES = ("first", "second", "third")

    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        sizes = [in_features, hidden, hidden, out_features]
        for name, a, b in zip(self.NAMES, sizes, sizes[1:]):
            setattr(self, name, nn.Linear(a, b))
        self._scratch = None

    def forward(self, x):
        layers = [getattr(self, name) for name in self.NAMES]
        if self._scratch is None or self._scratch.device != x.device:
            self._scratch = torch.empty(32 << 20, dtype=torch.uint8, device=x.device)
        return mlp_ext.mlp(x, [l.weight for l in layers], [l.bias for l in layers], self._scratch)
