/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What becomes of one operation that a crash may lose, and how the fates of all of them are drawn. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image;

enum fate_kind {
	FATE_KEEP,
	FATE_DROP,
	FATE_SIZE, /* a write: the file has grown, the bytes have not come */
	FATE_TORN, /* a write: some sectors came */
};

enum fate_tear {
	TEAR_CUT, /* sectors before `at` came */
	TEAR_TAIL, /* sectors from `at` on came */
	TEAR_HOLE, /* all but sector `at` came */
	TEAR_SOME, /* each by a coin, `at` being the coins' seed */
};

struct fate {
	enum fate_kind kind;
	enum fate_tear tear;
	uint32_t sector; /* 512 or 4096 */
	uint64_t at;
	bool grown; /* torn, and yet the file has its full size */
};

struct fate_rng {
	uint64_t state;
};
/* Of what a test tries by chance: TEST_SEED, or the same one at every run. */
uint64_t fate_seed(void);
struct fate_rng fate_rng(uint64_t seed, uint64_t point, uint64_t variant);
uint64_t fate_random(struct fate_rng *r, uint64_t below);

/* Fill fates[ops[i]] for the operations of one file or directory, in the order they were made. */
void fate_choose(struct fate_rng *rng, unsigned variant, bool is_dir, bool ordered, const size_t *ops, size_t nr,
		 struct fate *fates);
/* Write as this fate lets it. */
int fate_write(const struct fate *f, struct image *m, const uint8_t *data, uint64_t len, uint64_t off);

struct fate_text {
	char s[64];
};
struct fate_text fate_text(const struct fate *f);
