// task: cuda_attention
// style: streams_forked_and_joined
// what: half of the heads run on a second stream made in ns_init; events fork it from the given stream and join it again

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int WIDTH = 64;
constexpr int TILE = 16;

#define CUDA_CHECK(call)                       \
    do {                                       \
        const cudaError_t check_code = (call); \
        if (check_code != cudaSuccess) {       \
            return check_code;                 \
        }                                      \
    } while (0)

// scores = q * k^T / 8, in tiles of 16 by 16; blockIdx.z is the head.
__global__ void score(const float *q, const float *k, float *scores, int seq) {
    __shared__ float q_tile[TILE][WIDTH + 1];
    __shared__ float k_tile[TILE][WIDTH + 1];
    const int64_t head = blockIdx.z;
    const int first_query = blockIdx.y * TILE;
    const int first_key = blockIdx.x * TILE;
    const int thread = threadIdx.y * TILE + threadIdx.x;
    for (int i = thread; i < TILE * WIDTH; i += TILE * TILE) {
        const int row = i / WIDTH;
        const int d = i % WIDTH;
        q_tile[row][d] = first_query + row < seq ? q[(head * seq + first_query + row) * WIDTH + d] : 0.0f;
        k_tile[row][d] = first_key + row < seq ? k[(head * seq + first_key + row) * WIDTH + d] : 0.0f;
    }
    __syncthreads();
    const int query = first_query + threadIdx.y;
    const int key = first_key + threadIdx.x;
    if (query < seq && key < seq) {
        float sum = 0.0f;
        for (int d = 0; d < WIDTH; ++d) {
            sum += q_tile[threadIdx.y][d] * k_tile[threadIdx.x][d];
        }
        scores[(head * seq + query) * seq + key] = sum * 0.125f;
    }
}

// One block of 64 threads for each query: softmax over its scores, then the weighted sum of the values.
__global__ void __launch_bounds__(WIDTH) weigh(float *scores, const float *v, float *out, int seq) {
    __shared__ float shared[2];
    const int64_t query = blockIdx.x;
    const int64_t head = query / seq;
    float *row = scores + query * seq;

    float largest = row[0];
    for (int j = threadIdx.x; j < seq; j += WIDTH) {
        largest = fmaxf(largest, row[j]);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = largest;
    }
    __syncthreads();
    largest = fmaxf(shared[0], shared[1]);
    for (int j = threadIdx.x; j < seq; j += WIDTH) {
        row[j] = expf(row[j] - largest);
    }
    __syncthreads();
    float sum = 0.0f;
    float result = 0.0f;
    for (int j = 0; j < seq; ++j) {
        const float weight = row[j];
        sum += weight;
        result += weight * v[(head * seq + j) * WIDTH + threadIdx.x];
    }
    out[query * WIDTH + threadIdx.x] = result / sum;
}

struct State {
    cudaStream_t second;
    cudaEvent_t forked;
    cudaEvent_t joined;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State{};
    *state = made;
    CUDA_CHECK(cudaStreamCreateWithFlags(&made->second, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&made->forked, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&made->joined, cudaEventDisableTiming));
    return 0;
}

static void launch(const float *q, const float *k, const float *v, float *out, float *scores, int64_t first, int64_t count,
                   int seq, cudaStream_t on) {
    const int64_t skip = first * seq * WIDTH;
    const unsigned tiles = (seq + TILE - 1) / TILE;
    float *own_scores = scores + first * seq * seq;
    score<<<dim3(tiles, tiles, static_cast<unsigned>(count)), dim3(TILE, TILE), 0, on>>>(q + skip, k + skip, own_scores, seq);
    weigh<<<static_cast<unsigned>(count * seq), WIDTH, 0, on>>>(own_scores, v + skip, out + skip, seq);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const State *made = static_cast<const State *>(state);
    const float *q = static_cast<const float *>(inputs[0].data);
    const float *k = static_cast<const float *>(inputs[1].data);
    const float *v = static_cast<const float *>(inputs[2].data);
    float *out = static_cast<float *>(outputs[0].data);
    float *scores = static_cast<float *>(workspace);
    const int64_t heads = inputs[0].shape[0];
    const int seq = static_cast<int>(inputs[0].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (heads * seq * seq * static_cast<int64_t>(sizeof(float)) > static_cast<int64_t>(NS_WORKSPACE_BYTES)) {
        return cudaErrorMemoryAllocation;
    }

    const int64_t half = heads / 2;
    if (half > 0) {
        CUDA_CHECK(cudaEventRecord(made->forked, on));
        CUDA_CHECK(cudaStreamWaitEvent(made->second, made->forked, 0));
        launch(q, k, v, out, scores, 0, half, seq, made->second);
    }
    launch(q, k, v, out, scores, half, heads - half, seq, on);
    if (half > 0) {
        CUDA_CHECK(cudaEventRecord(made->joined, made->second));
        CUDA_CHECK(cudaStreamWaitEvent(on, made->joined, 0));
    }
    return cudaGetLastError();
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->second != nullptr) cudaStreamDestroy(made->second);
    if (made->forked != nullptr) cudaEventDestroy(made->forked);
    if (made->joined != nullptr) cudaEventDestroy(made->joined);
    delete made;
}
