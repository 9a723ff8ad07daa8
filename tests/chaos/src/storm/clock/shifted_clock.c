/* Shifts the wall clock of a process that preloads this library (LD_PRELOAD) by the offset in a file: eight bytes,
 * milliseconds, in the byte order of the machine. The file can change at any time, and the process's clock jumps.
 * The monotonic clock stays as it is.
 *
 * This works for programs that call the C library's functions, as Rust's standard library does. A program that is linked
 * statically, or calls the kernel or its vDSO itself, keeps the machine's clock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset_ms;

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("NIGHTSHIFT_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *offset_ms, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) offset_ms = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (failed || !offset_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ns = at->tv_nsec + __atomic_load_n(offset_ms, __ATOMIC_RELAXED) * 1000000;
    int64_t seconds = ns / 1000000000;
    if (ns % 1000000000 < 0) seconds -= 1;
    at->tv_sec += seconds;
    at->tv_nsec = ns - seconds * 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed) *at = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *at) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
