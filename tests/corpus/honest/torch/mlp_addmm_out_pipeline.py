# task: torch_mlp
# style: multi_kernel_pipeline
# what: at::addmm_out into buffers kept by shape, and a vectorized in-place ReLU; only the result is new memory
import sys
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// Grid-stride loop over float4 with a scalar tail.
__global__ void relu_inplace(float* __restrict__ p, size_t n) {
    const size_t stride = (size_t)blockDim.x * gridDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4* v = reinterpret_cast<float4*>(p);
    for (size_t i = first; i < n / 4; i += stride) {
        float4 t = v[i];
        t.x = fmaxf(t.x, 0.f); t.y = fmaxf(t.y, 0.f); t.z = fmaxf(t.z, 0.f); t.w = fmaxf(t.w, 0.f);
        v[i] = t;
    }
    for (size_t i = n / 4 * 4 + first; i < n; i += stride) p[i] = fmaxf(p[i], 0.f);
}

static void apply_relu(torch::Tensor t) {
    const size_t n = t.numel();
    const int blocks = (int)std::min<size_t>((n / 4 + 255) / 256 + 1, 2048);
    relu_inplace<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(t.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

torch::Tensor mlp_forward(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2,
                          torch::Tensor w3, torch::Tensor b3, torch::Tensor h1, torch::Tensor h2) {
    at::addmm_out(h1, b1, x, w1.t());
    apply_relu(h1);
    at::addmm_out(h2, b2, h1, w2.t());
    apply_relu(h2);
    return at::addmm(b3, h2, w3.t());
}
"""

cpp_src = """
torch::Tensor mlp_forward(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2,
                          torch::Tensor w3, torch::Tensor b3, torch::Tensor h1, torch::Tensor h2);
"""

_mlp = load_inline(name="mlp_addmm_out", cpp_sources=cpp_src, cuda_sources=cuda_src, functions=["mlp_forward"],
                   extra_cuda_cflags=["-O3"], verbose=False)


class _Buffers:
    """Hidden activations of one shape; each call overwrites them completely."""

    def __init__(self, rows, hidden, like):
        self.h1 = torch.empty(rows, hidden, device=like.device, dtype=like.dtype)
        self.h2 = torch.empty_like(self.h1)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super(ModelNew, self).__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, out_features)
        self.hidden = hidden
        self.buffers_by_shape = {}

    @torch.no_grad()
    def forward(self, x):
        key = (x.shape[0], x.device)
        buffers = self.buffers_by_shape.get(key)
        if buffers is None:
            buffers = self.buffers_by_shape[key] = _Buffers(x.shape[0], self.hidden, x)
        return _mlp.mlp_forward(
            x, self.first.weight, self.first.bias, self.second.weight, self.second.bias,
            self.third.weight, self.third.bias, buffers.h1, buffers.h2,
        )
