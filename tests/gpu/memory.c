/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A GPU without memory to spare: a take that would need more gives -ENOMEM, the application's memory and its CUDA calls
 * are as before, and the record goes on from the version before. Objects are compared with those of the twin on the
 * CPU.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "gpu/kernels/delta_gpu.h"
#include "gpu/format/delta_record.h"

#define CHUNK 128u
#define LEN MiB(32)
#define ENTRIES 300000u /* of the table, which gets all of its memory with the first version */

#define CHECK(ok, ...)                                                         \
	do {                                                                   \
		if (!(ok)) {                                                   \
			fprintf(stderr, "FAILED %s:%d: ", __FILE__, __LINE__); \
			fprintf(stderr, __VA_ARGS__);                          \
			fprintf(stderr, "\n");                                 \
			exit(1);                                               \
		}                                                              \
	} while (0)
#define CUDA(call) CHECK((call) == cudaSuccess, "%s", #call)

/* --- memory that somebody else has --- */

#define PIECES_MAX 4096

struct hoard {
	void *pieces[PIECES_MAX];
	size_t nr;
};

/* Ever smaller pieces, until there is nothing left. */
static void hoard_fill(struct hoard *h)
{
	for (size_t len = GiB(1); len >= KiB(4); len /= 2)
		while (h->nr < PIECES_MAX && cudaMalloc(&h->pieces[h->nr], len) == cudaSuccess)
			h->nr++;
	cudaGetLastError();
	CHECK(h->nr < PIECES_MAX, "the device has too much memory");
}

static void hoard_release(struct hoard *h)
{
	while (h->nr > 0)
		CUDA(cudaFree(h->pieces[--h->nr]));
}

/* --- both sides --- */

struct rig {
	uint64_t seed;
	uint8_t *host, *device; /* 2 * LEN bytes of content */
	struct delta_record *twin;
	struct delta_gpu *gpu;
	struct hoard hoard;
	uint32_t number;
};

static void rig_init(struct rig *rig)
{
	struct delta_record_params params = { .key = "memory", .chunk_len = CHUNK };
	uint64_t slots = ENTRIES;
	int r;

	rig->host = calloc(2, LEN);
	CHECK(rig->host, "memory");
	CUDA(cudaMalloc((void **)&rig->device, 2 * LEN));
	/* The same number of entries on both sides: see delta_table.c. */
	while (slots - slots / 8 - 1 < ENTRIES)
		slots++;
	params.table_limit = slots * 36;
	CHECK(delta_record_new(&params, &rig->twin) == 0, "twin");
	params.table_limit = ENTRIES * 32;
	r = delta_gpu_new(&params, &rig->gpu);
	CHECK(r == 0, "GPU: %s", strerror(-r));
}

static void rig_release(struct rig *rig)
{
	hoard_release(&rig->hoard);
	delta_gpu_free(rig->gpu);
	delta_record_free(rig->twin);
	CUDA(cudaFree(rig->device));
	free(rig->host);
}

/* One of `every` chunks is another one. */
static void change(struct rig *rig, size_t len, unsigned every)
{
	for (size_t off = 0; off < len; off += CHUNK * every)
		for (size_t i = 0; i < CHUNK; i += 8) {
			uint64_t n = ++rig->seed * 0x9e3779b97f4a7c15;

			memcpy(rig->host + off + i, &n, 8);
		}
	CUDA(cudaMemcpy(rig->device, rig->host, len, cudaMemcpyHostToDevice));
}

static int take_version(struct rig *rig, size_t len)
{
	const struct delta_buffer buffer = { rig->device, len, 0 };

	return delta_gpu_take(rig->gpu, &buffer, 1,
			      &(struct delta_take){ .method = DELTA_METHOD_TREE, .number = rig->number + 1 }, NULL);
}

static void take_fails(struct rig *rig, size_t len)
{
	_cleanup_(freep) uint8_t *after = malloc(len);
	int r = take_version(rig, len);

	CHECK(r == -ENOMEM, "take: %d instead of -ENOMEM", r);
	CHECK(cudaGetLastError() == cudaSuccess, "an error is left for the application to find");
	CUDA(cudaDeviceSynchronize());
	CUDA(cudaMemcpy(after, rig->device, len, cudaMemcpyDeviceToHost));
	CHECK(memcmp(after, rig->host, len) == 0, "the application's memory is another");
}

static void take_is_right(struct rig *rig, size_t len)
{
	_cleanup_(buf_release) struct buf twin = BUF_EMPTY, got = BUF_EMPTY;
	struct delta_object object;
	int r = take_version(rig, len);

	CHECK(r == 0, "take: %s", strerror(-r));
	r = delta_gpu_finish(rig->gpu, &object);
	CHECK(r == 0, "finish: %s", strerror(-r));
	for (size_t i = 0; i < object.nr_parts; i++)
		buf_add(&got, object.parts[i].iov_base, object.parts[i].iov_len);
	CHECK(delta_gpu_commit(rig->gpu) == 0, "commit");
	r = delta_record_take(rig->twin, rig->host, len,
			      &(struct delta_take){ .method = DELTA_METHOD_TREE, .number = ++rig->number }, &twin);
	CHECK(r == 0 && buf_error(&got) == 0, "twin");
	delta_record_commit(rig->twin);
	CHECK(twin.len == got.len && memcmp(twin.data, got.data, got.len) == 0, "version %u: another object",
	      rig->number);
}

/* --- promises --- */

static void first_version_without_memory(struct rig *rig)
{
	change(rig, LEN, 1);
	hoard_fill(&rig->hoard);
	take_fails(rig, LEN);
	take_fails(rig, LEN);
	hoard_release(&rig->hoard);
	take_is_right(rig, LEN);
}

/* What changes little needs no more memory than there is. */
static void much_changed_without_memory(struct rig *rig)
{
	hoard_fill(&rig->hoard);
	change(rig, LEN, 2);
	take_fails(rig, LEN);
	change(rig, LEN, 1);
	take_fails(rig, LEN);
	hoard_release(&rig->hoard);
	take_is_right(rig, LEN);
	hoard_fill(&rig->hoard);
	change(rig, LEN, 100);
	take_is_right(rig, LEN);
	hoard_release(&rig->hoard);
}

static void grown_without_memory(struct rig *rig)
{
	hoard_fill(&rig->hoard);
	change(rig, 2 * LEN, 50);
	take_fails(rig, 2 * LEN);
	change(rig, LEN, 70);
	take_is_right(rig, LEN);
	hoard_release(&rig->hoard);
	take_is_right(rig, 2 * LEN);
}

int main(void)
{
	_cleanup_(rig_release) struct rig rig = { 0 };
	int nr = 0;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0) {
		fprintf(stderr, "no GPU here\n");
		return 77;
	}
	rig_init(&rig);
	first_version_without_memory(&rig);
	much_changed_without_memory(&rig);
	grown_without_memory(&rig);
	printf("a device without memory: %u versions all the same\n", rig.number);
	return 0;
}
