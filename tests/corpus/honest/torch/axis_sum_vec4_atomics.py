# task: torch_axis_sum
# style: split_with_atomics
# what: splits the summed axis over blocks and adds float4 partial sums with atomics; the last bits vary from run to run
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_src = "torch::Tensor axis_sum(torch::Tensor x, int64_t splits);"

cuda_src = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// x: [batch, length, width], out: [batch, width], zeroed before the launch
__global__ void axis_sum_vec4(const float4* __restrict__ x, float* __restrict__ out, int length, int width4, int chunk) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width4) return;
    int begin = blockIdx.y * chunk;
    int end = min(begin + chunk, length);
    const float4* p = x + ((size_t)blockIdx.z * length + begin) * width4 + column;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    #pragma unroll 8
    for (int i = begin; i < end; ++i, p += width4) {
        float4 v = __ldg(p);
        sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
    }
    float* target = out + ((size_t)blockIdx.z * width4 + column) * 4;
    atomicAdd(target + 0, sum.x);
    atomicAdd(target + 1, sum.y);
    atomicAdd(target + 2, sum.z);
    atomicAdd(target + 3, sum.w);
}

// Any width: one thread for each column
__global__ void axis_sum_scalar(const float* __restrict__ x, float* __restrict__ out, int length, int width, int chunk) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    int begin = blockIdx.y * chunk;
    int end = min(begin + chunk, length);
    float sum = 0.f;
    for (int i = begin; i < end; ++i) sum += x[((size_t)blockIdx.z * length + i) * width + column];
    atomicAdd(out + (size_t)blockIdx.z * width + column, sum);
}

torch::Tensor axis_sum(torch::Tensor x, int64_t splits) {
    TORCH_CHECK(x.dim() == 3 && x.is_contiguous(), "x must be contiguous with three dimensions");
    const int batch = x.size(0), length = x.size(1), width = x.size(2);
    auto out = torch::zeros({batch, width}, x.options());
    const int chunk = (length + splits - 1) / splits;
    const int parts = (length + chunk - 1) / chunk;
    auto stream = at::cuda::getCurrentCUDAStream();
    if (width % 4 == 0) {
        dim3 grid((width / 4 + 127) / 128, parts, batch);
        axis_sum_vec4<<<grid, 128, 0, stream>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()),
                                                out.data_ptr<float>(), length, width / 4, chunk);
    } else {
        dim3 grid((width + 127) / 128, parts, batch);
        axis_sum_scalar<<<grid, 128, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), length, width, chunk);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

axis_sum_ext = load_inline(
    name="axis_sum_vec4_atomics",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["axis_sum"],
    extra_cuda_cflags=["-O3", "-lineinfo"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.splits = 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return axis_sum_ext.axis_sum(x.contiguous(), self.splits)
