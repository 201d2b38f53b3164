/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: gpu [MIB [ROUNDS]]
 *
 * Deltas of MIB (default: 4096) of random device memory, end to end: from the call until the whole object is in host
 * memory. For each case a line of JSON on stdout: the median of ROUNDS (default: 9), and the floor, which is what it
 * would take to read the memory once or to copy the object to the host, whatever is longer, both as measured first.
 */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "gpu/kernels/delta_gpu.h"
#include "tests/bench/gpu_kernels.h"
#include "tests/bench/median.h"

#define ROUNDS_MAX 99

#define CHECK(call)                                                                     \
	do {                                                                            \
		if ((call) != 0) {                                                      \
			fprintf(stderr, "gpu: %s failed (line %d)\n", #call, __LINE__); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

enum change { NOTHING, RANDOM, MOVED, EVERYTHING, SUDDENLY /* everything, and nothing in the version before */ };

struct bench {
	uint8_t *data;
	uint64_t len;
	int rounds;
	uint64_t seed;
	double read_s, copy_s_per_byte; /* of all the data; to the host */
	double full_s;
};

/* The best of some sizes of the grid. */
static double measure_read(const struct bench *b)
{
	cudaEvent_t start, end;
	double best = 1e9;
	uint32_t *ret;

	CHECK(cudaMalloc((void **)&ret, sizeof(*ret)));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&end));
	for (uint32_t blocks = 264; blocks <= 264 * 16; blocks *= 2) {
		double times[21];

		for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
			float ms;

			CHECK(cudaEventRecord(start, NULL));
			CHECK(bench_read(b->data, b->len, blocks, ret));
			CHECK(cudaEventRecord(end, NULL));
			CHECK(cudaEventSynchronize(end));
			CHECK(cudaEventElapsedTime(&ms, start, end));
			times[i] = ms / 1e3;
		}
		best = MIN(best, median(times, ARRAY_SIZE(times)));
	}
	CHECK(cudaFree(ret));
	CHECK(cudaEventDestroy(start));
	CHECK(cudaEventDestroy(end));
	return best;
}

static double measure_copy(const struct bench *b)
{
	uint64_t len = MIN(b->len, GiB(1));
	double times[5];
	void *host;

	CHECK(cudaHostAlloc(&host, len, cudaHostAllocDefault));
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		uint64_t start = monotonic_ns();

		CHECK(cudaMemcpyAsync(host, b->data, len, cudaMemcpyDeviceToHost, NULL));
		CHECK(cudaDeviceSynchronize());
		times[i] = (double)(monotonic_ns() - start) / 1e9;
	}
	CHECK(cudaFreeHost(host));
	return median(times, ARRAY_SIZE(times)) / (double)len;
}

static void apply(struct bench *b, enum change change, uint32_t chunk_len, double fraction)
{
	b->seed++;
	if (change == RANDOM)
		CHECK(bench_change(b->data, b->len, chunk_len, fraction, b->seed));
	else if (change == MOVED)
		CHECK(bench_move(b->data, b->len, chunk_len, b->seed));
	else if (change == EVERYTHING || change == SUDDENLY)
		CHECK(bench_fill(b->data, b->len, b->seed));
	CHECK(cudaDeviceSynchronize());
}

/* One version. Returns how long it took until the object was there, and until the buffers were free. */
static double take(struct bench *b, struct delta_gpu *g, uint32_t number, enum delta_method method, double *ret_free,
		   struct delta_object *ret)
{
	const struct delta_buffer buffer = { b->data, b->len, 0 };
	uint64_t start = monotonic_ns(), free_ns, end;

	CHECK(delta_gpu_take(g, &buffer, 1, &(struct delta_take){ .method = method, .number = number }, NULL));
	free_ns = monotonic_ns();
	CHECK(delta_gpu_finish(g, ret));
	end = monotonic_ns();
	*ret_free = (double)(free_ns - start) / 1e9;
	return (double)(end - start) / 1e9;
}

static const char *const methods[] = { "full", "basic", "list", "tree" };

static void run_case(struct bench *b, struct delta_gpu *g, uint32_t *number, const char *name, enum change change,
		     double fraction, uint32_t chunk_len, enum delta_method method, double limit)
{
	double times[ROUNDS_MAX], frees[ROUNDS_MAX], commits[ROUNDS_MAX], floor_s, best, s;
	struct delta_object object;
	uint64_t len = 0, now, peak;

	for (int i = 0; i < b->rounds + 1; i++) { /* the first one does not count */
		uint64_t start;
		int at = MAX(i - 1, 0);

		if (change == SUDDENLY) {
			take(b, g, ++*number, method, &frees[at], &object);
			CHECK(delta_gpu_commit(g));
		}
		apply(b, change, chunk_len, fraction);
		times[at] = take(b, g, ++*number, method, &frees[at], &object);
		len = delta_object_len(&object.header);
		start = monotonic_ns();
		CHECK(delta_gpu_commit(g));
		CHECK(cudaDeviceSynchronize());
		commits[at] = (double)(monotonic_ns() - start) / 1e9;
	}
	s = median(times, b->rounds);
	best = times[0];
	floor_s = MAX(b->read_s, (double)len * b->copy_s_per_byte);
	if (method == DELTA_METHOD_FULL)
		b->full_s = s;
	delta_gpu_memory(g, &now, &peak);
	printf("{\"case\": \"%s\", \"method\": \"%s\", \"chunk\": %" PRIu32
	       ", \"seconds\": %.6f, \"best\": %.6f, \"free\": %.6f, "
	       "\"commit\": %.6f, \"floor\": %.6f, \"ratio\": %.3f, \"limit\": %.2f, \"delta\": %" PRIu64
	       ", \"bytes_per_second\": %.0f, \"memory\": %.3f, \"memory_peak\": %.3f",
	       name, methods[method], chunk_len, s, best, median(frees, b->rounds), median(commits, b->rounds), floor_s,
	       s / floor_s, limit, len, (double)b->len / s, (double)now / (double)b->len, (double)peak / (double)b->len);
	if ((change == EVERYTHING || change == SUDDENLY) && b->full_s > 0)
		printf(", \"ratio_to_full\": %.3f", s / b->full_s);
	printf("}\n");
	fflush(stdout);
}

static const struct {
	const char *name;
	enum change change;
	double fraction;
	uint32_t chunk_len;
	enum delta_method method;
	double limit; /* of the ratio; 0: none */
} cases[] = {
	{ "none", NOTHING, 0, 128, DELTA_METHOD_TREE, 1.12 },
	{ "random 0.1 %", RANDOM, 0.001, 128, DELTA_METHOD_TREE, 1.18 },
	{ "random 1 %", RANDOM, 0.01, 128, DELTA_METHOD_TREE, 1.40 },
	{ "moved 10 %", MOVED, 0, 128, DELTA_METHOD_TREE, 1.8 },
	{ "random 10 %", RANDOM, 0.1, 128, DELTA_METHOD_TREE, 1.05 },
	{ "random 1 %", RANDOM, 0.01, 128, DELTA_METHOD_BASIC, 0 },
	{ "random 1 %", RANDOM, 0.01, 128, DELTA_METHOD_LIST, 0 },
	{ "moved 10 %", MOVED, 0, 128, DELTA_METHOD_BASIC, 0 },
	{ "moved 10 %", MOVED, 0, 128, DELTA_METHOD_LIST, 0 },
	{ "none", NOTHING, 0, 128, DELTA_METHOD_FULL, 0 },
	{ "everything", EVERYTHING, 0, 128, DELTA_METHOD_TREE, 0 },
	{ "suddenly all", SUDDENLY, 0, 128, DELTA_METHOD_TREE, 0 },
	{ "none", NOTHING, 0, 256, DELTA_METHOD_TREE, 1.12 },
	{ "random 0.1 %", RANDOM, 0.001, 256, DELTA_METHOD_TREE, 1.18 },
	{ "random 1 %", RANDOM, 0.01, 256, DELTA_METHOD_TREE, 1.40 },
	{ "random 10 %", RANDOM, 0.1, 256, DELTA_METHOD_TREE, 0 },
	{ "none", NOTHING, 0, 64, DELTA_METHOD_TREE, 0 },
	{ "random 1 %", RANDOM, 0.01, 64, DELTA_METHOD_TREE, 0 },
	{ "none", NOTHING, 0, 512, DELTA_METHOD_TREE, 0 },
	{ "random 1 %", RANDOM, 0.01, 512, DELTA_METHOD_TREE, 0 },
	{ "none", NOTHING, 0, 4096, DELTA_METHOD_TREE, 0 },
	{ "random 1 %", RANDOM, 0.01, 4096, DELTA_METHOD_TREE, 0 },
};

/* A record whose table remembers the data once and an eighth more. */
static struct delta_gpu *start(struct bench *b, uint32_t chunk_len, uint32_t *number)
{
	struct delta_record_params params = { .key = "bench", .chunk_len = chunk_len };
	struct delta_object object;
	struct delta_gpu *g;
	double free_s, s;

	params.table_limit = b->len / chunk_len * 9 / 8 * 32;
	CHECK(delta_gpu_new(&params, &g));
	s = take(b, g, ++*number, DELTA_METHOD_TREE, &free_s, &object);
	CHECK(delta_gpu_commit(g));
	printf("{\"case\": \"first\", \"method\": \"tree\", \"chunk\": %" PRIu32 ", \"seconds\": %.6f}\n", chunk_len, s);
	fflush(stdout);
	return g;
}

int main(int argc, char **argv)
{
	struct bench b = { .len = MiB(argc > 1 ? strtoull(argv[1], NULL, 0) : 4096),
			   .rounds = argc > 2 ? atoi(argv[2]) : 9 };
	struct delta_gpu *g = NULL;
	uint32_t number = 0;
	int nr = 0;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0) {
		fprintf(stderr, "gpu: no GPU here\n");
		return 77;
	}
	b.rounds = b.rounds < 1 ? 1 : MIN(b.rounds, ROUNDS_MAX);
	CHECK(cudaMalloc((void **)&b.data, b.len));
	CHECK(bench_fill(b.data, b.len, ++b.seed));
	b.read_s = measure_read(&b);
	b.copy_s_per_byte = measure_copy(&b);
	printf("{\"case\": \"ceilings\", \"bytes\": %" PRIu64
	       ", \"read_bytes_per_second\": %.0f, \"copy_bytes_per_second\": %.0f}\n",
	       b.len, (double)b.len / b.read_s, 1 / b.copy_s_per_byte);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (argc > 3 && strcmp(argv[3], "main") == 0 && cases[i].limit == 0)
			continue;
		if (i == 0 || cases[i].chunk_len != cases[i - 1].chunk_len) {
			delta_gpu_free(g);
			g = start(&b, cases[i].chunk_len, &number);
		}
		run_case(&b, g, &number, cases[i].name, cases[i].change, cases[i].fraction, cases[i].chunk_len,
			 cases[i].method, cases[i].limit);
	}
	delta_gpu_free(g);
	return 0;
}
