/* SPDX-License-Identifier: MIT */
/* entropy.c - see entropy.h. */
#include "base/entropy.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"

uint64_t wf_entropy_id(void)
{
    uint64_t x = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &x, sizeof x) != (ssize_t)sizeof x) /* no /dev, as in a bare chroot */
        /* Time since boot, time of day and process id differ between machines and processes; the
         * odd multiplier (2^64 / golden ratio) spreads them over all bits. */
        x = (wf_clock_ns() ^ (uint64_t)wf_clock_now() << 24 ^ (uint64_t)getpid() << 44) *
            UINT64_C(0x9E3779B97F4A7C15);
    if (fd >= 0)
        close(fd);
    return x ? x : 1;
}
