/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Many threads at once: exact dedup, right bytes, no lost acknowledgement. Made to be run under TSan. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"
#include "store/pack/pack.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"

#define NR_THREADS 4
#define FILE_BYTES (MiB(3) + 4096 * 5)

struct thread {
	pthread_t id;
	struct rig *rig;
	unsigned nr;
};

static void in_threads(struct rig *rig, void *(*f)(void *))
{
	struct thread t[NR_THREADS];

	for (unsigned i = 0; i < NR_THREADS; i++) {
		t[i] = (struct thread){ .rig = rig, .nr = i };
		assert_int_equal(pthread_create(&t[i].id, NULL, f, &t[i]), 0);
	}
	for (unsigned i = 0; i < NR_THREADS; i++)
		pthread_join(t[i].id, NULL);
}

static size_t same_bytes;
static unsigned same_seed;
static pthread_barrier_t all_ready;

static void *write_the_same(void *arg)
{
	struct thread *t = arg;

	pthread_barrier_wait(&all_ready);
	rig_write(t->rig, 100 + t->nr, same_bytes, same_seed);
	return NULL;
}

static void the_same_new_pages_from_all_sides_are_stored_once(void **state)
{
	struct rig *rig = *state;

	same_bytes = FILE_BYTES;
	same_seed = 77;
	in_threads(rig, write_the_same);
	assert_int_equal(rig_stats(rig).stored_bytes, FILE_BYTES);
	for (unsigned i = 0; i < NR_THREADS; i++)
		rig_check(rig, 100 + i, FILE_BYTES, 77);
}

/* Writers that bring the same pages at the same time must not take turns: all would read from many frames ever after. */
static void the_same_new_pages_from_all_sides_stay_together(void **state)
{
	struct rig *rig = *state;

	for (unsigned round = 0; round < 40; round++) {
		same_bytes = 16 * PACK_FRAME_BYTES;
		same_seed = 1000 + round;
		in_threads(rig, write_the_same);
		for (unsigned i = 0; i < NR_THREADS; i++) {
			struct content *c = rig_content(rig, 100 + i);
			struct content_info info;

			assert_int_equal(content_info(c, &info), 0);
			assert_int_equal(info.frames, 16);
			content_close(c);
		}
	}
}

#define SCATTERED_PAGES (FILE_BYTES / 4096)

/* Every 20th page of a common file changed: by turns as all threads do, and as this one does. */
static uint8_t *scattered_bytes(unsigned nr)
{
	uint8_t *p = rig_bytes(FILE_BYTES, 78);

	for (size_t i = 0, page = 3; page < SCATTERED_PAGES; i++, page += 20)
		p[page * 4096 + 5] ^= (uint8_t)(i % 2 ? 0x77 : 0x10 + nr);
	return p;
}

static void *write_scattered(void *arg)
{
	struct thread *t = arg;
	_cleanup_(freep) uint8_t *p = scattered_bytes(t->nr);

	pthread_barrier_wait(&all_ready);
	rig_write_bytes(t->rig, 150 + t->nr, p, FILE_BYTES);
	return NULL;
}

static void scattered_new_pages_of_all_sides_are_stored_once(void **state)
{
	unsigned nr_changed = (SCATTERED_PAGES - 3 + 19) / 20, nr_common = nr_changed / 2;
	struct rig *rig = *state;

	rig_write(rig, 149, FILE_BYTES, 78);
	in_threads(rig, write_scattered);
	assert_int_equal(rig_stats(rig).stored_bytes,
			 (SCATTERED_PAGES + nr_common + NR_THREADS * (nr_changed - nr_common)) * 4096);
	rig_crash(rig);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		_cleanup_(freep) uint8_t *p = scattered_bytes(i);

		rig_check_bytes(rig, 150 + i, p, FILE_BYTES);
	}
}

static void *append_and_sync(void *arg)
{
	struct thread *t = arg;
	struct content *c = rig_content(t->rig, 200 + t->nr);
	uint8_t piece[5000];

	for (unsigned i = 0; i < 60; i++) {
		memset(piece, (int)(t->nr * 60 + i), sizeof(piece));
		assert_int_equal(content_write(c, piece, sizeof(piece), CONTENT_APPEND), 0);
		assert_int_equal(content_sync(c), 0);
	}
	content_close(c);
	return NULL;
}

static void synced_appends_of_all_threads_survive(void **state)
{
	struct rig *rig = *state;
	uint8_t got[5000];

	in_threads(rig, append_and_sync);
	rig_crash(rig);
	for (unsigned n = 0; n < NR_THREADS; n++) {
		struct content *c = rig_content(rig, 200 + n);

		for (unsigned i = 0; i < 60; i++) {
			assert_int_equal(content_read(c, got, sizeof(got), i * sizeof(got)), sizeof(got));
			for (size_t k = 0; k < sizeof(got); k++)
				assert_int_equal(got[k], (uint8_t)(n * 60 + i));
		}
		content_close(c);
	}
}

/* One file, each thread its own pages; reading what is being written gives old or new, never other bytes. */
static void *overwrite_own_pages(void *arg)
{
	struct thread *t = arg;
	struct content *c = rig_content(t->rig, 300);
	uint8_t page[4096], got[4096];

	for (unsigned i = 0; i < 200; i++) {
		uint64_t off = (i % 50 * NR_THREADS + t->nr) * 4096;

		rig_pattern(page, sizeof(page), off + i);
		assert_int_equal(content_write(c, page, sizeof(page), off), 0);
		assert_int_equal(content_read(c, got, sizeof(got), off), sizeof(got));
		assert_memory_equal(got, page, sizeof(page));
	}
	content_close(c);
	return NULL;
}

static void threads_in_one_file_see_their_own_writes(void **state)
{
	in_threads(*state, overwrite_own_pages);
}

/* As the kernel splits writes from unaligned memory: whole pages from the request, the rest of the last staged. */
static void *write_odd_requests(void *arg)
{
	struct thread *t = arg;
	struct content *c = rig_content(t->rig, 400 + t->nr);
	_cleanup_(freep) uint8_t *want = malloc(MiB(8)), *got = malloc(MiB(8));
	uint64_t off = 0;

	rig_pattern(want, MiB(8), 1000 + t->nr);
	while (off < MiB(8)) {
		size_t len = MIN(MiB(8) - off, (uint64_t)(off % 4096 ? 4096 - off % 4096 : 70000 + t->nr * 512));
		struct engine_buffer *b;
		struct job *later;

		assert_int_equal(engine_buffer_get(t->rig->e, &b), 0);
		memcpy(b->data, want + off, len);
		assert_int_equal(content_write_buffer(c, &b, b->data, len, off, &later), 0);
		if (later && off / 4096 % 2)
			job_run(later);
		else
			job_queue(later);
		engine_buffer_put(t->rig->e, b);
		off += len;
	}
	assert_int_equal(content_read(c, got, MiB(8), 0), MiB(8));
	assert_memory_equal(got, want, MiB(8));
	content_close(c);
	return NULL;
}

static void requests_that_end_inside_a_page_keep_their_tails(void **state)
{
	in_threads(*state, write_odd_requests);
}

static int setup_with_tiny_steps(void **state)
{
	struct rig *rig;
	int r = rig_setup(state);

	rig = *state;
	if (r < 0)
		return r;
	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig->conf.journal_segment = KiB(64);
	rig->conf.snapshot_bytes = KiB(16);
	rig->conf.view_flush_bytes = KiB(16);
	rig->conf.ingest_entries = 300;
	rig->conf.dirty = MiB(24);
	rig->conf.processors = 16; /* more bulk streams and workers */
	rig->conf.commit_s = 1;
	rig_open(rig);
	return 0;
}

int main(void)
{
#define WITH_TINY_STEPS(f) cmocka_unit_test_setup_teardown(f, setup_with_tiny_steps, rig_teardown)
	const struct CMUnitTest tests[] = {
		rig_test(the_same_new_pages_from_all_sides_are_stored_once),
		rig_test(the_same_new_pages_from_all_sides_stay_together),
		rig_test(scattered_new_pages_of_all_sides_are_stored_once),
		rig_test(synced_appends_of_all_threads_survive),
		rig_test(threads_in_one_file_see_their_own_writes),
		rig_test(requests_that_end_inside_a_page_keep_their_tails),
		WITH_TINY_STEPS(requests_that_end_inside_a_page_keep_their_tails),
		WITH_TINY_STEPS(the_same_new_pages_from_all_sides_are_stored_once),
		WITH_TINY_STEPS(scattered_new_pages_of_all_sides_are_stored_once),
		WITH_TINY_STEPS(synced_appends_of_all_threads_survive),
		WITH_TINY_STEPS(threads_in_one_file_see_their_own_writes),
	};

	log_set_level(LOG_LEVEL_ERROR);
	pthread_barrier_init(&all_ready, NULL, NR_THREADS);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
