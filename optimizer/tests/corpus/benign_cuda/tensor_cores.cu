#include "nightshift.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

__constant__ float scales[4] = {1.0f, 2.0f, 3.0f, 4.0f};

template <int M, int N>
__global__ void __cluster_dims__(1, 1, 1) multiply(const half *__restrict__ a, const half *__restrict__ b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, a, M);
    wmma::load_matrix_sync(right, b, N);
    wmma::mma_sync(sum, left, right, sum);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= scales[i & 3];
    wmma::store_matrix_sync(c, sum, N, wmma::mem_row_major);
}

NS_EXPORT int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    auto kernel = multiply<16, 16>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024);
    kernel<<<dim3(1), dim3(32), 96 * 1024, (cudaStream_t)stream>>>((const half *)in[0].data, (const half *)in[1].data,
                                                                 (float *)out[0].data);
    return cudaPeekAtLastError() != cudaSuccess;
}
