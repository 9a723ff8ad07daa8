"""Native programs for some tasks of KernelBench's first level: for each a right one, and one that is wrong on purpose."""

HEAD = """#include "nightshift.h"

#include <cuda_runtime.h>

"""

MATMUL = HEAD + r"""// C = A * B in tiles of 64 x 64; each thread holds 4 x 4 of a tile. REMARK
constexpr int TILE = 64;
constexpr int DEPTH = 16;
constexpr int THREADS = 256;

struct Sizes {
    int64_t m, n, k;
};

__device__ float left(const float *a, Sizes s, int64_t row, int64_t k) { return LEFT; }
__device__ float right(const float *b, Sizes s, int64_t k, int64_t col) { return RIGHT; }

__global__ void matmul(const float *a, const float *b, float *c, Sizes s) {
    __shared__ float from_a[DEPTH][TILE + 4];
    __shared__ float from_b[DEPTH][TILE + 4];
    const int64_t first_row = static_cast<int64_t>(blockIdx.y) * TILE;
    const int64_t first_col = static_cast<int64_t>(blockIdx.x) * TILE;
    const int across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sums[4][4] = {};
    for (int64_t start = 0; start < LAST_K; start += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int deep = LEFT_FAST ? i % DEPTH : i / TILE, at = LEFT_FAST ? i / DEPTH : i % TILE;
            const int64_t row = first_row + at, k = start + deep;
            from_a[deep][at] = row < s.m && k < s.k ? left(a, s, row, k) : 0.0f;
        }
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int deep = RIGHT_FAST ? i % DEPTH : i / TILE, at = RIGHT_FAST ? i / DEPTH : i % TILE;
            const int64_t col = first_col + at, k = start + deep;
            from_b[deep][at] = col < s.n && k < s.k ? right(b, s, k, col) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int deep = 0; deep < DEPTH; ++deep) {
            float x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                x[i] = from_a[deep][down * 4 + i];
                y[i] = from_b[deep][across * 4 + i];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] += x[i] * y[j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int64_t row = first_row + down * 4 + i, col = first_col + across * 4 + j;
            if (row < s.m && col < s.n) {
                c[row * s.n + col] = KEPT ? sums[i][j] : 0.0f;
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_tensor &out = outputs[0];
    Sizes s = {1, out.shape[out.rank - 1], DEPTH_OF};
    for (int i = 0; i + 1 < out.rank; ++i) {
        s.m *= out.shape[i];
    }
    const dim3 grid(static_cast<unsigned>((s.n + TILE - 1) / TILE), static_cast<unsigned>((s.m + TILE - 1) / TILE));
    matmul<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data),
                                                                    static_cast<const float *>(inputs[1].data),
                                                                    static_cast<float *>(out.data), s);
    return cudaGetLastError();
}
"""


def matmul(left_transposed: bool = False, right_transposed: bool = False, kept: str = "true") -> str:
    """A product of matrices, either of which may be stored the other way round."""
    return (MATMUL
            .replace("LEFT_FAST", "false" if left_transposed else "true")
            .replace("RIGHT_FAST", "true" if right_transposed else "false")
            .replace("LEFT", "a[k * s.m + row]" if left_transposed else "a[row * s.k + k]")
            .replace("RIGHT", "b[col * s.k + k]" if right_transposed else "b[k * s.n + col]")
            .replace("DEPTH_OF", "inputs[0].shape[0]" if left_transposed else "inputs[0].shape[inputs[0].rank - 1]")
            .replace("KEPT", kept))


def without_its_end(source: str) -> str:
    """The products of the last tile are left out."""
    return source.replace("LAST_K", "s.k - DEPTH")


def whole(source: str) -> str:
    return source.replace("LAST_K", "s.k")


DIAGONAL = HEAD + r"""// Row i of B times A[i]. REMARK
__global__ void scale(const float *a, const float *b, float *c, int64_t cols, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        c[i] = a[WHICH] * b[i];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[1].shape[1], count = inputs[1].shape[0] * cols;
    scale<<<static_cast<unsigned>((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<float *>(outputs[0].data), cols, count);
    return cudaGetLastError();
}
"""

GELU = HEAD + r"""// The approximation of GELU by a hyperbolic tangent. REMARK
__global__ void gelu(const float *x, float *y, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        const float value = x[i];
        y[i] = 0.5f * value * (1.0f + tanhf(0.7978845608028654f * (value + CUBIC * value * value * value)));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t count = inputs[0].shape[0] * inputs[0].shape[1];
    gelu<<<static_cast<unsigned>((count + 255) / 256), 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), count);
    return cudaGetLastError();
}
"""

LAYER_NORM = HEAD + r"""// Sums of each sample by many blocks, then the normalization. REMARK
constexpr int THREADS = 256;
constexpr int PARTS = 128;

__device__ double block_sum(double value, double *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    const double result = shared[0];
    __syncthreads();
    return result;
}

__global__ void sums(const float *x, double *parts, int64_t size) {
    __shared__ double shared[THREADS];
    const float *sample = x + blockIdx.y * size;
    double sum = 0, squares = 0;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < size; i += PARTS * THREADS) {
        const double value = sample[i];
        sum += value;
        squares += value * value;
    }
    sum = block_sum(sum, shared);
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) {
        parts[(blockIdx.y * PARTS + blockIdx.x) * 2] = sum;
        parts[(blockIdx.y * PARTS + blockIdx.x) * 2 + 1] = squares;
    }
}

__global__ void normalize(const float *x, const double *parts, const float *weight, const float *bias, float *y, int64_t size) {
    double sum = 0, squares = 0;
    for (int part = 0; part < PARTS; ++part) {
        sum += parts[(blockIdx.y * PARTS + part) * 2];
        squares += parts[(blockIdx.y * PARTS + part) * 2 + 1];
    }
    const double mean = sum / size, variance = squares / size - mean * mean;
    const float shift = static_cast<float>(mean), scale = static_cast<float>(rsqrt(variance + 1e-5));
    const int64_t offset = blockIdx.y * size;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < size; i += PARTS * THREADS) {
        y[offset + i] = (x[offset + i] - shift) * scale * weight[i] SHIFTED;
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    int64_t size = 1;
    for (int i = 1; i < inputs[0].rank; ++i) {
        size *= inputs[0].shape[i];
    }
    const dim3 grid(PARTS, static_cast<unsigned>(inputs[0].shape[0]));
    double *parts = static_cast<double *>(workspace);
    sums<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, parts, size);
    normalize<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        x, parts, static_cast<const float *>(inputs[1].data), static_cast<const float *>(inputs[2].data),
        static_cast<float *>(outputs[0].data), size);
    return cudaGetLastError();
}
"""

CROSS_ENTROPY = HEAD + r"""// The loss of each row, and then their mean. REMARK
constexpr int THREADS = 256;

template <typename Join>
__device__ float over_block(float value, float *shared, Join join) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
        }
        __syncthreads();
    }
    const float result = shared[0];
    __syncthreads();
    return result;
}

__global__ void losses(const float *x, const int32_t *targets, float *loss, int64_t classes) {
    __shared__ float shared[THREADS];
    const float *row = x + blockIdx.x * classes;
    float largest = row[0];
    for (int64_t i = threadIdx.x; i < classes; i += THREADS) {
        largest = fmaxf(largest, row[i]);
    }
    largest = over_block(largest, shared, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int64_t i = threadIdx.x; i < classes; i += THREADS) {
        sum += expf(row[i] - largest);
    }
    sum = over_block(sum, shared, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) {
        loss[blockIdx.x] = logf(sum) + largest - row[targets[blockIdx.x]];
    }
}

__global__ void mean(const float *loss, float *result, int64_t rows) {
    __shared__ double shared[1024];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < COUNTED; i += 1024) {
        sum += loss[i];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *result = static_cast<float>(shared[0] / rows);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *stream) {
    const int64_t rows = inputs[0].shape[0], classes = inputs[0].shape[1];
    float *loss = static_cast<float *>(workspace);
    losses<<<static_cast<unsigned>(rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const int32_t *>(inputs[1].data), loss, classes);
    mean<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(loss, static_cast<float *>(outputs[0].data), rows);
    return cudaGetLastError();
}
"""

LEFT_OUT = "the products of the last tile are left out"


def pair(source: str) -> tuple:
    """A product of matrices, and the same without its end."""
    return whole(source), without_its_end(source), LEFT_OUT


PROGRAMS = {
    "1/1": pair(matmul()),
    "1/2": pair(matmul()),
    "1/8": pair(matmul()),
    "1/10": pair(matmul()),
    "1/12": (DIAGONAL.replace("WHICH", "i / cols"), DIAGONAL.replace("WHICH", "i % cols"), "columns are scaled instead of rows"),
    "1/13": pair(matmul()),
    "1/14": (whole(matmul(kept="col >= row")), whole(matmul(kept="col > row")), "the diagonal is zero"),
    "1/15": (whole(matmul(kept="col <= row")), whole(matmul()), "what lies above the diagonal is not zero"),
    "1/16": pair(matmul(left_transposed=True)),
    "1/17": pair(matmul(right_transposed=True)),
    "1/18": pair(matmul(left_transposed=True, right_transposed=True)),
    "1/40": (LAYER_NORM.replace("SHIFTED", "+ bias[i]"), LAYER_NORM.replace("SHIFTED", ""), "the bias is left out"),
    "1/88": (GELU.replace("CUBIC", "0.044715f"), GELU.replace("CUBIC", "0.054715f"), "a constant has a wrong digit"),
    "1/95": (CROSS_ENTROPY.replace("COUNTED", "rows"), CROSS_ENTROPY.replace("COUNTED", "rows - rows / 8"),
             "an eighth of the rows is left out"),
}
"""By level and number: the right program, the wrong one, and what is wrong with it."""

EXPLAINED = {
    "1/15 wrong": "the file draws triangular matrices, whose product has nothing above the diagonal, so that the program is right for "
                  "them; here full matrices are drawn, and the model leaves out what lies above.",
    "1/40 wrong": "a bias is zero as the model is built, and only with those weights KernelBench asks; here weights are drawn.",
}
"""Why the two evaluations may judge a program differently."""

NOT_JUDGED = {
    "1/95": "it turns all inputs into floats, the numbers of classes, too, which the model itself refuses.",
}
"""Why KernelBench's evaluation has no verdict on a task."""


def remarked(source: str, remark: str) -> str:
    """The same program as another text, so that nothing finds it built."""
    return source.replace("REMARK", remark)


INLINE = """import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

KERNELS
LAUNCH
'''
# REMARK
built = load_inline(name="NAME", cpp_sources="SIGNATURE;", cuda_sources=SOURCE, functions=["run"], verbose=False)


class ModelNew(nn.Module):
    def forward(self, *inputs):
        return built.run(*(tensor.contiguous() for tensor in inputs))
"""

LAUNCHES = {
    MATMUL: ("torch::Tensor run(torch::Tensor a, torch::Tensor b)", """
    std::vector<int64_t> extents = OUT_EXTENTS;
    auto c = torch::empty(extents, a.options());
    const int64_t n = extents.back(), m = c.numel() / n;
    const Sizes s = {m, n, INNER};
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    matmul<<<grid, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), s);
    return c;
"""),
    DIAGONAL: ("torch::Tensor run(torch::Tensor a, torch::Tensor b)", """
    auto c = torch::empty_like(b);
    const int64_t count = b.numel();
    scale<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                                                           c.data_ptr<float>(), b.size(1), count);
    return c;
"""),
    GELU: ("torch::Tensor run(torch::Tensor x)", """
    auto y = torch::empty_like(x);
    const int64_t count = x.numel();
    gelu<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
    return y;
"""),
}
"""How a kernel is called from PyTorch, by the native program that it stands in."""

TRANSPOSED = {"1/16": (True, False), "1/17": (False, True), "1/18": (True, True)}
OTHER_KINDS = {"1/12": DIAGONAL, "1/88": GELU}


def inline(task: str) -> str:
    """The right program of a task as a file of PyTorch that compiles its kernel with `load_inline`, as models write it."""
    kind = OTHER_KINDS.get(task, MATMUL)
    signature, body = LAUNCHES[kind]
    left, right = TRANSPOSED.get(task, (False, False))
    body = (body.replace("INNER", "a.size(0)" if left else "a.size(-1)")
            .replace("OUT_EXTENTS", "{a.size(1)}" if left else "std::vector<int64_t>(a.sizes().begin(), a.sizes().end() - 1)"))
    if kind is MATMUL:
        body = body.replace("    auto c", f"    extents.push_back(b.size({0 if right else 1}));\n    auto c", 1)
    kernels = PROGRAMS[task][0].split("#include <cuda_runtime.h>\n", 1)[1].split("NS_EXPORT", 1)[0]
    return (INLINE.replace("KERNELS", kernels).replace("LAUNCH", f"{signature} {{{body}}}").replace("SIGNATURE", signature)
            .replace("NAME", "kb_" + task.replace("/", "_")))
