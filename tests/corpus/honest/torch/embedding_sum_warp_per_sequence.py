# task: torch_embedding_sum
# style: warp_shuffle_broadcast
# what: a warp handles one sequence and broadcasts token ids by shuffles, without shared memory
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

__doc_kernel__ = """Lane l owns columns l, l + 32, ... of a tile of 256 columns."""

SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

template <int COLUMNS_PER_LANE>
__global__ void warp_embedding_sum(const int64_t* __restrict__ tokens, const float* __restrict__ table, float* __restrict__ out,
                                   int sequences, int length, int width) {
    const int lane = threadIdx.x & 31;
    const int sequence = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (sequence >= sequences) return;  // whole warps leave together
    const int first = blockIdx.y * 32 * COLUMNS_PER_LANE;
    float sum[COLUMNS_PER_LANE] = {0.0f};
    for (int start = 0; start < length; start += 32) {
        const int position = start + lane;
        const int mine = position < length ? static_cast<int>(tokens[(size_t)sequence * length + position]) : 0;
        const int count = min(32, length - start);
        for (int j = 0; j < count; ++j) {
            const float* row = table + (size_t)__shfl_sync(0xffffffffu, mine, j) * width;
            #pragma unroll
            for (int k = 0; k < COLUMNS_PER_LANE; ++k) {
                const int c = first + k * 32 + lane;
                if (c < width) sum[k] += __ldg(row + c);
            }
        }
    }
    #pragma unroll
    for (int k = 0; k < COLUMNS_PER_LANE; ++k) {
        const int c = first + k * 32 + lane;
        if (c < width) out[(size_t)sequence * width + c] = sum[k];
    }
}

torch::Tensor embed(torch::Tensor tokens, torch::Tensor table) {
    TORCH_CHECK(table.size(0) < (1LL << 31), "token ids are kept in 32 bits");
    const int sequences = tokens.size(0), length = tokens.size(1), width = table.size(1);
    auto out = at::empty({sequences, width}, table.options());
    constexpr int kColumns = 8, kWarps = 4;
    dim3 grid((sequences + kWarps - 1) / kWarps, (width + 32 * kColumns - 1) / (32 * kColumns));
    warp_embedding_sum<kColumns><<<grid, kWarps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
        tokens.data_ptr<int64_t>(), table.data_ptr<float>(), out.data_ptr<float>(), sequences, length, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""


class ModelNew(nn.Module):
    _ext = None

    @classmethod
    def ext(cls):
        if cls._ext is None:
            cls._ext = load_inline(
                "embedding_sum_warp", "torch::Tensor embed(torch::Tensor tokens, torch::Tensor table);", SRC, functions=["embed"],
                extra_cuda_cflags=["-O3"],
            )
        return cls._ext

    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.ext()

    def forward(self, tokens):
        return self.ext().embed(tokens.contiguous(), self.table.weight)
