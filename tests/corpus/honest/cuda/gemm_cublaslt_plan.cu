// task: cuda_gemm_bias_relu
// style: cublaslt_epilogue_plan_by_shape
// what: cuBLASLt with the ReLU and bias epilogue; descriptors from ns_init, the chosen algorithm kept for the last shape

#include "nightshift.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

// A row-major matrix is its transpose in the library's column order: out^T = w^T * x^T.
struct Plan {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t found = {};
    uint64_t rows = 0; // rows that `found` was chosen for
};

#define CUBLAS_CHECK(call)                        \
    do {                                          \
        const cublasStatus_t blas_status = (call); \
        if (blas_status != CUBLAS_STATUS_SUCCESS) { \
            return 1000 + blas_status;            \
        }                                         \
    } while (0)

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    Plan *plan = new Plan;
    *state = plan;
    const uint64_t depth = static_cast<uint64_t>(params[0].shape[0]);
    const uint64_t cols = static_cast<uint64_t>(params[0].shape[1]);
    CUBLAS_CHECK(cublasLtCreate(&plan->handle));
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    // The number of columns of x^T and out^T is the number of rows of x, which every call sets.
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&plan->w, CUDA_R_32F, cols, depth, static_cast<int64_t>(cols)));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&plan->x, CUDA_R_32F, depth, 1, static_cast<int64_t>(depth)));
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&plan->out, CUDA_R_32F, cols, 1, static_cast<int64_t>(cols)));
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&plan->preference));
    const size_t bytes = NS_WORKSPACE_BYTES;
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(plan->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                      sizeof bytes));
    const uint32_t alignment = 64;
    for (const cublasLtMatmulPreferenceAttributes_t attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(plan->preference, attribute, &alignment, sizeof alignment));
    }
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    Plan *plan = static_cast<Plan *>(state);
    const uint64_t rows = static_cast<uint64_t>(inputs[0].shape[0]);
    const void *bias = inputs[2].data;
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (rows != plan->rows) {
        CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(plan->x, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
        CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(plan->out, CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows));
        int count = 0;
        CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(plan->handle, plan->product, plan->w, plan->x, plan->out, plan->out,
                                                    plan->preference, 1, &plan->found, &count));
        if (count == 0) {
            return 1000 + CUBLAS_STATUS_NOT_SUPPORTED;
        }
        plan->rows = rows;
    }
    const float one = 1.0f;
    const float zero = 0.0f;
    CUBLAS_CHECK(cublasLtMatmul(plan->handle, plan->product, &one, inputs[1].data, plan->w, inputs[0].data, plan->x, &zero,
                                outputs[0].data, plan->out, outputs[0].data, plan->out, &plan->found.algo, workspace,
                                NS_WORKSPACE_BYTES, static_cast<cudaStream_t>(stream)));
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    Plan *plan = static_cast<Plan *>(state);
    if (plan == nullptr) {
        return;
    }
    if (plan->preference) cublasLtMatmulPreferenceDestroy(plan->preference);
    for (cublasLtMatrixLayout_t layout : {plan->w, plan->x, plan->out}) {
        if (layout) cublasLtMatrixLayoutDestroy(layout);
    }
    if (plan->product) cublasLtMatmulDescDestroy(plan->product);
    if (plan->handle) cublasLtDestroy(plan->handle);
    delete plan;
}
