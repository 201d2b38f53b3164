/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "async_io.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct ring { /* one of io_uring's two, in memory shared with the kernel */
	void *map;
	size_t len;
	_Atomic uint32_t *head, *tail;
	uint32_t mask;
};

struct async_io {
	enum async_io_kind kind;
	aio_context_t aio;
	int fd;
	struct ring submit, complete;
	uint32_t *slots; /* of `submit`: indices into `entries` */
	struct io_uring_sqe *entries;
	size_t entries_len;
	const struct io_uring_cqe *ends;
};

static int ring_map(int fd, uint64_t at, size_t len, uint32_t head, uint32_t tail, uint32_t mask, struct ring *ret)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)at);

	if (p == MAP_FAILED)
		return -errno;
	*ret = (struct ring){ p, len, (void *)(p + head), (void *)(p + tail), *(uint32_t *)(void *)(p + mask) };
	return 0;
}

static int uring_new(struct async_io *a, unsigned depth)
{
	struct io_uring_params p = { 0 };
	int r;

	a->fd = (int)syscall(SYS_io_uring_setup, depth, &p);
	if (a->fd < 0)
		return -errno;
	r = ring_map(a->fd, IORING_OFF_SQ_RING, p.sq_off.array + p.sq_entries * sizeof(uint32_t), p.sq_off.head,
		     p.sq_off.tail, p.sq_off.ring_mask, &a->submit);
	if (r == 0)
		r = ring_map(a->fd, IORING_OFF_CQ_RING, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
			     p.cq_off.head, p.cq_off.tail, p.cq_off.ring_mask, &a->complete);
	if (r < 0)
		return r;
	a->slots = (void *)((uint8_t *)a->submit.map + p.sq_off.array);
	a->ends = (void *)((uint8_t *)a->complete.map + p.cq_off.cqes);
	a->entries_len = p.sq_entries * sizeof(struct io_uring_sqe);
	a->entries = mmap(NULL, a->entries_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, a->fd,
			  (off_t)IORING_OFF_SQES);
	return a->entries == MAP_FAILED ? -errno : 0;
}

struct async_io *async_io_new(enum async_io_kind kind, unsigned depth)
{
	struct async_io *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return NULL;
	a->kind = kind;
	a->fd = -1;
	if (kind == ASYNC_URING)
		r = uring_new(a, depth);
	else
		r = syscall(SYS_io_setup, depth, &a->aio) < 0 ? -errno : 0;
	if (r == 0)
		return a;
	async_io_free(a);
	errno = -r;
	return NULL;
}

void async_io_free(struct async_io *a)
{
	if (a->aio)
		syscall(SYS_io_destroy, a->aio);
	if (a->entries && a->entries != MAP_FAILED)
		munmap(a->entries, a->entries_len);
	if (a->submit.map)
		munmap(a->submit.map, a->submit.len);
	if (a->complete.map)
		munmap(a->complete.map, a->complete.len);
	if (a->fd >= 0)
		close(a->fd);
	free(a);
}

static int uring_write(struct async_io *a, int fd, const void *p, size_t len, uint64_t off, uint64_t tag)
{
	uint32_t tail = *a->submit.tail, at = tail & a->submit.mask;

	a->entries[at] = (struct io_uring_sqe){
		.opcode = IORING_OP_WRITE,
		.fd = fd,
		.off = off,
		.addr = (uintptr_t)p,
		.len = (uint32_t)len,
		.user_data = tag,
	};
	a->slots[at] = at;
	*a->submit.tail = tail + 1;
	return syscall(SYS_io_uring_enter, a->fd, 1, 0, 0, NULL, 0) == 1 ? 0 : -errno;
}

int async_io_write(struct async_io *a, int fd, const void *p, size_t len, uint64_t off, uint64_t tag)
{
	struct iocb one = {
		.aio_data = tag,
		.aio_lio_opcode = IOCB_CMD_PWRITE,
		.aio_fildes = (uint32_t)fd,
		.aio_buf = (uintptr_t)p,
		.aio_nbytes = len,
		.aio_offset = (int64_t)off,
	};
	struct iocb *all[] = { &one };

	if (a->kind == ASYNC_URING)
		return uring_write(a, fd, p, len, off, tag);
	return syscall(SYS_io_submit, a->aio, 1, all) == 1 ? 0 : -errno;
}

static int uring_wait(struct async_io *a, uint64_t *ret_tag, int64_t *ret_result)
{
	uint32_t head = *a->complete.head;
	const struct io_uring_cqe *e;

	while (*a->complete.tail == head)
		if (syscall(SYS_io_uring_enter, a->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && errno != EINTR)
			return -errno;
	e = &a->ends[head & a->complete.mask];
	*ret_tag = e->user_data;
	*ret_result = e->res;
	*a->complete.head = head + 1;
	return 0;
}

int async_io_wait(struct async_io *a, uint64_t *ret_tag, int64_t *ret_result)
{
	struct io_event e;
	long n;

	if (a->kind == ASYNC_URING)
		return uring_wait(a, ret_tag, ret_result);
	do {
		n = syscall(SYS_io_getevents, a->aio, 1, 1, &e, NULL);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		return n < 0 ? -errno : -EIO;
	*ret_tag = e.data;
	*ret_result = e.res;
	return 0;
}
