import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

# Products run on tensor cores as three bf16 products of operands split into high and low parts (x = hi + lo, about 16
# bits, full range of f32); sums are f32. Split matrices are stored as [rows, hi columns | lo columns]. The linear layers
# are a persistent TMA and wgmma kernel, causal attention is a flash kernel between them that skips keys above the diagonal.

CUDA_SRC = r"""
#include <torch/types.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// ---- products of split operands: A [M, hi K | lo K], B [N, hi K | lo K] (rows permuted), three bf16 products ----
constexpr int BM = 128, BN = 256, BK = 32, STAGES = 4;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
constexpr int STAGE_BYTES = 2 * A_BYTES + 2 * B_BYTES;
constexpr int SMEM_BYTES = STAGES * STAGE_BYTES + 1024 + 256;

__device__ __forceinline__ uint32_t smem_addr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mbar_init(uint32_t b, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t b, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "W_%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra D_%=;\n"
        "bra W_%=;\n"
        "D_%=:\n}\n" ::"r"(b), "r"(parity) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, int c0, int c1, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wg_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// K-major, 64-byte swizzle: groups of 8 rows lie 512 bytes apart.
__device__ __forceinline__ uint64_t desc64(uint32_t addr) {
    return (uint64_t)((addr & 0x3FFFF) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)(512 >> 4) << 32) | ((uint64_t)2 << 62);
}
__device__ __forceinline__ void wgmma256(float (&d)[128], uint64_t da, uint64_t db, int scale_d) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ void split2(float a, float b, uint32_t& hi, uint32_t& lo) {
    __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    __nv_bfloat162 l = __floats2bfloat162_rn(a - __low2float(h), b - __high2float(h));
    hi = *reinterpret_cast<uint32_t*>(&h);
    lo = *reinterpret_cast<uint32_t*>(&l);
}

// x [rows, K] to [rows, hi K | lo K]; K is a multiple of 8. group > 0: rows are permuted within groups, so that a thread's
// results of the product become neighbours.
__global__ void __launch_bounds__(256) split_rows(const float* __restrict__ x, __nv_bfloat16* __restrict__ o,
                                                  long long chunks, int K, int group, int columns) {
    const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i >= chunks) return;
    const int per_row = K / 8;
    const long long row = i / per_row;
    const int c = (int)(i - row * per_row) * 8;
    const float4 a = __ldg(reinterpret_cast<const float4*>(x + row * K + c));
    const float4 b = __ldg(reinterpret_cast<const float4*>(x + row * K + c) + 1);
    uint4 hi, lo;
    split2(a.x, a.y, hi.x, lo.x);
    split2(a.z, a.w, hi.y, lo.y);
    split2(b.x, b.y, hi.z, lo.z);
    split2(b.z, b.w, hi.w, lo.w);
    long long dst = row;
    if (group) {
        const int f = (int)(row % group), w = group / 4;
        dst = row - f + (f % w) / 2 * 8 + f / w * 2 + f % 2;
    }
    if (columns) {      // four neighbours of a group of 16 become positions 2 q, 2 q + 1, 2 q + 8, 2 q + 9
        __nv_bfloat16* d = o + dst * 2 * K + c / 16 * 16 + c / 8 % 2 * 4;
        *reinterpret_cast<uint2*>(d) = make_uint2(hi.x, hi.z);
        *reinterpret_cast<uint2*>(d + 8) = make_uint2(hi.y, hi.w);
        *reinterpret_cast<uint2*>(d + K) = make_uint2(lo.x, lo.z);
        *reinterpret_cast<uint2*>(d + K + 8) = make_uint2(lo.y, lo.w);
        return;
    }
    *reinterpret_cast<uint4*>(o + dst * 2 * K + c) = hi;
    *reinterpret_cast<uint4*>(o + dst * 2 * K + K + c) = lo;
}

__global__ void __launch_bounds__(384, 1) gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb,
                                               const float* __restrict__ bias, float* __restrict__ o, int M, int N, int K) {
    extern __shared__ unsigned char raw[];
    const uint32_t base = (smem_addr(raw) + 1023) & ~1023u;
    const uint32_t full = base + STAGES * STAGE_BYTES, empty = full + 64;
    const int wid = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(full + i * 8, 1);
            mbar_init(empty + i * 8, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    const int nn = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * nn, kblocks = K / BK;

    if (wid >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (wid == 8 && lane == 0) {
            int s = 0, ph = 1;
            for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
                const int m0 = t / nn * BM, n0 = t % nn * BN;
                for (int k = 0; k < K; k += BK) {
                    mbar_wait(empty + s * 8, ph);
                    const uint32_t d = base + s * STAGE_BYTES, f = full + s * 8;
                    mbar_expect(f, STAGE_BYTES);
                    tma_load(d, &ma, k, m0, f);
                    tma_load(d + 2 * A_BYTES, &mb, k, n0, f);
                    tma_load(d + 2 * A_BYTES + B_BYTES, &mb, K + k, n0, f);
                    tma_load(d + A_BYTES, &ma, K + k, m0, f);
                    if (++s == STAGES) { s = 0; ph ^= 1; }
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int g = wid / 4, q = lane & 3;
    float acc[128];
    int s = 0, ph = 0;
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int m0 = t / nn * BM, n0 = t % nn * BN;
        int prev = -1;
        for (int kb = 0; kb < kblocks; kb++) {
            mbar_wait(full + s * 8, ph);
            const uint32_t d = base + s * STAGE_BYTES;
            const uint32_t ah = d + g * 64 * BK * 2, al = ah + A_BYTES, bh = d + 2 * A_BYTES, bl = bh + B_BYTES;
            wg_fence();
#pragma unroll
            for (int k = 0; k < BK / 16; k++) {
                wgmma256(acc, desc64(al + k * 32), desc64(bh + k * 32), (kb | k) != 0);
                wgmma256(acc, desc64(ah + k * 32), desc64(bl + k * 32), 1);
                wgmma256(acc, desc64(ah + k * 32), desc64(bh + k * 32), 1);
            }
            wg_commit();
            wg_wait<1>();
            if (prev >= 0 && lane == 0) mbar_arrive(empty + prev * 8);
            prev = s;
            if (++s == STAGES) { s = 0; ph ^= 1; }
        }
        wg_wait<0>();
        if (lane == 0) mbar_arrive(empty + prev * 8);

        const int r0 = m0 + g * 64 + (wid % 4) * 16 + lane / 4;
#pragma unroll
        for (int c = 0; c < 16; c++) {
            const int n = n0 + c * 16 + q * 4;
            if (n0 + c * 16 < N) {
                const float4 b = __ldg(reinterpret_cast<const float4*>(bias + n));
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float* v = acc + c * 8 + h * 2;
                    if (r0 + h * 8 < M)
                        *reinterpret_cast<float4*>(o + (size_t)(r0 + h * 8) * N + n) =
                            make_float4(v[0] + b.x, v[1] + b.y, v[4] + b.z, v[5] + b.w);
                }
            }
        }
    }
}

// ---- the first product: A is f32 and is split on the way from shared memory to registers ----
// A from registers
__device__ __forceinline__ void wgmma256ra(float (&d)[128], const uint32_t* a, uint64_t db, int scale_d) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "{%128, %129, %130, %131}, %132, p, 1, 1, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(scale_d));
}

struct Frag { uint32_t hi[8], lo[8]; };      // 64 x 32 of a warp group: two slices of 16 along K

// Rows of 128 bytes with 128-byte swizzle. A thread takes four neighbours along K; B's columns are permuted to that.
__device__ __forceinline__ void load_frag(Frag& f, uint32_t a, int warp, int lane) {
    const int r = warp * 16 + lane / 4, q = lane & 3;
    float4 v[4];
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float4& w = v[k * 2 + h];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(w.x), "=f"(w.y), "=f"(w.z), "=f"(w.w)
                         : "r"(a + (r + h * 8) * 128 + (((k * 4 + q) ^ (r & 7)) * 16)) : "memory");
        }
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            split2(v[k * 2 + h].x, v[k * 2 + h].y, f.hi[k * 4 + h], f.lo[k * 4 + h]);
            split2(v[k * 2 + h].z, v[k * 2 + h].w, f.hi[k * 4 + 2 + h], f.lo[k * 4 + 2 + h]);
        }
}
__device__ __forceinline__ void multiply(float (&acc)[128], const Frag& f, uint32_t stage, int first) {
    const uint32_t bh = stage + 2 * A_BYTES, bl = bh + B_BYTES;
    wg_fence();
#pragma unroll
    for (int k = 0; k < 2; k++) {
        wgmma256ra(acc, f.lo + k * 4, desc64(bh + k * 32), k == 0 ? !first : 1);
        wgmma256ra(acc, f.hi + k * 4, desc64(bl + k * 32), 1);
        wgmma256ra(acc, f.hi + k * 4, desc64(bh + k * 32), 1);
    }
    wg_commit();
}

__global__ void __launch_bounds__(384, 1) gemm_f32(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb,
                                                   const float* __restrict__ bias, __nv_bfloat16* __restrict__ o, int M, int N,
                                                   int K) {
    extern __shared__ unsigned char raw[];
    const uint32_t base = (smem_addr(raw) + 1023) & ~1023u;
    const uint32_t full = base + STAGES * STAGE_BYTES, empty = full + 64;
    const int wid = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            mbar_init(full + i * 8, 1);
            mbar_init(empty + i * 8, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    const int nn = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * nn, kblocks = K / BK;

    if (wid >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (wid == 8 && lane == 0) {
            int s = 0, ph = 1;
            for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
                const int m0 = t / nn * BM, n0 = t % nn * BN;
                for (int k = 0; k < K; k += BK) {
                    mbar_wait(empty + s * 8, ph);
                    const uint32_t d = base + s * STAGE_BYTES, f = full + s * 8;
                    mbar_expect(f, STAGE_BYTES);
                    tma_load(d, &ma, k, m0, f);
                    tma_load(d + 2 * A_BYTES, &mb, k, n0, f);
                    tma_load(d + 2 * A_BYTES + B_BYTES, &mb, K + k, n0, f);
                    if (++s == STAGES) { s = 0; ph ^= 1; }
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int g = wid / 4, warp = wid % 4, q = lane & 3;
    const uint32_t a0 = base + g * 64 * 128;
    float acc[128];
    Frag even, odd;
    unsigned count = 0;         // slices before this one
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int m0 = t / nn * BM, n0 = t % nn * BN;
        mbar_wait(full + count % STAGES * 8, count / STAGES & 1);
        load_frag(even, a0 + count % STAGES * STAGE_BYTES, warp, lane);
        for (int kb = 0; kb < kblocks; kb += 2) {       // an even number of slices
            multiply(acc, even, base + count % STAGES * STAGE_BYTES, kb == 0);
            wg_wait<1>();                               // the slice before
            if (kb > 0 && lane == 0) mbar_arrive(empty + (count - 1) % STAGES * 8);
            count++;
            mbar_wait(full + count % STAGES * 8, count / STAGES & 1);
            load_frag(odd, a0 + count % STAGES * STAGE_BYTES, warp, lane);

            multiply(acc, odd, base + count % STAGES * STAGE_BYTES, 0);
            wg_wait<1>();
            if (lane == 0) mbar_arrive(empty + (count - 1) % STAGES * 8);
            count++;
            if (kb + 2 < kblocks) {
                mbar_wait(full + count % STAGES * 8, count / STAGES & 1);
                load_frag(even, a0 + count % STAGES * STAGE_BYTES, warp, lane);
            }
        }
        wg_wait<0>();
        if (lane == 0) mbar_arrive(empty + (count - 1) % STAGES * 8);

        const int r0 = m0 + g * 64 + warp * 16 + lane / 4;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const int n = n0 + c * 32 + q * 8;
            if (n0 + c * 32 < N) {
                const float4 b0 = __ldg(reinterpret_cast<const float4*>(bias + n));
                const float4 b1 = __ldg(reinterpret_cast<const float4*>(bias + n) + 1);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float* v = acc + c * 16 + h * 2;
                    uint4 hi, lo;
                    split2(v[0] + b0.x, v[1] + b0.y, hi.x, lo.x);
                    split2(v[4] + b0.z, v[5] + b0.w, hi.y, lo.y);
                    split2(v[8] + b1.x, v[9] + b1.y, hi.z, lo.z);
                    split2(v[12] + b1.z, v[13] + b1.w, hi.w, lo.w);
                    if (r0 + h * 8 < M) {
                        __nv_bfloat16* dst = o + (size_t)(r0 + h * 8) * (2 * N) + n;
                        *reinterpret_cast<uint4*>(dst) = hi;
                        *reinterpret_cast<uint4*>(dst + N) = lo;
                    }
                }
            }
        }
    }
}

// ---- causal attention on split operands: qkv [B T, hi (q k v) | lo (q k v)], heads of 96 ----
constexpr int HD = 96, AQ = 128, AK = 64;
constexpr int PART_BYTES = 64 * HD * 2;                 // 64 rows of one part: three boxes of 64 rows x 64 bytes
constexpr int Q_BYTES = 4 * PART_BYTES;                 // [group of 64 rows][hi, lo]
constexpr int KV_BYTES = 2 * PART_BYTES;                // [hi, lo]
constexpr int KV_STAGES = 2;
constexpr int ATTN_SMEM = 2 * Q_BYTES + 2 * KV_STAGES * KV_BYTES + 1024 + 256;

// N-major, 64-byte swizzle: 32 elements along N per row of 64 bytes; further boxes of 32 lie 4096 bytes apart, groups of 8
// rows along K 512 bytes.
__device__ __forceinline__ uint64_t desc64n(uint32_t addr) {
    return (uint64_t)((addr & 0x3FFFF) >> 4) | ((uint64_t)(4096 >> 4) << 16) | ((uint64_t)(512 >> 4) << 32) |
           ((uint64_t)2 << 62);
}
__device__ __forceinline__ void wgmma64(float (&d)[32], uint64_t da, uint64_t db, int scale_d) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(da), "l"(db), "r"(scale_d));
}
// A from registers, B along N in memory
__device__ __forceinline__ void wgmma96rs(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t db) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "{%48, %49, %50, %51}, %52, p, 1, 1, 1;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(db), "r"(1));
}

__device__ __forceinline__ float ex2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ void load_part(uint32_t dst, const CUtensorMap* map, int col, int row, uint32_t bar) {
    for (int i = 0; i < 3; i++) tma_load(dst + i * 4096, map, col + i * 32, row, bar);
}

// All query tiles of a head run at the same time, so that its keys and values are read from memory once. They are rotated
// by the round of the grid: each block gets long and short tiles in turn.
__device__ __forceinline__ int query_tile(int it, int bh, int qtiles) {
    return (it % qtiles + bh * qtiles / (int)gridDim.x) % qtiles;
}

__global__ void __launch_bounds__(384, 1) attention(const __grid_constant__ CUtensorMap map, __nv_bfloat16* __restrict__ y,
                                                    int items, int T, int C, int NH, float scale) {
    extern __shared__ unsigned char raw[];
    const uint32_t base = (smem_addr(raw) + 1023) & ~1023u;
    unsigned char* generic = raw + (base - smem_addr(raw));
    const uint32_t ksm = base + 2 * Q_BYTES, vsm = ksm + KV_STAGES * KV_BYTES;
    const uint32_t bars = vsm + KV_STAGES * KV_BYTES;
    const uint32_t qfull = bars, qempty = bars + 16, kfull = bars + 32, kempty = bars + 48, vfull = bars + 64, vempty = bars + 80;
    const int wid = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int qtiles = (T + AQ - 1) / AQ;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(qfull + i * 8, 1);
            mbar_init(kfull + i * 8, 1);
            mbar_init(vfull + i * 8, 1);
            mbar_init(qempty + i * 8, 8);
            mbar_init(kempty + i * 8, 8);
            mbar_init(vempty + i * 8, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (wid >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (wid == 8 && lane == 0) {
            int s = 0, ph = 1, qb = 0, qph = 1;
            for (int it = blockIdx.x; it < items; it += gridDim.x) {
                const int bh = it / qtiles, qt = query_tile(it, bh, qtiles);
                const int row0 = bh / NH * T, col = bh % NH * HD;
                mbar_wait(qempty + qb * 8, qph);
                const uint32_t qf = qfull + qb * 8, qd = base + qb * Q_BYTES;
                mbar_expect(qf, Q_BYTES);
                for (int g = 0; g < 2; g++)
                    for (int part = 0; part < 2; part++)
                        load_part(qd + (g * 2 + part) * PART_BYTES, &map, part * 3 * C + col, row0 + qt * AQ + g * 64, qf);
                qb ^= 1;
                if (qb == 0) qph ^= 1;
                const int steps = 2 * qt + 2;
                for (int st = 0; st < steps; st++) {
                    mbar_wait(kempty + s * 8, ph);
                    mbar_expect(kfull + s * 8, KV_BYTES);
                    for (int part = 0; part < 2; part++)
                        load_part(ksm + s * KV_BYTES + part * PART_BYTES, &map, part * 3 * C + C + col, row0 + st * AK,
                                  kfull + s * 8);
                    mbar_wait(vempty + s * 8, ph);
                    mbar_expect(vfull + s * 8, KV_BYTES);
                    for (int part = 0; part < 2; part++)
                        load_part(vsm + s * KV_BYTES + part * PART_BYTES, &map, part * 3 * C + 2 * C + col, row0 + st * AK,
                                  vfull + s * 8);
                    s ^= 1;
                    if (s == 0) ph ^= 1;
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int g = wid / 4, warp = wid % 4, q = lane & 3;
    int s = 0, ph = 0, qb = 0, qph = 0;
    for (int it = blockIdx.x; it < items; it += gridDim.x) {
        const int bh = it / qtiles, qt = query_tile(it, bh, qtiles);
        const uint32_t qh = base + qb * Q_BYTES + g * 2 * PART_BYTES, ql = qh + PART_BYTES;
        float o[48];
#pragma unroll
        for (int i = 0; i < 48; i++) o[i] = 0.f;
        float m0 = -INFINITY, m1 = -INFINITY, l0 = 0.f, l1 = 0.f;
        mbar_wait(qfull + qb * 8, qph);
        const int steps = 2 * qt + 2, mine = 2 * qt + g;        // the last step of this group has the diagonal
        for (int st = 0; st < steps; st++) {
            mbar_wait(kfull + s * 8, ph);
            if (st > mine) {                                    // nothing of these keys is seen by this group
                if (lane == 0) mbar_arrive(kempty + s * 8);
                mbar_wait(vfull + s * 8, ph);
                if (lane == 0) mbar_arrive(vempty + s * 8);
            } else {
                const uint32_t kh = ksm + s * KV_BYTES, kl = kh + PART_BYTES;
                float c[32];
                wg_fence();
#pragma unroll
                for (int k = 0; k < 6; k++) {
                    const uint32_t d = (k / 2) * 4096 + (k % 2) * 32;
                    wgmma64(c, desc64(ql + d), desc64(kh + d), k != 0);
                    wgmma64(c, desc64(qh + d), desc64(kl + d), 1);
                    wgmma64(c, desc64(qh + d), desc64(kh + d), 1);
                }
                wg_commit();
                wg_wait<0>();
                if (lane == 0) mbar_arrive(kempty + s * 8);
                if (st == mine) {
                    const int r = warp * 16 + lane / 4;
#pragma unroll
                    for (int j = 0; j < 8; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            const int n = j * 8 + q * 2 + e;
                            if (n > r) c[j * 4 + e] = -INFINITY;
                            if (n > r + 8) c[j * 4 + 2 + e] = -INFINITY;
                        }
                }
                float x0 = m0, x1 = m1;
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    x0 = fmaxf(x0, fmaxf(c[j * 4], c[j * 4 + 1]));
                    x1 = fmaxf(x1, fmaxf(c[j * 4 + 2], c[j * 4 + 3]));
                }
                x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 1));
                x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, 2));
                x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 1));
                x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, 2));
                const float f0 = ex2((m0 - x0) * scale), f1 = ex2((m1 - x1) * scale);
                const float n0 = x0 * scale, n1 = x1 * scale;
                m0 = x0;
                m1 = x1;
                l0 *= f0;
                l1 *= f1;
                uint32_t phi[16], plo[16];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const float a = ex2(fmaf(c[j * 4], scale, -n0)), b = ex2(fmaf(c[j * 4 + 1], scale, -n0));
                    const float d = ex2(fmaf(c[j * 4 + 2], scale, -n1)), e = ex2(fmaf(c[j * 4 + 3], scale, -n1));
                    l0 += a + b;
                    l1 += d + e;
                    split2(a, b, phi[j * 2], plo[j * 2]);
                    split2(d, e, phi[j * 2 + 1], plo[j * 2 + 1]);
                }
#pragma unroll
                for (int j = 0; j < 12; j++) {
                    o[j * 4] *= f0;
                    o[j * 4 + 1] *= f0;
                    o[j * 4 + 2] *= f1;
                    o[j * 4 + 3] *= f1;
                }
                mbar_wait(vfull + s * 8, ph);
                const uint32_t vh = vsm + s * KV_BYTES, vl = vh + PART_BYTES;
                wg_fence();
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    wgmma96rs(o, plo[k * 4], plo[k * 4 + 1], plo[k * 4 + 2], plo[k * 4 + 3], desc64n(vh + k * 1024));
                    wgmma96rs(o, phi[k * 4], phi[k * 4 + 1], phi[k * 4 + 2], phi[k * 4 + 3], desc64n(vl + k * 1024));
                    wgmma96rs(o, phi[k * 4], phi[k * 4 + 1], phi[k * 4 + 2], phi[k * 4 + 3], desc64n(vh + k * 1024));
                }
                wg_commit();
                wg_wait<0>();
                if (lane == 0) mbar_arrive(vempty + s * 8);
            }
            s ^= 1;
            if (s == 0) ph ^= 1;
        }
        l0 += __shfl_xor_sync(~0u, l0, 1);
        l0 += __shfl_xor_sync(~0u, l0, 2);
        l1 += __shfl_xor_sync(~0u, l1, 1);
        l1 += __shfl_xor_sync(~0u, l1, 2);
        const float i0 = 1.f / l0, i1 = 1.f / l1;
        // Results go through this group's part of the q buffer (rows of 208 bytes, no bank conflicts), then out as whole rows.
        unsigned char* stage = generic + qb * Q_BYTES + g * 2 * PART_BYTES;
        const int r = warp * 16 + lane / 4, t = threadIdx.x % 128;
        uint32_t hi[24], lo[24];
#pragma unroll
        for (int j = 0; j < 12; j++) {
            split2(o[j * 4] * i0, o[j * 4 + 1] * i0, hi[j * 2], lo[j * 2]);
            split2(o[j * 4 + 2] * i1, o[j * 4 + 3] * i1, hi[j * 2 + 1], lo[j * 2 + 1]);
        }
        const long long row0 = (long long)(bh / NH) * T + qt * AQ + g * 64;
        const int valid = T - qt * AQ - g * 64;
#pragma unroll
        for (int part = 0; part < 2; part++) {
            asm volatile("bar.sync %0, 128;" ::"r"(1 + g) : "memory");
#pragma unroll
            for (int j = 0; j < 12; j++) {
                *reinterpret_cast<uint32_t*>(stage + r * 208 + j * 16 + q * 4) = part ? lo[j * 2] : hi[j * 2];
                *reinterpret_cast<uint32_t*>(stage + (r + 8) * 208 + j * 16 + q * 4) = part ? lo[j * 2 + 1] : hi[j * 2 + 1];
            }
            asm volatile("bar.sync %0, 128;" ::"r"(1 + g) : "memory");
#pragma unroll
            for (int i = 0; i < 6; i++) {
                const int u = i * 128 + t, rr = u / 12, cc = u % 12;
                if (rr < valid)
                    *reinterpret_cast<uint4*>(y + (row0 + rr) * (2 * C) + part * C + bh % NH * HD + cc * 8) =
                        *reinterpret_cast<const uint4*>(stage + rr * 208 + cc * 16);
            }
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) mbar_arrive(qempty + qb * 8);
        qb ^= 1;
        if (qb == 0) qph ^= 1;
    }
}

static void cuda_check(cudaError_t e) { TORCH_CHECK(e == cudaSuccess, "CUDA: ", cudaGetErrorString(e)); }

typedef CUresult (*EncodeFn)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                             const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static CUtensorMap make_map(void* ptr, int64_t rows, int64_t cols, int box_rows, int box_cols, CUtensorMapSwizzle swizzle,
                            bool f32 = false) {
    static EncodeFn encode = nullptr;
    if (!encode) {
        cudaDriverEntryPointQueryResult r;
        void* f = nullptr;
        cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r));
        TORCH_CHECK(f && r == cudaDriverEntryPointSuccess, "cuTensorMapEncodeTiled is missing");
        encode = reinterpret_cast<EncodeFn>(f);
    }
    CUtensorMap m;
    const cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows};
    const cuuint64_t strides[1] = {(cuuint64_t)cols * (f32 ? 4 : 2)};
    const cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows};
    const cuuint32_t one[2] = {1, 1};
    const CUresult r = encode(&m, f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box, one,
                              CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(r == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed: ", (int)r);
    return m;
}

// x [rows, K] f32 to [rows, 2 K] bf16
torch::Tensor split_matrix(torch::Tensor x, int64_t group, bool columns, int64_t stream) {
    const int64_t rows = x.size(0), K = x.size(1), chunks = rows * K / 8;
    auto o = torch::empty({rows, 2 * K}, x.options().dtype(torch::kBFloat16));
    split_rows<<<(unsigned)((chunks + 255) / 256), 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
        x.data_ptr<float>(), reinterpret_cast<__nv_bfloat16*>(o.data_ptr()), chunks, (int)K, (int)group, (int)columns);
    cuda_check(cudaGetLastError());
    return o;
}

// x [M, K] f32 and split weights to split results
torch::Tensor linear_to_split(torch::Tensor x, torch::Tensor b, torch::Tensor bias, int64_t sms, int64_t stream) {
    const int64_t M = x.size(0), K = x.size(1), N = b.size(0);
    auto out = torch::empty({M, 2 * N}, b.options());
    const CUtensorMap ma = make_map(x.data_ptr(), M, K, BM, BK, CU_TENSOR_MAP_SWIZZLE_128B, true);
    const CUtensorMap mb = make_map(b.data_ptr(), N, 2 * K, BN, BK, CU_TENSOR_MAP_SWIZZLE_64B);
    const int64_t tiles = (M + BM - 1) / BM * ((N + BN - 1) / BN);
    cuda_check(cudaFuncSetAttribute(gemm_f32, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    gemm_f32<<<(unsigned)(tiles < sms ? tiles : sms), 384, SMEM_BYTES, reinterpret_cast<cudaStream_t>(stream)>>>(
        ma, mb, bias.data_ptr<float>(), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()), (int)M, (int)N, (int)K);
    cuda_check(cudaGetLastError());
    return out;
}

// split activations and split weights to f32 results
torch::Tensor linear_from_split(torch::Tensor a, torch::Tensor b, torch::Tensor bias, int64_t sms, int64_t stream) {
    const int64_t M = a.size(0), K = a.size(1) / 2, N = b.size(0);
    auto out = torch::empty({M, N}, bias.options());
    const CUtensorMap ma = make_map(a.data_ptr(), M, 2 * K, BM, BK, CU_TENSOR_MAP_SWIZZLE_64B);
    const CUtensorMap mb = make_map(b.data_ptr(), N, 2 * K, BN, BK, CU_TENSOR_MAP_SWIZZLE_64B);
    const int64_t tiles = (M + BM - 1) / BM * ((N + BN - 1) / BN);
    cuda_check(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    gemm<<<(unsigned)(tiles < sms ? tiles : sms), 384, SMEM_BYTES, reinterpret_cast<cudaStream_t>(stream)>>>(
        ma, mb, bias.data_ptr<float>(), out.data_ptr<float>(), (int)M, (int)N, (int)K);
    cuda_check(cudaGetLastError());
    return out;
}

torch::Tensor causal_attention(torch::Tensor qkv, int64_t B, int64_t T, int64_t C, int64_t NH, double scale, int64_t sms,
                               int64_t stream) {
    auto y = torch::empty({B * T, 2 * C}, qkv.options());
    const CUtensorMap map = make_map(qkv.data_ptr(), B * T, 6 * C, 64, 32, CU_TENSOR_MAP_SWIZZLE_64B);
    const int64_t items = B * NH * ((T + AQ - 1) / AQ);
    cuda_check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, ATTN_SMEM));
    attention<<<(unsigned)(items < sms ? items : sms), 384, ATTN_SMEM, reinterpret_cast<cudaStream_t>(stream)>>>(
        map, reinterpret_cast<__nv_bfloat16*>(y.data_ptr()), (int)items, (int)T, (int)C, (int)NH, (float)scale);
    cuda_check(cudaGetLastError());
    return y;
}
"""

CPP_SRC = """
torch::Tensor split_matrix(torch::Tensor x, int64_t group, bool columns, int64_t stream);
torch::Tensor linear_to_split(torch::Tensor x, torch::Tensor b, torch::Tensor bias, int64_t sms, int64_t stream);
torch::Tensor linear_from_split(torch::Tensor a, torch::Tensor b, torch::Tensor bias, int64_t sms, int64_t stream);
torch::Tensor causal_attention(torch::Tensor qkv, int64_t B, int64_t T, int64_t C, int64_t NH, double scale, int64_t sms,
                               int64_t stream);
"""

_EXT = load_inline(
    name="split_attention_v4", cpp_sources=CPP_SRC, cuda_sources=CUDA_SRC, functions=["split_matrix", "linear_to_split", "linear_from_split", "causal_attention"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"], verbose=False)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen))
                             .view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd
        self.register_load_state_dict_pre_hook(self._fill_bias)
        self._fast = n_embd // n_head == 96 and n_embd % 64 == 0
        self._sms = 0

    @staticmethod
    def _fill_bias(module, state_dict, prefix, *args):
        # The computed mask may be left out of a state.
        if prefix + "bias" not in state_dict:
            state_dict[prefix + "bias"] = module.bias

    def _plain(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))

    def forward(self, x):
        B, T, C = x.size()
        if T > self.bias.size(-1):
            raise ValueError("sequence longer than max_seqlen")
        if (not self._fast or C != self.n_embd or x.dtype != torch.float32 or x.numel() == 0
                or (self.training and self.attn_dropout.p > 0)):
            return self._plain(x)
        if self._sms == 0:
            self._sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        stream = torch.cuda.current_stream(x.device).cuda_stream
        M = B * T
        x2 = x.contiguous().view(M, C)
        w = _EXT.split_matrix(self.c_attn.weight, 32, True, stream)
        qkv = _EXT.linear_to_split(x2, w, self.c_attn.bias, self._sms, stream)
        scale = 1.0 / math.sqrt(C // self.n_head) * 1.4426950408889634
        y = _EXT.causal_attention(qkv, B, T, C, self.n_head, scale, self._sms, stream)
        w = _EXT.split_matrix(self.c_proj.weight, 16, False, stream)
        out = _EXT.linear_from_split(y, w, self.c_proj.bias, self._sms, stream)
        return self.resid_dropout(out.view(B, T, C))
