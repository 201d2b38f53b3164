/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A set of numbers, of layers or of locations. Those of one file are mostly consecutive, so they are kept in words of
 * 64 bits: some 20 bytes for 64 numbers. All zeros is an empty set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct layer_set {
	struct layer_word {
		uint64_t number; /* 1 + number / 64; 0: free */
		uint64_t bits;
	} *v;
	size_t nr, size; /* words in use; slots, a power of two */
};

int layer_set_add(struct layer_set *s, uint64_t layer); /* -ENOMEM */
bool layer_set_has(const struct layer_set *s, uint64_t layer);
void layer_set_release(struct layer_set *s);
