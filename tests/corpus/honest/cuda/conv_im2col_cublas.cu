// task: cuda_conv2d_3x3
// style: cublas_strided_batched_checked
// what: unfolds the images into the workspace and multiplies them by the weights with cuBLAS, a batch of images at a time

#include "nightshift.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#define CUDA_CHECK(call)                     \
    do {                                     \
        const cudaError_t cuda_code = (call); \
        if (cuda_code != cudaSuccess) {      \
            return static_cast<int>(cuda_code); \
        }                                    \
    } while (0)

#define CUBLAS_CHECK(call)                            \
    do {                                              \
        const cublasStatus_t cublas_code = (call);    \
        if (cublas_code != CUBLAS_STATUS_SUCCESS) {   \
            return 10000 + static_cast<int>(cublas_code); \
        }                                             \
    } while (0)

constexpr size_t LIBRARY_BYTES = 32u * 1024u * 1024u;

struct State {
    cublasHandle_t handle = nullptr;
    void *library_memory = nullptr; // the library would allocate its own within a call otherwise
};

// columns[n, c * 9 + t, pixel] = the pixel of channel c that tap t meets, zero outside of the image.
__global__ void unfold(const float *x, float *columns, int64_t count, int channels, int height, int width) {
    const int64_t area = static_cast<int64_t>(height) * width;
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count;
         at += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        const int64_t pixel = at % area;
        const int64_t plane = at / area; // image, channel and tap
        const int tap = static_cast<int>(plane % 9);
        const int64_t row = pixel / width + tap / 3 - 1;
        const int64_t col = pixel % width + tap % 3 - 1;
        const bool inside = row >= 0 && row < height && col >= 0 && col < width;
        columns[at] = inside ? x[plane / 9 * area + row * width + col] : 0.0f;
    }
}

__global__ void add_bias(float *out, const float *bias, int64_t count, int64_t area, int filters) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) {
        out[at] += bias[at / area % filters];
    }
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State;
    *state = made;
    CUDA_CHECK(cudaMalloc(&made->library_memory, LIBRARY_BYTES));
    CUBLAS_CHECK(cublasCreate(&made->handle));
    // Full single precision: no TF32.
    CUBLAS_CHECK(cublasSetMathMode(made->handle, CUBLAS_DEFAULT_MATH));
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made != nullptr) {
        if (made->handle != nullptr) {
            cublasDestroy(made->handle);
        }
        cudaFree(made->library_memory);
        delete made;
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    State *made = static_cast<State *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *weights = static_cast<const float *>(inputs[1].data);
    float *out = static_cast<float *>(outputs[0].data);
    float *columns = static_cast<float *>(workspace);
    const int64_t images = inputs[0].shape[0];
    const int channels = static_cast<int>(inputs[0].shape[1]);
    const int height = static_cast<int>(inputs[0].shape[2]);
    const int width = static_cast<int>(inputs[0].shape[3]);
    const int filters = static_cast<int>(inputs[1].shape[0]);
    const int64_t area = static_cast<int64_t>(height) * width;
    const int64_t unfolded = channels * 9 * area;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    const int64_t batch = static_cast<int64_t>(NS_WORKSPACE_BYTES / sizeof(float)) / unfolded;
    if (batch < 1) {
        return cudaErrorMemoryAllocation;
    }
    // A new stream resets the memory of the handle, so both are set at every call.
    CUBLAS_CHECK(cublasSetStream(made->handle, on));
    CUBLAS_CHECK(cublasSetWorkspace(made->handle, made->library_memory, LIBRARY_BYTES));
    const float one = 1.0f;
    const float zero = 0.0f;
    for (int64_t first = 0; first < images; first += batch) {
        const int64_t count = images - first < batch ? images - first : batch;
        const int64_t elements = count * unfolded;
        const int64_t blocks = (elements + 255) / 256;
        unfold<<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), 256, 0, on>>>(x + first * channels * area, columns,
                                                                                       elements, channels, height, width);
        CUDA_CHECK(cudaGetLastError());
        // By columns: out^T (pixels by filters) = columns^T (pixels by taps) * weights^T (taps by filters).
        CUBLAS_CHECK(cublasSgemmStridedBatched(made->handle, CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(area), filters,
                                               channels * 9, &one, columns, static_cast<int>(area), unfolded, weights,
                                               channels * 9, 0, &zero, out + first * filters * area, static_cast<int>(area),
                                               filters * area, static_cast<int>(count)));
    }
    const int64_t results = images * filters * area;
    add_bias<<<static_cast<unsigned>((results + 255) / 256), 256, 0, on>>>(out, static_cast<const float *>(inputs[2].data),
                                                                           results, area, filters);
    CUDA_CHECK(cudaGetLastError());
    return 0;
}
