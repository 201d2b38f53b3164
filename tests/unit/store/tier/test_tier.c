/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The contract of back ends (contract.h): of a directory, of the one in memory, and of S3. */
#include "store/tier/tier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/tier/tier_dir.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/contract.h"
#include "tests/unit/store/tier/memory.h"
#include "tests/unit/store/tier/s3_fake.h"

static struct memory *memory;
static struct s3_fake *fake;
static char dir[64];

static struct tier *open_memory(void)
{
	memory = memory_new();
	return memory_open(memory, &(struct memory_faults){ .seed = 1 });
}

static void close_memory(struct tier *t)
{
	tier_close(t);
	memory_free(memory);
}

static struct tier *open_dir(void)
{
	struct tier *t = NULL;

	snprintf(dir, sizeof(dir), "%s/ckptfs-test-tier-XXXXXX", test_place());
	assert_non_null(mkdtemp(dir));
	assert_int_equal(tier_dir_open(dir, &(struct tier_dir_conf){ .page = 3 }, &t), 0);
	return t;
}

static void close_dir(struct tier *t)
{
	char command[100];

	tier_close(t);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

static struct tier *open_s3(void)
{
	static unsigned nr;
	char place[40];

	snprintf(place, sizeof(place), "bucket/t%u", ++nr);
	return s3_fake_open(place);
}

int main(void)
{
	static const struct contract_back_end back_ends[] = {
		{ "tier, directory", open_dir, close_dir },
		{ "tier, memory", open_memory, close_memory },
		{ "tier, S3", open_s3, tier_close },
	};
	int nr_failed = 0;

	for (size_t i = 0; i < ARRAY_SIZE(back_ends); i++) {
		if (back_ends[i].open == open_s3) {
			if (!s3_fake_is_possible()) {
				puts("skipped in part: built without S3");
				continue;
			}
			fake = s3_fake_start(TESTS_DIR "/tier/fake_s3.py", NULL);
		}
		nr_failed += contract_check(&back_ends[i]);
	}
	s3_fake_stop(fake);
	return nr_failed;
}
