/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/pack/pack_rig.h"

#include <pthread.h>
#include <stdatomic.h>

/* Threads that write and read what others have written, while one syncs. */
enum { NR_WRITERS = 3, NR_ROUNDS = 60 };

struct shared {
	struct rig *rig;
	_Atomic uint64_t published[NR_WRITERS][NR_ROUNDS]; /* pack << 32 | off */
	atomic_uint nr_running;
};

struct writer {
	struct shared *shared;
	unsigned id;
	pthread_t thread;
};

static uint64_t number_of(unsigned writer, unsigned round)
{
	return 100000 * (uint64_t)writer + 300 * round;
}

static unsigned nr_of(unsigned round)
{
	return 1 + round * 37 % 256;
}

static void *writer_thread(void *arg)
{
	struct writer *w = arg;
	struct shared *sh = w->shared;
	unsigned seed = w->id;

	for (unsigned round = 0; round < NR_ROUNDS; round++) {
		enum pack_stream s = (w->id + round) % 3 == 0 ? PACK_SMALL : PACK_BULK;
		struct addr a = ADDR_NONE;
		struct pack_frame *f;
		void *memory;

		f = rig_fill_frame(sh->rig, s, PACK_BLOCK, number_of(w->id, round), nr_of(round), &a, &memory);
		atomic_store(&sh->published[w->id][round], (uint64_t)a.pack << 32 | a.off);
		for (unsigned i = 0; i < 4; i++) {
			unsigned other = (unsigned)rand_r(&seed) % NR_WRITERS;
			unsigned r = (unsigned)rand_r(&seed) % (round + 1);
			uint64_t there = atomic_load(&sh->published[other][r]);
			struct addr b = { .pack = (uint32_t)(there >> 32), .off = (uint32_t)there };

			if (there == 0)
				continue;
			assert_int_equal(rig_check(sh->rig, b, PACK_BLOCK, number_of(other, r), nr_of(r)), 0);
			if (other < w->id) /* lower writers only, so there is no circle */
				assert_int_equal(packs_wait(sh->rig->p, b), 0);
		}
		assert_int_equal(packs_frame_write(sh->rig->p, f), 0);
		free(memory);
	}
	sh->nr_running--;
	return NULL;
}

static void *sync_thread(void *arg)
{
	struct shared *sh = arg;
	struct pack_marks last = { 0 };

	while (sh->nr_running > 0) {
		struct pack_marks m;

		assert_int_equal(packs_sync(sh->rig->p, &m), 0);
		assert_true(m.counts.nr_frames >= last.counts.nr_frames);
		last = m;
		usleep(1000);
	}
	return NULL;
}

static void many_threads_write_read_and_sync(void **state)
{
	struct writer writers[NR_WRITERS];
	struct shared sh = { .nr_running = NR_WRITERS };
	pthread_t syncers[2];
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = MiB(8), .table_memory = KiB(256) });
	sh.rig = &rig;
	for (unsigned i = 0; i < NR_WRITERS; i++) {
		writers[i] = (struct writer){ .shared = &sh, .id = i };
		assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_thread, &writers[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&syncers[i], NULL, sync_thread, &sh), 0);
	for (unsigned i = 0; i < NR_WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(syncers[i], NULL);
	rig_sync(&rig);
	assert_int_equal(rig.marks.counts.nr_frames, NR_WRITERS * NR_ROUNDS);
	rig_reopen(&rig);
	for (unsigned w = 0; w < NR_WRITERS; w++)
		for (unsigned r = 0; r < NR_ROUNDS; r++) {
			struct addr a = { .pack = (uint32_t)(sh.published[w][r] >> 32),
					  .off = (uint32_t)sh.published[w][r] };

			assert_int_equal(rig_check(&rig, a, PACK_BLOCK, number_of(w, r), nr_of(r)), 0);
		}
	rig_release(&rig);
}

/* Marks of a sync that ran among writers count the frames below them and no others. */
static void marks_are_exact_while_others_write(void **state)
{
	struct writer writers[NR_WRITERS];
	struct shared sh = { .nr_running = NR_WRITERS };
	struct pack_marks marks[32];
	unsigned nr_marks = 0;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = MiB(8), .table_memory = KiB(256) });
	sh.rig = &rig;
	for (unsigned i = 0; i < NR_WRITERS; i++) {
		writers[i] = (struct writer){ .shared = &sh, .id = i };
		assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_thread, &writers[i]), 0);
	}
	while (sh.nr_running > 0 && nr_marks < ARRAY_SIZE(marks))
		assert_int_equal(packs_sync(rig.p, &marks[nr_marks++]), 0);
	for (unsigned i = 0; i < NR_WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
	packs_close(rig.p);
	while (nr_marks-- > 0) { /* the later first: opening cuts */
		struct pack_counts counts = { 0 };
		struct pack_frame_rec rec;
		struct pack_iter it;

		rig.marks = marks[nr_marks];
		rig_open(&rig);
		it = pack_iter(rig.p, 0, 0);
		while (pack_iter_next(&it, &rec) > 0) {
			assert_false(rec.damaged);
			counts.nr_frames++;
			counts.nr_chunks += rec.nr_chunks;
			counts.chunk_bytes += rec.nr_chunks * rec.chunk_len;
		}
		assert_counts(rig.marks.counts, counts);
		packs_close(rig.p);
	}
	rig.p = NULL;
	rig_release(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_threads_write_read_and_sync),
		cmocka_unit_test(marks_are_exact_while_others_write),
	};

	int r;

	log_set_level(LOG_LEVEL_ERROR);
	r = cmocka_run_group_tests_name("packs_threads", tests, NULL, NULL);
	rig_compression.kind = PACK_COMPRESS_ZSTD;
	return r + cmocka_run_group_tests_name("packs_threads, zstd", tests, NULL, NULL);
}
