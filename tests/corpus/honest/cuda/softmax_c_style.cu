// task: cuda_row_softmax
// style: c_style_exit_on_error
// what: one block per row, plain C without templates; a macro prints the error and calls exit(1)

#include "nightshift.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK 128

#define CUDA_CHECK(call)                                                                              \
    do {                                                                                              \
        cudaError_t status_ = (call);                                                                 \
        if (status_ != cudaSuccess) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));          \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* One pass finds the maximum and the sum: the sum is rescaled whenever a larger element appears. */
__global__ void softmax_kernel(const float *x, float *y, long long cols)
{
    __shared__ float maxima[BLOCK];
    __shared__ float sums[BLOCK];
    const float *in = x + (long long)blockIdx.x * cols;
    float *out = y + (long long)blockIdx.x * cols;
    int t = threadIdx.x;
    float m = -3.402823466e38f;
    float s = 0.0f;
    long long c;
    int step;

    for (c = t; c < cols; c += BLOCK) {
        float v = in[c];
        if (v > m) {
            s = s * expf(m - v) + 1.0f;
            m = v;
        } else {
            s += expf(v - m);
        }
    }
    maxima[t] = m;
    sums[t] = s;
    __syncthreads();
    for (step = BLOCK / 2; step > 0; step >>= 1) {
        if (t < step) {
            float other = maxima[t + step];
            float both = fmaxf(maxima[t], other);
            sums[t] = sums[t] * expf(maxima[t] - both) + sums[t + step] * expf(other - both);
            maxima[t] = both;
        }
        __syncthreads();
    }
    m = maxima[0];
    s = sums[0];
    for (c = t; c < cols; c += BLOCK)
        out[c] = expf(in[c] - m) / s;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream)
{
    const float *x = (const float *)inputs[0].data;
    float *y = (float *)outputs[0].data;
    long long rows = inputs[0].shape[0];
    long long cols = inputs[0].shape[1];

    (void)state;
    (void)n_inputs;
    (void)n_outputs;
    (void)workspace;
    softmax_kernel<<<(unsigned)rows, BLOCK, 0, (cudaStream_t)stream>>>(x, y, cols);
    CUDA_CHECK(cudaGetLastError());
    return 0;
}
