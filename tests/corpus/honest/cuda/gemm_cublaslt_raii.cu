// task: cuda_gemm_bias_relu
// style: cublaslt_raii_noexcept_abort
// what: cuBLASLt without an epilogue, RAII handles, and an own kernel for bias and ReLU; errors call abort()

#include "nightshift.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

[[noreturn]] void fail(const char *what, int code, int line) noexcept {
    std::fprintf(stderr, "line %d: %s failed with %d\n", line, what, code);
    std::abort();
}

#define MUST(call)                                                        \
    do {                                                                  \
        const int must_code = static_cast<int>(call);                     \
        if (must_code != 0) fail(#call, must_code, __LINE__);             \
    } while (0)

template <typename Handle, cublasStatus_t (*DESTROY)(Handle)> class Owner {
public:
    Owner() noexcept = default;
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    Owner(Owner &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    ~Owner() noexcept {
        if (handle_ != nullptr) {
            DESTROY(handle_);
        }
    }
    Handle *put() noexcept { return &handle_; }
    operator Handle() const noexcept { return handle_; }

private:
    Handle handle_ = nullptr;
};

using Library = Owner<cublasLtHandle_t, cublasLtDestroy>;
using Product = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Layout make_layout(uint64_t rows, uint64_t cols) noexcept {
    Layout layout;
    MUST(cublasLtMatrixLayoutCreate(layout.put(), CUDA_R_32F, rows, cols, static_cast<int64_t>(rows)));
    return layout;
}

__global__ void bias_relu(float *out, const float *bias, int64_t count, int cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        const float sum = out[i] + bias[i % cols];
        out[i] = sum > 0.0f ? sum : 0.0f;
    }
}

} // namespace

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    Library *library = new Library;
    MUST(cublasLtCreate(library->put()));
    *state = library;
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<Library *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const Library &library = *static_cast<const Library *>(state);
    const uint64_t rows = static_cast<uint64_t>(inputs[0].shape[0]);
    const uint64_t depth = static_cast<uint64_t>(inputs[0].shape[1]);
    const uint64_t cols = static_cast<uint64_t>(inputs[1].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    // Descriptors are small host objects; making them costs less than a microsecond each.
    Product product;
    MUST(cublasLtMatmulDescCreate(product.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const Layout w = make_layout(cols, depth);
    const Layout x = make_layout(depth, rows);
    const Layout out = make_layout(cols, rows);
    Preference preference;
    MUST(cublasLtMatmulPreferenceCreate(preference.put()));
    const size_t bytes = NS_WORKSPACE_BYTES;
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    MUST(cublasLtMatmulAlgoGetHeuristic(library, product, w, x, out, out, preference, 1, &found, &count));
    if (count == 0) {
        fail("cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED, __LINE__);
    }
    const float one = 1.0f;
    const float zero = 0.0f;
    MUST(cublasLtMatmul(library, product, &one, inputs[1].data, w, inputs[0].data, x, &zero, outputs[0].data, out,
                        outputs[0].data, out, &found.algo, workspace, bytes, on));

    const int64_t elements = static_cast<int64_t>(rows * cols);
    bias_relu<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, on>>>(
        static_cast<float *>(outputs[0].data), static_cast<const float *>(inputs[2].data), elements,
        static_cast<int>(cols));
    MUST(cudaGetLastError());
    return 0;
}
