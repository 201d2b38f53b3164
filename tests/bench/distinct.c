/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Bytes of the distinct content-defined chunks of files, for ./bench space: cut as the store cuts, but told apart and
 * summed up by nothing of it. Zeros do not count. Usage: distinct FILE...
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "store/dedup/chunker.h"

#define WINDOW (1u << 20)

struct chunk {
	XXH128_hash_t hash;
	uint32_t len;
};

static struct chunk *chunks;
static size_t nr_chunks, cap_chunks;

static void die(const char *path)
{
	fprintf(stderr, "distinct: %s: %s\n", path, strerror(errno));
	exit(1);
}

static void add(const uint8_t *p, uint32_t len)
{
	if (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0)
		return;
	if (nr_chunks == cap_chunks) {
		cap_chunks = cap_chunks ? 2 * cap_chunks : 1u << 16;
		chunks = realloc(chunks, cap_chunks * sizeof(*chunks));
		if (!chunks)
			die("memory");
	}
	chunks[nr_chunks++] = (struct chunk){ .hash = XXH3_128bits(p, len), .len = len };
}

static uint32_t fill(int fd, const char *path, uint8_t *p, uint32_t len)
{
	while (len < WINDOW) {
		ssize_t n = read(fd, p + len, WINDOW - len);

		if (n < 0)
			die(path);
		if (n == 0)
			break;
		len += (uint32_t)n;
	}
	return len;
}

static void add_file(const struct cdc *cdc, const char *path)
{
	static uint8_t p[WINDOW];
	static uint32_t ends[CHUNKER_ENDS_MAX];
	uint32_t len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	for (;;) {
		uint32_t at = 0;
		bool is_all;
		size_t nr;

		len = fill(fd, path, p, len);
		if (len == 0)
			break;
		is_all = len < WINDOW;
		nr = chunker_cut(cdc, p, len, is_all, ends);
		for (size_t i = 0; i < nr; at = ends[i++])
			add(p + at, ends[i] - at);
		if (is_all)
			break;
		len -= at;
		memmove(p, p + at, len);
	}
	close(fd);
}

static int compare(const void *a, const void *b)
{
	return XXH128_cmp(a, b); /* the hash is what a chunk begins with */
}

int main(int argc, char **argv)
{
	uint64_t bytes = 0, nr = 0;
	struct cdc cdc;

	cdc_init(&cdc, &CDC_PARAMS_DEFAULT);
	for (int i = 1; i < argc; i++)
		add_file(&cdc, argv[i]);
	qsort(chunks, nr_chunks, sizeof(*chunks), compare);
	for (size_t i = 0; i < nr_chunks; i++)
		if (i == 0 || compare(&chunks[i - 1], &chunks[i]) != 0) {
			bytes += chunks[i].len;
			nr++;
		}
	printf("{\"bytes\": %" PRIu64 ", \"chunks\": %" PRIu64 "}\n", bytes, nr);
	return 0;
}
