/*
 * Which chunks have been seen, and in which file last: a table of fixed size, whatever it is given.
 *
 * Exact until the table is full. From then on it keeps a sample, of those fingerprints alone whose lowest bits are
 * zero, and one bit more whenever it is full again. Which fingerprints those are has nothing to do with how often or
 * when they come, and what is kept now was kept before: so all that is said of a fingerprint in the sample is right,
 * and stands for 2^bits chunks. Distinct bytes are estimated without bias, with a standard error of about one part in
 * the square root of the fingerprints that are kept; chunks that come often do not matter more than others.
 *
 * 12 bytes an entry. 64 bits of a fingerprint are enough: with 2^28 chunks (1 TiB of pages) one in 500 analyses
 * takes two chunks for one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct distinct_slot {
	uint32_t low, high; /* of the fingerprint; both 0: empty */
	uint32_t file;
};

struct distinct {
	struct distinct_slot *slots;
	size_t nr_slots, nr, nr_max; /* nr <= nr_max < nr_slots, so probes end */
	unsigned bits;
};

#define DISTINCT_MEMORY_MIN 4096u

/* Takes `memory` bytes, DISTINCT_MEMORY_MIN or more; touches them as they are needed. */
int distinct_init(struct distinct *d, size_t memory);
void distinct_release(struct distinct *d);

/* What stands for how many: 1 is exact. */
static inline uint64_t distinct_weight(const struct distinct *d)
{
	return UINT64_C(1) << d->bits;
}

enum distinct_answer { DISTINCT_NEW, DISTINCT_KNOWN, DISTINCT_NOT_SAMPLED };

/* Remember that `file` has it. DISTINCT_KNOWN: *ret_file had it last. Unless it is not sampled, *ret_weight is what the
 * answer stands for: adding may double that of answers to come. */
enum distinct_answer distinct_add(struct distinct *d, struct fp fp, uint32_t file, uint32_t *ret_file,
				  uint64_t *ret_weight);
