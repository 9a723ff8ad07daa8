// Words such as thread, system, fork(), std::thread, clock_gettime and fopen("/etc/passwd") in comments.
#include "nightshift.h"

/* One thread only: no std::thread, no pthread_create, no system("x"), no #include <thread>.
 * #pragma omp parallel for has no effect. try, pass, stream, signal, exit. */
#include <cstdio>

static const char *const about = "this system has one thread; std::thread, fork() and fopen(\"x\") are not used";
static const char *const raw = R"doc(
#include <thread>
#pragma omp parallel for
system("true"); // not code
)doc";

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    // a two pass softmax; time and clock are not asked for
    if (n_inputs < 1) std::fprintf(stderr, "%s %s: __asm__(\"syscall\")\n", about, raw);
    return 0;
}
