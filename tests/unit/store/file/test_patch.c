/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Many small ranges shared at once: the bytes are those that copying would give, and nothing is stored. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/file_state.h"
#include "store/file/file_table.h"
#include "tests/unit/store/rig.h"
#include "store/file/content_state.h"
#include "store/log/view.h"

#define LEN (3 * MiB(1) + 1234)
#define SOURCE_A 5
#define SOURCE_B 6
#define TARGET 7
#define PATCHES_MAX 3000

static uint64_t next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 30;
}

struct patched {
	struct content_patch p[PATCHES_MAX];
	size_t nr;
};

/* In order, some side by side, from one source or the other, in its order or not. */
static void some_patches(struct rig *rig, uint64_t seed, size_t max_len, struct patched *ret)
{
	uint64_t x = seed, off = next_random(&x) % 5000, in_order = next_random(&x) % 5000;

	for (ret->nr = 0; ret->nr < PATCHES_MAX; ret->nr++) {
		struct content_patch *p = &ret->p[ret->nr];

		p->from = rig_content(rig, next_random(&x) % 4 ? SOURCE_A : SOURCE_B);
		p->len = next_random(&x) % max_len + 1;
		p->off = off;
		p->from_off = next_random(&x) % 3 ? in_order : next_random(&x) % (LEN - p->len);
		if (p->off + p->len > LEN || p->from_off + p->len > LEN) {
			content_close(p->from);
			break;
		}
		in_order = p->from_off + p->len;
		off += p->len + (next_random(&x) % 3 ? next_random(&x) % (2 * max_len) : 0);
	}
}

static void apply(const struct patched *patched, const uint8_t *a, const uint8_t *b, struct content *c_a, uint8_t *to)
{
	for (size_t i = 0; i < patched->nr; i++) {
		const struct content_patch *p = &patched->p[i];

		memcpy(to + p->off, (p->from == c_a ? a : b) + p->from_off, p->len);
	}
}

static void ranges_are_as_if_copied(void **state)
{
	static const size_t lens[] = { 1, 50, 300, 5000, 200000, 2500000 };
	_cleanup_(freep) uint8_t *a = rig_bytes(LEN, 1), *b = rig_bytes(LEN, 2), *to = rig_bytes(LEN, 3);
	_cleanup_(freep) struct patched *patched = malloc(sizeof(*patched));
	struct rig *rig = *state;
	struct content *c, *c_a;
	uint64_t stored;

	assert_non_null(patched);
	rig_write_bytes(rig, SOURCE_A, a, LEN);
	rig_write_bytes(rig, SOURCE_B, b, LEN);
	rig_write_bytes(rig, TARGET, to, LEN);
	stored = rig_stats(rig).stored_bytes;
	for (size_t i = 0; i < 5 * ARRAY_SIZE(lens); i++) {
		some_patches(rig, i + 1, lens[i % ARRAY_SIZE(lens)], patched);
		assert_true(patched->nr > 0);
		c = rig_content(rig, TARGET);
		c_a = rig_content(rig, SOURCE_A);
		assert_int_equal(content_patch(c, patched->p, patched->nr), 0);
		apply(patched, a, b, c_a, to);
		for (size_t k = 0; k < patched->nr; k++)
			content_close(patched->p[k].from);
		content_close(c_a);
		content_close(c);
		rig_check_bytes(rig, TARGET, to, LEN);
		if (i % 7 == 3)
			rig_reopen(rig);
	}
	assert_int_equal(rig_stats(rig).stored_bytes, stored);
	rig_check_bytes(rig, SOURCE_A, a, LEN);
	rig_crash(rig); /* stats have synced */
	rig_check_bytes(rig, TARGET, to, LEN);
	rig_fsck(rig);
}

/* What a file shares with itself, holes, and more than it had. */
static void sources_may_be_holes_and_the_file_itself(void **state)
{
	_cleanup_(freep) uint8_t *to = rig_bytes(LEN + MiB(1), 3);
	struct rig *rig = *state;
	struct content *c, *hole;
	struct content_patch p[4];

	rig_write_bytes(rig, TARGET, to, LEN);
	c = rig_content(rig, TARGET);
	hole = rig_content(rig, SOURCE_A);
	assert_int_equal(content_truncate(hole, MiB(2)), 0);
	p[0] = (struct content_patch){ c, 100000, 50, 333 };
	p[1] = (struct content_patch){ hole, 4000, 383, 10000 };
	p[2] = (struct content_patch){ hole, MiB(2) - 10, 20000, 30 }; /* behind its end, too */
	p[3] = (struct content_patch){ c, 200001, LEN - 100, 500000 }; /* over the end and into the next segment */
	assert_int_equal(content_patch(c, p, ARRAY_SIZE(p)), 0);
	assert_int_equal(content_patch(c, NULL, 0), 0);
	memcpy(to + 50, to + 100000, 333);
	memset(to + 383, 0, 10000);
	memset(to + 20000, 0, 30);
	memcpy(to + LEN - 100, to + 200001, 500000);
	content_close(hole);
	content_close(c);
	rig_check_bytes(rig, TARGET, to, LEN - 100 + 500000);
	rig_fsck(rig);
}

/* --- versions, each a clone of the one before and some changes --- */

#define NR_VERSIONS 90 /* more than may lie above each other */
#define FIRST_VERSION 100
#define CHANGE 100 /* bytes */

struct lineage {
	uint8_t *newest, *oldest;
	uint64_t random;
};

static bool is_waiting(struct content *c)
{
	bool yes;

	mutex_lock(&c->lock);
	yes = !c->run && c->pending;
	mutex_unlock(&c->lock);
	return yes;
}

/* As a delta does it: what is new lies, one after the other, in a file of its own. */
static void make_version(struct rig *rig, struct lineage *l, uint64_t ino, unsigned nr_changes)
{
	_cleanup_(freep) uint8_t *bytes = rig_bytes(nr_changes * CHANGE, next_random(&l->random));
	struct content *parent = rig_content(rig, ino - 1), *c = rig_content(rig, ino), *staging;
	_cleanup_(freep) struct content_patch *p = calloc(nr_changes, sizeof(*p));
	uint64_t done, off = 0;
	unsigned nr = 0;

	rig_write_bytes(rig, SOURCE_A, bytes, nr_changes * CHANGE);
	staging = rig_content(rig, SOURCE_A);
	if (ino % 3 > 0 && is_waiting(parent))
		content_catch_up_all(parent); /* then all of it is cloned by one reference, else not */
	assert_int_equal(content_clone(parent, 0, c, 0, LEN, &done), 0);
	assert_int_equal(done, LEN);
	for (; nr < nr_changes; nr++) {
		off += next_random(&l->random) % (2 * LEN / nr_changes - CHANGE);
		if (off + CHANGE > LEN)
			break;
		p[nr] = (struct content_patch){ staging, nr * CHANGE, off, CHANGE };
		memcpy(l->newest + off, bytes + nr * CHANGE, CHANGE);
		off += CHANGE;
	}
	assert_int_equal(content_patch(c, p, nr), 0);
	content_close(staging);
	content_close(c);
	content_close(parent);
}

/* A program writes to a version: no other version changes. */
static void write_into(struct rig *rig, uint64_t ino, uint8_t *bytes, uint64_t off)
{
	struct content *c = rig_content(rig, ino);

	rig_pattern(bytes + off, 5000, off);
	assert_int_equal(content_write(c, bytes + off, 5000, off), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

static void a_version_is_what_was_made_of_it_whatever_comes_later(void **state)
{
	struct lineage l = { rig_bytes(LEN, 9), rig_bytes(LEN, 9), 11 };
	struct rig *rig = *state;
	struct gc_conf all = { .delete = true };

	rig_close(rig);
	rig->conf.view_flush_bytes = KiB(700); /* so that some are in the view and some are not */
	rig_open(rig);
	rig_write_bytes(rig, FIRST_VERSION, l.newest, LEN);
	for (uint64_t n = 1; n < NR_VERSIONS; n++) {
		make_version(rig, &l, FIRST_VERSION + n, n % 13 == 5 ? 3 : 150);
		if (n == 40)
			write_into(rig, FIRST_VERSION, l.oldest, MiB(1) - 77);
		if (n % 20 == 3) { /* its parent is not needed any more */
			rig_check_bytes(rig, FIRST_VERSION + n, l.newest, LEN);
			rig_drop(rig, FIRST_VERSION + n - 1);
		}
		if (n % 23 == 22)
			write_into(rig, FIRST_VERSION + n, l.newest, n * 7919);
		if (n % 30 == 12) {
			assert_int_equal(engine_sync(rig->e), 0);
			rig_crash(rig);
		}
		if (n % 30 == 25)
			rig_collect(rig, &all);
	}
	rig_check_bytes(rig, FIRST_VERSION, l.oldest, LEN);
	rig_check_bytes(rig, FIRST_VERSION + NR_VERSIONS - 1, l.newest, LEN);
	rig_collect(rig, &all);
	rig_fsck(rig);
	rig_check_bytes(rig, FIRST_VERSION, l.oldest, LEN);
	rig_check_bytes(rig, FIRST_VERSION + NR_VERSIONS - 1, l.newest, LEN);
	free(l.newest);
	free(l.oldest);
}

/* All that is in the log is in its segments, too. */
static void catch_up(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);

	content_catch_up_all(c);
	assert_null(c->pending);
	content_close(c);
}

/* A thread that stored a part of the file refers to it a little longer than the write waits for it. */
static void wait_until_not_in_memory(struct rig *rig, uint64_t ino)
{
	struct content *c;
	unsigned tries = 0;

	while (content_lookup(rig->e, ino, &c) == 1) {
		content_close(c);
		assert_true(++tries < 60 * 1000);
		usleep(1000);
	}
}

static void wait_until_zero(_Atomic uint64_t *counter)
{
	for (unsigned tries = 0; atomic_load(counter) > 0; tries++) {
		assert_true(tries < 60 * 1000);
		usleep(1000);
	}
}

/* A version takes about as much memory as it changes, and nothing is left of it when it is gone. */
static void versions_share_what_they_have_in_common(void **state)
{
	struct lineage l = { rig_bytes(LEN, 9), NULL, 11 };
	struct rig *rig = *state;
	uint64_t before, first, all;

	rig_write_bytes(rig, FIRST_VERSION, l.newest, LEN);
	before = atomic_load(&rig->e->files->segment_memory);
	make_version(rig, &l, FIRST_VERSION + 1, 500);
	catch_up(rig, FIRST_VERSION + 1);
	first = atomic_load(&rig->e->files->segment_memory) - before;
	for (uint64_t n = 2; n <= 20; n++)
		make_version(rig, &l, FIRST_VERSION + n, 500);
	catch_up(rig, FIRST_VERSION + 20);
	all = atomic_load(&rig->e->files->segment_memory) - before;
	assert_true(all < 40 * first); /* 210, if each had all it consists of */
	rig_check_bytes(rig, FIRST_VERSION + 20, l.newest, LEN);
	for (uint64_t n = 0; n <= 20; n++)
		rig_drop(rig, FIRST_VERSION + n);
	rig_drop(rig, SOURCE_A);
	wait_until_zero(&rig->e->files->segment_memory);
	wait_until_zero(&rig->e->files->dirty_segment_memory);
	free(l.newest);
}

/* Although the view has it and no program has it open. */
static void the_newest_version_stays_in_memory_while_there_is_room(void **state)
{
	struct lineage l = { rig_bytes(LEN, 9), NULL, 11 };
	struct rig *rig = *state;
	struct content *c;

	rig_write_bytes(rig, FIRST_VERSION, l.newest, LEN);
	make_version(rig, &l, FIRST_VERSION + 1, 500);
	assert_int_equal(view_flush(rig->e, false), 0);
	wait_until_not_in_memory(rig, FIRST_VERSION);
	assert_int_equal(content_lookup(rig->e, FIRST_VERSION + 1, &c), 1);
	assert_int_equal(c->nr_segments, LEN / SEGMENT_SIZE + 1);
	content_close(c);
	contents_cool(rig->e);
	wait_until_not_in_memory(rig, FIRST_VERSION + 1);
	rig_check_bytes(rig, FIRST_VERSION + 1, l.newest, LEN);
	free(l.newest);
}

static unsigned nr_warm(struct engine *e)
{
	unsigned nr = 0;

	mutex_lock(&e->files->lock);
	for (unsigned i = 0; i < NR_WARM; i++)
		nr += e->files->warm[i] != NULL;
	mutex_unlock(&e->files->lock);
	return nr;
}

/* Others go first, and of a lineage only the newest version stays. */
static void what_the_next_version_is_made_from_goes_last(void **state)
{
	struct lineage l = { rig_bytes(LEN, 9), NULL, 11 };
	struct rig *rig = *state;
	struct content *c, *first;

	rig_write_bytes(rig, FIRST_VERSION, l.newest, LEN);
	for (uint64_t n = 1; n <= 5; n++)
		make_version(rig, &l, FIRST_VERSION + n, 500);
	assert_int_equal(nr_warm(rig->e), 1);
	assert_int_equal(view_flush(rig->e, false), 0);
	first = rig_content(rig, FIRST_VERSION + 1);
	rig_check_bytes(rig, FIRST_VERSION + 5, l.newest, LEN);
	mutex_lock(&first->lock);
	assert_int_equal(content_segment(first, 0, false, &(struct segment *){ NULL }), 1);
	mutex_unlock(&first->lock);
	contents_trim(rig->e, atomic_load(&rig->e->files->segment_memory) - 1);
	assert_int_equal(first->nr_segments, 0);
	assert_int_equal(content_lookup(rig->e, FIRST_VERSION + 5, &c), 1);
	assert_int_equal(c->nr_segments, LEN / SEGMENT_SIZE + 1);
	content_close(c);
	contents_trim(rig->e, 0);
	wait_until_not_in_memory(rig, FIRST_VERSION + 5);
	content_close(first);
	rig_check_bytes(rig, FIRST_VERSION + 5, l.newest, LEN);
	free(l.newest);
}

/* --- changes that wait for their segments --- */

static void forget_run(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);

	mutex_lock(&c->lock);
	content_forget_run(c);
	mutex_unlock(&c->lock);
	content_close(c);
}

enum deed { READ, STAT, INFO, TRUNCATE, PUNCH, WRITE, CLONE, PATCH, DROP, FLUSH, COLLECT, CRASH, REOPEN, NR_DEEDS };

static void change(struct rig *rig, enum deed deed, struct content *c, uint8_t *bytes)
{
	struct content_patch p = { c, 7, MiB(2) - 50, 3000 };
	struct content_info info;
	struct ns_content st;

	switch (deed) {
	case STAT:
		content_stat(c, &st);
		assert_int_equal(st.size, LEN);
		assert_int_equal(st.mapped, LEN);
		break;
	case INFO:
		assert_int_equal(content_info(c, &info), 0);
		assert_int_equal(info.mapped, LEN);
		assert_true(info.extents > 1000);
		break;
	case TRUNCATE:
		assert_int_equal(content_truncate(c, MiB(1) + 5), 0);
		assert_int_equal(content_truncate(c, LEN), 0);
		memset(bytes + MiB(1) + 5, 0, LEN - MiB(1) - 5);
		break;
	case PUNCH:
		assert_int_equal(content_punch(c, 100, MiB(2)), 0);
		memset(bytes + 100, 0, MiB(2));
		break;
	case WRITE:
		rig_pattern(bytes + 5000, 9000, 77);
		assert_int_equal(content_write(c, bytes + 5000, 9000, 5000), 0);
		break;
	case PATCH:
		assert_int_equal(content_patch(c, &p, 1), 0);
		memcpy(bytes + p.off, bytes + p.from_off, p.len);
		break;
	default:
		break;
	}
	(void)rig;
}

/* The engine closes or goes on without the file being open. */
static void act(struct rig *rig, enum deed deed)
{
	struct gc_conf all = { .delete = true };

	if (deed == FLUSH)
		assert_int_equal(view_flush(rig->e, false), 0);
	if (deed == COLLECT)
		rig_collect(rig, &all);
	if (deed == CRASH) {
		assert_int_equal(engine_sync(rig->e), 0);
		rig_crash(rig);
	}
	if (deed == REOPEN)
		rig_reopen(rig);
}

static void pending_changes_are_visible_to_every_operation(void **state)
{
	struct rig *rig = *state;

	for (unsigned n = 0; n < 2 * NR_DEEDS; n++) {
		enum deed deed = (enum deed)(n / 2);
		uint64_t ino = FIRST_VERSION * (n + 1);
		struct lineage l = { rig_bytes(LEN, 9), NULL, 11 };
		_cleanup_(freep) uint8_t *parent = NULL;
		struct content *c;

		rig_write_bytes(rig, ino, l.newest, LEN);
		make_version(rig, &l, ino + 1, 900);
		catch_up(rig, ino + 1);
		if (n % 2 == 0)
			forget_run(rig, ino + 1);
		make_version(rig, &l, ino + 2, 900);
		c = rig_content(rig, ino + 2);
		assert_non_null(c->pending);
		assert_int_equal(c->nr_segments, n % 2 ? 0 : LEN / SEGMENT_SIZE + 1); /* a run, or not */
		assert_int_equal(c->logged.size, LEN);
		change(rig, deed, c, l.newest);
		content_close(c);
		act(rig, deed);
		if (deed == DROP) {
			rig_drop(rig, ino + 2);
			rig_check_absent(rig, ino + 2);
		} else if (deed == CLONE) {
			parent = malloc(LEN);
			memcpy(parent, l.newest, LEN);
			/* of one that has not caught up, and neither has this one */
			make_version(rig, &l, ino + 3, 900);
			rig_check_bytes(rig, ino + 3, l.newest, LEN);
			rig_check_bytes(rig, ino + 2, parent, LEN);
		} else {
			rig_check_bytes(rig, ino + 2, l.newest, LEN);
		}
		free(l.newest);
	}
	rig_fsck(rig);
}

struct flusher {
	struct rig *rig;
	_Atomic bool stop;
};

static void *flush_always(void *userdata)
{
	struct flusher *f = userdata;

	while (!atomic_load(&f->stop))
		assert_int_equal(view_flush(f->rig->e, false), 0);
	return NULL;
}

/* The view is written out in slices while versions are made of versions that are being written out. */
static void the_view_gets_versions_while_they_are_made(void **state)
{
	struct lineage l = { rig_bytes(LEN, 9), NULL, 17 };
	struct flusher f = { .rig = *state };
	struct rig *rig = *state;
	pthread_t thread;

	rig_write_bytes(rig, FIRST_VERSION, l.newest, LEN);
	assert_int_equal(pthread_create(&thread, NULL, flush_always, &f), 0);
	for (uint64_t n = 1; n < 40; n++) {
		make_version(rig, &l, FIRST_VERSION + n, 700);
		if (n % 8 == 0)
			rig_drop(rig, FIRST_VERSION + n - 4);
	}
	atomic_store(&f.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_crash(rig);
	rig_check_bytes(rig, FIRST_VERSION + 39, l.newest, LEN);
	rig_fsck(rig);
	rig_check_bytes(rig, FIRST_VERSION + 39, l.newest, LEN);
	free(l.newest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(ranges_are_as_if_copied),
		rig_test(sources_may_be_holes_and_the_file_itself),
		rig_test(a_version_is_what_was_made_of_it_whatever_comes_later),
		rig_test(versions_share_what_they_have_in_common),
		rig_test(the_newest_version_stays_in_memory_while_there_is_room),
		rig_test(what_the_next_version_is_made_from_goes_last),
		rig_test(pending_changes_are_visible_to_every_operation),
		rig_test(the_view_gets_versions_while_they_are_made),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
