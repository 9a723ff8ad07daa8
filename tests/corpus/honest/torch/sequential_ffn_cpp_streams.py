# task: torch_sequential_ffn
# style: cpp_stream_pool_joined
# what: C++ takes a stream from the pool for half of the rows, forks and joins by events; SiLU and residual in custom kernels
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

__global__ void silu_inplace(float* p, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const float v = p[i];
        p[i] = v / (1.0f + expf(-v));
    }
}

__global__ void add_rows(const float* x, float* y, int64_t n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) y[i] += x[i];
}

static int blocks(int64_t n) { return (int)std::min<int64_t>((n + 255) / 256, 2048); }

// Runs on whichever stream is current.
static void part(at::Tensor x, at::Tensor normed, at::Tensor w1, at::Tensor b1, at::Tensor w2, at::Tensor b2, at::Tensor hidden, at::Tensor out) {
    if (x.size(0) == 0) return;
    auto stream = at::cuda::getCurrentCUDAStream();
    at::addmm_out(hidden, b1, normed, w1.t());
    silu_inplace<<<blocks(hidden.numel()), 256, 0, stream>>>(hidden.data_ptr<float>(), hidden.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    at::addmm_out(out, b2, hidden, w2.t());
    add_rows<<<blocks(out.numel()), 256, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), out.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

at::Tensor ffn(at::Tensor x, at::Tensor normed, at::Tensor w1, at::Tensor b1, at::Tensor w2, at::Tensor b2) {
    const int64_t rows = x.size(0), half = rows / 2;
    // All memory comes from the calling stream and stays alive until the join below.
    auto hidden = at::empty({rows, w1.size(0)}, x.options());
    auto out = at::empty({rows, w2.size(0)}, x.options());
    auto main_stream = at::cuda::getCurrentCUDAStream();
    auto side_stream = at::cuda::getStreamFromPool(/*isHighPriority=*/false);
    at::cuda::CUDAEvent ready, done;
    ready.record(main_stream);
    ready.block(side_stream);
    {
        c10::cuda::CUDAStreamGuard guard(side_stream);
        auto o = out.slice(0, half, rows), h = hidden.slice(0, half, rows);
        part(x.slice(0, half, rows), normed.slice(0, half, rows), w1, b1, w2, b2, h, o);
        done.record(side_stream);
    }
    auto o = out.slice(0, 0, half), h = hidden.slice(0, 0, half);
    part(x.slice(0, 0, half), normed.slice(0, 0, half), w1, b1, w2, b2, h, o);
    done.block(main_stream);
    return out;
}
"""

ext = load_inline(
    name="sequential_ffn_streams",
    cpp_sources="at::Tensor ffn(at::Tensor x, at::Tensor normed, at::Tensor w1, at::Tensor b1, at::Tensor w2, at::Tensor b2);",
    cuda_sources=cuda_source,
    functions=["ffn"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

    @torch.no_grad()
    def forward(self, x):
        x = x.contiguous()
        norm, up, _, down = self.net
        return ext.ffn(x, norm(x), up.weight, up.bias, down.weight, down.bias)
