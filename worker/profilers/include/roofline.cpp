/* Measures what one thread of this machine can do: fused multiply-adds in registers, and copying in memory. Built with
 * the flags of every other program, so that the peaks are those that a program of ours can reach.
 *
 * usage: roofline COPY_BYTES -> prints `flops_per_s=<number> bytes_per_s=<number>`
 */
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

/* Enough independent chains to hide the latency of an addition on every processor we know, few enough for 16
 * registers with two constants beside them. */
static const int CHAINS = 12;
/* Rounds of a few milliseconds: the best one is the least disturbed. */
static const int ROUNDS = 10;
static const double ROUND_S = 0.005;

static double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static float sink;

static double flops_of_a_round() {
    const vec factor = vec{} + 0.9999999f;
    const vec summand = vec{} + 1e-9f;
    vec chain[CHAINS];
    for (int c = 0; c < CHAINS; c++) chain[c] = vec{} + (1.0f + 0.001f * static_cast<float>(c));
    const int64_t block = 20000;
    int64_t done = 0;
    const double begin = now_s();
    double end = begin;
    do {
        for (int64_t i = 0; i < block; i++) {
#pragma GCC unroll 12
            for (int c = 0; c < CHAINS; c++) chain[c] = chain[c] * factor + summand;
        }
        done += block;
        end = now_s();
    } while (end - begin < ROUND_S);
    for (int c = 0; c < CHAINS; c++) sink += chain[c][0];
    const double per_block = 2.0 * CHAINS * (VECTOR_BYTES / sizeof(float));
    return per_block * static_cast<double>(done) / (end - begin);
}

static double copied_in_a_round(char *to, const char *from, size_t bytes) {
    const double begin = now_s();
    std::memcpy(to, from, bytes);
    const double end = now_s();
    sink += to[bytes / 2];
    return end > begin ? 2.0 * static_cast<double>(bytes) / (end - begin) : 0.0;
}

int main(int argc, char **argv) {
    const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
    if (bytes == 0) return 2;
    char *from = static_cast<char *>(std::malloc(bytes));
    char *to = static_cast<char *>(std::malloc(bytes));
    if (from == nullptr || to == nullptr) return 3;
    std::memset(from, 1, bytes);
    std::memset(to, 2, bytes);

    double flops = 0.0;
    for (int r = 0; r < ROUNDS; r++) {
        const double seen = flops_of_a_round();
        if (seen > flops) flops = seen;
    }
    double copied = 0.0;
    for (int r = 0; r < ROUNDS; r++) {
        const double seen = copied_in_a_round(to, from, bytes);
        if (seen > copied) copied = seen;
    }
    std::printf("flops_per_s=%.6e bytes_per_s=%.6e\n", flops, copied);
    return sink == 12345.0f ? 1 : 0;
}
