/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define UNIT ((size_t)64 << 10)
#define HUGE ((size_t)2 << 20) /* size of a huge page */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif
#define PAGE ((size_t)4096)
#define LEN_MAX ((size_t)1 << 30) /* longer arenas of the other end are rejected */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

struct arena {
	uint8_t *data;
	size_t len;
	size_t nr_huge; /* leading huge pages for which MADV_COLLAPSE was tried */
	int fd; /* -1: arena of the other end */
	atomic_uint refs;
	bool *is_used; /* by unit; NULL: arena of the other end */
};

static int arena_alloc(size_t len, struct arena **ret)
{
	struct arena *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	*a = (struct arena){ .len = len, .fd = -1, .refs = 1 };
	*ret = a;
	return 0;
}

/* Maps at a multiple of HUGE: huge pages need that alignment. */
static int map(struct arena *a, int fd, int protection)
{
	uint8_t *room = mmap(NULL, a->len + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *p;

	if (room == MAP_FAILED)
		return -errno;
	p = (uint8_t *)round_up((uintptr_t)room, HUGE);
	if (mmap(p, a->len, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int r = -errno;

		munmap(room, a->len + HUGE);
		return r;
	}
	if (p > room)
		munmap(room, (size_t)(p - room));
	if (p < room + HUGE)
		munmap(p + round_up(a->len, PAGE), (size_t)(room + HUGE - p));
	a->data = p;
	return 0;
}

static int make(struct arena *a)
{
	int r;

	a->is_used = calloc(a->len / UNIT, sizeof(*a->is_used));
	if (!a->is_used)
		return -ENOMEM;
	a->fd = memfd_create("ckptfs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (a->fd < 0 || ftruncate(a->fd, (off_t)a->len) < 0)
		return -errno;
	r = map(a, a->fd, PROT_READ | PROT_WRITE);
	if (r == 0 && fcntl(a->fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	return r;
}

int arena_new(size_t len, struct arena **ret)
{
	_cleanup_(arena_putp) struct arena *a = NULL;
	int r = arena_alloc(round_up(len, UNIT), &a);

	if (r == 0)
		r = make(a);
	if (r < 0)
		return log_errno(r, "cannot create memory shared by daemon and agent");
	*ret = TAKE(a);
	return 0;
}

int arena_open(int fd, struct arena **ret)
{
	_cleanup_(closep) int owned = fd;
	_cleanup_(arena_putp) struct arena *a = NULL;
	int seals = fcntl(owned, F_GET_SEALS);
	struct stat st;
	int r;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(owned, &st) < 0 || st.st_size <= 0 ||
	    (size_t)st.st_size > LEN_MAX)
		return -EBADMSG;
	r = arena_alloc((size_t)st.st_size, &a);
	if (r == 0)
		r = map(a, owned, PROT_READ);
	if (r < 0)
		return r;
	*ret = TAKE(a);
	return 0;
}

struct arena *arena_get(struct arena *a)
{
	atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
	return a;
}

void arena_put(struct arena *a)
{
	if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (a->data)
		munmap(a->data, a->len);
	closep(&a->fd);
	free(a->is_used);
	free(a);
}

void arena_putp(struct arena **a)
{
	arena_put(*a);
}

const uint8_t *arena_data(const struct arena *a)
{
	return a->data;
}

size_t arena_len(const struct arena *a)
{
	return a->len;
}

int arena_fd(const struct arena *a)
{
	return a->fd;
}

static size_t units_of(size_t len)
{
	return (len + UNIT - 1) / UNIT;
}

/* Backs memory with huge pages before its first use: for a GiB of direct I/O the kernel then pins 512 pages instead of
 * 262,144. MADV_COLLAPSE needs a page that is present, hence the write. */
static void make_huge(struct arena *a, size_t end)
{
	for (; a->nr_huge * HUGE < end && (a->nr_huge + 1) * HUGE <= a->len; a->nr_huge++) {
		uint8_t *p = a->data + a->nr_huge * HUGE;

		*p = 0;
		(void)madvise(p, HUGE, MADV_COLLAPSE); /* optional: only faster */
	}
}

uint8_t *arena_take(struct arena *a, size_t len)
{
	size_t nr = units_of(len), free_before = 0;

	assert(a->is_used && len > 0);
	for (size_t i = 0; i < a->len / UNIT; i++) {
		free_before = a->is_used[i] ? 0 : free_before + 1;
		if (free_before < nr)
			continue;
		for (size_t k = i + 1 - nr; k <= i; k++)
			a->is_used[k] = true;
		make_huge(a, (i + 1) * UNIT);
		return a->data + (i + 1 - nr) * UNIT;
	}
	return NULL;
}

void arena_give_back(struct arena *a, const uint8_t *p, size_t len)
{
	size_t first = (size_t)(p - a->data) / UNIT;

	assert(p >= a->data && p + len <= a->data + a->len);
	for (size_t i = first; i < first + units_of(len); i++) {
		assert(a->is_used[i]);
		a->is_used[i] = false;
	}
}
