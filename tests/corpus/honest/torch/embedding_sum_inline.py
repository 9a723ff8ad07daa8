# task: torch_embedding_sum
# style: load_inline_plain
# what: one block for each sequence; tokens go to shared memory, each thread sums a float4 column
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void embedding_sum_kernel(const long* __restrict__ tokens, const float* __restrict__ table,
                                     float* __restrict__ out, int length, int width) {
    extern __shared__ long ids[];
    const long* row = tokens + (size_t)blockIdx.x * length;
    for (int i = threadIdx.x; i < length; i += blockDim.x) ids[i] = row[i];
    __syncthreads();
    if (width % 4 == 0) {
        const int vectors = width / 4;
        const float4* t = reinterpret_cast<const float4*>(table);
        float4* o = reinterpret_cast<float4*>(out) + (size_t)blockIdx.x * vectors;
        for (int c = threadIdx.x; c < vectors; c += blockDim.x) {
            float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
            #pragma unroll 8
            for (int i = 0; i < length; ++i) {
                float4 v = __ldg(t + ids[i] * vectors + c);
                s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
            }
            o[c] = s;
        }
    } else {
        for (int c = threadIdx.x; c < width; c += blockDim.x) {
            float s = 0.f;
            for (int i = 0; i < length; ++i) s += __ldg(table + ids[i] * width + c);
            out[(size_t)blockIdx.x * width + c] = s;
        }
    }
}

torch::Tensor embedding_sum(torch::Tensor tokens, torch::Tensor table) {
    TORCH_CHECK(tokens.scalar_type() == torch::kInt64, "tokens must be int64");
    TORCH_CHECK(table.scalar_type() == torch::kFloat32 && table.is_contiguous());
    const int sequences = tokens.size(0), length = tokens.size(1), width = table.size(1);
    auto out = torch::empty({sequences, width}, table.options());
    const int threads = width % 4 == 0 ? std::min(std::max(width / 4, 32), 256) : 128;
    embedding_sum_kernel<<<sequences, threads, length * sizeof(long), at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const long*>(tokens.data_ptr<int64_t>()), table.data_ptr<float>(), out.data_ptr<float>(), length, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

embedding_ext = load_inline(
    name="embedding_sum_inline",
    cpp_sources="torch::Tensor embedding_sum(torch::Tensor tokens, torch::Tensor table);",
    cuda_sources=cuda_source,
    functions=["embedding_sum"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        return embedding_ext.embedding_sum(tokens.contiguous(), self.table.weight)
