/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A program whose state is in GPU memory and that changes it in all the ways programs do, through ckptfs_gpu.h.
 *
 *   pattern make DIR EXPECT FROM TO MIB   versions FROM to TO of lineage DIR; what they must be goes to EXPECT
 *   pattern die DIR EXPECT FROM TO MIB    the same, but it kills itself before TO is committed, when all of it is staged
 *   pattern check DIR EXPECT              every version is what the program had: by plain read, and on the GPU
 *
 * Three buffers: `data` of MIB at the beginning of the file, `table` that grows and shrinks, `host` in host memory.
 * EXPECT has NNNNNN.NAME for each.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "gpu/lib/ckptfs_gpu.h"
#include "tests/bench/gpu_kernels.h"

#define CHUNK 128u
#define TABLE_MAX MiB(24)
#define HOST_LEN 100003u

#define CHECK(condition)                                                                            \
	do {                                                                                        \
		if (!(condition)) {                                                                 \
			fprintf(stderr, "pattern: line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); \
			exit(1);                                                                    \
		}                                                                                   \
	} while (0)
#define CUDA(call) CHECK((call) == cudaSuccess)

static uint32_t die_before; /* the commit of this version */
static uint32_t begun;

/* The library's calls come here. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == CKPTFS_IOC_DELTA_BEGIN)
		begun = ((struct ckptfs_delta_begin *)arg)->number;
	if (request == CKPTFS_IOC_DELTA_COMMIT && begun == die_before)
		raise(SIGKILL);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* --- what is to be expected --- */

static void path_of(const char *expect, uint32_t number, const char *name, char ret[4096])
{
	snprintf(ret, 4096, "%s/%06" PRIu32 ".%s", expect, number, name);
}

static void write_expected(const char *expect, uint32_t number, const struct ckptfs_gpu_buffer *b)
{
	uint8_t *copy = malloc(b->len + 1);
	char path[4096];
	FILE *f;

	CHECK(copy);
	CUDA(cudaMemcpy(copy, b->p, b->len, cudaMemcpyDefault));
	path_of(expect, number, b->name, path);
	f = fopen(path, "we");
	CHECK(f && fwrite(copy, 1, b->len, f) == b->len && fclose(f) == 0);
	free(copy);
}

static uint8_t *read_expected(const char *expect, uint32_t number, const struct ckptfs_gpu_buffer *b)
{
	uint8_t *p = malloc(b->len + 1);
	char path[4096];
	FILE *f;

	CHECK(p);
	path_of(expect, number, b->name, path);
	f = fopen(path, "re");
	CHECK(f && fread(p, 1, b->len + 1, f) == b->len && fclose(f) == 0);
	return p;
}

/* --- making versions --- */

struct state {
	struct ckptfs_gpu_buffer data, table, host;
};

static void change(struct state *s, uint32_t number)
{
	s->table.len = (uint64_t)number * 7654321 % TABLE_MAX;
	memset((uint8_t *)s->host.p + number * 37 % (HOST_LEN - 50), (int)number, 50);
	switch (number % 6) {
	case 0:
		CUDA(bench_move(s->data.p, s->data.len, CHUNK, number));
		break;
	case 1:
		CUDA(bench_change(s->data.p, s->data.len, CHUNK, 0.001, number));
		break;
	case 2:
		CUDA(bench_change(s->data.p, s->data.len, CHUNK, 0.05, number));
		CUDA(bench_change(s->table.p, TABLE_MAX, CHUNK, 0.01, number));
		break;
	case 3:
		CUDA(cudaMemset((uint8_t *)s->data.p + s->data.len / 3, (int)number, s->data.len / 5));
		break;
	case 4:
		break;
	default:
		CUDA(bench_fill(s->data.p, number % 12 == 5 ? s->data.len : s->data.len / 2, number));
		break;
	}
}

static void make(const char *dir, const char *expect, uint32_t from, uint32_t to, uint64_t len)
{
	struct state s = {
		.data = { .name = "data", .len = len },
		.table = { .name = "table" },
		.host = { .name = "host", .len = HOST_LEN, .info = "of the host", .info_len = 11 },
	};
	struct ckptfs_gpu_options options = {
		.size = sizeof(options), .flags = CKPTFS_GPU_DURABLE | CKPTFS_GPU_VERIFY | CKPTFS_GPU_REQUIRE
	};
	struct ckptfs_gpu *g;
	cudaStream_t stream;

	CUDA(cudaStreamCreate(&stream));
	CUDA(cudaMalloc(&s.data.p, s.data.len));
	CUDA(cudaMalloc(&s.table.p, TABLE_MAX));
	CHECK(s.host.p = calloc(1, HOST_LEN));
	CUDA(bench_fill(s.data.p, s.data.len, from));
	CUDA(bench_fill(s.table.p, TABLE_MAX, from + 1000));
	CHECK(ckptfs_gpu_open(dir, &options, &g) == 0);
	for (uint32_t number = from; number <= to; number++) {
		struct ckptfs_gpu_stats stats = { .size = sizeof(stats) };
		struct ckptfs_gpu_buffer buffers[3];

		change(&s, number);
		CUDA(cudaDeviceSynchronize());
		memcpy(buffers, (struct ckptfs_gpu_buffer[]){ s.data, s.table, s.host }, sizeof(buffers));
		for (int i = 0; i < 3; i++)
			write_expected(expect, number, &buffers[i]);
		if (number == to && die_before != 0)
			die_before = to;
		CHECK(ckptfs_gpu_checkpoint(g, number, buffers, 3, stream, NULL, NULL) == 0);
		/* It was taken: what comes now must not be in it. */
		CUDA(bench_change(s.data.p, s.data.len, CHUNK, 0.0001, number + 100000));
		CHECK(ckptfs_gpu_wait(g) == 0);
		CHECK(ckptfs_gpu_stats(g, &stats) == 0 && stats.on_gpu == 1);
		printf("version %" PRIu32 ": %" PRIu64 " of %" PRIu64
		       " bytes moved, %.3f ms until the program went on, %.3f until durable\n",
		       number, stats.delta_bytes, stats.content_bytes, (double)stats.take_ns / 1e6,
		       (double)(stats.take_ns + stats.finish_ns + stats.write_ns + stats.commit_ns) / 1e6);
	}
	CHECK(ckptfs_gpu_close(g) == 0);
}

/* --- checking them --- */

static void check_version(struct ckptfs_gpu *g, const char *dir, const char *expect, uint32_t number)
{
	struct ckptfs_gpu_version *v;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%06" PRIu32, dir, number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK(ckptfs_gpu_version_read(g, number, &v) == 0 && v->nr == 3 && v->offs[0] == 0);
	for (size_t i = 0; i < v->nr; i++) {
		struct ckptfs_gpu_buffer b = v->buffers[i];
		uint8_t *want = read_expected(expect, number, &b), *got = malloc(b.len + 1);

		CHECK(got && pread(fd, got, b.len, (off_t)v->offs[i]) == (ssize_t)b.len);
		CHECK(memcmp(got, want, b.len) == 0);
		memset(got, 0x77, b.len);
		CUDA(cudaMalloc(&b.p, b.len + 1));
		CHECK(ckptfs_gpu_restore(g, number, &b, 1, NULL) == 0);
		CUDA(cudaMemcpy(got, b.p, b.len, cudaMemcpyDeviceToHost));
		CHECK(memcmp(got, want, b.len) == 0);
		CUDA(cudaFree(b.p));
		free(want);
		free(got);
	}
	ckptfs_gpu_version_free(v);
	close(fd);
}

static void check(const char *dir, const char *expect)
{
	struct ckptfs_gpu *g;
	uint32_t *numbers;
	size_t nr;

	CHECK(ckptfs_gpu_open(dir, NULL, &g) == 0);
	CHECK(ckptfs_gpu_versions(g, &numbers, &nr) == 0);
	for (size_t i = 0; i < nr; i++)
		check_version(g, dir, expect, numbers[i]);
	printf("%zu versions\n", nr);
	free(numbers);
	CHECK(ckptfs_gpu_close(g) == 0);
}

int main(int argc, char **argv)
{
	int nr;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0) {
		fprintf(stderr, "no GPU here\n");
		return 77;
	}
	if (argc == 7 && (strcmp(argv[1], "make") == 0 || strcmp(argv[1], "die") == 0)) {
		die_before = strcmp(argv[1], "die") == 0 ? UINT32_MAX : 0;
		make(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]), MiB(atoi(argv[6])));
	} else if (argc == 4 && strcmp(argv[1], "check") == 0) {
		check(argv[2], argv[3]);
	} else {
		fprintf(stderr, "Usage: pattern make|die DIR EXPECT FROM TO MIB | check DIR EXPECT\n");
		return 2;
	}
	return 0;
}
