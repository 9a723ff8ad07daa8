// task: cuda_column_moments
// style: cooperative_three_phases_atomics
// what: a cooperative grid clears sums in the workspace, adds them with double atomics, and synchronizes between its phases

#include "nightshift.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) moments(const float *x, double *sums, float *mean, float *deviation, int64_t rows,
                                                   int64_t cols, int64_t strip) {
    const cg::grid_group grid = cg::this_grid();
    const int64_t thread = static_cast<int64_t>(grid.thread_rank());
    const int64_t threads = static_cast<int64_t>(grid.size());
    double *squares = sums + cols;

    for (int64_t i = thread; i < 2 * cols; i += threads) {
        sums[i] = 0.0;
    }
    grid.sync();

    // A job is one column of one strip of rows; neighbouring threads have neighbouring columns.
    const int64_t jobs = (rows + strip - 1) / strip * cols;
    for (int64_t job = thread; job < jobs; job += threads) {
        const int64_t col = job % cols;
        const int64_t begin = job / cols * strip;
        const int64_t end = begin + strip < rows ? begin + strip : rows;
        double sum = 0.0;
        for (int64_t row = begin; row < end; ++row) {
            sum += x[row * cols + col];
        }
        atomicAdd(sums + col, sum);
    }
    grid.sync();

    for (int64_t job = thread; job < jobs; job += threads) {
        const int64_t col = job % cols;
        const int64_t begin = job / cols * strip;
        const int64_t end = begin + strip < rows ? begin + strip : rows;
        const double middle = sums[col] / static_cast<double>(rows);
        double sum = 0.0;
        for (int64_t row = begin; row < end; ++row) {
            const double distance = x[row * cols + col] - middle;
            sum += distance * distance;
        }
        atomicAdd(squares + col, sum);
    }
    grid.sync();

    for (int64_t col = thread; col < cols; col += threads) {
        mean[col] = static_cast<float>(sums[col] / static_cast<double>(rows));
        deviation[col] = static_cast<float>(sqrt(squares[col] / static_cast<double>(rows)));
    }
}

struct Resident {
    unsigned blocks;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    cudaDeviceProp properties;
    int device = 0;
    int each = 0;
    Resident *resident = new Resident{0};
    *state = resident;
    cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    status = cudaGetDeviceProperties(&properties, device);
    if (status != cudaSuccess) return status;
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, moments, THREADS, 0);
    if (status != cudaSuccess) return status;
    resident->blocks = static_cast<unsigned>(properties.multiProcessorCount * (each < 4 ? each : 4));
    return resident->blocks > 0 ? 0 : cudaErrorLaunchOutOfResources;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<Resident *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    double *sums = static_cast<double *>(workspace);
    float *mean = static_cast<float *>(outputs[0].data);
    float *deviation = static_cast<float *>(outputs[1].data);
    int64_t rows = inputs[0].shape[0];
    int64_t cols = inputs[0].shape[1];
    int64_t strip = 32;
    if (2 * cols * static_cast<int64_t>(sizeof(double)) > static_cast<int64_t>(NS_WORKSPACE_BYTES)) {
        return cudaErrorMemoryAllocation;
    }
    void *arguments[] = {&x, &sums, &mean, &deviation, &rows, &cols, &strip};
    return cudaLaunchCooperativeKernel(moments, dim3(static_cast<const Resident *>(state)->blocks), dim3(THREADS), arguments, 0,
                                       static_cast<cudaStream_t>(stream));
}
