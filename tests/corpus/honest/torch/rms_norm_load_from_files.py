# task: torch_residual_rms_norm
# style: cpp_extension_load_tempdir
# what: writes the CUDA file into a temporary folder and builds it with cpp_extension.load instead of load_inline
import os
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void add_rms_norm(const float* __restrict__ x, const float* __restrict__ r, const float* __restrict__ w,
                             float* __restrict__ y, int width, float eps) {
    extern __shared__ float sums[];       // the row of sums, then one value for each warp
    float* part = sums + width;
    const size_t base = (size_t)blockIdx.x * width;
    float s = 0.0f;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float v = x[base + i] + r[base + i];
        sums[i] = v;
        s = fmaf(v, v, s);
    }
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = 0.0f;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) s += part[i];
    const float scale = rsqrtf(s / width + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x) y[base + i] = sums[i] * scale * w[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor r, torch::Tensor w, double eps) {
    const int width = x.size(-1), threads = 256;
    const size_t bytes = (width + threads / 32) * sizeof(float);
    TORCH_CHECK(bytes <= 48 * 1024, "the row is too long");
    auto y = torch::empty_like(x);
    add_rms_norm<<<x.numel() / width, threads, bytes, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), r.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), width, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "RMS norm of x + residual");
}
"""


def compile_extension():
    folder = Path(tempfile.mkdtemp(prefix="rms_norm_"))
    path = folder / "rms_norm.cu"
    path.write_text(SOURCE)
    build = folder / "build"
    os.makedirs(build, exist_ok=True)
    return load(name="rms_norm_from_files", sources=[str(path)], build_directory=str(build), extra_cuda_cflags=["-O3"], verbose=False)


extension = compile_extension()


class ModelNew(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x, residual):
        return extension.forward(x.contiguous(), residual.contiguous(), self.weight, self.epsilon)
