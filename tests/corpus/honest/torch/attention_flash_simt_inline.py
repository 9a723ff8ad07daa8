# task: torch_attention
# style: load_inline_plain
# what: fp32 online-softmax attention in CUDA with four threads for each query; slower than tensor cores but exact
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

#define HEAD 64
#define QUERIES 32
#define KEYS 32
#define LANES 4                    // threads of one query
#define PER_LANE (HEAD / LANES)

__global__ __launch_bounds__(QUERIES * LANES) void attention_kernel(const float* __restrict__ qkv, float* __restrict__ out,
                                                                    int length, int heads, float scale) {
    __shared__ float qs[QUERIES][HEAD + 1];
    __shared__ float ks[KEYS][HEAD + 1];
    __shared__ float vs[KEYS][HEAD + 1];
    __shared__ float ps[QUERIES][KEYS + 1];
    const int width = heads * HEAD;
    const int head = blockIdx.y, batch = blockIdx.z, first = blockIdx.x * QUERIES;
    const float* base = qkv + (size_t)batch * length * 3 * width + head * HEAD;
    for (int i = threadIdx.x; i < QUERIES * HEAD; i += QUERIES * LANES) {
        int r = i / HEAD, d = i % HEAD;
        qs[r][d] = first + r < length ? base[(size_t)(first + r) * 3 * width + d] * scale : 0.0f;
    }
    const int r = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int query = first + r;
    float acc[PER_LANE];
    for (int i = 0; i < PER_LANE; ++i) acc[i] = 0.0f;
    float top = -1e30f, sum = 0.0f;
    const int last = min(first + QUERIES, length);
    for (int k0 = 0; k0 < last; k0 += KEYS) {
        __syncthreads();  // the previous tiles are no longer read
        for (int i = threadIdx.x; i < KEYS * HEAD; i += QUERIES * LANES) {
            int j = i / HEAD, d = i % HEAD;
            bool inside = k0 + j < length;
            const float* p = base + (size_t)(k0 + j) * 3 * width + d;
            ks[j][d] = inside ? p[width] : 0.0f;
            vs[j][d] = inside ? p[2 * width] : 0.0f;
        }
        __syncthreads();
        float local = -1e30f;
        for (int j = lane; j < KEYS; j += LANES) {
            float s = 0.0f;
            #pragma unroll 16
            for (int d = 0; d < HEAD; ++d) s = fmaf(qs[r][d], ks[j][d], s);
            if (k0 + j > query || k0 + j >= length) s = -1e30f;
            ps[r][j] = s;
            local = fmaxf(local, s);
        }
        local = fmaxf(local, __shfl_xor_sync(0xffffffffu, local, 1));
        local = fmaxf(local, __shfl_xor_sync(0xffffffffu, local, 2));
        const float next = fmaxf(top, local);
        const float alpha = expf(top - next);
        float part = 0.0f;
        for (int j = lane; j < KEYS; j += LANES) {
            float e = ps[r][j] <= -1e30f ? 0.0f : expf(ps[r][j] - next);
            ps[r][j] = e;
            part += e;
        }
        part += __shfl_xor_sync(0xffffffffu, part, 1);
        part += __shfl_xor_sync(0xffffffffu, part, 2);
        sum = sum * alpha + part;
        top = next;
        __syncwarp();  // the four threads of a query are in one warp
        for (int i = 0; i < PER_LANE; ++i) acc[i] *= alpha;
        for (int j = 0; j < KEYS; ++j) {
            const float p = ps[r][j];
            #pragma unroll
            for (int i = 0; i < PER_LANE; ++i) acc[i] = fmaf(p, vs[j][lane + i * LANES], acc[i]);
        }
    }
    if (query < length) {
        float* o = out + ((size_t)batch * length + query) * width + head * HEAD;
        for (int i = 0; i < PER_LANE; ++i) o[lane + i * LANES] = acc[i] / sum;
    }
}

torch::Tensor attention(torch::Tensor qkv, int64_t heads, double scale) {
    const int batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
    TORCH_CHECK(qkv.is_contiguous() && width == heads * HEAD, "a head must have 64 values");
    auto out = torch::empty({batch, length, width}, qkv.options());
    dim3 grid((length + QUERIES - 1) / QUERIES, heads, batch);
    attention_kernel<<<grid, QUERIES * LANES, 0, at::cuda::getCurrentCUDAStream()>>>(qkv.data_ptr<float>(), out.data_ptr<float>(),
                                                                                   length, heads, (float)scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

attention_ext = load_inline(name="attention_flash_simt", cpp_sources="torch::Tensor attention(torch::Tensor qkv, int64_t heads, double scale);",
                            cuda_sources=cuda_source, functions=["attention"], extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super(ModelNew, self).__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        qkv = self.qkv(self.norm(x))
        scale = (x.shape[-1] // self.heads) ** -0.5
        return x + self.projection(attention_ext.attention(qkv, self.heads, scale))
