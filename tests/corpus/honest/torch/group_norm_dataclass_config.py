# task: torch_group_norm_swish
# style: dataclass_config
# what: a frozen dataclass holds launch constants that an f-string puts into the source; vectorized float4 passes
from __future__ import annotations

import dataclasses
import functools
import logging
import warnings

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

logger = logging.getLogger(__name__)
warnings.filterwarnings("ignore", category=UserWarning, module="torch.utils.cpp_extension")


@dataclasses.dataclass(frozen=True)
class LaunchConfig:
    threads: int = 512
    vec: str = "float4"
    lanes: int = 4

    @property
    def warps(self) -> int:
        return self.threads // 32


def make_source(cfg: LaunchConfig) -> str:
    return f"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

static __device__ float total(float v, float* part) {{
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float s = 0.0f;
    #pragma unroll
    for (int i = 0; i < {cfg.warps}; ++i) s += part[i];
    return s;
}}

static __device__ float swish(float v, float mean, float scale, float shift) {{
    v = fmaf(v - mean, scale, shift);
    return v / (1.0f + expf(-v));
}}

__global__ __launch_bounds__({cfg.threads}) void gn_swish(const {cfg.vec}* __restrict__ x, const float* __restrict__ w,
        const float* __restrict__ b, {cfg.vec}* __restrict__ y, int groups, int per_group, int pixels_vec, float eps) {{
    __shared__ float part[{cfg.warps}];
    const int n = per_group * pixels_vec;
    const {cfg.vec}* src = x + (size_t)blockIdx.x * n;
    {cfg.vec}* dst = y + (size_t)blockIdx.x * n;
    const int first = (blockIdx.x % groups) * per_group;
    float s = 0.0f;
    for (int i = threadIdx.x; i < n; i += {cfg.threads}) {{ {cfg.vec} v = src[i]; s += (v.x + v.y) + (v.z + v.w); }}
    const float mean = total(s, part) / ((float)n * {cfg.lanes});
    float q = 0.0f;
    for (int i = threadIdx.x; i < n; i += {cfg.threads}) {{
        {cfg.vec} v = src[i];
        v.x -= mean; v.y -= mean; v.z -= mean; v.w -= mean;
        q += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    }}
    const float rstd = rsqrtf(total(q, part) / ((float)n * {cfg.lanes}) + eps);
    for (int i = threadIdx.x; i < n; i += {cfg.threads}) {{
        const int c = first + i / pixels_vec;
        const float scale = rstd * w[c], shift = b[c];
        {cfg.vec} v = src[i];
        dst[i] = make_{cfg.vec}(swish(v.x, mean, scale, shift), swish(v.y, mean, scale, shift),
                                swish(v.z, mean, scale, shift), swish(v.w, mean, scale, shift));
    }}
}}

torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t groups, double eps) {{
    const int batch = x.size(0), channels = x.size(1);
    const int pixels = x.numel() / (x.size(0) * x.size(1));
    TORCH_CHECK(pixels % {cfg.lanes} == 0, "pixels must be a multiple of {cfg.lanes}");
    auto y = torch::empty_like(x);
    gn_swish<<<batch * groups, {cfg.threads}, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const {cfg.vec}*>(x.data_ptr<float>()), w.data_ptr<float>(), b.data_ptr<float>(),
        reinterpret_cast<{cfg.vec}*>(y.data_ptr<float>()), (int)groups, channels / (int)groups, pixels / {cfg.lanes}, (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}}
"""


@functools.lru_cache(maxsize=None)
def get_extension(cfg: LaunchConfig):
    logger.info("building the extension with %d threads", cfg.threads)
    return load_inline(
        name=f"gn_swish_{cfg.threads}",
        cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor w, torch::Tensor b, int64_t groups, double eps);",
        cuda_sources=make_source(cfg),
        functions=["forward"],
        extra_cuda_cflags=["-O3"],
    )


class ModelNew(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.config = LaunchConfig()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ext = get_extension(self.config)
        return ext.forward(x.contiguous(), self.norm.weight, self.norm.bias, self.norm.num_groups, self.norm.eps)
