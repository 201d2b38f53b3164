/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Clones: the bytes are those that copying would give, also when the log is read again, and the log says little of
 * them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/extents/segment.h"
#include "store/file/file_state.h"
#include "store/log/log_state.h"
#include "tests/unit/store/rig.h"

#define NR_FILES 5
#define FILE_INO(i) (10 + (uint64_t)(i))
#define LEN_MAX (3 * MiB(1) + 5000)

static uint64_t next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 30;
}

struct model {
	uint8_t bytes[NR_FILES][LEN_MAX];
	uint64_t len[NR_FILES], ino[NR_FILES];
};

static struct model *model_new(void)
{
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	for (unsigned i = 0; i < NR_FILES; i++)
		m->ino[i] = FILE_INO(i);
	return m;
}

/* A place that is the beginning of something, or any. */
static uint64_t some_place(uint64_t *x, uint64_t below)
{
	static const uint64_t units[] = { 1, 4096, MiB(1) };

	return below == 0 ? 0 : round_down(next_random(x) % below, units[next_random(x) % ARRAY_SIZE(units)]);
}

static void clone_some(struct rig *rig, struct model *m, uint64_t *x)
{
	unsigned i = next_random(x) % NR_FILES, k = next_random(x) % NR_FILES;
	uint64_t from_off = some_place(x, m->len[i]), off = some_place(x, LEN_MAX), done;
	uint64_t len = MIN(next_random(x) % 3 ? m->len[i] - from_off : next_random(x) % 10000, LEN_MAX - off);
	struct content *from = rig_content(rig, m->ino[i]), *to = rig_content(rig, m->ino[k]);

	len = MIN(len, m->len[i] - from_off);
	if (i == k)
		len = MIN(len, off > from_off ? off - from_off : from_off - off);
	if (len > 0) {
		assert_int_equal(content_clone(from, from_off, to, off, len, &done), 0);
		assert_int_equal(done, len);
		if (off > m->len[k])
			memset(m->bytes[k] + m->len[k], 0, off - m->len[k]);
		memmove(m->bytes[k] + off, m->bytes[i] + from_off, len);
		m->len[k] = MAX(m->len[k], off + len);
	}
	content_close(from);
	content_close(to);
}

static void change_some(struct rig *rig, struct model *m, uint64_t *x)
{
	unsigned i = next_random(x) % NR_FILES;
	struct content *c = rig_content(rig, m->ino[i]);
	uint64_t off = some_place(x, LEN_MAX), len = MIN(next_random(x) % 200000 + 1, LEN_MAX - off);

	if (next_random(x) % 4 == 0) {
		assert_int_equal(content_truncate(c, off), 0);
		if (off > m->len[i])
			memset(m->bytes[i] + m->len[i], 0, off - m->len[i]);
		m->len[i] = off;
	} else {
		if (off > m->len[i])
			memset(m->bytes[i] + m->len[i], 0, off - m->len[i]);
		rig_pattern(m->bytes[i] + off, len, next_random(x));
		assert_int_equal(content_write(c, m->bytes[i] + off, len, off), 0); /* staged: a clone must see it */
		m->len[i] = MAX(m->len[i], off + len);
	}
	content_close(c);
}

static void drop_one(struct rig *rig, struct model *m, unsigned i)
{
	rig_drop(rig, m->ino[i]);
	m->len[i] = 0;
	m->ino[i] += NR_FILES; /* numbers are never given twice */
}

/* All that was written is in the log, and durable. */
static void sync_all(struct rig *rig, const struct model *m)
{
	for (unsigned i = 0; i < NR_FILES; i++) {
		struct content *c = rig_content(rig, m->ino[i]);

		assert_int_equal(content_flush(c), 0);
		content_close(c);
	}
	assert_int_equal(engine_sync(rig->e), 0);
}

static void check_all(struct rig *rig, const struct model *m)
{
	for (unsigned i = 0; i < NR_FILES; i++)
		rig_check_bytes(rig, m->ino[i], m->bytes[i], m->len[i]);
}

static void clones_are_as_if_copied_whatever_happens(void **state)
{
	_cleanup_(freep) struct model *m = model_new();
	struct rig *rig = *state;
	uint64_t x = 7;

	rig_close(rig);
	rig->conf.view_flush_bytes = KiB(64); /* so that some of the files are in the view, and some are not */
	rig->conf.snapshot_bytes = KiB(256);
	rig_open(rig);
	for (unsigned round = 0; round < 120; round++) {
		for (unsigned i = 0; i < 6; i++)
			next_random(&x) % 2 ? clone_some(rig, m, &x) : change_some(rig, m, &x);
		if (round % 9 == 8)
			drop_one(rig, m, next_random(&x) % NR_FILES);
		if (round % 4 == 0) {
			sync_all(rig, m);
			rig_crash(rig);
		}
		if (round % 30 == 17) {
			rig_close(rig);
			rig_remove_index(rig);
			assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
			rig_open(rig);
		}
		check_all(rig, m);
	}
	rig_fsck(rig);
}

/* A file of many pieces that lie all over: what it takes to write its extents down is far more than that. */
static void the_log_says_little_of_a_large_clone(void **state)
{
	enum { LEN = 20 << 20, STEP = 8192 };
	_cleanup_(freep) uint8_t *p = rig_bytes(LEN, 1), *other = rig_bytes(LEN, 2);
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done, before;

	for (size_t i = 0; i < LEN; i += STEP)
		memcpy(p + i, other + (i * 7919 % LEN & ~(size_t)4095), 4096);
	rig_write_bytes(rig, 5, other, LEN);
	rig_write_bytes(rig, 6, p, LEN);
	from = rig_content(rig, 6);
	to = rig_content(rig, 7);
	before = rig->e->log->end;
	assert_int_equal(content_clone(from, 0, to, 0, LEN, &done), 0);
	assert_int_equal(done, LEN);
	assert_true(rig->e->log->end - before < 100);
	content_close(from);
	content_close(to);
	rig_check_bytes(rig, 7, p, LEN);
	rig_reopen(rig); /* now it is in the view: a record per MiB */
	from = rig_content(rig, 6);
	to = rig_content(rig, 7);
	before = rig->e->log->end;
	assert_int_equal(content_clone(from, 0, to, MiB(1), LEN, &done), 0);
	assert_true(rig->e->log->end - before < 100 * (LEN / SEGMENT_SIZE + 1));
	content_close(from);
	content_close(to);
	rig_crash(rig);
	rig_check_bytes(rig, 6, p, LEN);
}

struct cloner {
	struct rig *rig;
	unsigned number;
	_Atomic(uint64_t) *shared;
};

static void *clone_about(void *userdata)
{
	struct cloner *me = userdata;
	uint64_t x = me->number + 1;

	for (unsigned n = 0; n < 150; n++) {
		unsigned i = next_random(&x) % NR_FILES, k = (i + 1 + next_random(&x) % (NR_FILES - 1)) % NR_FILES;
		struct content *from = rig_content(me->rig, FILE_INO(i)), *to = rig_content(me->rig, FILE_INO(k));
		uint64_t off = some_place(&x, MiB(2)), done;

		if (next_random(&x) % 4 == 0) {
			_cleanup_(freep) uint8_t *p = rig_bytes(50000, next_random(&x));

			assert_int_equal(content_write(to, p, 50000, off), 0);
		} else {
			assert_int_equal(content_clone(from, off, to, some_place(&x, MiB(2)), MiB(1), &done), 0);
			atomic_fetch_add(me->shared, done);
		}
		content_close(from);
		content_close(to);
	}
	return NULL;
}

/* In all directions at once. The result depends on the order, and the log must have the same one. */
static void the_log_agrees_with_clones_that_cross(void **state)
{
	_cleanup_(freep) struct model *m = model_new();
	struct rig *rig = *state;
	_Atomic(uint64_t) shared = 0;
	struct cloner cloners[4];
	pthread_t threads[4];

	for (unsigned i = 0; i < NR_FILES; i++)
		rig_write(rig, FILE_INO(i), 2 * MiB(1), i);
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++) {
		cloners[i] = (struct cloner){ rig, i, &shared };
		assert_int_equal(pthread_create(&threads[i], NULL, clone_about, &cloners[i]), 0);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(atomic_load(&shared) > 0);
	sync_all(rig, m);
	for (unsigned i = 0; i < NR_FILES; i++) {
		struct content *c = rig_content(rig, FILE_INO(i));
		ssize_t n = content_read(c, m->bytes[i], LEN_MAX, 0);

		assert_true(n > 0);
		m->len[i] = (uint64_t)n;
		content_close(c);
	}
	rig_crash(rig);
	check_all(rig, m);
	rig_fsck(rig);
}

#define NR_PIECES 512

/* Few bytes of the log are many extents in memory: a thread that makes them faster than the index takes them waits. */
static void clones_wait_for_the_index(void **state)
{
	struct rig *rig = *state;
	struct content *from, *to;
	uint64_t done, limit;

	limit = rig->conf.view_flush_bytes = KiB(256);
	rig_reopen(rig);
	rig_write(rig, FILE_INO(0), NR_PIECES * 4096, 1);
	from = rig_content(rig, FILE_INO(0));
	to = rig_content(rig, FILE_INO(1));
	for (uint64_t i = 0; i < NR_PIECES; i++) /* backwards: none joins with its neighbours */
		assert_int_equal(content_clone(from, i * 4096, to, (NR_PIECES - 1 - i) * 4096, 4096, &done), 0);
	content_close(from);
	from = to;
	for (uint64_t i = 0; i < 200; i++) {
		to = rig_content(rig, FILE_INO(2) + i);
		assert_int_equal(content_clone(from, 0, to, 0, NR_PIECES * 4096, &done), 0);
		assert_int_equal(done, NR_PIECES * 4096);
		content_close(to);
		assert_true(atomic_load(&rig->e->files->dirty_segment_memory) < 4 * limit);
	}
	content_close(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(clones_are_as_if_copied_whatever_happens),
		rig_test(the_log_says_little_of_a_large_clone),
		rig_test(the_log_agrees_with_clones_that_cross),
		rig_test(clones_wait_for_the_index),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
