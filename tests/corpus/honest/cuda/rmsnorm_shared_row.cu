// task: cuda_rmsnorm_bf16
// style: dynamic_shared_row_tunable
// what: the sum of input and residual is kept in dynamic shared memory as floats, up to the limit that ns_init asks for

#include "nightshift.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <stdlib.h>

NIGHTSHIFT_TUNABLE(THREADS, 256, 128, 256, 512);

#define CUDA_CHECK(call) do { if ((call) != cudaSuccess) abort(); } while (0)

typedef __nv_bfloat16 bf16;

/* What ns_init found out: the bytes of shared memory that a block may have. */
typedef struct {
    size_t shared_limit;
} state_t;

__device__ float reduce(float value, float *shared)
{
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

__global__ void __launch_bounds__(THREADS) rmsnorm(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *out,
                                                   int cols, int staged)
{
    extern __shared__ float row[];
    __shared__ float shared[THREADS];
    const int64_t first = (int64_t)blockIdx.x * cols;
    float squares = 0.0f;

    for (int col = threadIdx.x; col < cols; col += THREADS) {
        const float sum = __bfloat162float(x[first + col]) + __bfloat162float(residual[first + col]);
        if (col < staged)
            row[col] = sum;
        squares = fmaf(sum, sum, squares);
    }
    const float factor = 1.0f / sqrtf(reduce(squares, shared) / (float)cols + 1e-6f);
    /* A thread reads only what it staged itself; columns beyond the limit are read again. */
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        const float sum = col < staged ? row[col] : __bfloat162float(x[first + col]) + __bfloat162float(residual[first + col]);
        out[first + col] = __float2bfloat16_rn(sum * factor * __bfloat162float(weight[col]));
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state)
{
    int device, limit;
    state_t *made = (state_t *)malloc(sizeof *made);
    (void)params;
    (void)n_params;
    if (made == NULL)
        return 1;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    limit = limit / 2 - 4096; /* room for two blocks on a multiprocessor, and for the static array */
    CUDA_CHECK(cudaFuncSetAttribute(rmsnorm, cudaFuncAttributeMaxDynamicSharedMemorySize, limit));
    made->shared_limit = (size_t)limit;
    *state = made;
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream)
{
    const state_t *made = (const state_t *)state;
    const int64_t rows = inputs[0].shape[0];
    const int cols = (int)inputs[0].shape[1];
    const int most = (int)(made->shared_limit / sizeof(float));
    const int staged = cols < most ? cols : most;
    (void)n_inputs;
    (void)n_outputs;
    (void)workspace;
    rmsnorm<<<(unsigned)rows, THREADS, staged * sizeof(float), (cudaStream_t)stream>>>(
        (const bf16 *)inputs[0].data, (const bf16 *)inputs[1].data, (const bf16 *)inputs[2].data, (bf16 *)outputs[0].data, cols,
        staged);
    CUDA_CHECK(cudaGetLastError());
    return 0;
}

NS_EXPORT void ns_free(void *state)
{
    free(state);
}
