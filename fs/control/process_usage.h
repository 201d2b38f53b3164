/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What this process uses, as every program reports it to Prometheus. */
#pragma once

#include <stdint.h>

struct process_usage {
	uint64_t cpu_ns; /* user and system time of all threads */
	uint64_t resident_bytes;
	uint64_t open_fds, max_fds; /* max_fds: the soft limit */
};

/* From /proc, some microseconds, and never from a disk; on Linux before 6.2 a microsecond more per open descriptor.
 * Without /proc resident_bytes and open_fds are 0. */
void process_usage(struct process_usage *ret);
/* When this process was started, nanoseconds since 1970; 0: /proc is not mounted. To be asked once: setting the clock
 * changes it. */
uint64_t process_started_ns(void);
