// Twenty-four Jacobi sweeps: one kernel for each sweep, between two grids in the workspace.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int SWEEPS = 24;

__global__ void sweep(const ns_real *from, const ns_real *f, ns_real *to, int64_t height, int64_t width) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= height || col >= width) {
        return;
    }
    const int64_t i = row * width + col;
    const bool inner = row > 0 && row + 1 < height && col > 0 && col + 1 < width;
    to[i] = inner ? (from[i - width] + from[i + width] + from[i - 1] + from[i + 1] + f[i]) / 4 : from[i];
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const int64_t height = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const ns_real *f = static_cast<const ns_real *>(inputs[1].data);
    ns_real *grids[2] = {static_cast<ns_real *>(workspace), static_cast<ns_real *>(workspace) + height * width};
    const ns_real *from = static_cast<const ns_real *>(inputs[0].data);
    const dim3 threads(32, 8);
    const dim3 blocks(static_cast<unsigned>((width + 31) / 32), static_cast<unsigned>((height + 7) / 8));
    for (int s = 0; s < SWEEPS; ++s) {
        ns_real *to = s + 1 == SWEEPS ? static_cast<ns_real *>(outputs[0].data) : grids[s % 2];
        sweep<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(from, f, to, height, width);
        from = to;
    }
    return cudaGetLastError();
}
