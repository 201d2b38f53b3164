/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: client DIR STEPS EVERY [MIB]
 *
 * A program with state in several regions that goes on from its newest checkpoint, if there is one, takes one every
 * EVERY steps and prints what its state comes to after STEPS steps. Each step depends on all before it, so what is lost
 * or mixed shows. "step N" is printed as each begins, "restarted N" when it goes on from a checkpoint.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/ckptfs.h"

#define WORDS 512 /* of a page */

static uint64_t step; /* a few bytes in the middle of others */
static uint64_t odd[3 * WORDS + 5]; /* pages, and what is not */

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "client: %s: %s\n", what, ckptfs_strerror(r));
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
	return x ^ x >> 27;
}

/* Some pages, in an order that is the same in each step; what is written depends on what is there. */
static void compute(uint64_t *field, uint64_t nr_pages)
{
	for (uint64_t i = 0; i < nr_pages / 2; i++) {
		uint64_t page = mix(i + step % 3) % nr_pages;

		for (uint64_t k = 0; k < WORDS; k += 8)
			field[page * WORDS + k] =
				mix(field[page * WORDS + k] + field[(page + 1) % nr_pages * WORDS + k] + step);
	}
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		odd[i] = mix(odd[i] + field[i % WORDS] + i);
}

int main(int argc, char **argv)
{
	uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, every = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	uint64_t nr_pages = (argc > 4 ? strtoull(argv[4], NULL, 10) : 4) * 256, sum = 0, *field;
	uint32_t number;
	int r;

	if (steps == 0 || every == 0) {
		fprintf(stderr, "usage: client DIR STEPS EVERY [MIB]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(ckptfs_init(argv[1], NULL), "init");
	check(ckptfs_protect("step", &step, sizeof(step)), "step");
	check(ckptfs_protect("odd", odd, sizeof(odd)), "odd");
	r = ckptfs_restart(0, 0, &number);
	if (r == 0)
		printf("restarted %" PRIu64 " from %06" PRIu32 "\n", step, number);
	else if (r != -ENOENT)
		check(r, "restart");
	field = ckptfs_malloc("field", nr_pages * WORDS * sizeof(*field));
	check(field ? 0 : -errno, "field");
	for (; step < steps; step++) {
		if (step > 0 && step % every == 0)
			check(ckptfs_checkpoint(), "checkpoint");
		compute(field, nr_pages);
		printf("step %" PRIu64 "\n", step);
	}
	for (uint64_t i = 0; i < nr_pages * WORDS; i++)
		sum = mix(sum + field[i]);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		sum = mix(sum + odd[i]);
	check(ckptfs_finish(), "finish");
	printf("result %016" PRIx64 "\n", sum);
	return 0;
}
