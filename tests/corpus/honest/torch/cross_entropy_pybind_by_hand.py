# task: torch_cross_entropy
# style: pybind_module_by_hand
# what: PYBIND11_MODULE is part of the source; one warp for each row keeps several values in flight
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = r"""
#include <torch/extension.h>

torch::Tensor smoothed_loss(torch::Tensor logits, torch::Tensor labels, double smoothing);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.doc() = "cross-entropy with label smoothing";
    m.def("smoothed_loss", &smoothed_loss, "loss of each row", pybind11::arg("logits"), pybind11::arg("labels"), pybind11::arg("smoothing"));
}
"""

CUDA_SOURCE = r"""
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int kWarps = 4;
constexpr int kUnroll = 4;

__global__ void __launch_bounds__(kWarps * 32) loss_kernel(const float* __restrict__ logits, const int64_t* __restrict__ labels,
                                                           float* __restrict__ loss, int rows, int classes, float smoothing) {
    const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* x = logits + (size_t)row * classes;
    float top = -3.0e38f, sum = 0.0f, plain = 0.0f;
    for (int start = 0; start < classes; start += 32 * kUnroll) {
        float v[kUnroll];
        float local = top;
        #pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int c = start + u * 32 + lane;
            v[u] = c < classes ? x[c] : -3.0e38f;
            local = fmaxf(local, v[u]);
        }
        sum *= expf(top - local);
        #pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (start + u * 32 + lane < classes) {
                sum += expf(v[u] - local);
                plain += v[u];
            }
        }
        top = local;
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const float other_top = __shfl_xor_sync(0xffffffffu, top, o);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, o);
        const float both = fmaxf(top, other_top);
        sum = sum * expf(top - both) + other_sum * expf(other_top - both);
        top = both;
        plain += __shfl_xor_sync(0xffffffffu, plain, o);
    }
    if (lane == 0) {
        const float lse = top + logf(sum);
        loss[row] = (1.0f - smoothing) * (lse - x[labels[row]]) + smoothing * (lse - plain / classes);
    }
}

}  // namespace

at::Tensor smoothed_loss(at::Tensor logits, at::Tensor labels, double smoothing) {
    TORCH_CHECK(logits.is_cuda() && labels.is_cuda(), "CUDA tensors expected");
    logits = logits.contiguous();
    labels = labels.contiguous();
    const int rows = logits.size(0), classes = logits.size(1);
    auto loss = at::empty({rows}, logits.options());
    loss_kernel<<<(rows + kWarps - 1) / kWarps, kWarps * 32, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(
        logits.data_ptr<float>(), labels.data_ptr<int64_t>(), loss.data_ptr<float>(), rows, classes, static_cast<float>(smoothing));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}
"""

_ext = load_inline(name="smoothed_loss_by_hand", cpp_sources=[CPP_SOURCE], cuda_sources=[CUDA_SOURCE], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        with torch.profiler.record_function("smoothed_loss"):
            return _ext.smoothed_loss(logits=logits, labels=labels, smoothing=self.smoothing)
