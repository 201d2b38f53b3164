/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Whatever the overlay and what it wrote say together is what was last applied. */
#include "tests/unit/index/rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/le.h"
#include "index/overlay.h"

#define NR_KEYS 300u
#define NONE UINT64_MAX

/* What the overlay writes to: the version of each key, NONE: not there. */
struct below {
	_Atomic uint64_t version[NR_KEYS];
	unsigned fail; /* every so many writes */
	unsigned nr_writes, nr_changes;
};

static uint64_t value_of(uint64_t version, uint8_t *ret, size_t *ret_len)
{
	*ret_len = 8 + version % 40;
	memset(ret, (int)version, *ret_len);
	memcpy(ret, &version, 8);
	return version;
}

static int take(void *userdata, const struct overlay_change *changes, size_t n)
{
	struct below *b = userdata;
	uint64_t key, version;

	if (b->fail && ++b->nr_writes % b->fail == 0)
		return -EIO;
	for (size_t i = 0; i < n; i++) {
		assert_true(i == 0 || memcmp(changes[i - 1].key, changes[i].key, 8) < 0);
		key = be64_get(changes[i].key);
		assert_true(changes[i].key_len == 8 && key < NR_KEYS);
		if (!changes[i].deleted)
			memcpy(&version, changes[i].value, 8);
		b->version[key] = changes[i].deleted ? NONE : version;
	}
	b->nr_changes += n;
	return 0;
}

static void change(struct buf *list, uint64_t key, uint64_t version)
{
	uint8_t k[8], v[64];
	size_t len = 0;

	be64_put(k, key);
	if (version != NONE)
		value_of(version, v, &len);
	overlay_add(list, &(struct overlay_change){ k, v, sizeof(k), len, version == NONE });
}

static uint64_t look(struct overlay *o, const struct below *b, uint64_t key)
{
	_cleanup_(buf_release) struct buf got = BUF_EMPTY;
	uint8_t k[8], v[64];
	uint64_t version;
	size_t len;
	int r;

	be64_put(k, key);
	r = overlay_get(o, k, sizeof(k), &got);
	assert_true(r >= 0);
	if (r != 1)
		return r == OVERLAY_DELETED ? NONE : b->version[key];
	assert_true(got.len >= 8);
	memcpy(&version, got.data, 8);
	value_of(version, v, &len);
	assert_int_equal(got.len, len);
	assert_memory_equal(got.data, v, len);
	return version;
}

static void below_init(struct below *b)
{
	*b = (struct below){ 0 };
	for (size_t i = 0; i < NR_KEYS; i++)
		b->version[i] = NONE;
}

static void the_last_change_of_each_key_counts(void **state)
{
	uint64_t want[NR_KEYS], random = 1;
	struct overlay *o;
	struct below b;

	(void)state;
	for (unsigned fail = 0; fail < 6; fail += 3) {
		below_init(&b);
		for (size_t i = 0; i < NR_KEYS; i++)
			want[i] = NONE;
		b.fail = fail;
		assert_int_equal(overlay_new(KiB(70), take, &b, &o), 0);
		for (uint64_t version = 1; version < 60000; version++) {
			_cleanup_(buf_release) struct buf list = BUF_EMPTY;

			for (unsigned n = 0; n <= version % 5; n++) {
				random = random * 6364136223846793005 + 1442695040888963407;
				uint64_t key = (random >> 33) % NR_KEYS;

				want[key] = random >> 60 < 5 ? NONE : version;
				change(&list, key, want[key]);
			}
			assert_int_equal(overlay_apply(o, &list), 0);
			if (version % 5000 == 0)
				while (overlay_drain(o) < 0)
					;
			random = random * 6364136223846793005 + 1442695040888963407;
			for (uint64_t i = 0, key = (random >> 33) % NR_KEYS; i < 3; i++, key = (key + 7) % NR_KEYS)
				assert_int_equal(look(o, &b, key), want[key]);
		}
		while (overlay_drain(o) < 0)
			assert_int_not_equal(fail, 0);
		assert_int_equal(overlay_bytes(o), 0);
		for (uint64_t key = 0; key < NR_KEYS; key++)
			assert_int_equal(b.version[key], want[key]);
		assert_in_range(b.nr_changes, NR_KEYS, 60000); /* of 180,000 */
		overlay_free(o);
	}
}

struct reading {
	struct overlay *o;
	struct below *b;
	atomic_bool stop;
};

/* Versions of a key only grow. */
static void *read_all_the_time(void *arg)
{
	struct reading *t = arg;
	uint64_t last[NR_KEYS] = { 0 };

	for (uint64_t key = 0; !t->stop; key = (key + 1) % NR_KEYS) {
		uint64_t now = look(t->o, t->b, key);

		assert_true(now != NONE && now >= last[key]);
		last[key] = now;
	}
	return NULL;
}

static void readers_never_miss_what_is_being_drained(void **state)
{
	struct reading t = { 0 };
	struct below b;
	pthread_t thread;

	(void)state;
	below_init(&b);
	assert_int_equal(overlay_new(KiB(70), take, &b, &t.o), 0);
	t.b = &b;
	for (uint64_t version = 1; version < 30000; version++) {
		_cleanup_(buf_release) struct buf list = BUF_EMPTY;

		change(&list, version % NR_KEYS, version);
		assert_int_equal(overlay_apply(t.o, &list), 0);
		if (version == NR_KEYS)
			assert_int_equal(pthread_create(&thread, NULL, read_all_the_time, &t), 0);
		if (version % 1000 == 0)
			assert_int_equal(overlay_drain(t.o), 0);
	}
	t.stop = true;
	pthread_join(thread, NULL);
	overlay_free(t.o);
}

#define NR_DRAINED 10000u /* in many writes */
#define PATIENCE_NS 100000000

struct slow {
	struct overlay *o;
	pthread_t thread;
	bool has_thread;
	unsigned nr_changes;
	atomic_bool applied, was_applied_before_the_last;
};

static void *apply_one_change(void *arg)
{
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;
	struct slow *s = arg;

	change(&list, NR_DRAINED, 1);
	assert_int_equal(overlay_apply(s->o, &list), 0);
	s->applied = true;
	return NULL;
}

static int take_slowly(void *userdata, const struct overlay_change *changes, size_t n)
{
	struct slow *s = userdata;

	(void)changes;
	if (!s->has_thread)
		assert_int_equal(pthread_create(&s->thread, NULL, apply_one_change, s), 0);
	s->has_thread = true;
	if (s->applied)
		s->was_applied_before_the_last = true;
	else
		nanosleep(&(struct timespec){ .tv_nsec = PATIENCE_NS }, NULL);
	s->nr_changes += (unsigned)n;
	return 0;
}

static void a_change_does_not_wait_for_all_of_a_drain(void **state)
{
	_cleanup_(buf_release) struct buf list = BUF_EMPTY;
	struct slow s = { 0 };

	(void)state;
	assert_int_equal(overlay_new(MiB(8), take_slowly, &s, &s.o), 0);
	for (uint64_t key = 0; key < NR_DRAINED; key++)
		change(&list, key, 1);
	assert_int_equal(overlay_apply(s.o, &list), 0);
	assert_int_equal(overlay_drain(s.o), 0);
	assert_in_range(s.nr_changes, NR_DRAINED, NR_DRAINED + 1);
	pthread_join(s.thread, NULL);
	assert_true(s.was_applied_before_the_last);
	overlay_free(s.o);
}

#define DRAIN_NS 2000000

struct crowd {
	struct overlay *o;
	atomic_uint nr_writes;
};

static int take_for_two(void *userdata, const struct overlay_change *changes, size_t n)
{
	struct crowd *c = userdata;

	(void)changes;
	(void)n;
	c->nr_writes++;
	nanosleep(&(struct timespec){ .tv_nsec = DRAIN_NS }, NULL);
	return 0;
}

static void *drain(void *arg)
{
	struct crowd *c = arg;

	assert_int_equal(overlay_drain(c->o), 0);
	return NULL;
}

/* Both let the change in. A second change, which would wake one that still waits, never comes. */
static void two_drains_end_beside_one_change(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 5; round++) {
		_cleanup_(buf_release) struct buf list = BUF_EMPTY, one = BUF_EMPTY;
		struct crowd c = { 0 };
		pthread_t threads[2];

		assert_int_equal(overlay_new(MiB(8), take_for_two, &c, &c.o), 0);
		for (uint64_t key = 0; key < NR_DRAINED; key++)
			change(&list, key, 1);
		change(&one, NR_DRAINED, 1);
		assert_int_equal(overlay_apply(c.o, &list), 0);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, drain, &c), 0);
		while (c.nr_writes < 3)
			sched_yield();
		assert_int_equal(overlay_apply(c.o, &one), 0);
		for (unsigned i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		overlay_free(c.o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_change_of_each_key_counts),
		cmocka_unit_test(readers_never_miss_what_is_being_drained),
		cmocka_unit_test(a_change_does_not_wait_for_all_of_a_drain),
		cmocka_unit_test(two_drains_end_beside_one_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
