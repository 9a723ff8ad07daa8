// Library baseline: one call of cuBLASLt does the whole of the work, with the epilogue for bias and ReLU.
// The product is computed in single precision (CUBLAS_COMPUTE_32F); TF32 is too coarse for this task.

#include "nightshift.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

// cuBLASLt stores matrices by columns, and a row-major matrix is its own transpose by columns. The call therefore
// computes out^T = w^T * x^T. The bias has one element for each row of out^T, which is what the epilogue expects.
struct State {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr;   // cols by depth
    cublasLtMatrixLayout_t x = nullptr;   // depth by rows
    cublasLtMatrixLayout_t out = nullptr; // cols by rows
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t chosen = {};
    uint64_t rows = 0; // number of rows that `chosen` is valid for
};

// Status codes of the library are returned with this offset, to tell them from those of the CUDA runtime.
constexpr int LIBRARY_ERROR = 1000;

#define CHECK(call)                                                \
    do {                                                           \
        const cublasStatus_t check_status = (call);                \
        if (check_status != CUBLAS_STATUS_SUCCESS) {               \
            return LIBRARY_ERROR + static_cast<int>(check_status); \
        }                                                          \
    } while (0)

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    State *made = new State;
    *state = made;
    const uint64_t depth = static_cast<uint64_t>(params[0].shape[0]);
    const uint64_t cols = static_cast<uint64_t>(params[0].shape[1]);
    CHECK(cublasLtCreate(&made->handle));
    CHECK(cublasLtMatmulDescCreate(&made->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    CHECK(cublasLtMatmulDescSetAttribute(made->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    // The last argument is the distance between two columns. The number of rows of x is set in ns_run.
    CHECK(cublasLtMatrixLayoutCreate(&made->w, CUDA_R_32F, cols, depth, static_cast<int64_t>(cols)));
    CHECK(cublasLtMatrixLayoutCreate(&made->x, CUDA_R_32F, depth, 1, static_cast<int64_t>(depth)));
    CHECK(cublasLtMatrixLayoutCreate(&made->out, CUDA_R_32F, cols, 1, static_cast<int64_t>(cols)));
    // The default for the alignment is 256 bytes, which all tensors in device memory have.
    CHECK(cublasLtMatmulPreferenceCreate(&made->preference));
    const size_t bytes = NS_WORKSPACE_BYTES;
    CHECK(cublasLtMatmulPreferenceSetAttribute(made->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes));
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    State *made = static_cast<State *>(state);
    const uint64_t rows = static_cast<uint64_t>(inputs[0].shape[0]);
    const void *bias = inputs[2].data;
    CHECK(cublasLtMatmulDescSetAttribute(made->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (rows != made->rows) {
        CHECK(cublasLtMatrixLayoutSetAttribute(made->x, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
        CHECK(cublasLtMatrixLayoutSetAttribute(made->out, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
        int count = 0;
        CHECK(cublasLtMatmulAlgoGetHeuristic(made->handle, made->product, made->w, made->x, made->out, made->out,
                                             made->preference, 1, &made->chosen, &count));
        if (count == 0) {
            return LIBRARY_ERROR + static_cast<int>(CUBLAS_STATUS_NOT_SUPPORTED);
        }
        made->rows = rows;
    }
    const float one = 1.0f;
    const float zero = 0.0f;
    CHECK(cublasLtMatmul(made->handle, made->product, &one, inputs[1].data, made->w, inputs[0].data, made->x, &zero,
                         outputs[0].data, made->out, outputs[0].data, made->out, &made->chosen.algo, workspace,
                         NS_WORKSPACE_BYTES, static_cast<cudaStream_t>(stream)));
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->preference != nullptr) {
        cublasLtMatmulPreferenceDestroy(made->preference);
    }
    for (cublasLtMatrixLayout_t layout : {made->w, made->x, made->out}) {
        if (layout != nullptr) {
            cublasLtMatrixLayoutDestroy(layout);
        }
    }
    if (made->product != nullptr) {
        cublasLtMatmulDescDestroy(made->product);
    }
    if (made->handle != nullptr) {
        cublasLtDestroy(made->handle);
    }
    delete made;
}
