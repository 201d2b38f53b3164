/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Reads of many compressed frames: those of one request are decoded by several threads, and as many are held as there
 * is memory for. */
#include "tests/unit/store/pack/coded_rig.h"

#include <pthread.h>

#include "store/pack/pack_buffers.h"

enum { NR = 40, PAGES = 3 * CODED_PER_PART }; /* frames, more than are read at once; pages of each */

struct many {
	struct rig rig;
	struct addr first[NR];
};

static void many_init(struct many *m, uint64_t held_memory)
{
	rig_init(&m->rig, (struct packs_conf){ .table_memory = MiB(1), .held_memory = held_memory });
	for (uint32_t i = 0; i < NR; i++) {
		void *bytes;
		struct pack_frame *f = rig_fill_frame(&m->rig, PACK_BULK, 4096, i * PAGES, PAGES, &m->first[i], &bytes);

		write_coded(&m->rig, f, bytes, PAGES * 4096, 0);
		free(bytes);
	}
	rig_sync(&m->rig);
	rig_reopen(&m->rig);
}

/* A page of each frame but one, the last frame first. What comes is right. */
static int read_pages(struct many *m, uint32_t page, uint32_t without)
{
	uint8_t *got = aligned_bytes(NR * 4096), want[4096];
	struct pack_piece pieces[NR];
	uint32_t nr = 0;
	int r;

	for (uint32_t i = NR; i-- > 0;) {
		struct addr a = { .pack = m->first[i].pack, .off = m->first[i].off + page * 4096 };

		if (i != without)
			pieces[nr++] = (struct pack_piece){ a, 4096, got + i * 4096 };
	}
	r = packs_read_pieces(m->rig.p, pieces, nr);
	for (uint32_t i = 0; r == 0 && i < NR; i++) {
		fill_chunk(want, i * PAGES + page, 4096);
		if (i != without)
			assert_memory_equal(got + i * 4096, want, 4096);
	}
	free(got);
	return r;
}

static void each_page_comes_from_its_frame(void **state)
{
	struct many m;

	(void)state;
	many_init(&m, 0);
	for (uint32_t page = 0; page < PAGES; page += 7)
		assert_int_equal(read_pages(&m, page, NR), 0);
	rig_release(&m.rig);
}

static void damage_of_one_is_reported(void **state)
{
	struct many m;
	uint32_t bad = 29; /* neither of the first that are read, nor of the last */

	(void)state;
	many_init(&m, 0);
	flip_byte(&m.rig, m.first[bad].pack, pack_data_off(bad) + 3000);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(read_pages(&m, 1, NR), -EBADMSG);
		assert_int_equal(read_pages(&m, 1, bad), 0);
	}
	rig_release(&m.rig);
}

static uint64_t bytes_of_reading(struct many *m, uint32_t page)
{
	struct pack_stats before, after;

	packs_stats(m->rig.p, &before);
	assert_int_equal(read_pages(m, page, NR), 0);
	packs_stats(m->rig.p, &after);
	return after.read_bytes - before.read_bytes;
}

static void as_many_are_held_as_there_is_memory_for(void **state)
{
	struct many m;

	(void)state;
	many_init(&m, NR * sizeof(struct pack_buffer));
	assert_true(bytes_of_reading(&m, 0) > 0);
	assert_int_equal(bytes_of_reading(&m, 1), 0);
	assert_int_equal(bytes_of_reading(&m, CODED_PER_PART - 1), 0);
	assert_true(bytes_of_reading(&m, CODED_PER_PART) > 0); /* of the next part */
	rig_release(&m.rig);

	many_init(&m, 0);
	assert_true(bytes_of_reading(&m, 0) > 0);
	assert_true(bytes_of_reading(&m, 1) > 0);
	rig_release(&m.rig);
}

static void *reader(void *arg)
{
	for (uint32_t page = 0; page < PAGES; page += 5)
		assert_int_equal(read_pages(arg, page, NR), 0);
	return NULL;
}

static void several_readers_share_the_helpers(void **state)
{
	pthread_t t[3];
	struct many m;

	(void)state;
	many_init(&m, NR / 2 * sizeof(struct pack_buffer));
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader, &m), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
		pthread_join(t[i], NULL);
	rig_release(&m.rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_page_comes_from_its_frame),
		cmocka_unit_test(damage_of_one_is_reported),
		cmocka_unit_test(as_many_are_held_as_there_is_memory_for),
		cmocka_unit_test(several_readers_share_the_helpers),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
