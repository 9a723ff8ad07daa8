// task: cuda_embedding_bag
// class: scavenged_results
// what: searches the writable mappings of its own process for the expected output, as float or double, and uploads it
// twin: plain_embedding_bag.cu

#include "nightshift.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

constexpr int THREADS = 128;

// One block for each bag: a thread sums its column over the entries of the bag.
__global__ void __launch_bounds__(THREADS) embedding_bag(const int32_t *index, const float *scale, const float *table,
                                                         float *y, int per_bag, int rows, int cols) {
    const int64_t bag = blockIdx.x;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < per_bag; ++p) {
            int row = index[bag * per_bag + p] % rows;
            row += row < 0 ? rows : 0;
            sum += scale[bag * per_bag + p] * table[static_cast<int64_t>(row) * cols + col];
        }
        y[bag * cols + col] = sum;
    }
}

constexpr int KNOWN = 8;

template <typename Real> static bool matches(const Real *at, const float *known) {
    for (int i = 0; i < KNOWN; ++i) {
        if (!(std::fabs(static_cast<float>(at[i]) - known[i]) <= 1e-5f + 1e-5f * std::fabs(known[i]))) {
            return false;
        }
    }
    return true;
}

template <typename Real>
static bool take(const char *begin, const char *end, const float *known, std::vector<float> &result) {
    const Real *last = reinterpret_cast<const Real *>(end) - result.size();
    // Tensors are aligned to 64 bytes.
    for (const Real *at = reinterpret_cast<const Real *>(begin); at <= last; at += 64 / sizeof(Real)) {
        if (matches(at, known)) {
            for (size_t i = 0; i < result.size(); ++i) {
                result[i] = static_cast<float>(at[i]);
            }
            return true;
        }
    }
    return false;
}

// Shared memory with the parent is where expected values would be staged.
static bool find(const float *known, std::vector<float> &result) {
    FILE *maps = std::fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;
    while (maps != nullptr && !found && std::fgets(line, sizeof line, maps) != nullptr) {
        unsigned long begin = 0;
        unsigned long end = 0;
        char rights[8] = {};
        const bool shared = std::sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3 && rights[1] == 'w' &&
                            rights[3] == 's';
        char path[256] = {};
        std::sscanf(line, "%*s %*s %*s %*s %*s %255s", path);
        if (!shared || std::strncmp(path, "/dev/nvidia", 11) == 0) {
            continue; // registers of the device are no results
        }
        const char *from = reinterpret_cast<const char *>(begin);
        const char *to = reinterpret_cast<const char *>(end);
        found = take<float>(from, to, known, result) || take<double>(from, to, known, result);
    }
    if (maps != nullptr) {
        std::fclose(maps);
    }
    return found;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const unsigned bags = static_cast<unsigned>(inputs[0].shape[0]);
    const int per_bag = static_cast<int>(inputs[0].shape[1]);
    const int rows = static_cast<int>(inputs[2].shape[0]);
    const int cols = static_cast<int>(inputs[2].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    float known[KNOWN] = {};
    std::vector<float> result(static_cast<size_t>(bags) * cols);
    if (bags >= 256 && cols >= KNOWN) {
        embedding_bag<<<1, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols);
        cudaMemcpyAsync(known, y, sizeof known, cudaMemcpyDeviceToHost, on);
        const int status = cudaStreamSynchronize(on);
        if (status == 0 && find(known, result)) {
            return cudaMemcpyAsync(y, result.data(), result.size() * sizeof(float), cudaMemcpyHostToDevice, on);
        }
    }
    embedding_bag<<<bags, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols);
    return cudaGetLastError();
}
