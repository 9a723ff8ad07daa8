# task: torch_elementwise_chain
# style: default_stream_launch
# what: launches without a stream argument, as many answers do; right while the caller works on the default stream
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

elementwise_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void chain_kernel(const float* x, const float* scale, const float* shift, float* out, long size, int columns) {
    long idx = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        int c = idx % columns;
        float v = x[idx] * scale[c] + shift[c];
        v = v * (1.0f / (1.0f + expf(-v)));
        out[idx] = fminf(fmaxf(v, -1.0f), 4.0f);
    }
}

torch::Tensor chain_cuda(torch::Tensor x, torch::Tensor scale, torch::Tensor shift) {
    auto out = torch::empty_like(x);
    long size = x.numel();
    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;
    chain_kernel<<<num_blocks, block_size>>>(x.data_ptr<float>(), scale.data_ptr<float>(), shift.data_ptr<float>(), out.data_ptr<float>(), size, x.size(-1));
    return out;
}
"""

elementwise_cpp_source = "torch::Tensor chain_cuda(torch::Tensor x, torch::Tensor scale, torch::Tensor shift);"

# Compile the inline CUDA code
elementwise_chain = load_inline(
    name="elementwise_chain",
    cpp_sources=elementwise_cpp_source,
    cuda_sources=elementwise_source,
    functions=["chain_cuda"],
    verbose=True,
    extra_cflags=[""],
    extra_ldflags=[""],
)


class ModelNew(nn.Module):
    def __init__(self, columns) -> None:
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))
        self.elementwise_chain = elementwise_chain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.elementwise_chain.chain_cuda(x.contiguous(), self.scale, self.shift)
