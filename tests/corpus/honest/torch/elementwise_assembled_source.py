# task: torch_elementwise_chain
# style: source_from_helpers
# what: assembles the CUDA source from helper functions with join, dedent and replace; the name carries its hash
import hashlib
import textwrap

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

INCLUDES = ["torch/extension.h", "ATen/cuda/CUDAContext.h", "c10/cuda/CUDAException.h"]


def includes():
    return "\n".join(f"#include <{name}>" for name in INCLUDES)


def op(name, body):
    template = textwrap.dedent(
        """
        struct @NAME@ {
            __device__ __forceinline__ static float apply(float v, float a, float b) { @BODY@ }
        };
        """
    )
    return template.replace("@NAME@", name).replace("@BODY@", body)


def chain(names):
    calls = "".join(f"    v = {name}::apply(v, a, b);\n" for name in names)
    return "__device__ __forceinline__ float chain(float v, float a, float b) {\n" + calls + "    return v;\n}\n"


KERNEL = textwrap.dedent(
    """
    template <int UNROLL>
    __global__ void run_chain(const float* __restrict__ x, const float* __restrict__ a, const float* __restrict__ b,
                              float* __restrict__ y, int rows, int columns) {
        int c = blockIdx.x * blockDim.x + threadIdx.x;
        if (c >= columns) return;
        float av = a[c], bv = b[c];
        int r0 = blockIdx.y * UNROLL;
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            int r = r0 + k;
            if (r < rows) { size_t i = (size_t)r * columns + c; y[i] = chain(x[i], av, bv); }
        }
    }

    torch::Tensor forward(torch::Tensor x, torch::Tensor a, torch::Tensor b) {
        auto y = torch::empty_like(x);
        int rows = x.size(0), columns = x.size(1);
        dim3 grid((columns + 255) / 256, (rows + UNROLL_ROWS - 1) / UNROLL_ROWS);
        run_chain<UNROLL_ROWS><<<grid, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<float>(), a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        return y;
    }
    """
)

SOURCE = "\n".join(
    [
        includes(),
        "#define UNROLL_ROWS 8  // rows of one thread",
        op("Affine", "return v * a + b;"),
        op("Swish", "return v / (1.0f + expf(-v));"),
        op("Clamp", "return fminf(fmaxf(v, %s), %s);" % ("-1.0f", "4.0f")),
        chain(["Affine", "Swish", "Clamp"]),
        KERNEL,
    ]
)

DIGEST = hashlib.sha256(SOURCE.encode("utf-8")).hexdigest()[:12]

EXT = load_inline(
    name="elementwise_" + DIGEST,
    cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor a, torch::Tensor b);",
    cuda_sources=SOURCE,
    functions=["forward"],
    extra_cuda_cflags=["-O3", "-std=c++17"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(columns))
        self.shift = nn.Parameter(0.1 * torch.randn(columns))

    def forward(self, x):
        return EXT.forward(x.contiguous(), self.scale, self.shift)
