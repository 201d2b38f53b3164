/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host side of a take. The hashing of segments is launched alternately on two streams, so that the blocks of one
 * launch start as those of the previous one run out. One stream has the kernels that follow the hashing, one copies
 * payload to the host, and one computes the fingerprint. Kernels write the sizes of segments into host memory (struct
 * gpu_report). The host polls it between launches, and then starts the copies.
 *
 *   hash 0   ▓▓     ▓▓▓▓▓▓▓▓▓▓    ▓▓▓
 *   hash 1     ▓▓▓▓▓          ▓▓▓▓   ▓
 *   rest       ▒    ▒▒        ▒▒  ▒ ▒▒▒ tables
 *   copy        ░    ░░░        ░░░░ ░░
 *   top                            ▒ ▒
 *
 * Where much is new, the first segments are short, so that copying begins early, and the last ones, so that little work
 * is left after the hashing.
 *
 * Memory suffices for changes of a tenth of the chunks. If there are more, and for the first version, the take restarts
 * as a whole one. Then the log has the digests of all chunks, and replaces those of the newest version at the commit.
 * Payload goes alternately through two halves of the staging memory, or straight to the host if a segment is all new.
 */
#include "gpu/kernels/delta_gpu_record.h"

#include <assert.h>
#include <errno.h>

#include "base/util.h"

#define SEGMENT_MIN 16u /* units */

/*
 * Share of the content of each segment, in 128ths. A segment costs at least 25 us on an idle device and 70 beside the
 * hashing, so there are few if little has to be copied: the previous version is the best guess. If copying takes
 * longest, it must begin early; if it takes as long as hashing, it must never be far behind.
 */
#define WEIGHTS_MAX 18
static const unsigned weights[][WEIGHTS_MAX] = {
	[LIKE_OTHER] = { 1, 1, 2, 2, 3, 4, 6, 9, 14, 20, 26, 28, 12 },
	[LIKE_NEW] = { 9, 12, 13, 7, 9, 10, 8, 8, 12, 9, 9, 8, 7, 7 },
	[LIKE_MOVED] = { 8, 16, 24, 24, 24, 20, 12 },
	[LIKE_SAME] = { 44, 40, 34, 10 },
};
#define WEIGHTS_SUM 128u
#define PIECE 16u /* 128ths per launch of the hashing */
#define PIECES_MAX 18u /* for any of these weights */

uint64_t delta_gpu_log_slack(const struct delta_gpu *g, uint64_t nr_chunks)
{
	uint64_t warps = (uint64_t)g->shapes[GPU_FAST].blocks * GPU_HASH_WARPS;

	return MIN(warps, nr_chunks / GPU_GROUP + 1) * GPU_LOG_GRAB * PIECES_MAX;
}

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
	uint64_t units = g->take.nr_units, at = 0, end, weight = 0;

	for (size_t i = 0; i < WEIGHTS_MAX && weight < WEIGHTS_SUM; i++) {
		weight += weights[g->likeness][i];
		end = units * weight / WEIGHTS_SUM;
		if (end - at < SEGMENT_MIN && end < units)
			continue;
		add_segment(g, at, end);
		at = end;
	}
}

/* Each segment fits into half of the staging memory even if all of it is new. The first is short. */
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
	g->nr_segments = g->nr_pieces = g->nr_copied = 0;
	g->guessed_len = 0;
	if (g->whole)
		cut_halves(g);
	else
		cut_segments(g);
	g->pages.len = g->rest.len = 0;
	g->report->overflow = g->report->last_is_first = 0;
	if (r == 0 && !g->is_clean)
		r = delta_gpu_clean(g);
	for (int i = HASH_0; r == 0 && i <= HASH_1 && cudaEventQuery(g->clean) != cudaSuccess; i++)
		r = cuda_errno(cudaStreamWaitEvent(g->streams[i], g->clean, 0), "take");
	g->is_clean = false;
	return r;
}

/*
 * Launches the hashing in pieces. Multiprocessors differ in speed by up to 8 %, and a piece starts on those that finish
 * first: a single piece takes 4 % longer.
 */
static int launch_hash(struct delta_gpu *g, uint32_t nr)
{
	uint64_t most = MAX((g->take.nr_units * PIECE + WEIGHTS_SUM - 1) / WEIGHTS_SUM, SEGMENT_MIN);
	uint64_t units = g->segments[nr].end - g->segments[nr].unit, pieces = (units + most - 1) / most;
	enum gpu_pace pace = g->whole || g->likeness == LIKE_SAME ? GPU_FAST : GPU_GENTLE;
	cudaError_t e = cudaSuccess;

	for (uint64_t i = 0; e == cudaSuccess && i < pieces; i++) {
		struct gpu_segment s = g->segments[nr];

		s.end = s.unit + units * (i + 1) / pieces;
		s.unit += units * i / pieces;
		e = gpu_hash(&g->take, &g->keys, &s, g->shapes[pace], g->streams[HASH_0 + g->nr_pieces++ % 2]);
	}
	for (int i = 0; e == cudaSuccess && i < 2; i++)
		e = cudaEventRecord(g->hashed[nr][i], g->streams[HASH_0 + i]);
	assert(g->whole || g->nr_pieces <= PIECES_MAX); /* the slack of the log covers them */
	return cuda_errno(e, "hash");
}

/* Makes a stream wait for the hashing of this segment and those before. */
static cudaError_t follow_hashed(struct delta_gpu *g, enum stream stream, uint32_t nr)
{
	cudaError_t e = cudaStreamWaitEvent(g->streams[stream], g->hashed[nr][0], 0);

	return e != cudaSuccess ? e : cudaStreamWaitEvent(g->streams[stream], g->hashed[nr][1], 0);
}

/* Computes the second level of all but the last segment while that one is hashed. */
static int launch_fingerprint(struct delta_gpu *g)
{
	uint32_t last = g->nr_segments - 1;
	uint64_t unit = g->segments[last].unit;
	cudaStream_t stream = g->streams[TOP];
	cudaError_t e = cudaSuccess;

	if (last > 0)
		e = follow_hashed(g, TOP, last - 1);
	if (e == cudaSuccess)
		e = gpu_second(&g->take, &g->keys, 0, unit, stream);
	if (e == cudaSuccess)
		e = follow_hashed(g, TOP, last);
	if (e == cudaSuccess)
		e = gpu_second(&g->take, &g->keys, unit, g->take.nr_units, stream);
	if (e == cudaSuccess)
		e = gpu_fingerprint(&g->take, &g->keys, stream);
	return cuda_errno(e, "fingerprint");
}

static int launch_rest(struct delta_gpu *g, uint32_t nr)
{
	cudaStream_t stream = g->streams[REST];
	cudaError_t e;

	e = follow_hashed(g, REST, nr);
	if (e == cudaSuccess && g->whole && nr >= 2)
		e = cudaStreamWaitEvent(stream, g->copied[nr - 2], 0); /* the previous user of this half */
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

/* Copies whole pages straight from the buffers. */
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

static struct gpu_totals totals_before(const struct delta_gpu *g, uint32_t nr)
{
	return nr > 0 ? g->report->upto[nr - 1] : (struct gpu_totals){ 0 };
}

/* The payload of a segment in staging memory. */
static const uint8_t *staged_at(const struct delta_gpu *g, uint32_t nr)
{
	const struct gpu_segment *s = &g->segments[nr];
	struct gpu_totals before = totals_before(g, nr);

	return g->room.staging + s->staging_off + (s->append ? (before.pages + before.rest) * g->params.chunk_len : 0);
}

/* Copies a segment as if all its changed chunks were new, before that is known. If the guess was wrong, copy_segment()
 * overwrites the copy. */
static int copy_guessed(struct delta_gpu *g, uint32_t nr)
{
	g->guessed_len = (uint64_t)g->report->guessed_nr[nr] * g->params.chunk_len;
	return pinned_copy(&g->rest, staged_at(g, nr), g->guessed_len, g->streams[COPY]);
}

/* Copies the payload of a segment, once its sizes are known. If all of it is new, it is not in staging memory. */
static int copy_segment(struct delta_gpu *g, uint32_t nr)
{
	struct gpu_totals before = totals_before(g, nr), upto = g->report->upto[nr];
	const struct gpu_segment *s = &g->segments[nr];
	const uint8_t *from = staged_at(g, nr);
	uint64_t chunk_len = g->params.chunk_len, pages_len = (upto.pages - before.pages) * chunk_len;
	uint64_t first = s->unit * GPU_UNIT_CHUNKS, end = MIN(s->end * GPU_UNIT_CHUNKS, g->take.nr_chunks);
	uint64_t guessed_len = g->guessed_len;
	int r = 0;

	g->guessed_len = 0;
	if (guessed_len > 0 && g->report->placed[nr])
		return 0;
	g->rest.len -= guessed_len;
	if (upto.changed > before.changed && !g->report->placed[nr])
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

/* Starts the copies of the first `nr` segments; `wait`: waits for their sizes. -EOVERFLOW: not enough room. */
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
		if (g->guess && g->guessed_len == 0 && flag_set(&g->report->guessed[g->nr_copied], g->attempt)) {
			r = copy_guessed(g, g->nr_copied);
			if (r < 0)
				return r;
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

/* With `compare`, hashes everything first: comparing bytes requires all digests. */
static int run_attempt(struct delta_gpu *g)
{
	bool compare = g->take.compare;
	int r = 0;

	for (uint32_t i = 0; r == 0 && compare && i < g->nr_segments; i++)
		r = launch_hash(g, i);
	if (r == 0 && compare)
		r = cuda_errno(follow_hashed(g, REST, g->nr_segments - 1), "take");
	for (uint32_t i = 0; r == 0 && i < g->nr_segments; i++) {
		r = compare ? 0 : launch_hash(g, i);
		if (r == 0 && g->whole && i >= 2)
			r = copy_segments(g, i - 1, true);
		if (r == 0)
			r = launch_rest(g, i);
		if (r == 0)
			r = copy_segments(g, i, false);
	}
	if (r == 0)
		r = launch_fingerprint(g);
	if (r == 0 && !g->whole)
		r = delta_gpu_launch_tables(g);
	if (r == 0)
		r = copy_segments(g, g->nr_segments, true);
	return r == 0 && g->whole ? delta_gpu_launch_tables(g) : r;
}

int delta_gpu_run_segments(struct delta_gpu *g)
{
	int r;

	for (;;) {
		r = prepare_attempt(g);
		if (r == 0)
			r = run_attempt(g);
		if (r != -EOVERFLOW)
			return r;
		delta_gpu_drain(g);
		r = delta_gpu_drop_entered(g);
		if (r == 0 && g->whole)
			r = gpu_room_set_shifted(&g->room, g->room.nr_chunks);
		if (r < 0)
			return r;
		g->whole = true;
	}
}

int delta_gpu_run_full(struct delta_gpu *g)
{
	uint64_t pages_len = round_down(g->take.len, DELTA_PAGE), rest_len = g->take.len - pages_len;
	const struct delta_buffer *last = &g->buffers[g->nr_buffers - 1];
	int r;

	r = prepare_attempt(g);
	for (uint32_t i = 0; r == 0 && i < g->nr_segments; i++)
		r = launch_hash(g, i);
	if (r == 0)
		r = launch_fingerprint(g);
	if (r == 0)
		r = copy_content(g, 0, pages_len);
	if (r == 0 && rest_len > 0) /* the end of the last buffer */
		r = pinned_copy(&g->rest, (const uint8_t *)last->p + last->len - rest_len, rest_len, g->streams[COPY]);
	return r;
}
