/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/kernels/gpu_room.h"

#include <stddef.h>
#include <sys/uio.h>

#include "base/util.h"
#include "gpu/kernels/pinned.h"

#define ARRAYS_MAX 24

int gpu_room_alloc(struct gpu_room *m, void *ret, uint64_t len)
{
	void *p = NULL;
	int r;

	r = cuda_errno(cudaMalloc(&p, len), "device memory");
	if (r < 0)
		return r;
	m->now += len;
	m->peak = MAX(m->peak, m->now);
	*(void **)ret = p;
	return 0;
}

void gpu_room_free(struct gpu_room *m, void *p, uint64_t len)
{
	void **pp = p;

	if (!*pp)
		return;
	cudaFree(*pp);
	m->now -= len;
	*pp = NULL;
}

/* Pointers and sizes of the arrays, common to allocation and release. */
#define ARRAY(field, nr)                            \
	ret[n++] = (struct iovec)                   \
	{                                           \
		&m->field, (nr) * sizeof(*m->field) \
	}

static size_t content_arrays(struct gpu_room *m, struct iovec ret[ARRAYS_MAX])
{
	uint64_t groups = m->nr_chunks / GPU_GROUP, second = groups / GPU_GROUP;
	size_t n = 0;

	ARRAY(digests, m->nr_chunks);
	ARRAY(signatures[0], groups);
	ARRAY(signatures[1], groups);
	ARRAY(second, second + second / 16 + 64); /* with the levels above */
	ARRAY(groups, groups);
	ARRAY(first, groups);
	ARRAY(unit_changed, groups / GPU_UNIT);
	ARRAY(log, m->log_room);
	ARRAY(entries, m->nr_changed);
	ARRAY(results, m->nr_changed);
	ARRAY(run_starts, groups); /* enough: with more runs, a bitmap is smaller */
	ARRAY(run_ends, groups);
	ARRAY(block_unknown, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(block_pages, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(block_rest, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(run_sums, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(chunk_sums, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(node_sums, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(shift_run_sums, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(shift_node_sums, (uint64_t)GPU_BLOCKS_MAX);
	ARRAY(staging, m->staging_len);
	return n;
}

static size_t shift_arrays(struct gpu_room *m, struct iovec ret[ARRAYS_MAX])
{
	size_t n = 0;

	ARRAY(shifts, m->nr_shifted);
	ARRAY(names, m->nr_shifted + 8); /* padding: eight are read at a time */
	ARRAY(starts, m->nr_shifted + 8);
	ARRAY(shift_runs, m->nr_shifted);
	ARRAY(names_summary, m->nr_shifted / GPU_NAMES_BLOCK + 1);
	return n;
}

static void arrays_free(struct gpu_room *m, const struct iovec *arrays, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		gpu_room_free(m, arrays[i].iov_base, arrays[i].iov_len);
}

/* Allocates all arrays or none. */
static int arrays_alloc(struct gpu_room *m, const struct iovec *arrays, size_t nr)
{
	int r;

	for (size_t i = 0; i < nr; i++) {
		r = gpu_room_alloc(m, arrays[i].iov_base, arrays[i].iov_len);
		if (r < 0) {
			arrays_free(m, arrays, i);
			return r;
		}
	}
	return 0;
}

static void content_free(struct gpu_room *m)
{
	struct iovec arrays[ARRAYS_MAX];

	gpu_room_drop_whole_log(m);
	arrays_free(m, arrays, content_arrays(m, arrays));
	m->nr_chunks = 0;
}

static void shifted_free(struct gpu_room *m)
{
	struct iovec arrays[ARRAYS_MAX];

	arrays_free(m, arrays, shift_arrays(m, arrays));
	m->nr_shifted = 0;
}

static void table_free(struct gpu_room *m, struct gpu_table *t)
{
	gpu_room_free(m, &t->tags, t->nr_slots);
	gpu_room_free(m, &t->slots, t->nr_slots * sizeof(*t->slots));
	*t = (struct gpu_table){ 0 };
}

void gpu_room_release(struct gpu_room *m)
{
	content_free(m);
	shifted_free(m);
	table_free(m, &m->table);
}

static int copy_digests(struct digest *to, const struct digest *from, uint64_t nr)
{
	return cuda_errno(cudaMemcpy(to, from, nr * sizeof(*to), cudaMemcpyDeviceToDevice), "larger record");
}

int gpu_room_ensure(struct gpu_room *m, uint64_t nr_chunks, uint32_t chunk_len, uint64_t slack, uint64_t keep)
{
	struct gpu_room larger = { .nr_chunks = round_up(nr_chunks, GPU_UNIT_CHUNKS) };
	struct iovec arrays[ARRAYS_MAX];
	int r;

	if (nr_chunks <= m->nr_chunks)
		return 0;
	if (keep == 0) {
		content_free(m);
		shifted_free(m);
	}
	larger.now = m->now;
	larger.peak = m->peak;
	larger.nr_changed = larger.nr_chunks * 2 / 19 + 2 * GPU_UNIT_CHUNKS;
	larger.log_room = larger.nr_changed + larger.nr_changed / 4 + larger.nr_chunks / GPU_GROUP + slack;
	larger.staging_len =
		MAX(larger.nr_changed * chunk_len, larger.nr_chunks * sizeof(uint32_t)); /* also for gpu_sweep() */
	r = arrays_alloc(&larger, arrays, content_arrays(&larger, arrays));
	m->peak = larger.peak;
	if (r < 0)
		return r;
	if (keep > 0) {
		r = copy_digests(larger.digests, m->digests, keep);
		if (r == 0)
			r = copy_digests(larger.signatures[0], m->signatures[0], (keep + GPU_GROUP - 1) / GPU_GROUP);
	}
	if (r < 0) {
		content_free(&larger);
		return r;
	}
	m->now = larger.now;
	content_free(m);
	shifted_free(m);
	larger.table = m->table;
	larger.now = m->now;
	*m = larger;
	r = gpu_room_set_shifted(m, m->nr_changed);
	return r < 0 ? r : 1;
}

int gpu_room_set_shifted(struct gpu_room *m, uint64_t nr)
{
	struct iovec arrays[ARRAYS_MAX];
	int r;

	shifted_free(m);
	m->nr_shifted = nr;
	r = arrays_alloc(m, arrays, shift_arrays(m, arrays));
	if (r < 0)
		m->nr_shifted = 0;
	return r;
}

int gpu_room_add_whole_log(struct gpu_room *m)
{
	return m->whole_log ? 0 : gpu_room_alloc(m, &m->whole_log, m->nr_chunks * sizeof(*m->whole_log));
}

void gpu_room_drop_whole_log(struct gpu_room *m)
{
	gpu_room_free(m, &m->whole_log, m->nr_chunks * sizeof(*m->whole_log));
}

int gpu_room_set_table(struct gpu_room *m, uint64_t nr_slots, cudaStream_t stream)
{
	struct gpu_table to = { .nr_slots = nr_slots };
	struct gpu_take from = { .table = m->table };
	int r;

	r = gpu_room_alloc(m, &to.tags, nr_slots);
	if (r == 0)
		r = gpu_room_alloc(m, &to.slots, nr_slots * sizeof(*to.slots));
	if (r == 0)
		r = cuda_errno(cudaMemsetAsync(to.tags, GPU_SLOT_EMPTY, nr_slots, stream), "table");
	if (r == 0)
		r = cuda_errno(cudaMemsetAsync(to.slots, GPU_SLOT_EMPTY, nr_slots * sizeof(*to.slots), stream), "table");
	if (r == 0)
		r = cuda_errno(gpu_rehash(&from, &to, stream), "table");
	if (r == 0)
		r = cuda_errno(cudaStreamSynchronize(stream), "table");
	if (r < 0) {
		table_free(m, &to);
		return r;
	}
	table_free(m, &m->table);
	m->table = to;
	return 0;
}
