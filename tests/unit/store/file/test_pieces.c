/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Whole chunks of a file, read by the pieces that it has of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/engine.h"
#include "tests/unit/store/rig.h"

#define PIECES 100u
#define LEN (40u * 4096 + 100)

/* The chunks of all pieces of a file; returns their number. */
static size_t chunks_of(struct rig *rig, uint64_t ino, struct content_chunk *ret, uint8_t *bytes)
{
	struct content_piece p[PIECES];
	size_t n = rig_pieces(rig, ino, p, PIECES), nr = 0;
	uint64_t off = 0;

	for (size_t i = 0; i < n; i++) {
		if (p[i].chunk_len > 0) {
			ret[nr++] = (struct content_chunk){ off + p[i].len - 1, p[i].fp, p[i].chunk_len, bytes };
			bytes += p[i].chunk_len;
		}
		off += p[i].len;
	}
	return nr;
}

static void check(struct rig *rig, uint64_t ino, size_t min)
{
	_cleanup_(freep) uint8_t *bytes = malloc(PIECES * MiB(1));
	struct content *c = rig_content(rig, ino);
	struct content_chunk v[PIECES];
	size_t nr = chunks_of(rig, ino, v, bytes);

	assert_non_null(bytes);
	assert_true(nr >= min);
	assert_int_equal(content_read_chunks(c, v, nr), 0);
	for (size_t i = 0; i < nr; i++)
		assert_true(fp_is_of(engine_key(rig->e), v[i].fp, v[i].buf, v[i].len));
	content_close(c);
}

static void whole_chunks_are_read(void **state)
{
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done;

	rig_write(rig, 10, LEN, 1);
	check(rig, 10, 41);
	/* pieces that are parts of chunks, behind a hole */
	from = rig_content(rig, 10);
	to = rig_content(rig, 11);
	assert_int_equal(content_clone(from, 1000, to, MiB(3) + 77, 9000, &done), 0);
	assert_int_equal(done, 9000);
	content_close(from);
	content_close(to);
	check(rig, 11, 3);
	rig_reopen(rig);
	check(rig, 10, 41);
	check(rig, 11, 3);
}

static void another_chunk_is_not_returned(void **state)
{
	struct rig *rig = *state;
	_cleanup_(freep) uint8_t *bytes = malloc(PIECES * MiB(1));
	struct content_chunk v[PIECES];
	struct content *c;
	size_t nr;

	assert_non_null(bytes);
	rig_write(rig, 10, LEN, 1);
	nr = chunks_of(rig, 10, v, bytes);
	assert_int_equal(nr, 41);
	c = rig_content(rig, 10);
	assert_int_equal(content_write(c, "another", 7, 20 * 4096), 0);
	assert_int_equal(content_flush(c), 0);
	assert_int_equal(content_read_chunks(c, v, nr), -ESTALE);
	assert_int_equal(content_read_chunks(c, v, 20), 0);
	assert_int_equal(content_truncate(c, 0), 0);
	assert_int_equal(content_read_chunks(c, v, 1), -ESTALE);
	assert_int_equal(content_read_chunks(c, v, 0), 0);
	content_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(whole_chunks_are_read),
		rig_test(another_chunk_is_not_returned),
	};

	return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
