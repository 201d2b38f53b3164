/*
 * The tables of a delta object, as delta_encode.c writes them: each in the smallest encoding, chosen here, so that the
 * host has nothing to wait for. They are written straight to its memory.
 *
 * A list of chunks is never smaller than nodes, which with method Tree come first; so it is for method List alone.
 */
#include <cuda_runtime_api.h>

#include "gpu/device.cuh"
#include "gpu/kernels.h"

/* enum delta_encoding and enum delta_method, whose headers are not for CUDA; delta_gpu_object.c compares them. */
#define AS_BITMAP 1u
#define AS_LIST 2u
#define AS_NODES 3u
#define AS_RUNS 4u
#define METHOD_BASIC 1u
#define METHOD_LIST 2u

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
	return i < t.nr_groups ? t.first[i] : 0; /* in front of the first one, too: it wraps around */
}

static __device__ uint32_t starts_of(uint32_t word, uint32_t before)
{
	return word & ~(word << 1 | before >> 31);
}

static __device__ uint32_t ends_of(uint32_t word, uint32_t next)
{
	return word & ~(word >> 1 | next << 31);
}

/* Runs and chunks of this block's part of the bitmap. */
static __device__ void count_runs(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct part part = part_of(t.nr_groups, BLOCK);
	uint32_t runs = 0, chunks = 0;

	for (uint64_t i = part.from + threadIdx.x; i < part.to; i += BLOCK) {
		runs += __popc(starts_of(word_at(t, i), word_at(t, i - 1)));
		chunks += __popc(word_at(t, i));
	}
	runs = block_sum(runs);
	chunks = block_sum(chunks);
	if (threadIdx.x == 0) {
		tables.sums[blockIdx.x] = runs;
		tables.more_sums[blockIdx.x] = chunks;
	}
}

/* Where runs begin and end. */
static __device__ void find_runs(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct part part = part_of(t.nr_groups, BLOCK);
	uint32_t base = sum_of(tables.sums, blockIdx.x);

	for (uint64_t i = part.from + threadIdx.x; i - threadIdx.x < part.to; i += BLOCK) {
		uint32_t word = i < part.to ? word_at(t, i) : 0, before = word_at(t, i - 1),
			 chunk = (uint32_t)i * GPU_GROUP, total;
		uint32_t starts = starts_of(word, before), ends = ends_of(word, word_at(t, i + 1));
		uint32_t at = base + block_scan(__popc(starts), &total),
			 end_at = at - (before >> 31 & word); /* that one goes on */

		for (; starts; starts &= starts - 1)
			tables.run_starts[at++] = chunk + __ffs(starts) - 1;
		for (; ends; ends &= ends - 1)
			tables.run_ends[end_at++] = chunk + __ffs(ends);
		base += total;
	}
}

/* A run of first occurrences; its length is 0 behind the last one. */
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

static __device__ void put_list(const struct gpu_take &t, const struct gpu_tables &tables)
{
	struct part part = part_of(t.nr_groups, BLOCK);
	uint32_t base = sum_of(tables.more_sums, blockIdx.x);

	for (uint64_t i = part.from + threadIdx.x; i - threadIdx.x < part.to; i += BLOCK) {
		uint32_t word = i < part.to ? word_at(t, i) : 0, total, at = base + block_scan(__popc(word), &total);

		for (; word; word &= word - 1)
			tables.first_out[at++] = (uint32_t)i * GPU_GROUP + __ffs(word) - 1;
		base += total;
	}
}

static __device__ void put_nodes(const struct gpu_tables &tables, uint64_t runs)
{
	struct part part = part_of(runs, BLOCK);
	uint32_t base = sum_of(tables.node_sums, blockIdx.x);

	for (uint64_t i = part.from + threadIdx.x; i - threadIdx.x < part.to; i += BLOCK) {
		struct stretch s = stretch_at(tables, i, part.to);
		uint32_t total, at = base + block_scan(count_nodes(s.chunk, s.count), &total);

		while (s.count > 0) {
			uint32_t shift = node_shift(s.chunk, s.count);

			tables.first_out[at++] = node_of(tables.height, s.chunk, shift);
			s.chunk += 1u << shift;
			s.count -= 1u << shift;
		}
		base += total;
	}
}

/* Which encoding, and how long it is. All threads come to the same. */
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
		*ret_len = 4 * (uint64_t)sum_of(tables.more_sums, gridDim.x);
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

static __device__ void put_first(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t runs, uint32_t as)
{
	uint64_t stride = (uint64_t)gridDim.x * BLOCK, thread = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (as == AS_LIST)
		put_list(t, tables);
	else if (as == AS_NODES)
		put_nodes(tables, runs);
	else if (as == AS_BITMAP)
		for (uint64_t i = thread; i < t.nr_groups; i += stride)
			tables.first_out[i] = word_at(t, i);
	else
		for (uint64_t i = thread; i < runs; i += stride) {
			struct stretch s = stretch_at(tables, i, runs);

			((uint2 *)tables.first_out)[i] = make_uint2(s.chunk, s.count);
		}
}

/* If there are too many runs, a bitmap is smaller than all that is made of them. */
static __global__ void __launch_bounds__(BLOCK, 4)
	first_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_tables tables)
{
	uint32_t *arrived = &t.counts->tables_arrived[0], as;
	uint64_t runs, len;

	count_runs(t, tables);
	wait_for_all(arrived, 1);
	runs = sum_of(tables.sums, gridDim.x);
	if (runs <= tables.runs_room)
		find_runs(t, tables);
	wait_for_all(arrived, 2);
	if (runs <= tables.runs_room)
		count_first_nodes(tables, runs);
	wait_for_all(arrived, 3);
	as = choose_first(t, tables, runs, &len);
	put_first(t, tables, runs, as);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		t.report->first_encoding = as;
		t.report->first_len = len;
	}
}

cudaError_t gpu_first_table(const struct gpu_take *t, const struct gpu_tables *tables, uint32_t blocks,
			    cudaStream_t stream)
{
	first_kernel<<<blocks, BLOCK, 0, stream>>>(*t, *tables);
	return cudaGetLastError();
}

/* --- shifted duplicates --- */

/* By which names a run goes on from the one before to this one. */
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

static __global__ void __launch_bounds__(BLOCK)
	names_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_tables tables)
{
	uint64_t i = (uint64_t)blockIdx.x * GPU_NAMES_BLOCK + threadIdx.x;
	uint32_t names = 0, all = 0;

	if (i > 0 && i < tables.nr_shifted)
		names = names_between(t.shifts[i - 1], t.shifts[i]);
	for (uint32_t bit = 1; bit <= GPU_NEWEST_REPEATED; bit *= 2)
		all |= __syncthreads_and(names & bit) ? bit : 0;
	if (i < tables.nr_shifted) {
		tables.names[i] = (uint8_t)names;
		tables.starts[i] = 0;
	}
	if (threadIdx.x == 0)
		tables.names_summary[blockIdx.x] = (uint8_t)all;
}

/*
 * Runs as long as they go. Where no name goes on a run must begin, so a thread goes from each such place to the next,
 * by itself; over long runs in steps of GPU_NAMES_BLOCK.
 */
static __global__ void __launch_bounds__(BLOCK)
	join_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_tables tables)
{
	uint64_t at = (uint64_t)blockIdx.x * BLOCK + threadIdx.x, next;

	if (at >= tables.nr_shifted || tables.names[at] != 0)
		return;
	do {
		uint32_t names = GPU_OWN_ADVANCING | GPU_OWN_REPEATED;

		if (t.shifts[at].src & GPU_IN_NEWEST)
			names |= GPU_NEWEST_ADVANCING | GPU_NEWEST_REPEATED;
		for (next = at + 1; next < tables.nr_shifted;) {
			uint32_t step = 1, on = tables.names[next];

			if (next % GPU_NAMES_BLOCK == 0 && next + GPU_NAMES_BLOCK <= tables.nr_shifted &&
			    (names & tables.names_summary[next / GPU_NAMES_BLOCK])) {
				step = GPU_NAMES_BLOCK;
				on = tables.names_summary[next / GPU_NAMES_BLOCK];
			}
			if (!(names & on))
				break;
			names &= on;
			next += step;
		}
		tables.starts[at] = (uint8_t)names;
		at = next;
	} while (at < tables.nr_shifted && tables.names[at] != 0);
}

static __device__ uint32_t starts_run(const struct gpu_tables &tables, uint64_t i, uint64_t end)
{
	return i < end && tables.starts[i] != 0;
}

static __device__ void count_starts(const struct gpu_tables &tables)
{
	struct part part = part_of(tables.nr_shifted, BLOCK);
	uint32_t nr = 0;

	for (uint64_t i = part.from + threadIdx.x; i < part.to; i += BLOCK)
		nr += starts_run(tables, i, part.to);
	nr = block_sum(nr);
	if (threadIdx.x == 0)
		tables.sums[blockIdx.x] = nr;
}

static __device__ void find_starts(const struct gpu_tables &tables)
{
	struct part part = part_of(tables.nr_shifted, BLOCK);
	uint32_t base = sum_of(tables.sums, blockIdx.x);

	for (uint64_t i = part.from + threadIdx.x; i - threadIdx.x < part.to; i += BLOCK) {
		uint32_t starts = starts_run(tables, i, part.to), total, at = base + block_scan(starts, &total);

		if (starts)
			tables.shift_runs[at] = (uint32_t)i;
		base += total;
	}
}

struct run {
	uint32_t dst, count, version, src;
	bool repeated;
};

static __device__ struct run run_at(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr, uint64_t i)
{
	uint32_t from = __ldcg(tables.shift_runs + i);
	uint64_t to = i + 1 < nr ? __ldcg(tables.shift_runs + i + 1) : tables.nr_shifted;
	struct gpu_shift s = t.shifts[from];
	uint32_t names = tables.starts[from];
	struct run r = { s.dst, (uint32_t)(to - from), s.version, s.src & ~GPU_IN_NEWEST };

	if (names & (GPU_NEWEST_ADVANCING | GPU_NEWEST_REPEATED))
		r.version = t.newest;
	r.repeated = !(names & (GPU_OWN_ADVANCING | GPU_NEWEST_ADVANCING));
	return r;
}

/* A repeated chunk is named leaf by leaf: the source of a node advances. */
static __device__ uint32_t nodes_of(struct run r)
{
	return r.repeated ? r.count : count_nodes(r.dst, r.count);
}

static __device__ void count_shifted_nodes(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t runs)
{
	struct part part = part_of(runs, BLOCK);
	uint32_t nodes = 0;

	for (uint64_t i = part.from + threadIdx.x; i < part.to; i += BLOCK)
		nodes += nodes_of(run_at(t, tables, runs, i));
	nodes = block_sum(nodes);
	if (threadIdx.x == 0)
		tables.node_sums[blockIdx.x] = nodes;
}

static __device__ void put_shifted(uint32_t *to, uint32_t dst, uint32_t version, uint32_t src)
{
	to[0] = dst;
	to[1] = version;
	to[2] = src;
}

static __device__ void put_shifted_nodes(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr_runs)
{
	struct part part = part_of(nr_runs, BLOCK);
	uint32_t base = sum_of(tables.node_sums, blockIdx.x);

	for (uint64_t i = part.from; i < part.to; i += BLOCK) {
		struct run r = { 0, 0, 0, 0, false };
		uint32_t at, total;

		if (i + threadIdx.x < part.to)
			r = run_at(t, tables, nr_runs, i + threadIdx.x);
		at = base + block_scan(nodes_of(r), &total);
		for (; r.count > 0; at++) {
			uint32_t shift = r.repeated ? 0 : node_shift(r.dst, r.count);

			put_shifted(tables.shifted_out + 3 * (uint64_t)at, node_of(tables.height, r.dst, shift),
				    r.version, r.src);
			r.dst += 1u << shift;
			r.src += r.repeated ? 0 : 1u << shift;
			r.count -= 1u << shift;
		}
		base += total;
	}
}

/* Each by the name of its run, which a search finds. */
static __device__ void put_shifted_list(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr_runs)
{
	for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < tables.nr_shifted; i += gridDim.x * BLOCK) {
		uint64_t low = 0, high = nr_runs; /* as many as begin at or before it */
		uint32_t into;
		struct run r;

		while (low < high) {
			uint64_t middle = (low + high) / 2;

			if (__ldcg(tables.shift_runs + middle) <= i)
				low = middle + 1;
			else
				high = middle;
		}
		r = run_at(t, tables, nr_runs, low - 1);
		into = (uint32_t)i - __ldcg(tables.shift_runs + low - 1);
		put_shifted(tables.shifted_out + 3 * i, r.dst + into, r.version, r.repeated ? r.src : r.src + into);
	}
}

static __device__ void put_shifted_runs(const struct gpu_take &t, const struct gpu_tables &tables, uint64_t nr_runs)
{
	for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < nr_runs; i += (uint64_t)gridDim.x * BLOCK) {
		struct run r = run_at(t, tables, nr_runs, i);

		((uint4 *)tables.shifted_out)[i] =
			make_uint4(r.dst, r.count, r.version, r.src | (r.repeated ? 1u << 31 : 0));
	}
}

static __global__ void __launch_bounds__(BLOCK, 4)
	shifted_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_tables tables)
{
	uint32_t *arrived = &t.counts->tables_arrived[1], as = AS_RUNS;
	uint64_t runs, len, nodes_len;

	count_starts(tables);
	wait_for_all(arrived, 1);
	runs = sum_of(tables.sums, gridDim.x);
	find_starts(tables);
	wait_for_all(arrived, 2);
	count_shifted_nodes(t, tables, runs);
	wait_for_all(arrived, 3);
	nodes_len = 12 * (uint64_t)sum_of(tables.node_sums, gridDim.x);
	len = 16 * runs;
	if (tables.method == METHOD_LIST) {
		as = AS_LIST;
		len = 12 * tables.nr_shifted;
		put_shifted_list(t, tables, runs);
	} else if (nodes_len < len) {
		as = AS_NODES;
		len = nodes_len;
		put_shifted_nodes(t, tables, runs);
	} else
		put_shifted_runs(t, tables, runs);
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		t.report->shifted_encoding = as;
		t.report->shifted_len = len;
	}
}

cudaError_t gpu_shifted_table(const struct gpu_take *t, const struct gpu_tables *tables, uint32_t blocks,
			      cudaStream_t stream)
{
	uint32_t parts = (uint32_t)((tables->nr_shifted + GPU_NAMES_BLOCK - 1) / GPU_NAMES_BLOCK);

	names_kernel<<<parts, GPU_NAMES_BLOCK, 0, stream>>>(*t, *tables);
	join_kernel<<<parts, BLOCK, 0, stream>>>(*t, *tables);
	shifted_kernel<<<blocks, BLOCK, 0, stream>>>(*t, *tables);
	return cudaGetLastError();
}
