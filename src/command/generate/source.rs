//! Sources and replies: a few variants for each task, which attempts share.

use std::fmt::Write as _;

/// Variants of a task's source.
pub(super) const VARIANTS: u32 = 24;

/// Returns a plausible program, which is never compiled. Writing into a string cannot fail.
pub(super) fn source(task: &str, variant: u32) -> String {
    let tile = [16, 32, 64, 128][usize::try_from(variant % 4).unwrap_or(0)];
    let unroll = 1 << (variant / 4 % 3);
    let vector = if variant.is_multiple_of(2) { "float4" } else { "float" };
    let mut text = format!(
        "// {task}: tiles of {tile}, loads as {vector}, variant {variant}\n#include \"nightshift.h\"\n#include <cuda_runtime.h>\n\n\
         constexpr int TILE = {tile};\nconstexpr int UNROLL = {unroll};\n\n"
    );
    if variant.is_multiple_of(3) {
        text.push_str(
            "__device__ __forceinline__ float warp_sum(float value) {\n    for (int offset = 16; offset > 0; offset /= 2) {\n        \
             value += __shfl_xor_sync(0xffffffffu, value, offset);\n    }\n    return value;\n}\n\n",
        );
    }
    let _ = write!(
        text,
        "__global__ void __launch_bounds__(256) {task}_kernel(const float *in, float *out, int rows, int columns) {{\n    \
         __shared__ float tile[TILE][TILE + {}];\n    const int row = blockIdx.x;\n",
        variant % 2
    );
    for step in 0..unroll {
        let _ = write!(
            text,
            "    for (int column = threadIdx.x + {step} * blockDim.x; column < columns; column += {unroll} * blockDim.x) {{\n        \
             tile[column % TILE][{step}] = in[row * columns + column];\n    }}\n"
        );
    }
    if variant.is_multiple_of(5) {
        text.push_str("    __pipeline_commit();\n    __pipeline_wait_prior(0);\n");
    }
    text.push_str(
        "    __syncthreads();\n    for (int column = threadIdx.x; column < columns; column += blockDim.x) {\n        \
         out[row * columns + column] = tile[column % TILE][0];\n    }\n}\n\n",
    );
    let _ = write!(
        text,
        "extern \"C\" int ns_run(void *, const ns_tensor *inputs, int, ns_tensor *outputs, int, void *, void *stream) {{\n    \
         const int rows = static_cast<int>(inputs[0].shape[0]), columns = static_cast<int>(inputs[0].shape[1]);\n    \
         {task}_kernel<<<rows, 256, 0, static_cast<cudaStream_t>(stream)>>>(\n        \
         static_cast<const float *>(inputs[0].data), static_cast<float *>(outputs[0].data), rows, columns);\n    \
         return cudaGetLastError();\n}}\n"
    );
    text
}

/// What a model replied with it.
pub(super) fn reply(task: &str, variant: u32) -> String {
    let idea = IDEAS[usize::try_from(variant).unwrap_or(0) % IDEAS.len()];
    format!("The profile of {task} says where its time goes. {idea}\n\n```cuda\n{}```\n", source(task, variant))
}

/// One change that a diagnosis asks for, and what a reply says about it.
pub(super) const IDEAS: [&str; 8] = [
    "Stage the tile in shared memory, so that each value is loaded from global memory once.",
    "Load as float4: a warp then needs a quarter of the transactions.",
    "Reduce within the warp by shuffles instead of through shared memory.",
    "Pad the rows of the tile by one to remove bank conflicts.",
    "Unroll the inner loop, so that independent loads hide each other's latency.",
    "Fuse the second pass into the first one: the row fits into registers.",
    "Copy the next tile asynchronously while this one is computed.",
    "Use one block for several rows: the grid is too small to fill the device.",
];

/// What holds a program back, by the place of its bound.
pub(super) const ISSUES: [(&str, &str); 5] = [
    ("memory", "Global loads are not coalesced: 31.8 % of the bytes of each transaction are used."),
    ("compute", "The arithmetic runs on the scalar pipe although the shapes fit the tensor cores."),
    ("latency", "Warps wait for single loads: 2.1 eligible warps per cycle with 64 registers per thread."),
    ("launch", "Each call starts four kernels of some microseconds: launching takes longer than they do."),
    ("host", "The host synchronizes after every kernel, so that the device idles between them."),
];
