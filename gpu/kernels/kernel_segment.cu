/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes the changed chunks of a segment, in one kernel. Its blocks synchronize between phases, which takes a
 * fraction of the time of further launches, and there are many segments. There are at most as many blocks as
 * multiprocessors, and the hashing of later segments leaves room for one on each, so all blocks run at the same time.
 *
 *   list     the block's part of the changed chunks, in ascending order; all parts have the same length
 *   enter    look up each chunk in the table, and enter unknown ones; the lowest chunk wins
 *   label    as first occurrence or shifted duplicate; count first occurrences in whole pages, and others. Skipped,
 *            with its barrier, if no chunk equals another of this version: then `enter` has the result
 *   gather   bytes of first occurrences into staging, whole pages before the rest; shifted duplicates into a list.
 *            Usually all chunks are new, and none in a whole page: idle warps gather that case during `enter`
 *
 * While other data is being hashed, memory latency is high, and few chunks change at a time, so the number of dependent
 * accesses determines the time. So each block finds its part by itself, from the number of changed chunks in each unit,
 * and keeps it in shared memory if it fits. A part begins and ends between two cells, which are whole pages, so that a
 * block finds whole pages by itself.
 *
 * Data that one block writes and another reads bypasses the L1 cache, which is not coherent.
 */
#define BLOCK 384u

#include <cuda_runtime_api.h>

#include "gpu/kernels/kernels.h"
#include "gpu/kernels/table.cuh"

/* Use the registers that four blocks of the hashing leave on each quarter of a multiprocessor. */
#if CUDART_VERSION >= 12040
#define SEGMENT_BOUNDS __maxnreg__(64)
#else
#define SEGMENT_BOUNDS __launch_bounds__(512, 2)
#endif

/* Result of `enter` without an older entry: the slot of a new entry plus one, or one of these. */
#define RESULT_FIRST UINT64_C(0)
#define RESULT_SEARCH UINT64_C(0xffffffff) /* unknown and not entered; an equal chunk may be */

/* Result of `label` for first occurrences, in a whole page or not. Shifted duplicates have a version. */
#define RESULT_REST UINT64_C(0)
#define RESULT_PAGES UINT64_C(1)

#define CELL 4u /* groups that a thread lists at a time, at least a page */
#define CACHED 768u /* entries that fit into shared memory */

/* A block's part of the changed chunks. */
struct changes {
	uint64_t from; /* first one, in the changed chunks of the segment */
	uint32_t nr;
	bool cached;
	struct gpu_entry *entries; /* CACHED entries */
	uint64_t *results;
};

static __device__ __forceinline__ struct gpu_entry load_entry(const struct gpu_take &t, uint64_t i)
{
	uint2 v = __ldcg((const uint2 *)t.entries + i);
	struct gpu_entry e = { v.x, v.y };

	return e;
}

static __device__ __forceinline__ struct gpu_entry entry_at(const struct gpu_take &t, const struct changes &c, uint32_t i)
{
	return c.cached ? c.entries[i] : load_entry(t, c.from + i);
}

static __device__ __forceinline__ uint64_t result_at(const struct gpu_take &t, const struct changes &c, uint32_t i)
{
	return c.cached ? c.results[i] : __ldcg((const unsigned long long *)t.results + c.from + i);
}

static __device__ __forceinline__ void set_result(const struct gpu_take &t, const struct changes &c, uint32_t i,
						  uint64_t result)
{
	if (c.cached)
		c.results[i] = result;
	else
		t.results[c.from + i] = result;
}

/* The units of a part, and the number of changed chunks of the segment before them. */
struct span {
	uint32_t unit, end, before;
};

/* Returns the number of changed chunks of the segment, which is the same in all blocks. `ret_part`: the range of this
 * block. */
static __device__ uint32_t find_part(const struct gpu_take &t, const struct gpu_segment &s, struct part *ret_part,
				     struct span *ret)
{
	__shared__ struct span span;
	const uint32_t *changed = t.unit_changed + s.unit;
	uint32_t units = (uint32_t)(s.end - s.unit), each = (units + BLOCK - 1) / BLOCK;
	uint32_t unit = min(units, threadIdx.x * each), end = min(units, unit + each), nr = 0, total, at;

	if (threadIdx.x == 0)
		span.unit = span.end = span.before = 0;
	for (uint32_t i = unit; i < end; i++)
		nr += changed[i];
	at = block_scan(nr, &total);
	*ret_part = part_of(total, 1);
	for (uint32_t i = unit; i < end; at += changed[i++]) {
		if (ret_part->from - at < changed[i]) { /* wraps around if the part begins before the unit */
			span.unit = i;
			span.before = at;
		}
		if (ret_part->from < ret_part->to && ret_part->to - 1 - at < changed[i])
			span.end = i + 1;
	}
	__syncthreads();
	*ret = span;
	return total;
}

/* Lists the changed chunks of a cell: `masks` of its groups, and positions of their digests in the log. */
static __device__ void list_cell(const struct gpu_take &t, uint64_t group, const uint32_t masks[CELL],
				 const uint32_t at_log[CELL], struct gpu_entry *to)
{
#pragma unroll
	for (uint32_t i = 0; i < CELL; i++) {
		uint32_t at = at_log[i];

		for (uint32_t mask = masks[i]; mask; mask &= mask - 1) {
			uint32_t chunk = (uint32_t)(group + i) * GPU_GROUP + __ffs(mask) - 1;

			*(uint2 *)to++ = make_uint2(chunk, t.whole ? chunk : at++);
		}
	}
}

/* A cell belongs to the block whose part has its first changed chunk. So a block may begin and end later than its part,
 * by less than a cell. */
static __device__ void list_changes(const struct gpu_take &t, const struct gpu_segment &s, struct part part,
				    struct span span, struct changes *c)
{
	const uint32_t units = CELL * BLOCK / GPU_UNIT; /* per round */
	__shared__ uint32_t first, end;
	uint32_t at = span.before;

	if (threadIdx.x == 0) {
		first = UINT32_MAX;
		end = 0;
	}
	c->cached = part.to - part.from + CELL * GPU_GROUP <= CACHED;
	for (uint32_t unit = span.unit; unit < span.end; unit += units) {
		uint64_t group = (s.unit + unit) * GPU_UNIT + CELL * threadIdx.x;
		uint4 low = make_uint4(0, 0, 0, 0), high = low; /* masks alternate with positions in the log */
		uint32_t nr, total, before;
		bool own;

		if (unit + CELL * threadIdx.x / GPU_UNIT < span.end) {
			low = ((const uint4 *)(t.groups + group))[0];
			high = ((const uint4 *)(t.groups + group))[1];
		}
		nr = __popc(low.x) + __popc(low.z) + __popc(high.x) + __popc(high.z);
		before = at + block_scan(nr, &total);
		own = nr > 0 && before >= part.from && before < part.to;
		if (own) {
			atomicMin(&first, before);
			atomicMax(&end, before + nr);
		}
		__syncthreads();
		if (own)
			list_cell(t, group, (const uint32_t[]){ low.x, low.z, high.x, high.z },
				  (const uint32_t[]){ low.y, low.w, high.y, high.w },
				  c->cached ? c->entries + (before - first) : t.entries + before);
		at += total;
	}
	__syncthreads();
	c->from = first;
	c->nr = end > first ? end - first : 0;
}

/* Room in the table that the previous segments have left. */
static __device__ uint64_t room_left(const struct gpu_take &t, uint32_t segment)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < segment; i++)
		used += t.counts->unknown[i];
	return used < t.room ? t.room - used : 0;
}

static __device__ void add_tally(const struct gpu_take &t, struct tally tally)
{
	tally.entered = __reduce_add_sync(ALL_LANES, tally.entered);
	tally.reclaimed = __reduce_add_sync(ALL_LANES, tally.reclaimed);
	if (lane_id() != 0)
		return;
	if (tally.entered > 0)
		atomicAdd((unsigned long long *)&t.counts->entered, tally.entered);
	if (tally.reclaimed > 0)
		atomicAdd((unsigned long long *)&t.counts->reclaimed, tally.reclaimed);
}

static __device__ bool same_bytes(const struct gpu_take &t, uint32_t a, uint32_t b)
{
	for (uint32_t off = 0; off < t.chunk_len; off += 16) {
		uint4 x = content_load(t, (uint64_t)a * t.chunk_len + off),
		      y = content_load(t, (uint64_t)b * t.chunk_len + off);

		if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w)
			return false;
	}
	return true;
}

/* The source of a chunk, from the entry with its digest: with GPU_IN_NEWEST if the newest version has it at that place
 * too; RESULT_FIRST: the bytes differ. */
static __device__ uint64_t settle(const struct gpu_take &t, uint32_t chunk, struct digest d, uint64_t value)
{
	uint32_t src = chunk_of(value);

	if (t.compare && src < t.nr_whole && same_digest(any_digest(t, src), d) && !same_bytes(t, chunk, src))
		return RESULT_FIRST;
	if (src < t.newest_whole && same_digest(load_digest(t.digests + src), d))
		value |= GPU_IN_NEWEST;
	return value;
}

/* False: `label` is not needed, since all chunks without an older entry are first occurrences, and are listed in shared
 * memory. */
static __device__ bool enter_changes(const struct gpu_take &t, const struct gpu_segment &s, const struct changes &c,
				     bool enough)
{
	struct tally tally = { 0, 0, 0, 0 };
	bool open = false;

	for (uint32_t i = threadIdx.x; i < c.nr; i += BLOCK) {
		struct gpu_entry e = entry_at(t, c, i);
		struct digest d = load_digest(t.log + e.at);
		uint64_t result = RESULT_FIRST;

		if (e.chunk < t.nr_whole) {
			struct vacancy v;

			result = find_older(t, d, &v);
			if (result)
				result = settle(t, e.chunk, d, result);
			else {
				tally.unknown++;
				result = enough ? enter_chunk(t, d, e.chunk, v, &tally) + 1 : RESULT_SEARCH;
			}
		}
		open |= version_of(result) == 0 && (!c.cached || tally.equal || result == RESULT_SEARCH);
		set_result(t, c, i, result);
	}
	add_tally(t, tally);
	tally.unknown = block_sum(tally.unknown);
	if (threadIdx.x == 0) {
		t.block_unknown[blockIdx.x] = tally.unknown;
		atomicAdd(&t.counts->unknown[s.nr], tally.unknown);
	}
	return __syncthreads_or(open);
}

/*
 * Enters chunks when there is not enough room for all unknown ones. Room is assigned by rank among unknown chunks,
 * counting equal ones separately: those of the previous blocks, and the previous ones of this block.
 */
static __device__ void enter_ranked(const struct gpu_take &t, const struct changes &c, uint64_t room)
{
	uint64_t rank = sum_of(t.block_unknown, blockIdx.x);
	struct tally tally = { 0, 0, 0, 0 };

	for (uint32_t base = 0; base < c.nr; base += BLOCK) {
		uint32_t i = base + threadIdx.x, total;
		bool unknown = i < c.nr && result_at(t, c, i) == RESULT_SEARCH;
		uint32_t before = block_scan(unknown, &total);

		if (unknown && rank + before < room) {
			struct gpu_entry e = entry_at(t, c, i);
			struct digest d = load_digest(t.log + e.at);
			set_result(t, c, i, enter_chunk(t, d, e.chunk, vacancy_at(t, d), &tally) + 1);
		}
		rank += total;
	}
	add_tally(t, tally);
}

/* Completes the result of `enter`: the source of the chunk, or RESULT_FIRST. */
static __device__ uint64_t source_of(const struct gpu_take &t, struct gpu_entry e, uint64_t result)
{
	if (version_of(result) != 0 || result == RESULT_FIRST)
		return result;
	if (result == RESULT_SEARCH) {
		result = find_own(t, load_digest(t.log + e.at));
		if (result == 0)
			return RESULT_FIRST;
	}
	result = value_at(t.table, result - 1);
	if (chunk_of(result) == e.chunk)
		return RESULT_FIRST;
	return settle(t, e.chunk, load_digest(t.log + e.at), result);
}

/* Whether all chunks of the page are first occurrences and the page is completely in the content. */
static __device__ bool in_whole_page(const struct gpu_take &t, uint32_t chunk)
{
	uint32_t per_page = GPU_PAGE / t.chunk_len, page = chunk / per_page, from = page * per_page;

	if ((page + UINT64_C(1)) * GPU_PAGE > t.len)
		return false;
	if (per_page < GPU_GROUP) {
		uint32_t bits = ((1u << per_page) - 1) << from % GPU_GROUP;

		return (__ldcg(t.first + from / GPU_GROUP) & bits) == bits;
	}
	for (uint32_t i = 0; i < per_page / GPU_GROUP; i++)
		if (__ldcg(t.first + from / GPU_GROUP + i) != ALL_LANES)
			return false;
	return true;
}

/* The same for entries in shared memory, without reading the bitmap. */
static __device__ bool in_listed_page(const struct gpu_take &t, const struct changes &c, uint32_t i)
{
	uint32_t per_page = GPU_PAGE / t.chunk_len, chunk = c.entries[i].chunk, first = i - chunk % per_page;

	if ((chunk / per_page + UINT64_C(1)) * GPU_PAGE > t.len || chunk % per_page > i || first + per_page > c.nr ||
	    c.entries[first].chunk != chunk - chunk % per_page ||
	    c.entries[first + per_page - 1].chunk != c.entries[first].chunk + per_page - 1)
		return false;
	for (uint32_t k = 0; k < per_page; k++)
		if (version_of(c.results[first + k]) != 0)
			return false;
	return true;
}

static __device__ __forceinline__ void mark_first(const struct gpu_take &t, uint32_t chunk)
{
	atomicOr(t.first + chunk / GPU_GROUP, 1u << chunk % GPU_GROUP);
	if (chunk == t.nr_chunks - 1)
		t.report->last_is_first = 1;
}

static __device__ void label_changes(const struct gpu_take &t, const struct changes &c)
{
	uint32_t pages = 0, rest = 0;

	for (uint32_t i = threadIdx.x; i < c.nr; i += BLOCK) {
		struct gpu_entry e = entry_at(t, c, i);
		uint64_t result = t.dedup ? source_of(t, e, result_at(t, c, i)) : RESULT_FIRST;

		if (!result)
			mark_first(t, e.chunk);
		set_result(t, c, i, result);
	}
	if (!c.cached)
		__threadfence();
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < c.nr; i += BLOCK) {
		if (version_of(result_at(t, c, i)) != 0)
			continue;
		if (c.cached ? in_listed_page(t, c, i) : in_whole_page(t, entry_at(t, c, i).chunk)) {
			set_result(t, c, i, RESULT_PAGES);
			pages++;
		} else
			rest++;
	}
	pages = block_sum(pages);
	rest = block_sum(rest);
	if (threadIdx.x == 0) {
		t.block_pages[blockIdx.x] = pages;
		t.block_rest[blockIdx.x] = rest;
	}
}

/* A first occurrence, if `label` is not needed. */
static __device__ __forceinline__ bool is_new(const struct changes &c, uint32_t i)
{
	return version_of(c.results[i]) == 0;
}

/* Flags that the blocks of a segment share. */
#define TO_LABEL 1u /* `label` is needed: new chunks may be equal, or whole pages require the bitmap */
#define NOT_PLACED 2u /* gather_early() has not placed the bytes */

/* Sets flags, and counts first occurrences if `label` is not needed. */
static __device__ void count_new(const struct gpu_take &t, const struct gpu_segment &s, const struct changes &c,
				 uint32_t flags)
{
	uint32_t pages = 0, rest = 0;

	if (flags && threadIdx.x == 0)
		atomicOr(&t.counts->flags[s.nr], flags);
	for (uint32_t i = threadIdx.x; !(flags & TO_LABEL) && c.cached && i < c.nr; i += BLOCK)
		if (is_new(c, i))
			*(in_listed_page(t, c, i) ? &pages : &rest) += 1;
	pages = block_sum(pages);
	rest = block_sum(rest);
	if (threadIdx.x == 0) {
		t.block_pages[blockIdx.x] = pages;
		t.block_rest[blockIdx.x] = rest;
	}
}

/* Marks first occurrences, if no block needs `label`. */
static __device__ void mark_new(const struct gpu_take &t, const struct changes &c)
{
	if (!c.cached)
		return; /* has no first occurrences */
	for (uint32_t i = threadIdx.x; i < c.nr; i += BLOCK)
		if (is_new(c, i)) {
			mark_first(t, c.entries[i].chunk);
			c.results[i] = in_listed_page(t, c, i) ? RESULT_PAGES : RESULT_REST;
		}
	__syncthreads();
}

/* First occurrences in all parts, and in those before this block's. */
struct sums {
	uint32_t pages_before, rest_before, pages, rest;
};

static __device__ struct sums sum_blocks(const struct gpu_take &t)
{
	struct sums ret = { 0, 0, 0, 0 };

	for (uint32_t i = threadIdx.x; i < gridDim.x; i += BLOCK) {
		uint32_t pages = __ldcg(t.block_pages + i), rest = __ldcg(t.block_rest + i);

		ret.pages += pages;
		ret.rest += rest;
		ret.pages_before += i < blockIdx.x ? pages : 0;
		ret.rest_before += i < blockIdx.x ? rest : 0;
	}
	ret.pages_before = block_sum(ret.pages_before);
	ret.rest_before = block_sum(ret.rest_before);
	ret.pages = block_sum(ret.pages);
	ret.rest = block_sum(ret.rest);
	return ret;
}

/*
 * Reports the totals of the segment, for the next one and for the host. The host may read this before the bytes are in
 * staging, unless `placed`. Fields that it needs only at the end come last, since the copy waits for `done`.
 */
static __device__ void report_segment(const struct gpu_take &t, const struct gpu_segment &s, uint32_t nr, bool overflow,
				      bool placed, struct sums sums)
{
	struct gpu_totals totals = t.counts->before[s.nr];

	totals.changed += nr;
	totals.pages += sums.pages;
	totals.rest += sums.rest;
	t.counts->before[s.nr + 1] = totals;
	t.report->upto[s.nr] = totals;
	t.report->placed[s.nr] = placed;
	if (overflow || totals.changed - totals.pages - totals.rest > t.shifts_room)
		t.report->overflow = 1;
	__threadfence_system();
	*(volatile uint32_t *)&t.report->done[s.nr] = t.attempt;
	t.report->unknown[s.nr] = __ldcg(&t.counts->unknown[s.nr]);
	t.report->entered = __ldcg((unsigned long long *)&t.counts->entered);
	t.report->reclaimed = __ldcg((unsigned long long *)&t.counts->reclaimed);
}

/* Keeps the bytes in the L2 cache until the copy to the host reads them. */
static __device__ __forceinline__ void store_staged(uint8_t *p, uint4 v, uint64_t policy)
{
	asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(v.x), "r"(v.y),
		     "r"(v.z), "r"(v.w), "l"(policy)
		     : "memory");
}

/* A chunk of the content, and its position in the staging of the segment. */
struct copy {
	uint32_t chunk, place;
};

#define LOADS 4u /* in flight per thread */

/* Copies `nr` chunks, given by copy_at(i), with the threads of a block from `first` on. */
template <typename F>
static __device__ __forceinline__ void copy_chunks(const struct gpu_take &t, uint32_t nr, uint8_t *to, uint32_t first,
						   F copy_at)
{
	const uint32_t threads = BLOCK - first;
	uint32_t shift = 31 - __clz(t.chunk_len / 16), vectors = nr << shift;
	struct source one = only_source(t);
	uint64_t policy;
	auto from_at = [&](uint32_t i) {
		return (uint64_t)copy_at(i >> shift).chunk * t.chunk_len + (i & ((1u << shift) - 1)) * 16;
	};
	auto to_at = [&](uint32_t i) {
		return to + (uint64_t)copy_at(i >> shift).place * t.chunk_len + (i & ((1u << shift) - 1)) * 16;
	};

	asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
	for (uint32_t i = threadIdx.x - first; i < vectors; i += LOADS * threads) {
		uint4 v[LOADS];

#pragma unroll
		for (uint32_t k = 0; k < LOADS; k++) {
			uint32_t at = i + k * threads;

			if (at < vectors && from_at(at) + 16 <= one.len)
				v[k] = *(const uint4 *)(one.p + from_at(at));
		}
#pragma unroll
		for (uint32_t k = 0; k < LOADS; k++) {
			uint32_t at = i + k * threads;

			if (at < vectors && from_at(at) + 16 <= one.len)
				store_staged(to_at(at), v[k], policy);
		}
	}
	for (uint32_t i = threadIdx.x - first; i < vectors; i += threads)
		if (from_at(i) + 16 > one.len)
			store_staged(to_at(i), content_load(t, from_at(i)), policy);
}

/* A block counts both kinds in one sum: chunks in whole pages in the upper half, others in the lower half. */
#define TO_PAGES (1u << 16)
#define TO_REST 1u

static __device__ uint8_t *staging_of(const struct gpu_take &t, const struct gpu_segment &s)
{
	struct gpu_totals before = t.counts->before[s.nr];

	return t.staging + s.staging_off + (s.append ? (before.pages + before.rest) * t.chunk_len : 0);
}

/* Called by each of `warps` gathering warps per block. The last one of the grid notifies the host, which starts to
 * copy. */
static __device__ __forceinline__ void report_guess(const struct gpu_take &t, const struct gpu_segment &s, uint32_t nr,
						  uint32_t warps, uint32_t *done)
{
	__threadfence();
	__syncwarp();
	if (lane_id() != 0 || atomicAdd(done, 1) + 1 < warps)
		return;
	__threadfence();
	if (atomicAdd(&t.counts->guessed[s.nr], 1) + 1 < gridDim.x)
		return;
	t.report->guessed_nr[s.nr] = nr;
	__threadfence_system();
	*(volatile uint32_t *)&t.report->guessed[s.nr] = t.attempt;
}

/*
 * Usually all changed chunks are new. So warps without chunks to look up gather them as if they were, while other warps
 * look them up. If the guess was wrong, gather() runs. `nr`: changed chunks of the segment. False: not gathered.
 */
static __device__ bool gather_early(const struct gpu_take &t, const struct gpu_segment &s, const struct changes &c,
				    uint32_t nr)
{
	__shared__ uint32_t warps_done;
	uint32_t first = (c.nr + WARP - 1) / WARP * WARP;

	if (t.whole || !c.cached || first + 2 * WARP > BLOCK)
		return false;
	if (threadIdx.x == 0)
		warps_done = 0;
	__syncthreads();
	if (threadIdx.x >= first) {
		copy_chunks(t, c.nr, staging_of(t, s), first, [&](uint32_t k) {
			return copy{ c.entries[k].chunk, (uint32_t)c.from + k };
		});
		report_guess(t, s, nr, (BLOCK - first) / WARP, &warps_done);
	}
	return true;
}

static __device__ void gather(const struct gpu_take &t, const struct gpu_segment &s, const struct changes &c,
			      struct sums sums)
{
	__shared__ uint32_t chunks[BLOCK], places[BLOCK];
	struct gpu_totals before = t.counts->before[s.nr];
	uint8_t *to = staging_of(t, s);
	uint64_t shifted = before.changed - before.pages - before.rest + c.from;
	uint32_t pages = sums.pages_before, rest = sums.rest_before; /* before this iteration */

	for (uint32_t base = 0; base < c.nr; base += BLOCK) {
		uint32_t i = base + threadIdx.x, chunk = 0, place = 0, upto, total, batch, own_pages, own_rest;
		uint64_t result = 0;

		if (i < c.nr) {
			chunk = entry_at(t, c, i).chunk;
			result = result_at(t, c, i);
			place = version_of(result) != 0 ? 0 : result == RESULT_PAGES ? TO_PAGES : TO_REST;
		}
		upto = block_scan(place, &total);
		own_pages = pages + (upto >> 16);
		own_rest = rest + (upto & 0xffff);
		batch = (upto >> 16) + (upto & 0xffff);
		if (place != 0) {
			chunks[batch] = chunk;
			places[batch] = place == TO_PAGES ? own_pages : sums.pages + own_rest;
		} else if (i < c.nr && shifted + i - own_pages - own_rest < t.shifts_room) {
			struct gpu_shift shift = { chunk, version_of(result), chunk_of(result) };

			t.shifts[shifted + i - own_pages - own_rest] = shift;
		}
		pages += total >> 16;
		rest += total & 0xffff;
		__syncthreads();
		copy_chunks(t, (total >> 16) + (total & 0xffff), to, 0, [&](uint32_t k) {
			return copy{ chunks[k], places[k] };
		});
		__syncthreads();
	}
}

static __global__ void SEGMENT_BOUNDS segment_kernel(const __grid_constant__ struct gpu_take t,
						     const __grid_constant__ struct gpu_segment s)
{
	__shared__ struct gpu_entry entries[CACHED];
	__shared__ uint64_t results[CACHED];
	struct changes c = { .from = 0, .nr = 0, .cached = false, .entries = entries, .results = results };
	uint32_t *arrived = &t.counts->arrived[s.nr];
	struct sums sums = { 0, 0, 0, 0 };
	uint32_t nr, phase = 1, flags = 0;
	struct part part;
	struct span span;
	uint64_t room = t.dedup ? room_left(t, s.nr) : 0;
	bool too_many, overflow, gathered;

	nr = find_part(t, s, &part, &span);
	too_many = nr > t.entries_room || t.counts->before[s.nr].changed + nr > t.changed_room;
	if (nr == 0 || too_many) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			report_segment(t, s, 0, too_many || __ldcg(&t.counts->overflow), false, sums);
		return;
	}
	list_changes(t, s, part, span, &c);
	gathered = gather_early(t, s, c, nr);
	if (!gathered)
		flags |= NOT_PLACED;
	if (!t.dedup || enter_changes(t, s, c, room >= nr))
		flags |= TO_LABEL;
	count_new(t, s, c, flags);
	wait_for_all(arrived, phase++);
	flags = __ldcg(&t.counts->flags[s.nr]);
	overflow = __ldcg(&t.counts->overflow) != 0; /* of the log, during the hashing */
	sums = sum_blocks(t);
	if (flags & TO_LABEL) {
		if (t.dedup && room > 0 && room < nr) {
			enter_ranked(t, c, room);
			wait_for_all(arrived, phase++);
		}
		label_changes(t, c);
		wait_for_all(arrived, phase++);
		sums = sum_blocks(t);
	}
	if (blockIdx.x == 0 && threadIdx.x == 0)
		report_segment(t, s, nr, overflow, !(flags & NOT_PLACED) && sums.rest == nr, sums);
	if (!(flags & TO_LABEL))
		mark_new(t, c);
	/* If all of the segment is new, the host copies it straight from the buffers. */
	if (t.whole && sums.pages == min(s.end * GPU_UNIT_CHUNKS, t.nr_chunks) - s.unit * GPU_UNIT_CHUNKS)
		return;
	if (!gathered || sums.rest < nr)
		gather(t, s, c, sums);
}

cudaError_t gpu_segment(const struct gpu_take *t, const struct gpu_segment *s, uint32_t blocks, cudaStream_t stream)
{
	segment_kernel<<<blocks, BLOCK, 0, stream>>>(*t, *s);
	return cudaGetLastError();
}

cudaError_t gpu_prepare_segment(void)
{
	return cudaFuncSetAttribute(segment_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
}
