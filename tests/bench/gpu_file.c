/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: gpu_file DIR PLAIN [MIB [VERSIONS]]
 *
 * From device memory to a durable file: MIB (default: 4096) of random device memory, of which a part of the chunks
 * changes before each of VERSIONS (default: 12), through ckptfs_gpu.h into lineages of DIR, on a mount. For each part a
 * line of JSON on stdout: medians, in seconds, of the steps, and of write and fsync of as many bytes to a file PLAIN.
 */
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "gpu/lib/ckptfs_gpu.h"
#include "tests/bench/gpu_kernels.h"
#include "tests/bench/median.h"

#define CHUNK 128u
#define VERSIONS_MAX 100

#define CHECK(condition)                                                                     \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			fprintf(stderr, "gpu_file: %s failed (line %d)\n", #condition, __LINE__); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

enum step { TAKE_STEP, FINISH, WRITE, COMMIT, PLAIN, NR_STEPS };

static double write_plain(const char *path, const void *p, uint64_t len)
{
	uint64_t start = monotonic_ns(), done = 0;
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	while (done < len) {
		ssize_t n = write(fd, (const uint8_t *)p + done, MIN(len - done, MiB(1)));

		CHECK(n > 0);
		done += (uint64_t)n;
	}
	CHECK(fsync(fd) == 0);
	start = monotonic_ns() - start;
	CHECK(close(fd) == 0);
	return (double)start / 1e9;
}

static void run(const char *dir, const char *plain, uint64_t len, double fraction, int versions)
{
	struct ckptfs_gpu_buffer b = { .name = "data", .len = len };
	static double times[NR_STEPS][VERSIONS_MAX];
	double first[VERSIONS_MAX] = { 0 }, last = 0;
	struct ckptfs_gpu_stats stats = { .size = sizeof(stats) };
	struct ckptfs_gpu *g;
	void *noise = NULL;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%g", dir, fraction);
	CHECK(cudaMalloc(&b.p, len) == cudaSuccess && bench_fill(b.p, len, 1) == cudaSuccess);
	CHECK(ckptfs_gpu_open(path, NULL, &g) == 0);
	for (int i = 0; i <= versions; i++) {
		CHECK(bench_change(b.p, len, CHUNK, fraction, (uint64_t)i + 2) == cudaSuccess);
		CHECK(cudaDeviceSynchronize() == cudaSuccess);
		CHECK(ckptfs_gpu_checkpoint(g, (uint32_t)i + 1, &b, 1, NULL, NULL, NULL) == 0);
		CHECK(ckptfs_gpu_wait(g) == 0 && ckptfs_gpu_stats(g, &stats) == 0 && stats.on_gpu == 1);
		if (i == 0)
			continue; /* the complete one */
		times[TAKE_STEP][i - 1] = (double)stats.take_ns / 1e9;
		times[FINISH][i - 1] = (double)stats.finish_ns / 1e9;
		times[WRITE][i - 1] = (double)stats.write_ns / 1e9;
		times[COMMIT][i - 1] = (double)stats.commit_ns / 1e9;
		noise = realloc(noise, stats.delta_bytes);
		CHECK(noise && cudaMemcpy(noise, b.p, stats.delta_bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
		times[PLAIN][i - 1] = write_plain(plain, noise, stats.delta_bytes);
		first[i - 1] = times[WRITE][i - 1] + times[COMMIT][i - 1];
		last = first[i - 1];
	}
	CHECK(ckptfs_gpu_close(g) == 0);
	CHECK(unlink(plain) == 0);
	printf("{\"changed\": %g, \"chunk\": %u, \"delta\": %" PRIu64 ", \"take\": %.6f, \"finish\": %.6f, \"write\": %.6f,"
	       " \"commit\": %.6f, \"plain\": %.6f, \"first\": %.6f, \"last\": %.6f}\n",
	       fraction, CHUNK, stats.delta_bytes, median(times[TAKE_STEP], versions), median(times[FINISH], versions),
	       median(times[WRITE], versions), median(times[COMMIT], versions), median(times[PLAIN], versions),
	       first[0], last);
	fflush(stdout);
	free(noise);
	CHECK(cudaFree(b.p) == cudaSuccess);
}

int main(int argc, char **argv)
{
	uint64_t len = MiB(argc > 3 ? atoi(argv[3]) : 4096);
	int versions = argc > 4 ? atoi(argv[4]) : 12, nr;

	if (argc < 3 || argc > 5 || len == 0 || versions < 1 || versions > VERSIONS_MAX) {
		fprintf(stderr, "Usage: gpu_file DIR PLAIN [MIB [VERSIONS]]\n");
		return 2;
	}
	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0) {
		fprintf(stderr, "no GPU here\n");
		return 77;
	}
	run(argv[1], argv[2], len, 0.001, versions);
	run(argv[1], argv[2], len, 0.01, versions);
	return 0;
}
