/* SPDX-License-Identifier: BSD-3-Clause */
/* The small words every file uses: cleanup, hand-over, sizes, rounding. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _unused_ __attribute__((unused))

/* Hand a pointer over: the value comes out, the variable is left NULL so that its cleanup does nothing. */
#define TAKE(p)                         \
	({                              \
		__typeof__(p) _p = (p); \
		(p) = NULL;             \
		_p;                     \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define MAX(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a > _b ? _a : _b;      \
	})
#define KiB(n) ((uint64_t)(n) << 10)
#define MiB(n) ((uint64_t)(n) << 20)
#define GiB(n) ((uint64_t)(n) << 30)

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* `to` is a power of two. */
static inline uint64_t round_down(uint64_t n, uint64_t to)
{
	return n & ~(to - 1);
}

static inline uint64_t round_up(uint64_t n, uint64_t to)
{
	return round_down(n + to - 1, to);
}

/* Are all bytes 0? */
static inline bool mem_is_zero(const void *p, size_t len)
{
	uint64_t w[2] = { 0 };

	memcpy(w, p, len < sizeof(w) ? len : sizeof(w));
	if (w[0] | w[1])
		return false; /* most pages are decided here */
	return len <= 8 || memcmp(p, (const uint8_t *)p + 8, len - 8) == 0;
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

void closep(int *fd); /* closes *fd if >= 0 */

unsigned nr_processors(void); /* that this process may run on */

/* Makes room for one more element of `size` bytes behind the `nr` of *list, a pointer of any type: twice as much when it
 * is full. -ENOMEM: all is as before. */
int list_grow(void *list, size_t nr, size_t *room, size_t size);

/* Wall clock in nanoseconds since the epoch, and a clock that never jumps. */
uint64_t now_ns(void);
uint64_t monotonic_ns(void);
uint64_t thread_cpu_ns(void); /* CPU time of the calling thread */
