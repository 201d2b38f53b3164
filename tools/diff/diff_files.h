/* Where two files differ. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define DIFF_UNIT_MAX (UINT64_C(1) << 20)

/* What is found, in order, no two of them touching: bytes from `off` on, whole units but at the end of a file. */
struct diff_sink {
	void (*range)(void *userdata, uint64_t off, uint64_t len);
	void *userdata;
};

struct diff_result {
	uint64_t size_a, size_b;
	uint64_t nr_ranges, bytes; /* that differ */
	uint64_t read_bytes; /* of each; the rest is known to be equal */
	bool by_extents; /* else all was read: they are not on one ckptfs mount */
};

/* 0: *ret tells; <0, and *culprit is which of the two paths. Neither may be a symbolic link. `unit` is a power of two
 * up to DIFF_UNIT_MAX. Time grows with the extents, and with the bytes that do not lie in one place. -ECANCELED:
 * interrupted. */
int diff_files(const char *a, const char *b, uint64_t unit, const struct diff_sink *to, struct diff_result *ret,
	       const char **culprit);
