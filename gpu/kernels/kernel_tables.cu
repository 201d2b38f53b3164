/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of a delta object, as delta_encode.c writes them, each in the smallest encoding. The encoding is chosen
 * here, so that the host need not wait. Tables are written straight to host memory, and their checksum is computed on
 * the way, since the tables are not in the host's caches.
 *
 * One kernel builds both tables, in phases with barriers. Adjacent words of a table are written together, 16 bytes per
 * thread: scattered words take up to ten times as long to the host.
 *
 * A list of chunks is never smaller than nodes, so it is used for method List only.
 */
#include <cuda_runtime_api.h>

#include "gpu/kernels/device.cuh"
#include "gpu/kernels/kernels.h"

/* enum delta_encoding and enum delta_method, whose headers do not compile as CUDA. delta_gpu_object.c checks them. */
#define AS_BITMAP 1u
#define AS_LIST 2u
#define AS_NODES 3u
#define AS_RUNS 4u
#define METHOD_BASIC 1u
#define METHOD_LIST 2u

/* A table in host memory, and the contribution of a thread to its checksum. */
struct out {
	uint32_t *words;
	uint64_t len;
	uint32_t crc;
};

/* Adds words at `at` to the checksum. */
template <int NR>
static __device__ __forceinline__ void add_crc(const struct gpu_tables &tables, struct out *o, uint64_t at,
					       const uint32_t (&words)[NR])
{
	uint32_t crc = 0;

	if (4 * (at + NR) > o->len) { /* bytes beyond the end do not count */
		for (int i = 0; i < NR && 4 * (at + i) < o->len; i++)
			o->crc ^= crc_word(tables.powers, words[i], 4 * (at + i), o->len);
		return;
	}
#pragma unroll
	for (int i = 0; i < NR; i++) {
		crc ^= words[i];
#pragma unroll
		for (int k = 0; k < 32; k += CRC_STEP)
			crc = crc_shift(crc, CRC_STEP);
	}
	o->crc ^= crc_behind(tables.powers, crc, o->len - 4 * (at + NR));
}

static __device__ void put(const struct gpu_tables &tables, struct out *o, uint64_t at, uint32_t word)
{
	o->words[at] = word;
	add_crc(tables, o, at, { word });
}

static __device__ void put_four(const struct gpu_tables &tables, struct out *o, uint64_t at, uint4 v)
{
	*(uint4 *)(o->words + at) = v;
	add_crc(tables, o, at, { v.x, v.y, v.z, v.w });
}

/*
 * Adjacent words of a table that the threads of a block have in any order. They are collected in shared memory, since a
 * warp's write to the host is one packet of the bus. Word n is at window[n + at % 4], so that four words can be written
 * together.
 */
#define WINDOW 2048u
#define WINDOW_ROOM (WINDOW + 4)

static __device__ void put_window(const struct gpu_tables &tables, struct out *o, const uint32_t *window, uint64_t at,
				  uint32_t nr)
{
	uint32_t from = (uint32_t)(at % 4), to = from + nr;
	uint64_t base = at - from;

	__syncthreads();
	for (uint32_t i = 4 * threadIdx.x; i < to; i += 4 * BLOCK) {
		if (i >= from && i + 4 <= to)
			put_four(tables, o, base + i, *(const uint4 *)(window + i));
		else
			for (uint32_t k = max(i, from); k < min(i + 4, to); k++)
				put(tables, o, base + k, window[k]);
	}
	__syncthreads();
}

/* Writes the exclusive or over all threads of a block, for the host. */
static __device__ void put_crc(uint32_t crc, uint32_t *to)
{
	__shared__ uint32_t sum;

	__syncthreads(); /* protects the previous sum */
	if (threadIdx.x == 0)
		sum = 0;
	__syncthreads();
	crc = __reduce_xor_sync(ALL_LANES, crc);
	if (lane_id() == 0)
		atomicXor(&sum, crc);
	__syncthreads();
	if (threadIdx.x == 0)
		to[blockIdx.x] = sum;
}

static __device__ uint32_t node_shift(uint32_t chunk, uint32_t count)
{
	uint32_t fits = 31 - __clz(count);

	return chunk == 0 ? fits : min(fits, (uint32_t)__ffs(chunk) - 1);
}

static __device__ uint32_t count_nodes(uint32_t chunk, uint32_t count)
{
	uint32_t nr = 0;

	for (; count > 0; nr++) {
		uint32_t span = 1u << node_shift(chunk, count);

		chunk += span;
		count -= span;
	}
	return nr;
}

static __device__ uint32_t node_of(uint32_t height, uint32_t chunk, uint32_t shift)
{
	return (uint32_t)((UINT64_C(1) << height) + chunk >> shift);
}

/* --- first occurrences --- */

static __device__ uint32_t word_at(const struct gpu_take &t, uint64_t i)
{
	return i < t.nr_groups ? t.first[i] : 0; /* also 0 before the first word, where i wraps around */
}

static __device__ uint32_t starts_of(uint32_t word, uint32_t before)
{
	return word & ~(word << 1 | before >> 31);
}

static __device__ uint32_t ends_of(uint32_t word, uint32_t next)
{
	return word & ~(word >> 1 | next << 31);
}

/* Words of the bitmap per thread, with the adjacent bits. */
#define WORDS 8u

struct words {
	uint32_t word[WORDS], before, next;
};

static __device__ struct words words_at(const struct gpu_take &t, uint64_t i, uint64_t end)
{
	struct words w = { {}, 0, 0 };

	if (i >= end)
		return w;
	for (uint32_t k = 0; k < WORDS; k += 4) { /* the bitmap has room for whole units */
		uint4 v = *(const uint4 *)(t.first + i + k);

		w.word[k] = v.x;
		w.word[k + 1] = v.y;
		w.word[k + 2] = v.z;
		w.word[k + 3] = v.w;
	}
	w.before = word_at(t, i - 1);
	w.next = word_at(t, i + WORDS);
	return w;
}

static __device__ uint32_t count_starts_in(const struct words &w)
{
	uint32_t nr = 0;

#pragma unroll
	for (uint32_t k = 0; k < WORDS; k++)
		nr += __popc(starts_of(w.word[k], k > 0 ? w.word[k - 1] : w.before));
	return nr;
}

static __device__ uint32_t count_chunks_in(const struct words &w)
{
	uint32_t nr = 0;

#pragma unroll
	for (uint32_t k = 0; k < WORDS; k++)
		nr += __popc(w.word[k]);
	return nr;
}

/* Counts runs and chunks in this block's part of the bitmap. */
static __device__ void count_runs(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct part part = part_of(t.nr_groups, WORDS * BLOCK);
	uint32_t runs = 0, chunks = 0;

	for (uint64_t i = part.from + WORDS * threadIdx.x; i < part.to; i += WORDS * BLOCK) {
		struct words w = words_at(t, i, part.to);

		runs += count_starts_in(w);
		chunks += count_chunks_in(w);
	}
	runs = block_sum(runs);
	chunks = block_sum(chunks);
	if (threadIdx.x == 0) {
		tables.run_sums[blockIdx.x] = runs;
		tables.chunk_sums[blockIdx.x] = chunks;
	}
}

/* Lists where runs begin and end. */
static __device__ void find_runs(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct part part = part_of(t.nr_groups, WORDS * BLOCK);
	uint32_t base = sum_of(tables.run_sums, blockIdx.x), total;

	for (uint64_t from = part.from; from < part.to; from += WORDS * BLOCK, base += total) {
		uint64_t i = from + WORDS * threadIdx.x;
		struct words w = words_at(t, i, part.to);
		uint32_t at = base + block_scan(count_starts_in(w), &total),
			 end_at = at - (w.before >> 31 & w.word[0]); /* a run that continues from the previous word */

#pragma unroll
		for (uint32_t k = 0; k < WORDS; k++) {
			uint32_t chunk = (uint32_t)(i + k) * GPU_GROUP;
			uint32_t starts = starts_of(w.word[k], k > 0 ? w.word[k - 1] : w.before),
				 ends = ends_of(w.word[k], k + 1 < WORDS ? w.word[k + 1] : w.next);

			for (; starts; starts &= starts - 1)
				tables.run_starts[at++] = chunk + __ffs(starts) - 1;
			for (; ends; ends &= ends - 1)
				tables.run_ends[end_at++] = chunk + __ffs(ends);
		}
	}
}

/* A run of first occurrences; length 0 after the last one. */
struct stretch {
	uint32_t chunk, count;
};

static __device__ struct stretch stretch_at(const struct gpu_tables &tables, uint64_t i, uint64_t end)
{
	struct stretch s = { 0, 0 };

	if (i < end) {
		s.chunk = __ldcg(tables.run_starts + i);
		s.count = __ldcg(tables.run_ends + i) - s.chunk;
	}
	return s;
}

static __device__ void count_first_nodes(const struct gpu_tables &tables, uint64_t runs)
{
	struct part part = part_of(runs, BLOCK);
	uint32_t nodes = 0;

	for (uint64_t i = part.from + threadIdx.x; i < part.to; i += BLOCK) {
		struct stretch s = stretch_at(tables, i, part.to);

		nodes += count_nodes(s.chunk, s.count);
	}
	nodes = block_sum(nodes);
	if (threadIdx.x == 0)
		tables.node_sums[blockIdx.x] = nodes;
}

static __device__ void put_list(const struct gpu_take &t, const struct gpu_tables &tables, uint32_t *window,
				struct out *o)
{
	struct part part = part_of(t.nr_groups, WORDS * BLOCK);
	uint32_t base = sum_of(tables.chunk_sums, blockIdx.x), total;

	for (uint64_t from = part.from; from < part.to; from += WORDS * BLOCK, base += total) {
		uint64_t i = from + WORDS * threadIdx.x;
		struct words w = words_at(t, i, part.to);
		uint32_t nr = count_chunks_in(w), first = block_scan(nr, &total);

		for (uint32_t low = 0; low < total; low += WINDOW) {
			uint32_t at = first - low; /* wraps around below 0 */

			if (first < low + WINDOW && first + nr > low)
#pragma unroll
				for (uint32_t k = 0; k < WORDS; k++)
					for (uint32_t word = w.word[k]; word; word &= word - 1, at++)
						if (at < WINDOW)
							window[at + (base + low) % 4] =
								(uint32_t)(i + k) * GPU_GROUP + __ffs(word) - 1;
			put_window(tables, o, window, base + low, min(total - low, WINDOW));
		}
	}
}

static __device__ void put_nodes(const struct gpu_tables &tables, uint64_t runs, uint32_t *window, struct out *o)
{
	struct part part = part_of(runs, BLOCK);
	uint32_t base = sum_of(tables.node_sums, blockIdx.x), total;

	for (uint64_t i = part.from + threadIdx.x; i - threadIdx.x < part.to; i += BLOCK, base += total) {
		struct stretch s = stretch_at(tables, i, part.to);
		uint32_t at = block_scan(count_nodes(s.chunk, s.count), &total);

		while (s.count > 0) {
			uint32_t shift = node_shift(s.chunk, s.count), node = node_of(tables.height, s.chunk, shift);

			if (total <= WINDOW)
				window[at + base % 4] = node;
			else
				put(tables, o, base + at, node);
			at++;
			s.chunk += 1u << shift;
			s.count -= 1u << shift;
		}
		if (total <= WINDOW)
			put_window(tables, o, window, base, total);
	}
}

/* Chooses the encoding and its length; the same in all threads. */
static __device__ uint32_t choose_first(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t runs,
					uint64_t *ret_len)
{
	uint64_t bitmap_len = (t.nr_chunks + 7) / 8, nodes_len;
	uint32_t as = AS_RUNS;

	*ret_len = 8 * runs;
	if (tables.method == METHOD_BASIC) {
		*ret_len = bitmap_len;
		return AS_BITMAP;
	}
	if (tables.method == METHOD_LIST) {
		*ret_len = 4 * (uint64_t)sum_of(tables.chunk_sums, gridDim.x);
		return AS_LIST;
	}
	nodes_len = runs > tables.runs_room ? UINT64_MAX : 4 * (uint64_t)sum_of(tables.node_sums, gridDim.x);
	if (nodes_len < *ret_len) {
		as = AS_NODES;
		*ret_len = nodes_len;
	}
	if (bitmap_len < *ret_len) {
		as = AS_BITMAP;
		*ret_len = bitmap_len;
	}
	return as;
}

static __device__ void put_first(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t runs, uint32_t as,
				 uint32_t *window, struct out *o)
{
	uint64_t stride = (uint64_t)gridDim.x * BLOCK, thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (as == AS_LIST)
		put_list(t, tables, window, o);
	else if (as == AS_NODES)
		put_nodes(tables, runs, window, o);
	else if (as == AS_BITMAP)
		for (uint64_t i = 4 * thread; i < t.nr_groups; i += 4 * stride) {
			uint4 v = *(const uint4 *)(t.first + i); /* the bitmap has room for whole units */

			if (i + 4 <= t.nr_groups)
				put_four(tables, o, i, v);
			else
				for (uint64_t k = i; k < t.nr_groups; k++)
					put(tables, o, k, word_at(t, k));
		}
	else
		for (uint64_t i = thread; i < runs; i += stride) {
			struct stretch s = stretch_at(tables, i, runs);

			((uint2 *)o->words)[i] = make_uint2(s.chunk, s.count);
			add_crc(tables, o, 2 * i, { s.chunk, s.count });
		}
}

static __device__ void make_first(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t runs,
				  uint32_t *window)
{
	struct out o = { tables.first_out, 0, 0 };
	uint32_t as = choose_first(t, tables, runs, &o.len);

	put_first(t, tables, runs, as, window, &o);
	put_crc(o.crc, t.report->first_crc);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		t.report->first_encoding = as;
		t.report->first_len = o.len;
	}
}

/* --- shifted duplicates --- */

/* The names with which a run continues from `a` to `b`. */
static __device__ uint32_t names_between(struct gpu_shift a, struct gpu_shift b)
{
	uint32_t from = a.src & ~GPU_IN_NEWEST, to = b.src & ~GPU_IN_NEWEST;
	bool own = a.version == b.version, newest = a.src & b.src & GPU_IN_NEWEST;

	if (b.dst != a.dst + 1)
		return 0;
	if (to == from + 1)
		return (own ? GPU_OWN_ADVANCING : 0) | (newest ? GPU_NEWEST_ADVANCING : 0);
	if (to == from)
		return (own ? GPU_OWN_REPEATED : 0) | (newest ? GPU_NEWEST_REPEATED : 0);
	return 0;
}

/* Four shifted duplicates per thread. */
#define SHIFTS 4u
static_assert(GPU_NAMES_BLOCK == SHIFTS * WARP, "a summary for each warp");

/* Lists where no name continues, in any order; called by all lanes of a warp, with four bits each. */
static __device__ void list_starts(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t i, uint32_t starts)
{
	uint32_t upto = __popc(starts), at = 0;

	if (!__any_sync(ALL_LANES, starts))
		return;
#pragma unroll
	for (uint32_t step = 1; step < WARP; step *= 2) {
		uint32_t other = __shfl_up_sync(ALL_LANES, upto, step);

		upto += lane_id() >= step ? other : 0;
	}
	if (lane_id() == WARP - 1)
		at = atomicAdd(&t.counts->shift_starts, upto);
	at = __shfl_sync(ALL_LANES, at, WARP - 1) + upto - __popc(starts);
	for (; starts; starts &= starts - 1)
		tables.shift_runs[at++] = (uint32_t)i + __ffs(starts) - 1;
}

static __device__ void find_names(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr)
{
	uint64_t stride = (uint64_t)gridDim.x * BLOCK * SHIFTS;

	for (uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * SHIFTS; i - SHIFTS * lane_id() < nr;
	     i += stride) {
		uint32_t all = 0xff, packed = 0, starts = 0;
		struct gpu_shift before = { 0, 0, 0 };

		if (i > 0 && i < nr)
			before = t.shifts[i - 1];
#pragma unroll
		for (uint32_t k = 0; k < SHIFTS; k++) {
			uint32_t names = 0;

			if (i + k < nr) {
				struct gpu_shift shift = t.shifts[i + k];

				names = i + k > 0 ? names_between(before, shift) : 0;
				starts |= (names == 0) << k;
				before = shift;
			}
			all &= names;
			packed |= names << 8 * k;
		}
		all = __reduce_and_sync(ALL_LANES, all);
		if (i < nr) {
			*(uint32_t *)(tables.names + i) = packed;
			*(uint32_t *)(tables.starts + i) = 0;
		}
		if (lane_id() == 0)
			tables.names_summary[i / GPU_NAMES_BLOCK] = (uint8_t)all;
		list_starts(t, tables, i, starts);
	}
}

/* The common names of *ret_step shifted duplicates from `i` on. Takes the largest step with one of `names`. */
static __device__ uint32_t names_from(const struct gpu_tables &tables, uint64_t i, uint64_t nr, uint32_t names,
				      uint32_t *ret_step)
{
	uint64_t eight;
	uint32_t on;

	if (i % GPU_NAMES_BLOCK == 0 && i + GPU_NAMES_BLOCK <= nr) {
		on = tables.names_summary[i / GPU_NAMES_BLOCK];
		*ret_step = GPU_NAMES_BLOCK;
		if (names & on)
			return on;
	}
	if (i % 8 == 0 && i + 8 <= nr) {
		eight = *(const uint64_t *)(tables.names + i);
		eight &= eight >> 32;
		eight &= eight >> 16;
		on = (uint32_t)(eight & eight >> 8 & 0xff);
		*ret_step = 8;
		if (names & on)
			return on;
	}
	*ret_step = 1;
	return tables.names[i];
}

/*
 * Finds the longest runs. A run must begin where no name continues, so one thread processes the shifted duplicates from
 * such a place, `at`, to the next, with large steps over long runs. Plain loads of names are safe: other blocks have
 * written them, but this one has not read them before.
 */
static __device__ void join_runs(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr, uint64_t at)
{
	uint64_t next;

	do {
		uint32_t names = GPU_OWN_ADVANCING | GPU_OWN_REPEATED, step;

		if (t.shifts[at].src & GPU_IN_NEWEST)
			names |= GPU_NEWEST_ADVANCING | GPU_NEWEST_REPEATED;
		for (next = at + 1; next < nr; next += step) {
			uint32_t on = names & names_from(tables, next, nr, names, &step);

			if (!on)
				break;
			names = on;
		}
		tables.starts[at] = (uint8_t)names;
		at = next;
	} while (at < nr && tables.names[at] != 0);
}

/* Which of eight shifted duplicates from `i` on begin a run, as one bit per byte. */
static __device__ uint64_t starts_at(const struct gpu_tables &tables, uint64_t i, uint64_t end)
{
	uint64_t starts = i < end ? __ldcg((const unsigned long long *)(tables.starts + i)) : 0;

	if (i < end && end - i < 8)
		starts &= (UINT64_C(1) << 8 * (end - i)) - 1;
	starts |= starts >> 2; /* names have four bits */
	return (starts | starts >> 1) & UINT64_C(0x0101010101010101);
}

static __device__ void count_starts(const struct gpu_tables &tables, uint64_t nr)
{
	struct part part = part_of(nr, 8 * BLOCK);
	uint32_t starts = 0;

	for (uint64_t i = part.from + 8 * threadIdx.x; i < part.to; i += 8 * BLOCK)
		starts += __popcll(starts_at(tables, i, part.to));
	starts = block_sum(starts);
	if (threadIdx.x == 0)
		tables.shift_run_sums[blockIdx.x] = starts;
}

static __device__ void find_starts(const struct gpu_tables &tables, uint64_t nr)
{
	struct part part = part_of(nr, 8 * BLOCK);
	uint32_t base = sum_of(tables.shift_run_sums, blockIdx.x), total;

	for (uint64_t from = part.from; from < part.to; from += 8 * BLOCK, base += total) {
		uint64_t i = from + 8 * threadIdx.x, starts = starts_at(tables, i, part.to);
		uint32_t at = base + block_scan(__popcll(starts), &total);

		for (; starts; starts &= starts - 1)
			tables.shift_runs[at++] = (uint32_t)(i + (__ffsll(starts) - 1) / 8);
	}
}

/* Numbers of shifted duplicates and of their runs. */
struct shifted {
	uint64_t nr, nr_runs;
};

struct run {
	uint32_t dst, count, version, src;
	bool repeated;
};

static __device__ struct run run_at(const struct gpu_take &t, const struct gpu_tables &tables, struct shifted shifted,
				    uint64_t i)
{
	uint32_t from = __ldcg(tables.shift_runs + i);
	uint64_t to = i + 1 < shifted.nr_runs ? __ldcg(tables.shift_runs + i + 1) : shifted.nr;
	struct gpu_shift s = t.shifts[from];
	uint32_t names = __ldcg(tables.starts + from);
	struct run r = { s.dst, (uint32_t)(to - from), s.version, s.src & ~GPU_IN_NEWEST };

	if (names & (GPU_NEWEST_ADVANCING | GPU_NEWEST_REPEATED))
		r.version = t.newest;
	r.repeated = !(names & (GPU_OWN_ADVANCING | GPU_NEWEST_ADVANCING));
	return r;
}

/* Repeated chunks need a node each, since the source advances within a node. */
static __device__ uint32_t nodes_of(struct run r)
{
	return r.repeated ? r.count : count_nodes(r.dst, r.count);
}

static __device__ void count_shifted_nodes(const struct gpu_take &t, const struct gpu_tables &tables,
					   struct shifted shifted)
{
	struct part part = part_of(shifted.nr_runs, BLOCK);
	uint32_t nodes = 0;

	for (uint64_t i = part.from + threadIdx.x; i < part.to; i += BLOCK)
		nodes += nodes_of(run_at(t, tables, shifted, i));
	nodes = block_sum(nodes);
	if (threadIdx.x == 0)
		tables.shift_node_sums[blockIdx.x] = nodes;
}

static __device__ void put_shifted_nodes(const struct gpu_take &t, const struct gpu_tables &tables,
					 struct shifted shifted, uint32_t *window, struct out *o)
{
	struct part part = part_of(shifted.nr_runs, BLOCK);
	uint32_t base = sum_of(tables.shift_node_sums, blockIdx.x), total;

	for (uint64_t i = part.from; i < part.to; i += BLOCK, base += total) {
		struct run r = { 0, 0, 0, 0, false };
		uint32_t at;

		if (i + threadIdx.x < part.to)
			r = run_at(t, tables, shifted, i + threadIdx.x);
		at = block_scan(nodes_of(r), &total);
		for (; r.count > 0; at++) {
			uint32_t shift = r.repeated ? 0 : node_shift(r.dst, r.count);
			uint32_t words[] = { node_of(tables.height, r.dst, shift), r.version, r.src };

			for (uint32_t k = 0; k < 3; k++)
				if (3 * total <= WINDOW)
					window[3 * at + k + 3 * base % 4] = words[k];
				else
					put(tables, o, 3 * ((uint64_t)base + at) + k, words[k]);
			r.dst += 1u << shift;
			r.src += r.repeated ? 0 : 1u << shift;
			r.count -= 1u << shift;
		}
		if (3 * total <= WINDOW)
			put_window(tables, o, window, 3 * (uint64_t)base, 3 * total);
	}
}

/* Writes each with the name of its run, found by binary search. */
static __device__ void put_shifted_list(const struct gpu_take &t, const struct gpu_tables &tables,
					struct shifted shifted, uint32_t *window, struct out *o)
{
	for (uint64_t from = (uint64_t)blockIdx.x * BLOCK; from < shifted.nr; from += (uint64_t)gridDim.x * BLOCK) {
		uint64_t i = from + threadIdx.x, low = 0, high = shifted.nr_runs; /* low: runs up to i */

		while (low < high) {
			uint64_t middle = (low + high) / 2;

			if (__ldcg(tables.shift_runs + middle) <= i)
				low = middle + 1;
			else
				high = middle;
		}
		if (i < shifted.nr) {
			struct run r = run_at(t, tables, shifted, low - 1);
			uint32_t into = (uint32_t)i - __ldcg(tables.shift_runs + low - 1);

			window[3 * threadIdx.x] = r.dst + into;
			window[3 * threadIdx.x + 1] = r.version;
			window[3 * threadIdx.x + 2] = r.repeated ? r.src : r.src + into;
		}
		put_window(tables, o, window, 3 * from, 3 * (uint32_t)min(shifted.nr - from, (uint64_t)BLOCK));
	}
}
static_assert(3 * BLOCK <= WINDOW && 3 * BLOCK % 4 == 0, "a round of the list, from a whole vector on");

static __device__ void put_shifted_runs(const struct gpu_take &t, const struct gpu_tables &tables,
					struct shifted shifted, struct out *o)
{
	for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < shifted.nr_runs;
	     i += (uint64_t)gridDim.x * BLOCK) {
		struct run r = run_at(t, tables, shifted, i);
		uint32_t src = r.src | (r.repeated ? 1u << 31 : 0);

		put_four(tables, o, 4 * i, make_uint4(r.dst, r.count, r.version, src));
	}
}

static __device__ void make_shifted(const struct gpu_take &t, const struct gpu_tables &tables, struct shifted shifted,
				    uint32_t *window)
{
	uint64_t nodes_len = 12 * (uint64_t)sum_of(tables.shift_node_sums, gridDim.x);
	struct out o = { tables.shifted_out, 16 * shifted.nr_runs, 0 };
	uint32_t as = AS_RUNS;

	if (tables.method == METHOD_LIST) {
		as = AS_LIST;
		o.len = 12 * shifted.nr;
		put_shifted_list(t, tables, shifted, window, &o);
	} else if (nodes_len < o.len) {
		as = AS_NODES;
		o.len = nodes_len;
		put_shifted_nodes(t, tables, shifted, window, &o);
	} else
		put_shifted_runs(t, tables, shifted, &o);
	put_crc(o.crc, t.report->shifted_crc);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		t.report->shifted_encoding = as;
		t.report->shifted_len = o.len;
	}
}

/* --- both tables --- */

/*
 * With too many runs, a bitmap is smaller than any other encoding. After an overflow there may be more shifted
 * duplicates than room; the tables are then discarded.
 */
static __device__ void make_tables(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct gpu_totals all = t.counts->before[tables.nr_segments];
	bool first = all.pages + all.rest > 0 || tables.method == METHOD_BASIC;
	struct shifted shifted = { min(all.changed - all.pages - all.rest, t.shifts_room), 0 };
	__shared__ __align__(16) uint32_t window[WINDOW_ROOM];
	uint32_t *arrived = &t.counts->tables_arrived;
	uint64_t runs = 0;

	if (!first && shifted.nr == 0)
		return;
	if (first)
		count_runs(t, tables);
	find_names(t, tables, shifted.nr);
	wait_for_all(arrived, 1);
	if (first)
		runs = sum_of(tables.run_sums, gridDim.x);
	if (runs <= tables.runs_room && first)
		find_runs(t, tables);
	for (uint32_t i = blockIdx.x * BLOCK + threadIdx.x; i < __ldcg(&t.counts->shift_starts); i += gridDim.x * BLOCK)
		join_runs(t, tables, shifted.nr, __ldcg(tables.shift_runs + i));
	wait_for_all(arrived, 2);
	if (runs <= tables.runs_room && first)
		count_first_nodes(tables, runs);
	count_starts(tables, shifted.nr);
	wait_for_all(arrived, 3);
	if (first)
		make_first(t, tables, runs, window);
	if (shifted.nr == 0)
		return;
	shifted.nr_runs = sum_of(tables.shift_run_sums, gridDim.x);
	find_starts(tables, shifted.nr);
	wait_for_all(arrived, 4);
	count_shifted_nodes(t, tables, shifted);
	wait_for_all(arrived, 5);
	make_shifted(t, tables, shifted, window);
}

/* The last block notifies the host, some microseconds before the end of the kernel would. */
static __global__ void __launch_bounds__(BLOCK, 4)
	tables_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_tables tables)
{
	make_tables(t, tables);
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
	if (atomicAdd(&t.counts->tabled, 1) + 1 == gridDim.x)
		*(volatile uint32_t *)&t.report->tabled = t.attempt;
}

cudaError_t gpu_tables(const struct gpu_take *t, const struct gpu_tables *tables, uint32_t blocks, cudaStream_t stream)
{
	tables_kernel<<<blocks, BLOCK, 0, stream>>>(*t, *tables);
	return cudaGetLastError();
}
