/* The native contract between Nightshift and a program, version 1.
 *
 * A program is one translation unit that includes this header and defines ns_run; ns_init and ns_free are optional.
 * It is built into a shared library and called by a runner in a process of its own.
 *
 *   cpu   C++20, built by the system C++ compiler. One thread: starting threads or processes is refused.
 *         `stream` is a null pointer.
 *   cuda  CUDA C++20, built by nvcc, with the CUDA runtime linked in; the GPU and its context are current in every
 *         entry point. The `data` of every tensor and `workspace` are device memory; the descriptors themselves are
 *         host memory. `stream` is a cudaStream_t, created without blocking: the default stream is NOT ordered with
 *         it, so every launch and every copy names a stream.
 *         ns_run queues its work behind what `stream` already holds, and may return before that work is done. All of
 *         it has to be over when `stream` is synchronized: work on other streams waits for `stream` first (an event),
 *         and `stream` waits for it before ns_run returns. Synchronizing inside of ns_run is allowed, and costs its
 *         time. Time is taken up to the synchronization of the whole device.
 *         Streams, events, handles of libraries and further device memory are made once in ns_init, which is called
 *         for tasks without weights too, and released in ns_free; ns_run allocates nothing.
 *
 * Every entry point returns 0 on success; any other value counts as an error of the program.
 */
#ifndef NIGHTSHIFT_H
#define NIGHTSHIFT_H

#include <stddef.h>
#include <stdint.h>

#define NS_ABI_VERSION 1

/* Size of the scratch memory that ns_run receives, in bytes. Its content is unspecified at every call. */
#define NS_WORKSPACE_BYTES (32u * 1024u * 1024u)

/* Element types: the values of ns_tensor::dtype. */
#define NS_F32 0
#define NS_F64 1
#define NS_I32 2
#define NS_F16 3
#define NS_BF16 4

/* A reference computes in ns_real: float when it is timed, double when it gives the truth that results are compared
 * with. Candidates use float. Never define NS_REAL yourself. */
#ifndef NS_REAL
#define NS_REAL float
#endif
typedef NS_REAL ns_real;

/* Elements of 16 bits, on the cuda target: include <cuda_fp16.h> or <cuda_bf16.h> where they are used. A reference reads
 * NS_F16 and NS_BF16 tensors as ns_f16 and ns_bf16, by ns_real(x[i]), computes in ns_real and writes ns_f16(value): in the
 * build that gives the truth, these are doubles, too. Candidates use __half and __nv_bfloat16. Never define NS_TRUTH. */
#ifdef NS_TRUTH
#define ns_f16 double
#define ns_bf16 double
#else
#define ns_f16 __half
#define ns_bf16 __nv_bfloat16
#endif

/* A tensor: row-major, contiguous, its data aligned to 64 bytes (in device memory to 256). */
typedef struct ns_tensor {
    void *data;             /* first element */
    int32_t dtype;          /* NS_F32, NS_F64, NS_I32, NS_F16 or NS_BF16 */
    int32_t rank;           /* number of extents */
    const int64_t *shape;   /* extents, outermost first */
    const int64_t *strides; /* distance between neighbours of each extent, in elements */
    const char *name;       /* as in task.toml, zero-terminated */
} ns_tensor;

#ifdef __cplusplus
#define NS_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define NS_EXPORT __attribute__((visibility("default")))
#endif

/* Optional: a constant whose best value a search finds, outside of every function:
 *
 *   NIGHTSHIFT_TUNABLE(TILE, 64, 16, 32, 64, 128);
 *
 * declares `constexpr int TILE = 64`, to be tried with each of the values that follow the first. Every value has to give a
 * right program: variants that do not compile, do not fit or compute something else are dropped. Plain decimal numbers
 * only; at most 8 declarations with 2 to 16 values each, and at most 256 variants altogether. A program that is right as
 * it stands is built and timed with other values before it is measured, and goes on with the values that won. */
#ifdef __cplusplus
template <typename... T>
constexpr bool ns_is_one_of(int value, T... allowed) {
    return ((value == allowed) || ...);
}
#define NIGHTSHIFT_TUNABLE(name, value, ...) \
    constexpr int name = (value);            \
    static_assert(ns_is_one_of(name, __VA_ARGS__), #name " has a value that it does not allow")
#endif

/* Optional, not timed: sees the weights only and may prepare them (transpose, pack; on cuda it may use the device as it
 * likes, and the device is synchronized after it). `*state` is handed to ns_run.
 * Called again, after ns_free, when the weights change. The weights stay valid until ns_free. */
NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state);

/* The program. `inputs` holds the inputs followed by the weights, in the order of task.toml. Inputs and weights may
 * not be changed. Every element of every output must be written at every call. Nothing may be kept from one call for
 * the next but what ns_init prepared: the same pointers come back with other contents. */
NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream);

/* Optional: frees what ns_init made. */
NS_EXPORT void ns_free(void *state);

#endif /* NIGHTSHIFT_H */
