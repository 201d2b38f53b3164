/*
 * The host's side of a take. Segments are launched one behind the other on two streams for hashing, in turns, so that
 * the blocks of one begin as those of the one before run out, and on one for what comes after it; a fourth stream copies
 * payload to the host. Sizes are known on the device only: a kernel writes them into memory of the host (struct
 * gpu_report), which looks there while it launches, and then starts the copy.
 *
 *   hash 0   ▓▓     ▓▓▓▓▓▓▓▓▓▓    ▓▓▓
 *   hash 1     ▓▓▓▓▓          ▓▓▓▓   ▓
 *   rest       ▒    ▒▒        ▒▒  ▒ ▒▒▒ tables
 *   copy        ░    ░░░        ░░░░ ░░░
 *
 * The first ones are short, so that copying begins soon, and the last, so that little is left to do when all is hashed.
 *
 * Memory is for changes of up to a tenth of the chunks. If there are more, and also for the first version, the take
 * begins anew as a whole one: the log has the digests of all chunks, and becomes the newest version's when it is
 * committed; payload goes through the two halves of the staging memory in turns, or, where a segment is all new, to the
 * host as it is.
 */
#include "gpu/delta_gpu.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/util.h"
#include "gpu/gpu_room.h"
#include "gpu/kernels.h"
#include "gpu/pinned.h"

static_assert(GPU_PAGE == DELTA_PAGE && GPU_GROUP == LEAF_GROUP, "the kernels know them by other names");
static_assert(DELTA_METHOD_FULL == 0 && DELTA_METHOD_BASIC == 1 && DELTA_METHOD_LIST == 2, "kernel_tables.cu");
static_assert(DELTA_BITMAP == 1 && DELTA_LIST == 2 && DELTA_NODES == 3 && DELTA_RUNS == 4, "kernel_tables.cu");
static_assert(sizeof(struct gpu_shift) == 12 && sizeof(struct digest) == 16, "as the header says");

#define TABLE_BYTES 32u /* per chunk remembered: 25 in a slot, of which a fifth stays empty */
#define SPIN_CHECK 4096 /* looks between two questions whether the device still works */
#define SEGMENT_MIN 16u /* units */

/* How much of the content each segment has, of all these together. */
static const unsigned weights[] = { 1, 3, 4, 5, 5, 5, 5, 3, 1 };

enum stream { HASH_0, HASH_1, REST, COPY, NR_STREAMS };

struct version {
	uint32_t number; /* 0: there is none */
	uint64_t len, nr_chunks, nr_whole;
};

struct delta_gpu {
	struct delta_record_params params; /* constant, as the next ones */
	struct gpu_keys keys;
	struct digest zero;
	int device;
	uint32_t hash_blocks, blocks; /* for gpu_hash() and others */
	cudaStream_t streams[NR_STREAMS];
	cudaEvent_t given, clean, second, tabled;
	cudaEvent_t hashed[GPU_SEGMENTS_MAX], gathered[GPU_SEGMENTS_MAX], copied[GPU_SEGMENTS_MAX];

	uint32_t last_number, attempt;
	struct version newest, pending;
	struct gpu_room room;
	uint64_t nr_entries, nr_dropped; /* in the table */
	bool is_clean; /* counts are zero, or will be */
	bool much_changed; /* in the version before: more than a half, so the next may begin as a whole one */
	struct delta_buffer *buffers;
	struct gpu_buffer *gpu_buffers; /* device */
	size_t nr_buffers, buffers_room;

	/* Of what is pending. */
	enum delta_method method;
	bool finished, whole, dedup;
	struct gpu_take take;
	struct gpu_segment segments[GPU_SEGMENTS_MAX];
	uint32_t nr_segments, nr_copied;
	struct gpu_counts *counts; /* device */
	struct gpu_report *report; /* host */
	struct pinned pages, rest;
	uint32_t *tables; /* host, page-locked */
	uint64_t tables_room, shifted_at; /* bytes; where the table of shifted duplicates begins */
	uint8_t head[DELTA_PAGE];
	struct iovec *parts;
};

static int wait_for(struct delta_gpu *g, enum stream stream)
{
	cudaError_t e;

	while ((e = cudaStreamQuery(g->streams[stream])) == cudaErrorNotReady)
		;
	return cuda_errno(e, "take");
}

static int wait_for_event(cudaEvent_t event)
{
	cudaError_t e;

	while ((e = cudaEventQuery(event)) == cudaErrorNotReady)
		;
	return cuda_errno(e, "take");
}

/* --- making one --- */

static int make_streams(struct delta_gpu *g)
{
	int low, high, r;

	r = cuda_errno(cudaDeviceGetStreamPriorityRange(&low, &high), "streams");
	for (int i = 0; r == 0 && i < NR_STREAMS; i++)
		r = cuda_errno(cudaStreamCreateWithPriority(&g->streams[i], cudaStreamNonBlocking,
							    i == HASH_0 || i == HASH_1 ? low : high),
			       "streams");
	return r;
}

/* All events of a record, as an array. */
#define NR_EVENTS (4 + 3 * GPU_SEGMENTS_MAX)
static_assert(offsetof(struct delta_gpu, copied) + sizeof(((struct delta_gpu *)0)->copied) ==
		      offsetof(struct delta_gpu, given) + NR_EVENTS * sizeof(cudaEvent_t),
	      "events follow each other");

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
		cudaGetLastError(); /* not for the application to find */
		return -ENODEV;
	}
	r = cuda_errno(gpu_prepare(g->params.chunk_len, &g->hash_blocks, &g->blocks), "kernels");
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

static void drain(struct delta_gpu *g)
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
	drain(g);
	for (int i = 0; i < NR_STREAMS; i++)
		if (g->streams[i])
			cudaStreamDestroy(g->streams[i]);
	for (int i = 0; i < NR_EVENTS; i++)
		if ((&g->given)[i])
			cudaEventDestroy((&g->given)[i]);
	gpu_room_free(&g->room, &g->counts, sizeof(*g->counts));
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

/* --- what a take needs --- */

/* What is counted begins at zero. Done when a version is over, so that the next need not wait for it. */
static int clean(struct delta_gpu *g)
{
	cudaStream_t stream = g->streams[REST];
	int r;

	r = cuda_errno(cudaMemsetAsync(g->counts, 0, sizeof(*g->counts), stream), "counts");
	if (r == 0)
		r = cuda_errno(cudaMemsetAsync(g->room.unit_changed, 0,
					       g->room.nr_chunks / GPU_UNIT_CHUNKS * sizeof(*g->room.unit_changed),
					       stream),
			       "counts");
	if (r == 0)
		r = cuda_errno(cudaMemsetAsync(g->room.masks, 0, g->room.nr_chunks / GPU_GROUP * sizeof(*g->room.masks),
					       stream),
			       "counts");
	if (r == 0)
		r = cuda_errno(cudaEventRecord(g->clean, stream), "counts");
	g->is_clean = r == 0;
	return r;
}

static uint64_t entries_max(const struct delta_gpu *g)
{
	return MIN(g->params.table_limit / TABLE_BYTES, DELTA_CHUNKS_MAX);
}

static uint64_t slots_for(uint64_t nr_entries)
{
	return nr_entries > 0 ? round_up(nr_entries + nr_entries / 4 + 1, GPU_BUCKET) : 0;
}

/* Slots for all that the next version may enter, as far as the limit allows; then for twice as much. */
static int ensure_table(struct delta_gpu *g)
{
	uint64_t needed = g->nr_entries + g->pending.nr_chunks;
	int r;

	if (slots_for(MIN(needed, entries_max(g))) <= g->room.table.nr_slots)
		return 0;
	r = gpu_room_set_table(&g->room, slots_for(MIN(2 * needed, entries_max(g))), g->streams[REST]);
	if (r == 0)
		g->nr_dropped = 0;
	return r;
}

/* Host memory for tables. */
static int ensure_tables(struct delta_gpu *g, uint64_t len)
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
	uint64_t nr_chunks = MAX(g->pending.nr_chunks, UINT64_C(1)), warps = (uint64_t)g->hash_blocks * 8;
	uint64_t slack = MIN(warps, nr_chunks / GPU_GROUP + 1) * GPU_LOG_GRAB * ARRAY_SIZE(weights);
	int r;

	if (nr_chunks > g->room.nr_chunks)
		drain(g);
	r = gpu_room_ensure(&g->room, nr_chunks, g->params.chunk_len, slack, g->newest.nr_chunks);
	if (r > 0) {
		g->is_clean = false;
		r = ensure_tables(g, nr_chunks / 8 + 12 * g->room.nr_changed);
	}
	return r < 0 ? r : g->dedup ? ensure_table(g) : 0;
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

/* The device's copy of them is written only when they are others than the last time. */
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

/* --- segments --- */

static void add_segment(struct delta_gpu *g, uint64_t unit, uint64_t end)
{
	assert(g->nr_segments < GPU_SEGMENTS_MAX);
	g->segments[g->nr_segments] = (struct gpu_segment){
		.nr = g->nr_segments,
		.unit = unit,
		.end = end,
		.append = !g->whole,
		.last = end == g->take.nr_units,
	};
	g->nr_segments++;
}

static void cut_segments(struct delta_gpu *g)
{
	uint64_t units = g->take.nr_units, at = 0, sum = 0, weight = 0;

	for (size_t i = 0; i < ARRAY_SIZE(weights); i++)
		sum += weights[i];
	for (size_t i = 0; i < ARRAY_SIZE(weights); i++) {
		uint64_t end;

		weight += weights[i];
		end = units * weight / sum;
		if (end - at < SEGMENT_MIN && end < units)
			continue;
		add_segment(g, at, end);
		at = end;
	}
}

/* Each fits into a half of the staging memory, whatever has changed. The first is short. */
static void cut_halves(struct delta_gpu *g)
{
	uint64_t unit_len = (uint64_t)GPU_UNIT_CHUNKS * g->params.chunk_len, half = g->room.staging_len / 2 / unit_len;

	for (uint64_t at = 0, end; at < g->take.nr_units; at = end) {
		end = MIN(at + (at == 0 ? half / 8 + 1 : half), g->take.nr_units);
		add_segment(g, at, end);
		g->segments[g->nr_segments - 1].staging_off = (g->nr_segments - 1) % 2 * half * unit_len;
	}
}

static int prepare_attempt(struct delta_gpu *g)
{
	struct gpu_room *m = &g->room;
	int r = 0;

	g->take.attempt = ++g->attempt;
	g->take.shifts = m->shifts;
	g->take.shifts_room = m->nr_shifted;
	g->take.whole = g->whole;
	g->take.log = m->log;
	g->take.log_room = m->log_room;
	g->take.changed_room = g->whole ? UINT64_MAX : m->nr_changed;
	if (g->whole && g->newest.number == 0) {
		g->take.log = m->digests;
	} else if (g->whole) {
		r = gpu_room_add_whole_log(m);
		g->take.log = m->whole_log;
	}
	g->nr_segments = g->nr_copied = 0;
	if (g->whole)
		cut_halves(g);
	else
		cut_segments(g);
	g->pages.len = g->rest.len = 0;
	g->report->overflow = 0;
	if (r == 0 && !g->is_clean)
		r = clean(g);
	for (int i = HASH_0; r == 0 && i <= HASH_1; i++)
		r = cuda_errno(cudaStreamWaitEvent(g->streams[i], g->clean, 0), "take");
	g->is_clean = false;
	return r;
}

static int launch_hash(struct delta_gpu *g, uint32_t nr)
{
	cudaStream_t stream = g->streams[HASH_0 + nr % 2];
	const struct gpu_segment *s = &g->segments[nr];
	cudaError_t e;

	e = gpu_hash(&g->take, &g->keys, s, g->hash_blocks, stream);
	if (e == cudaSuccess)
		e = cudaEventRecord(g->hashed[nr], stream);
	if (e == cudaSuccess)
		e = gpu_second(&g->take, &g->keys, s, stream);
	if (e == cudaSuccess && nr + 2 == g->nr_segments)
		e = cudaEventRecord(g->second, stream);
	if (e == cudaSuccess && s->last && nr > 0)
		e = cudaStreamWaitEvent(stream, g->second, 0);
	if (e == cudaSuccess && s->last)
		e = gpu_fingerprint(&g->take, &g->keys, stream);
	return cuda_errno(e, "hash");
}

static int launch_rest(struct delta_gpu *g, uint32_t nr)
{
	cudaStream_t stream = g->streams[REST];
	cudaError_t e;

	e = cudaStreamWaitEvent(stream, g->hashed[nr], 0);
	if (e == cudaSuccess && g->whole && nr >= 2)
		e = cudaStreamWaitEvent(stream, g->copied[nr - 2], 0); /* whose half it takes over */
	if (e == cudaSuccess)
		e = gpu_segment(&g->take, &g->segments[nr], g->blocks, stream);
	if (e == cudaSuccess)
		e = cudaEventRecord(g->gathered[nr], stream);
	return cuda_errno(e, "take");
}

static bool flag_set(const uint32_t *flag, uint32_t attempt)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE) == attempt;
}

/* Whole pages of the content, from where they are. */
static int copy_content(struct delta_gpu *g, uint64_t off, uint64_t end)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->nr_buffers && off < end; i++) {
		const struct delta_buffer *b = &g->buffers[i];
		uint64_t from = MAX(off, b->off), to = MIN(end, b->off + b->len);

		if (to <= off || from >= end)
			continue;
		r = pinned_zeros(&g->pages, from - off);
		if (r == 0)
			r = pinned_copy(&g->pages, (const uint8_t *)b->p + (from - b->off), to - from, g->streams[COPY]);
		off = to;
	}
	return r < 0 ? r : pinned_zeros(&g->pages, end - off);
}

/* The payload of a segment whose sizes are known. If all of it is new, gpu_segment() has left it where it is. */
static int copy_segment(struct delta_gpu *g, uint32_t nr)
{
	struct gpu_totals before = { 0 }, upto = g->report->upto[nr];
	const struct gpu_segment *s = &g->segments[nr];
	const uint8_t *from = g->room.staging + s->staging_off;
	uint64_t chunk_len = g->params.chunk_len, pages_len;
	uint64_t first = s->unit * GPU_UNIT_CHUNKS, end = MIN(s->end * GPU_UNIT_CHUNKS, g->take.nr_chunks);
	int r = 0;

	if (nr > 0)
		before = g->report->upto[nr - 1];
	if (s->append)
		from += (before.pages + before.rest) * chunk_len;
	pages_len = (upto.pages - before.pages) * chunk_len;
	if (upto.changed > before.changed)
		r = cuda_errno(cudaStreamWaitEvent(g->streams[COPY], g->gathered[nr], 0), "copy");
	if (r == 0 && g->whole && upto.pages - before.pages == end - first)
		r = copy_content(g, first * chunk_len, end * chunk_len);
	else if (r == 0)
		r = pinned_copy(&g->pages, from, pages_len, g->streams[COPY]);
	if (r == 0)
		r = pinned_copy(&g->rest, from + pages_len, (upto.rest - before.rest) * chunk_len, g->streams[COPY]);
	if (r == 0 && g->whole)
		r = cuda_errno(cudaEventRecord(g->copied[nr], g->streams[COPY]), "copy");
	return r;
}

/* Starts the copies of the first `nr` segments. Waits for their sizes, or not. -EOVERFLOW: not enough room. */
static int copy_segments(struct delta_gpu *g, uint32_t nr, bool wait)
{
	cudaError_t e;
	int r;

	for (uint64_t looks = 1; g->nr_copied < nr; looks++) {
		if (flag_set(&g->report->done[g->nr_copied], g->attempt)) {
			if (g->report->overflow)
				return -EOVERFLOW;
			r = copy_segment(g, g->nr_copied);
			if (r < 0)
				return r;
			g->nr_copied++;
			continue;
		}
		if (!wait)
			return 0;
		if (looks % SPIN_CHECK != 0)
			continue;
		e = cudaStreamQuery(g->streams[REST]);
		if (e != cudaErrorNotReady && !flag_set(&g->report->done[g->nr_copied], g->attempt))
			return cuda_errno(e == cudaSuccess ? cudaErrorUnknown : e, "take");
	}
	return 0;
}

/* To compare bytes all digests must be known. */
static int run_segments(struct delta_gpu *g)
{
	bool compare = g->take.compare;
	int r = 0;

	for (uint32_t i = 0; r == 0 && compare && i < g->nr_segments; i++) {
		r = launch_hash(g, i);
		if (r == 0)
			r = cuda_errno(cudaStreamWaitEvent(g->streams[REST], g->hashed[i], 0), "take");
	}
	for (uint32_t i = 0; r == 0 && i < g->nr_segments; i++) {
		r = compare ? 0 : launch_hash(g, i);
		if (r == 0 && g->whole && i >= 2)
			r = copy_segments(g, i - 1, true);
		if (r == 0)
			r = launch_rest(g, i);
		if (r == 0)
			r = copy_segments(g, i, false);
	}
	return r < 0 ? r : copy_segments(g, g->nr_segments, true);
}

/* What the version being taken has entered goes. Nothing may be running. */
static int drop_entered(struct delta_gpu *g)
{
	struct gpu_counts counts;
	int r;

	if (!g->dedup)
		return 0;
	r = cuda_errno(cudaMemcpy(&counts, g->counts, sizeof(counts), cudaMemcpyDeviceToHost), "table");
	if (r == 0 && counts.entered > 0)
		r = cuda_errno(gpu_forget(&g->take, g->take.number, 0, g->streams[REST]), "table");
	if (r == 0)
		r = wait_for(g, REST);
	if (r == 0)
		g->nr_dropped += counts.entered - counts.reclaimed;
	return r;
}

/* With more room as long as there is not enough. */
static int run_attempts(struct delta_gpu *g)
{
	int r;

	for (;;) {
		r = prepare_attempt(g);
		if (r == 0)
			r = run_segments(g);
		if (r != -EOVERFLOW)
			return r;
		drain(g);
		r = drop_entered(g);
		if (r == 0 && g->whole)
			r = gpu_room_set_shifted(&g->room, g->room.nr_chunks);
		if (r < 0)
			return r;
		g->whole = true;
	}
}

/* All bytes. The kernels only make digests. */
static int run_full(struct delta_gpu *g)
{
	uint64_t pages_len = round_down(g->take.len, DELTA_PAGE), rest_len = g->take.len - pages_len;
	const struct delta_buffer *last = &g->buffers[g->nr_buffers - 1];
	int r;

	r = prepare_attempt(g);
	for (uint32_t i = 0; r == 0 && i < g->nr_segments; i++)
		r = launch_hash(g, i);
	if (r == 0)
		r = copy_content(g, 0, pages_len);
	if (r == 0 && rest_len > 0) /* then it is the last buffer's end */
		r = pinned_copy(&g->rest, (const uint8_t *)last->p + last->len - rest_len, rest_len, g->streams[COPY]);
	return r;
}

/* --- tables --- */

/* Of nothing at all, and where there is but one choice. */
static const struct {
	enum delta_encoding first, shifted;
} encodings[] = {
	[DELTA_METHOD_FULL] = { DELTA_RUNS, DELTA_RUNS },
	[DELTA_METHOD_BASIC] = { DELTA_BITMAP, DELTA_LIST },
	[DELTA_METHOD_LIST] = { DELTA_LIST, DELTA_LIST },
	[DELTA_METHOD_TREE] = { DELTA_RUNS, DELTA_RUNS },
};

/* When all chunks have been labelled. */
static int launch_tables(struct delta_gpu *g)
{
	struct gpu_totals all = g->report->upto[g->nr_segments - 1];
	uint64_t first = all.pages + all.rest;
	uint32_t blocks = MIN(4 * g->blocks, GPU_BLOCKS_MAX);
	struct gpu_room *m = &g->room;
	struct gpu_tables t = {
		.method = g->method,
		.height = delta_tree_height(g->take.nr_chunks),
		.run_starts = m->run_starts,
		.run_ends = m->run_ends,
		.runs_room = m->nr_chunks / GPU_GROUP,
		.sums = m->sums,
		.more_sums = m->more_sums,
		.node_sums = m->node_sums,
		.names = m->names,
		.names_summary = m->names_summary,
		.starts = m->starts,
		.shift_runs = m->shift_runs,
		.nr_shifted = all.changed - first,
	};
	int r;

	/* No encoding that is chosen takes more. */
	g->shifted_at = round_up(g->method == DELTA_METHOD_LIST ? 4 * first : g->take.nr_groups * 4, 16);
	r = ensure_tables(g, g->shifted_at + 12 * t.nr_shifted + 16);
	if (r < 0)
		return r;
	t.first_out = g->tables;
	t.shifted_out = g->tables + g->shifted_at / sizeof(*g->tables);
	if (first > 0 || g->method == DELTA_METHOD_BASIC)
		r = cuda_errno(gpu_first_table(&g->take, &t, blocks, g->streams[REST]), "tables");
	if (r == 0 && t.nr_shifted > 0)
		r = cuda_errno(gpu_shifted_table(&g->take, &t, blocks, g->streams[REST]), "tables");
	return r < 0 ? r : cuda_errno(cudaEventRecord(g->tabled, g->streams[REST]), "tables");
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
		return log_errno(-EINVAL, "version %" PRIu32 ": literals", take->number);
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
		.masks = m->masks,
		.first = m->first,
		.log_base = m->log_base,
		.all = take->method == DELTA_METHOD_FULL,
		.dedup = g->dedup,
		.compare = g->dedup && take->compare,
		.room = g->dedup ? entries_max(g) - g->nr_entries : 0,
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

/* The streams of the record go on where the application's is. */
static int follow(struct delta_gpu *g, cudaStream_t stream)
{
	cudaError_t e = cudaSetDevice(g->device);

	if (e == cudaSuccess)
		e = cudaEventRecord(g->given, stream);
	for (int i = 0; e == cudaSuccess && i < NR_STREAMS; i++)
		if (i != REST) /* it waits for the others */
			e = cudaStreamWaitEvent(g->streams[i], g->given, 0);
	return cuda_errno(e, "stream");
}

/* Until the buffers may be written again. */
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
		r = run_full(g);
		if (r == 0)
			r = wait_for(g, COPY);
		if (r == 0)
			r = wait_for(g, HASH_0);
		return r < 0 ? r : wait_for(g, HASH_1);
	}
	r = run_attempts(g);
	if (r == 0)
		r = launch_tables(g);
	if (r == 0)
		g->much_changed =
			g->newest.number != 0 && g->report->upto[g->nr_segments - 1].changed > g->take.nr_chunks / 2;
	if (r == 0 && g->whole)
		r = wait_for(g, COPY); /* it may read the buffers */
	return r < 0 ? r : wait_for_event(g->gathered[g->nr_segments - 1]);
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

/* --- the object --- */

/* As content_hash_finish() does with the top of the tree. */
static struct digest fingerprint(const struct delta_gpu *g)
{
	struct digest top = { 0, 0 }; /* of no content */

	if (g->pending.nr_chunks > 0)
		top = g->report->top;
	return xxh3_short(&g->keys.group, (uint64_t[]){ top.lo, top.hi, g->pending.len, g->params.chunk_len }, 32);
}

/* Of a short last chunk that is sent the payload has only what the content has. */
static uint64_t rest_len(const struct delta_gpu *g)
{
	uint64_t chunk_len = g->params.chunk_len;
	bool cut = g->method != DELTA_METHOD_FULL && g->pending.nr_whole < g->pending.nr_chunks &&
		   g->report->last_is_first;

	return cut ? g->rest.len - (chunk_len - g->pending.len % chunk_len) : g->rest.len;
}

/* Waits for the tables, and sets what the header says of them. */
static int finish_tables(struct delta_gpu *g, struct delta_header *h)
{
	bool first = g->rest.len + g->pages.len > 0 || g->method == DELTA_METHOD_BASIC;
	int r;

	h->first_encoding = encodings[g->method].first;
	h->shifted_encoding = encodings[g->method].shifted;
	if (g->pending.nr_chunks == 0)
		return 0;
	if (g->method == DELTA_METHOD_FULL) {
		r = ensure_tables(g, 2 * sizeof(*g->tables));
		if (r < 0)
			return r;
		g->tables[0] = 0;
		g->tables[1] = (uint32_t)g->pending.nr_chunks;
		h->first_len = 2 * sizeof(*g->tables);
	} else {
		r = wait_for_event(g->tabled);
		if (r < 0)
			return r;
		if (first) {
			h->first_encoding = g->report->first_encoding;
			h->first_len = g->report->first_len;
		}
		if (g->report->upto[g->nr_segments - 1].changed * g->params.chunk_len > g->pages.len + g->rest.len) {
			h->shifted_encoding = g->report->shifted_encoding;
			h->shifted_len = g->report->shifted_len;
		}
	}
	h->tables_crc = crc32c_add(crc32c(g->tables, h->first_len), (uint8_t *)g->tables + g->shifted_at, h->shifted_len);
	return 0;
}

static int make_parts(struct delta_gpu *g, const struct delta_header *h, struct delta_object *ret)
{
	size_t room = g->pages.nr_slabs + g->rest.nr_slabs + 3, nr = 0;
	struct iovec *parts = realloc(g->parts, room * sizeof(*parts));

	if (!parts)
		return -ENOMEM;
	g->parts = parts;
	parts[nr++] = (struct iovec){ g->head, delta_payload_off(h) };
	nr += pinned_parts(&g->pages, h->pages_len, parts + nr, room - nr);
	nr += pinned_parts(&g->rest, h->payload_len - h->pages_len, parts + nr, room - nr);
	if (h->first_len > 0)
		parts[nr++] = (struct iovec){ g->tables, h->first_len };
	if (h->shifted_len > 0)
		parts[nr++] = (struct iovec){ (uint8_t *)g->tables + g->shifted_at, h->shifted_len };
	*ret = (struct delta_object){ .header = *h, .parts = parts, .nr_parts = nr };
	return 0;
}

int delta_gpu_finish(struct delta_gpu *g, struct delta_object *ret)
{
	struct delta_header h = {
		.chunk_len = g->params.chunk_len,
		.number = g->pending.number,
		.parent = g->method == DELTA_METHOD_FULL ? DELTA_NO_PARENT : g->newest.number,
		.content_len = g->pending.len,
		.pages_len = g->pages.len,
		.payload_len = g->pages.len + rest_len(g),
	};
	int r;

	assert(g->pending.number != 0);
	memcpy(h.lineage, g->params.lineage, sizeof(h.lineage));
	r = finish_tables(g, &h);
	for (int i = 0; r == 0 && i < NR_STREAMS; i++) /* the fingerprint, and the payload */
		if (i != REST)
			r = wait_for(g, i);
	if (r < 0)
		return r;
	h.fingerprint = fingerprint(g);
	delta_header_encode(&h, (struct delta_header_disk *)g->head);
	r = make_parts(g, &h, ret);
	g->finished = r == 0;
	return r;
}

/* --- between versions --- */

/* Nothing is known any more. */
static void lose(struct delta_gpu *g)
{
	drain(g);
	gpu_room_release(&g->room);
	g->newest = g->pending = (struct version){ 0 };
	g->nr_entries = g->nr_dropped = 0;
	g->is_clean = false;
}

/* The number of entries that gpu_forget() or gpu_sweep() has kept. */
static int read_kept(struct delta_gpu *g, uint64_t *ret)
{
	int r = wait_for(g, REST);

	return r < 0 ? r : cuda_errno(cudaMemcpy(ret, &g->counts->kept, sizeof(*ret), cudaMemcpyDeviceToHost), "table");
}

static int sweep(struct delta_gpu *g)
{
	struct gpu_take t = {
		.digests = g->room.digests,
		.newest_whole = g->newest.nr_whole,
		.table = g->room.table,
		.counts = g->counts,
	};
	int r;

	r = cuda_errno(gpu_sweep(&t, (uint32_t *)g->room.staging, g->streams[REST]), "table");
	if (r == 0)
		r = read_kept(g, &g->nr_entries);
	if (r == 0)
		g->nr_dropped = 0;
	return r;
}

static int commit_table(struct delta_gpu *g)
{
	uint64_t nr_unknown = 0;

	for (uint32_t i = 0; i < g->nr_segments; i++)
		nr_unknown += g->report->unknown[i];
	g->nr_entries += g->report->entered;
	g->nr_dropped -= g->report->reclaimed;
	return entries_max(g) - g->nr_entries < nr_unknown ? sweep(g) : 0;
}

static int commit_digests(struct delta_gpu *g)
{
	struct digest *digests = g->room.digests, *signatures = g->room.signatures[0];
	int r = 0;

	if (!g->whole || g->take.sparse)
		r = cuda_errno(gpu_commit(&g->take, digests, signatures, g->streams[REST]), "commit");
	if (!g->take.sparse) {
		g->room.signatures[0] = g->room.signatures[1];
		g->room.signatures[1] = signatures;
	}
	if (g->whole && g->newest.number != 0) {
		g->room.digests = g->room.whole_log;
		g->room.whole_log = digests;
		if (!g->much_changed)
			gpu_room_drop_whole_log(&g->room);
	}
	return r;
}

int delta_gpu_commit(struct delta_gpu *g)
{
	int r;

	assert(g->pending.number != 0 && g->finished);
	r = cuda_errno(cudaSetDevice(g->device), "device");
	if (r == 0 && g->pending.nr_chunks > 0)
		r = commit_digests(g);
	g->newest = g->pending;
	g->last_number = g->newest.number;
	g->pending = (struct version){ 0 };
	if (r == 0 && g->newest.nr_chunks > 0 && g->dedup)
		r = commit_table(g);
	if (r == 0)
		r = clean(g);
	if (r < 0)
		lose(g);
	return r;
}

/* Slots that were dropped make every search longer. */
static void clean_table(struct delta_gpu *g)
{
	if (g->nr_dropped > g->room.table.nr_slots / 8 &&
	    gpu_room_set_table(&g->room, g->room.table.nr_slots, g->streams[REST]) == 0)
		g->nr_dropped = 0;
}

void delta_gpu_abandon(struct delta_gpu *g)
{
	if (g->pending.number == 0)
		return;
	cudaSetDevice(g->device);
	drain(g);
	if (g->pending.nr_chunks > 0 && drop_entered(g) < 0) {
		lose(g);
		return;
	}
	gpu_room_drop_whole_log(&g->room);
	g->pending = (struct version){ 0 };
	g->is_clean = false;
	clean_table(g);
}

int delta_gpu_forget(struct delta_gpu *g, uint32_t number)
{
	struct gpu_take t = {
		.digests = g->room.digests,
		.newest_whole = g->newest.nr_whole,
		.table = g->room.table,
		.counts = g->counts,
	};
	uint64_t kept = 0;
	int r;

	assert(g->pending.number == 0);
	r = cuda_errno(cudaSetDevice(g->device), "device");
	if (r == 0)
		r = clean(g);
	if (r == 0)
		r = cuda_errno(gpu_forget(&t, number, g->newest.number != number ? g->newest.number : 0, g->streams[REST]),
			       "table");
	if (r == 0)
		r = read_kept(g, &kept);
	g->is_clean = false;
	if (r < 0) {
		lose(g);
		return r;
	}
	g->nr_dropped += g->nr_entries - kept;
	g->nr_entries = kept;
	if (g->newest.number == number)
		g->newest = (struct version){ 0 };
	clean_table(g);
	return 0;
}
