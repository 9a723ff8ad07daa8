#include "nightshift.h"
#include <cuda_runtime.h>
#include <cuda_pipeline.h>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;

__device__ inline void copy16(void *to, const void *from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(from));
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
}

__device__ bool ready(unsigned bar, unsigned parity) {
    unsigned done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity));
    return done != 0;
}

__global__ void stage(const float4 *in, float4 *out) {
    __shared__ alignas(16) float4 tile[64];
    copy16(&tile[threadIdx.x], &in[threadIdx.x]);
    cg::thread_block block = cg::this_thread_block();
    block.sync();
    if (ready(0, 0)) out[threadIdx.x] = tile[threadIdx.x];
}

NS_EXPORT int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    stage<<<1, 64, 0, (cudaStream_t)stream>>>((const float4 *)in[0].data, (float4 *)out[0].data);
    return 0;
}
