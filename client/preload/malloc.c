/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replacements for the C library's functions that allocate and map memory. They must work before any constructor has
 * run: they look up no symbols, do not read the environment, and all state is zero-initialised.
 *
 * There are two heaps: the program's, which is captured, and one of libckptfs. The second is also used for what the C
 * library allocates in threads of libckptfs: these write checkpoints, and would wait for themselves if they wrote to
 * captured memory.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "client/preload/capture.h"
#include "client/preload/heap.h"
#include "client/preload/preload.h"

#define ALIGN 16u
#ifndef MADV_GUARD_INSTALL /* Linux 6.13: pages that cannot be read */
#define MADV_GUARD_INSTALL 102
#endif
/* Fixed addresses that the kernel does not use for other mappings, so that they are free again on restart. */
#define HEAP_AT UINT64_C(0x100000000000)
#define OWN_AT UINT64_C(0x200000000000)
#define MAPS_AT UINT64_C(0x300000000000)
#define MAPS_END UINT64_C(0x500000000000)

struct heap preload_heap = { .wanted = HEAP_AT };
static struct heap own_heap = { .wanted = OWN_AT, .most = GiB(16) };
_Thread_local bool preload_own __attribute__((tls_model("initial-exec")));

static struct heap *heap_of_thread(void)
{
	return preload_own ? &own_heap : &preload_heap;
}

static struct heap *heap_of(const void *p)
{
	return heap_has(&own_heap, p) ? &own_heap : &preload_heap;
}

bool preload_allocated(const void *p)
{
	return heap_has(&preload_heap, p) || heap_has(&own_heap, p);
}

/* --- for the program --- */

void *malloc(size_t size)
{
	return heap_alloc(heap_of_thread(), size, ALIGN, false);
}

void free(void *p)
{
	if (p)
		heap_free(heap_of(p), p);
}

static void *allocate_array(struct heap *h, size_t nr, size_t size)
{
	size_t sum;

	if (__builtin_mul_overflow(nr, size, &sum)) {
		errno = ENOMEM;
		return NULL;
	}
	return heap_alloc(h, sum, ALIGN, true);
}

void *calloc(size_t nr, size_t size)
{
	return allocate_array(heap_of_thread(), nr, size);
}

static void *reallocate(struct heap *h, void *p, size_t size)
{
	if (!p)
		return heap_alloc(h, size, ALIGN, false);
	if (size == 0) { /* as the C library */
		heap_free(heap_of(p), p);
		return NULL;
	}
	return heap_realloc(heap_of(p), p, size);
}

void *realloc(void *p, size_t size)
{
	return reallocate(heap_of_thread(), p, size);
}

void *reallocarray(void *p, size_t nr, size_t size)
{
	size_t sum;

	if (__builtin_mul_overflow(nr, size, &sum)) {
		errno = ENOMEM;
		return NULL;
	}
	return reallocate(heap_of_thread(), p, sum);
}

static bool is_alignment(size_t align)
{
	return align != 0 && (align & (align - 1)) == 0;
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	int saved = errno;
	void *p;

	if (!is_alignment(align) || align % sizeof(void *) != 0)
		return EINVAL;
	p = heap_alloc(heap_of_thread(), size, align, false);
	errno = saved;
	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}

void *aligned_alloc(size_t align, size_t size)
{
	if (!is_alignment(align)) {
		errno = EINVAL;
		return NULL;
	}
	return heap_alloc(heap_of_thread(), size, MAX(align, (size_t)ALIGN), false);
}

/* Like the C library, rounds an invalid alignment up to the next power of two. */
void *memalign(size_t align, size_t size)
{
	size_t power = ALIGN;

	if (align > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	while (power < align)
		power *= 2;
	return aligned_alloc(power, size);
}

void *valloc(size_t size)
{
	return aligned_alloc((size_t)sysconf(_SC_PAGESIZE), size);
}

void *pvalloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (size > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return aligned_alloc(page, round_up(size, page));
}

size_t malloc_usable_size(void *p)
{
	return p ? heap_usable(heap_of(p), p) : 0;
}

static void *map(void *at, size_t len, int protection, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, off); /* -1 is MAP_FAILED */
}

static bool is_captured_kind(int protection, int flags)
{
	int wanted = MAP_PRIVATE | MAP_ANONYMOUS,
	    may = wanted | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK;

	return protection == (PROT_READ | PROT_WRITE) && (flags & wanted) == wanted && (flags & ~may) == 0;
}

void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t off)
{
	static uint64_t next = MAPS_AT; /* with the lock */
	bool captured = is_captured_kind(protection, flags),
	     replaces = (flags & MAP_FIXED) && !(flags & MAP_FIXED_NOREPLACE);
	void *p;

	capture_lock();
	if (replaces)
		capture_release(at, len);
	else if (!(flags & MAP_FIXED_NOREPLACE) && (heap_has(&preload_heap, at) || heap_has(&own_heap, at)))
		at = NULL; /* reserved for the growth of a heap */
	if (captured && !at && len <= MAPS_END - MAPS_AT && next < MAPS_END - len) {
		at = (void *)next; /* a hint */
		next += round_up(len, HEAP_UNIT);
	}
	p = map(at, len, protection, flags, fd, off);
	if (p != MAP_FAILED && replaces)
		capture_remove(p, len);
	if (p != MAP_FAILED && captured)
		capture_add(p, len);
	capture_unlock();
	return p;
}

void *mmap64(void *at, size_t len, int protection, int flags, int fd, off64_t off)
{
	return mmap(at, len, protection, flags, fd, off);
}

int munmap(void *p, size_t len)
{
	int r;

	capture_lock();
	capture_release(p, len);
	r = (int)syscall(SYS_munmap, p, len);
	if (r == 0)
		capture_remove(p, len);
	capture_unlock();
	return r;
}

/* Excludes captured memory from checkpoints after a call that has changed it. Calls that fail with EINVAL have changed
 * nothing; others may have failed half-way. */
static void exclude(int r, const void *p, size_t len, const char *why)
{
	int saved = errno;

	if ((r == 0 || saved != EINVAL) && capture_remove(p, len))
		log_info("memory at %p: %zu bytes excluded from checkpoints: %s", p, len, why);
	errno = saved;
}

void *mremap(void *p, size_t len, size_t new_len, int flags, ...)
{
	void *to = NULL, *q;
	bool captured;
	va_list args;

	va_start(args, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(args, void *);
	va_end(args);
	capture_lock();
	if (flags & MREMAP_FIXED)
		capture_release(to, new_len);
	capture_release(p, len);
	captured = capture_covers(p, len);
	q = (void *)syscall(SYS_mremap, p, len, new_len, flags, to);
	if (q != MAP_FAILED && !(flags & MREMAP_DONTUNMAP)) /* that leaves the old range mapped */
		capture_remove(p, len);
	if (q != MAP_FAILED)
		capture_remove(q, new_len);
	if (q != MAP_FAILED && captured)
		capture_add(q, new_len);
	capture_unlock();
	return q;
}

int mprotect(void *p, size_t len, int protection)
{
	bool whole = protection == (PROT_READ | PROT_WRITE);
	int r;

	capture_lock();
	if (!whole)
		capture_release(p, len);
	r = (int)syscall(SYS_mprotect, p, len, protection);
	if (!whole)
		exclude(r, p, len, "mprotect(2)");
	/* Writable again: part of the heap, which the program will be given by malloc(). */
	if (r == 0 && whole && heap_has(&preload_heap, p) && !capture_covers(p, len)) {
		capture_release(p, len);
		capture_remove(p, len);
		capture_add(p, len);
	}
	capture_unlock();
	return r;
}

/* Pages that become zeros without a write are not tracked: the next checkpoint writes all of them. MADV_FREE is
 * optional for the kernel, so it is ignored for captured memory. */
int madvise(void *p, size_t len, int advice)
{
	bool clears = advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED;
	bool hides = advice == MADV_REMOVE || advice == MADV_DONTFORK || advice == MADV_WIPEONFORK ||
		     advice == MADV_GUARD_INSTALL;
	int r = 0;

	capture_lock();
	if (clears || hides)
		capture_release(p, len);
	if (advice != MADV_FREE || !capture_has(p, len))
		r = (int)syscall(SYS_madvise, p, len, advice);
	if (hides)
		exclude(r, p, len, "madvise(2)");
	capture_unlock();
	return r;
}

/* --- for libckptfs itself, which is linked with --wrap --- */

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t nr, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off);
void *__wrap_mmap64(void *at, size_t len, int protection, int flags, int fd, off64_t off);
int __wrap_munmap(void *p, size_t len);
int __wrap_mprotect(void *p, size_t len, int protection);
int __wrap_madvise(void *p, size_t len, int advice);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

void *__wrap_malloc(size_t size)
{
	return heap_alloc(&own_heap, size, ALIGN, false);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return allocate_array(&own_heap, nr, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return reallocate(&own_heap, p, size);
}

void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off)
{
	return map(at, len, protection, flags, fd, off);
}

void *__wrap_mmap64(void *at, size_t len, int protection, int flags, int fd, off64_t off)
{
	return map(at, len, protection, flags, fd, off);
}

int __wrap_munmap(void *p, size_t len)
{
	return (int)syscall(SYS_munmap, p, len);
}

int __wrap_mprotect(void *p, size_t len, int protection)
{
	return (int)syscall(SYS_mprotect, p, len, protection);
}

int __wrap_madvise(void *p, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, p, len, advice);
}

struct start {
	void *(*run)(void *);
	void *arg;
};

static _Atomic(uint32_t) nr_own_threads;

uint32_t preload_own_threads(void)
{
	return atomic_load(&nr_own_threads);
}

static void *run_own(void *arg)
{
	struct start start = *(struct start *)arg;
	void *result;

	preload_own = true;
	atomic_fetch_add(&nr_own_threads, 1);
	heap_free(&own_heap, arg);
	result = start.run(start.arg);
	atomic_fetch_sub(&nr_own_threads, 1);
	return result;
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	struct start *start = heap_alloc(&own_heap, sizeof(*start), ALIGN, false);
	bool own = preload_own;
	int r;

	if (!start)
		return ENOMEM;
	*start = (struct start){ .run = run, .arg = arg };
	preload_own = true; /* the C library allocates memory that the new thread writes to */
	r = __real_pthread_create(ret, attr, run_own, start);
	preload_own = own;
	if (r != 0)
		heap_free(&own_heap, start);
	return r;
}

/* With capture_lock(): the heaps held for fork(2), which are those that the thread is not allocating in. */
static bool fork_holds[2];

void preload_before_fork(void)
{
	for (;;) {
		capture_lock();
		fork_holds[0] = !heap_is_inside(&preload_heap);
		fork_holds[1] = !heap_is_inside(&own_heap);
		if (!fork_holds[0] || heap_hold(&preload_heap)) {
			if (!fork_holds[1] || heap_hold(&own_heap))
				return;
			if (fork_holds[0])
				heap_release(&preload_heap);
		}
		capture_unlock();
	}
}

void preload_after_fork(void)
{
	if (fork_holds[1])
		heap_release(&own_heap);
	if (fork_holds[0])
		heap_release(&preload_heap);
	capture_unlock();
}
