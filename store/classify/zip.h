/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Iterates over the entries of a zip archive by its central directory. Pure; trusts nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct zip_entry {
	const char *name; /* in the file */
	size_t name_len;
	uint64_t off, len; /* of its bytes; len 0 if they are compressed or encrypted */
};

struct zip_iter {
	const uint8_t *p;
	uint64_t len, at, end, nr_left;
};

/* 1: an archive; 0: not an archive; -EBADMSG. */
int zip_open(const uint8_t *p, uint64_t len, struct zip_iter *ret);
/* 1/0/-EBADMSG */
int zip_next(struct zip_iter *it, struct zip_entry *ret);
