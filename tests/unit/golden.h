/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Golden files of formats that are small: tests/golden/NAME pins the bytes of version 1. Rows of an offset and 32 bytes;
 * rows of zeros are left out. CKPTFS_GOLDEN_OUT=DIRECTORY writes the file for a new version of the format. Include it
 * behind <cmocka.h>.
 */
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN_ROW 32u

static inline void golden_write(const char *path, const char *what, const uint8_t *p, size_t len)
{
	static const uint8_t zeros[GOLDEN_ROW];
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fprintf(f, "# %s\nbytes %zu\n", what, len);
	for (size_t off = 0, n; off < len; off += n) {
		n = len - off < GOLDEN_ROW ? len - off : GOLDEN_ROW;
		if (memcmp(p + off, zeros, n) == 0)
			continue;
		fprintf(f, "%08zx ", off);
		for (size_t i = 0; i < n; i++)
			fprintf(f, "%02x", p[off + i]);
		fputc('\n', f);
	}
	assert_int_equal(fclose(f), 0);
}

/* These bytes are those of the file. `what` describes them in it. */
static inline void golden_expect(const char *name, const char *what, const void *p, size_t len)
{
	char path[512], line[128], hex[2 * GOLDEN_ROW + 1];
	uint8_t *golden = calloc(1, len + GOLDEN_ROW);
	size_t off, nr = 0;
	unsigned byte;
	FILE *f;

	assert_non_null(golden);
	if (getenv("CKPTFS_GOLDEN_OUT")) {
		snprintf(path, sizeof(path), "%s/%s", getenv("CKPTFS_GOLDEN_OUT"), name);
		golden_write(path, what, p, len);
	}
	snprintf(path, sizeof(path), TESTS_DIR "/golden/%s", name);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "bytes %zu", &nr) == 1)
			continue;
		if (sscanf(line, "%8zx %64s", &off, hex) != 2 || line[0] == '#')
			continue;
		for (const char *h = hex; sscanf(h, "%2x", &byte) == 1; h += 2, off++) {
			assert_true(off < len);
			golden[off] = (uint8_t)byte;
		}
	}
	fclose(f);
	assert_int_equal(nr, len);
	assert_memory_equal(golden, p, len);
	free(golden);
}
