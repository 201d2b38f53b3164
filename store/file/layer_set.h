/* A set of numbers: of layers, or of places. Those of a file were given one after the other, so it is kept in words of
 * 64: some 20 bytes for as many. All zeros is an empty one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct layer_set {
	struct layer_word {
		uint64_t number; /* / 64, and 1 more; 0: free */
		uint64_t bits;
	} *v;
	size_t nr, size; /* words in use; of all, a power of two */
};

int layer_set_add(struct layer_set *s, uint64_t layer); /* -ENOMEM */
bool layer_set_has(const struct layer_set *s, uint64_t layer);
void layer_set_release(struct layer_set *s);
