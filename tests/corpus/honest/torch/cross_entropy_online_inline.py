# task: torch_cross_entropy
# style: load_inline_plain
# what: one read of the logits: online log-sum-exp, sum of logits and the chosen logit in one block for each row
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cfloat>

struct State { float top; float sum; float plain; };

__device__ __forceinline__ State merge(State a, State b) {
    State r;
    r.top = fmaxf(a.top, b.top);
    r.sum = a.sum * expf(a.top - r.top) + b.sum * expf(b.top - r.top);
    r.plain = a.plain + b.plain;
    return r;
}

__device__ __forceinline__ void add(State& s, float v) {
    if (v > s.top) {
        s.sum = s.sum * expf(s.top - v) + 1.0f;
        s.top = v;
    } else {
        s.sum += expf(v - s.top);
    }
    s.plain += v;
}

__global__ void __launch_bounds__(256) smoothed_cross_entropy(
    const float* __restrict__ logits, const long long* __restrict__ labels, float* __restrict__ loss, int classes, float smoothing)
{
    __shared__ State parts[8];
    const float* row = logits + (size_t)blockIdx.x * classes;
    State s = { -FLT_MAX, 0.0f, 0.0f };
    for (int c = threadIdx.x; c < classes; c += 256) add(s, row[c]);
    for (int offset = 16; offset > 0; offset >>= 1) {
        State other;
        other.top = __shfl_xor_sync(0xffffffffu, s.top, offset);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, offset);
        other.plain = __shfl_xor_sync(0xffffffffu, s.plain, offset);
        s = merge(s, other);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) s = merge(s, parts[w]);
        const float lse = s.top + logf(s.sum);
        const float chosen = row[labels[blockIdx.x]] - lse;
        const float mean = s.plain / classes - lse;
        loss[blockIdx.x] = -(1.0f - smoothing) * chosen - smoothing * mean;
    }
}

torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor labels, double smoothing) {
    TORCH_CHECK(logits.dim() == 2 && labels.dim() == 1 && logits.size(0) == labels.size(0), "shapes disagree");
    TORCH_CHECK(labels.scalar_type() == torch::kLong, "labels must be int64");
    const int rows = logits.size(0);
    auto loss = torch::empty({rows}, logits.options());
    smoothed_cross_entropy<<<rows, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        logits.data_ptr<float>(), reinterpret_cast<const long long*>(labels.data_ptr<int64_t>()), loss.data_ptr<float>(),
        (int)logits.size(1), (float)smoothing);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}
"""

loss_ext = load_inline(
    name="cross_entropy_online",
    cpp_sources="torch::Tensor cross_entropy(torch::Tensor logits, torch::Tensor labels, double smoothing);",
    cuda_sources=cuda_source,
    functions=["cross_entropy"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, smoothing):
        super(ModelNew, self).__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        return loss_ext.cross_entropy(logits.contiguous(), labels.contiguous(), float(self.smoothing))
