/* SPDX-License-Identifier: BSD-3-Clause */
/* Creating a record and taking a version: checks arguments, allocates memory, sets arguments of the kernels. */
#include "gpu/kernels/delta_gpu.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "gpu/kernels/delta_gpu_record.h"

static_assert(GPU_PAGE == DELTA_PAGE && GPU_GROUP == LEAF_GROUP, "the kernels use other names");
static_assert(sizeof(struct gpu_shift) == 12 && sizeof(struct digest) == 16, "as kernels.h assumes");

int delta_gpu_wait(struct delta_gpu *g, enum stream stream)
{
	cudaError_t e;

	while ((e = cudaStreamQuery(g->streams[stream])) == cudaErrorNotReady)
		;
	return cuda_errno(e, "take");
}

int delta_gpu_wait_flag(struct delta_gpu *g, const uint32_t *flag, enum stream stream)
{
	cudaError_t e;

	for (uint64_t looks = 1;; looks++) {
		if (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == g->attempt)
			return 0;
		if (looks % SPIN_CHECK != 0)
			continue;
		e = cudaStreamQuery(g->streams[stream]);
		if (e != cudaErrorNotReady && __atomic_load_n(flag, __ATOMIC_ACQUIRE) != g->attempt)
			return cuda_errno(e == cudaSuccess ? cudaErrorUnknown : e, "take");
	}
}

static int wait_event(cudaEvent_t event)
{
	cudaError_t e;

	while ((e = cudaEventQuery(event)) == cudaErrorNotReady)
		;
	return cuda_errno(e, "take");
}

/* --- creating a record --- */

static int make_streams(struct delta_gpu *g)
{
	int low, high, r;

	r = cuda_errno(cudaDeviceGetStreamPriorityRange(&low, &high), "streams");
	for (int i = 0; r == 0 && i < NR_STREAMS; i++)
		r = cuda_errno(cudaStreamCreateWithPriority(&g->streams[i], cudaStreamNonBlocking, i <= TOP ? low : high),
			       "streams");
	return r;
}

/* The event members of a record are used as one array. */
#define NR_EVENTS (2 + 4 * GPU_SEGMENTS_MAX)
static_assert(offsetof(struct delta_gpu, copied) + sizeof(((struct delta_gpu *)0)->copied) ==
		      offsetof(struct delta_gpu, given) + NR_EVENTS * sizeof(cudaEvent_t),
	      "events are adjacent");

static int make_events(struct delta_gpu *g)
{
	int r = 0;

	for (int i = 0; r == 0 && i < NR_EVENTS; i++)
		r = cuda_errno(cudaEventCreateWithFlags(&g->given + i, cudaEventDisableTiming), "events");
	return r;
}

static int make_shared(struct delta_gpu *g)
{
	int r = gpu_room_alloc(&g->room, &g->counts, sizeof(*g->counts));

	crc_powers_init(&g->powers);
	if (r == 0)
		r = gpu_room_alloc(&g->room, &g->gpu_powers, sizeof(g->powers));
	if (r == 0)
		r = cuda_errno(cudaMemcpy(g->gpu_powers, &g->powers, sizeof(g->powers), cudaMemcpyHostToDevice),
			       "powers");
	if (r == 0)
		r = cuda_errno(cudaHostAlloc((void **)&g->report, sizeof(*g->report), cudaHostAllocMapped), "report");
	if (r == 0)
		memset(g->report, 0, sizeof(*g->report));
	return r;
}

static int find_device(struct delta_gpu *g)
{
	int nr = 0, r;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0 || cudaGetDevice(&g->device) != cudaSuccess) {
		cudaGetLastError(); /* clear the error, so that the application does not get it */
		return -ENODEV;
	}
	r = cuda_errno(gpu_prepare(g->params.chunk_len, g->shapes, &g->blocks), "kernels");
	g->blocks = MIN(g->blocks, GPU_BLOCKS_MAX);
	return r;
}

int delta_gpu_new(const struct delta_record_params *params, struct delta_gpu **ret)
{
	_cleanup_(delta_gpu_freep) struct delta_gpu *g = NULL;
	struct leaf_key key;
	int r;

	if (!chunk_len_valid(params->chunk_len))
		return log_errno(-EINVAL, "chunks of %" PRIu32 " bytes", params->chunk_len);
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->params = *params;
	leaf_key_init(&key, params->key);
	xxh3_key_init(&g->keys.leaf, key.leaf);
	xxh3_key_init(&g->keys.group, key.group);
	g->zero = leaf_hash(&key, NULL, 0, params->chunk_len);
	r = find_device(g);
	if (r < 0)
		return r;
	r = make_streams(g);
	if (r < 0)
		return r;
	r = make_events(g);
	if (r < 0)
		return r;
	r = make_shared(g);
	if (r < 0)
		return r;
	*ret = TAKE(g);
	return 0;
}

void delta_gpu_drain(struct delta_gpu *g)
{
	for (int i = 0; i < NR_STREAMS; i++)
		if (g->streams[i])
			cudaStreamSynchronize(g->streams[i]);
	cudaGetLastError();
}

void delta_gpu_free(struct delta_gpu *g)
{
	if (!g)
		return;
	cudaSetDevice(g->device);
	delta_gpu_drain(g);
	for (int i = 0; i < NR_STREAMS; i++)
		if (g->streams[i])
			cudaStreamDestroy(g->streams[i]);
	for (int i = 0; i < NR_EVENTS; i++)
		if ((&g->given)[i])
			cudaEventDestroy((&g->given)[i]);
	gpu_room_free(&g->room, &g->counts, sizeof(*g->counts));
	gpu_room_free(&g->room, &g->gpu_powers, sizeof(*g->gpu_powers));
	gpu_room_free(&g->room, &g->gpu_buffers, g->buffers_room * sizeof(*g->gpu_buffers));
	gpu_room_release(&g->room);
	pinned_release(&g->pages);
	pinned_release(&g->rest);
	cudaFreeHost(g->report); /* NULL is fine */
	cudaFreeHost(g->tables);
	free(g->buffers);
	free(g->parts);
	free(g);
}

void delta_gpu_memory(const struct delta_gpu *g, uint64_t *ret_now, uint64_t *ret_peak)
{
	*ret_now = g->room.now;
	*ret_peak = g->room.peak;
}

/* --- resources of a take --- */

int delta_gpu_ensure_tables(struct delta_gpu *g, uint64_t len)
{
	int r;

	if (len <= g->tables_room)
		return 0;
	cudaFreeHost(g->tables);
	g->tables = NULL;
	g->tables_room = 0;
	r = cuda_errno(cudaHostAlloc((void **)&g->tables, len, cudaHostAllocMapped), "page-locked memory");
	if (r == 0)
		g->tables_room = len;
	return r;
}

static int ensure_room(struct delta_gpu *g)
{
	uint64_t nr_chunks = MAX(g->pending.nr_chunks, UINT64_C(1));
	int r;

	if (nr_chunks > g->room.nr_chunks)
		delta_gpu_drain(g);
	r = gpu_room_ensure(&g->room, nr_chunks, g->params.chunk_len, delta_gpu_log_slack(g, nr_chunks),
			    g->newest.nr_chunks);
	if (r > 0) {
		g->is_clean = false;
		r = delta_gpu_ensure_tables(g, nr_chunks / 8 + 12 * g->room.nr_changed + KiB(1));
	}
	return r < 0 ? r : g->dedup ? delta_gpu_ensure_table(g) : 0;
}

static int buffers_check(const struct delta_buffer *buffers, size_t nr, uint64_t *ret_len)
{
	uint64_t end = 0;

	for (size_t i = 0; i < nr; i++) {
		if (buffers[i].off % DELTA_PAGE != 0 || buffers[i].off < end || buffers[i].len > UINT64_MAX / 2 ||
		    buffers[i].off > UINT64_MAX / 2)
			return log_errno(-EINVAL, "buffer %zu: overlaps, or begins inside a page", i);
		end = buffers[i].off + buffers[i].len;
	}
	*ret_len = end;
	return 0;
}

static int grow_buffers(struct delta_gpu *g, size_t nr)
{
	struct delta_buffer *buffers = realloc(g->buffers, nr * sizeof(*buffers));
	int r;

	if (!buffers)
		return -ENOMEM;
	g->buffers = buffers;
	g->nr_buffers = 0;
	gpu_room_free(&g->room, &g->gpu_buffers, g->buffers_room * sizeof(*g->gpu_buffers));
	g->buffers_room = 0;
	r = gpu_room_alloc(&g->room, &g->gpu_buffers, nr * sizeof(*g->gpu_buffers));
	if (r == 0)
		g->buffers_room = nr;
	return r;
}

/* Copies the buffer list to the device if it has changed since the last take. */
static int set_buffers(struct delta_gpu *g, const struct delta_buffer *buffers, size_t nr)
{
	_cleanup_(freep) struct gpu_buffer *given = NULL;
	int r;

	if (nr == g->nr_buffers && (nr == 0 || memcmp(buffers, g->buffers, nr * sizeof(*buffers)) == 0))
		return 0;
	given = malloc((nr + 1) * sizeof(*given));
	if (!given)
		return -ENOMEM;
	r = nr > g->buffers_room ? grow_buffers(g, nr) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++)
		given[i] = (struct gpu_buffer){ buffers[i].p, buffers[i].len, buffers[i].off };
	g->nr_buffers = nr;
	if (nr > 0)
		memcpy(g->buffers, buffers, nr * sizeof(*buffers));
	return cuda_errno(cudaMemcpy(g->gpu_buffers, given, nr * sizeof(*given), cudaMemcpyHostToDevice), "buffers");
}

/* --- taking a version --- */

static int check_take(const struct delta_gpu *g, const struct delta_take *take, uint64_t len)
{
	if (g->pending.number != 0)
		return log_errno(-EBUSY, "version %" PRIu32 ": %" PRIu32 " is pending", take->number, g->pending.number);
	if (take->number <= g->last_number)
		return log_errno(-EINVAL, "version %" PRIu32 ": comes after %" PRIu32, take->number, g->last_number);
	if (chunks_of(len, g->params.chunk_len) > DELTA_CHUNKS_MAX)
		return log_errno(-EINVAL, "version %" PRIu32 ": %" PRIu64 " bytes are too many chunks", take->number,
				 len);
	if (take->nr_literals > 0)
		return log_errno(-EINVAL, "version %" PRIu32 ": literals are not supported", take->number);
	return 0;
}

static void fill_take(struct delta_gpu *g, const struct delta_take *take)
{
	const struct version *v = &g->pending;
	struct gpu_room *m = &g->room;

	g->take = (struct gpu_take){
		.buffers = g->gpu_buffers,
		.nr_buffers = (uint32_t)g->nr_buffers,
		.chunk_len = g->params.chunk_len,
		.len = v->len,
		.nr_chunks = v->nr_chunks,
		.nr_whole = v->nr_whole,
		.nr_groups = (v->nr_chunks + GPU_GROUP - 1) / GPU_GROUP,
		.nr_units = (v->nr_chunks + GPU_UNIT_CHUNKS - 1) / GPU_UNIT_CHUNKS,
		.number = v->number,
		.newest = g->newest.number,
		.newest_chunks = g->newest.nr_chunks,
		.newest_whole = g->newest.nr_whole,
		.digests = m->digests,
		.newest_signatures = m->signatures[0],
		.zero = g->zero,
		.signatures = m->signatures[1],
		.sparse = g->newest.number != 0 && g->newest.nr_chunks == v->nr_chunks,
		.second = m->second,
		.groups = m->groups,
		.first = m->first,
		.all = take->method == DELTA_METHOD_FULL,
		.dedup = g->dedup,
		.compare = g->dedup && take->compare,
		.room = g->dedup ? delta_gpu_entries_max(g) - g->nr_entries : 0,
		.table = m->table,
		.unit_changed = m->unit_changed,
		.block_unknown = m->block_unknown,
		.block_pages = m->block_pages,
		.block_rest = m->block_rest,
		.entries = m->entries,
		.results = m->results,
		.entries_room = m->nr_changed,
		.staging = m->staging,
		.counts = g->counts,
		.report = g->report,
	};
}

/* Orders the record's streams after the application's. */
static int follow(struct delta_gpu *g, cudaStream_t stream)
{
	cudaError_t e = cudaSetDevice(g->device);

	if (e == cudaSuccess && cudaStreamQuery(stream) == cudaSuccess)
		return 0; /* a wait would cost some microseconds nevertheless */
	if (e == cudaSuccess)
		e = cudaEventRecord(g->given, stream);
	for (int i = 0; e == cudaSuccess && i < NR_STREAMS; i++)
		if (i != TOP && i != REST) /* these wait for the hashing anyway */
			e = cudaStreamWaitEvent(g->streams[i], g->given, 0);
	return cuda_errno(e, "stream");
}

static void remember_likeness(struct delta_gpu *g)
{
	struct gpu_totals all = g->report->upto[g->nr_segments - 1];
	uint64_t few = g->take.nr_chunks / 256, fresh = all.pages + all.rest;
	uint32_t nr_changed = 0, nr_placed = 0;

	g->likeness = fresh > 8 * few	? LIKE_OTHER :
		      fresh > few	? LIKE_NEW :
		      all.changed > few ? LIKE_MOVED :
					  LIKE_SAME;
	for (uint32_t i = 0; i < g->nr_segments; i++) {
		nr_changed += g->report->upto[i].changed > (i > 0 ? g->report->upto[i - 1].changed : 0);
		nr_placed += g->report->placed[i] != 0;
	}
	g->guess = 4 * nr_placed > 3 * nr_changed;
	g->much_changed = g->newest.number != 0 && all.changed > g->take.nr_chunks / 2;
}

/* Returns once the buffers may be written again. */
static int take_version(struct delta_gpu *g, const struct delta_take *take)
{
	int r;

	r = ensure_room(g);
	if (r < 0)
		return r;
	fill_take(g, take);
	if (g->pending.nr_chunks == 0) {
		g->pages.len = g->rest.len = 0;
		return 0;
	}
	if (take->method == DELTA_METHOD_FULL) {
		r = delta_gpu_run_full(g);
		if (r == 0)
			r = delta_gpu_wait(g, COPY);
		if (r == 0)
			r = delta_gpu_wait(g, HASH_0);
		return r < 0 ? r : delta_gpu_wait(g, HASH_1);
	}
	r = delta_gpu_run_segments(g);
	if (r == 0)
		remember_likeness(g);
	if (r == 0 && g->whole)
		r = delta_gpu_wait(g, COPY); /* it may read the buffers */
	return r < 0 ? r : wait_event(g->gathered[g->nr_segments - 1]);
}

int delta_gpu_take(struct delta_gpu *g, const struct delta_buffer *buffers, size_t nr, const struct delta_take *take,
		   void *stream)
{
	uint64_t len = 0;
	int r;

	r = buffers_check(buffers, nr, &len);
	if (r == 0)
		r = check_take(g, take, len);
	if (r == 0)
		r = follow(g, stream);
	if (r == 0)
		r = set_buffers(g, buffers, nr);
	if (r < 0)
		return r;
	g->pending = (struct version){
		.number = take->number,
		.len = len,
		.nr_chunks = chunks_of(len, g->params.chunk_len),
		.nr_whole = len / g->params.chunk_len,
	};
	g->method = take->method;
	g->dedup = take->method == DELTA_METHOD_LIST || take->method == DELTA_METHOD_TREE;
	g->whole = g->newest.number == 0 || g->much_changed || take->method == DELTA_METHOD_FULL;
	g->finished = false;
	r = take_version(g, take);
	if (r < 0)
		delta_gpu_abandon(g);
	return r;
}
