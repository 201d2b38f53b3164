/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/kernels/pinned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"

int cuda_errno(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return 0;
	cudaGetLastError(); /* clear the error, so that the application does not get it */
	return log_errno(e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO, "GPU: %s: %s", what, cudaGetErrorString(e));
}

void pinned_release(struct pinned *p)
{
	for (size_t i = 0; i < p->nr_slabs; i++)
		cudaFreeHost(p->slabs[i]);
	free(p->slabs);
	*p = (struct pinned){ 0 };
}

static int add_slab(struct pinned *p)
{
	uint8_t **slabs = realloc(p->slabs, (p->nr_slabs + 1) * sizeof(*slabs));
	int r;

	if (!slabs)
		return -ENOMEM;
	p->slabs = slabs;
	r = cuda_errno(cudaHostAlloc((void **)&slabs[p->nr_slabs], PINNED_SLAB, cudaHostAllocDefault),
		       "page-locked memory");
	if (r == 0)
		p->nr_slabs++;
	return r;
}

/* Reserves contiguous room for the next bytes: all of `len`, or as many as fit into a slab. */
static int next_place(struct pinned *p, uint64_t len, uint8_t **ret, uint64_t *ret_len)
{
	uint64_t off = p->len % PINNED_SLAB;
	int r;

	if (p->len / PINNED_SLAB == p->nr_slabs) {
		r = add_slab(p);
		if (r < 0)
			return r;
	}
	*ret = p->slabs[p->len / PINNED_SLAB] + off;
	*ret_len = MIN(len, PINNED_SLAB - off);
	p->len += *ret_len;
	return 0;
}

int pinned_copy(struct pinned *p, const void *device, uint64_t len, cudaStream_t stream)
{
	uint64_t n;
	int r;

	for (const uint8_t *from = device; len > 0; from += n, len -= n) {
		uint8_t *to;

		r = next_place(p, len, &to, &n);
		if (r < 0)
			return r;
		r = cuda_errno(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToHost, stream), "copy to the host");
		if (r < 0)
			return r;
	}
	return 0;
}

int pinned_zeros(struct pinned *p, uint64_t len)
{
	uint64_t n;
	int r;

	for (; len > 0; len -= n) {
		uint8_t *to;

		r = next_place(p, len, &to, &n);
		if (r < 0)
			return r;
		memset(to, 0, n);
	}
	return 0;
}

size_t pinned_parts(const struct pinned *p, uint64_t len, struct iovec *ret, size_t room)
{
	size_t nr = 0;

	for (uint64_t off = 0; off < len; off += PINNED_SLAB, nr++)
		if (nr < room)
			ret[nr] = (struct iovec){ p->slabs[nr], MIN(len - off, PINNED_SLAB) };
	return nr;
}
