/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Decoding the next file before it is asked for. */
#include "tests/unit/store/pack/coded_rig.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/pack/reading/pack_ahead.h"

/* --- what is likely read next --- */

#define LEN UINT64_C(300000)

static struct pack_stretch stretch(uint32_t pack, uint64_t from)
{
	return (struct pack_stretch){ pack, from, from + LEN };
}

static void ahead_init(struct pack_ahead *a)
{
	pack_ahead_init(a);
	a->nr_readers = 1;
}

static void has_read(struct pack_ahead *a, struct pack_stretch s, bool is_end)
{
	pack_ahead_read(a, &(struct pack_trail){ s, s.to, is_end });
}

/* It has been read: is there a wish now for what comes behind it? */
static bool makes_wish(struct pack_ahead *a, struct pack_stretch s, bool is_end)
{
	uint64_t at = s.to;
	struct pack_stretch got;

	has_read(a, s, is_end);
	while (pack_ahead_take(a, &got)) { /* frame by frame */
		assert_int_equal(got.pack, s.pack);
		assert_int_equal(got.from, at);
		assert_int_equal(got.from / PACK_FRAME_BYTES, (got.to - 1) / PACK_FRAME_BYTES);
		at = got.to;
		pack_ahead_done(a);
	}
	assert_true(at == s.to || at == s.to + (s.to - s.from));
	return at > s.to;
}

static void a_third_file_is_foreseen(void **state)
{
	struct pack_ahead a;

	(void)state;
	ahead_init(&a);
	assert_false(makes_wish(&a, stretch(1, 0), true));
	for (uint64_t i = 1; i < 20; i++)
		assert_true(makes_wish(&a, stretch(1, i * LEN), true));
	assert_false(makes_wish(&a, stretch(1, 100 * LEN), true)); /* elsewhere */
	assert_false(makes_wish(&a, stretch(2, 20 * LEN), true)); /* another pack */
	assert_true(makes_wish(&a, stretch(1, 20 * LEN + 4096), true)); /* nearly */
	pack_ahead_release(&a);
}

static void within_a_file_the_kernel_reads_ahead(void **state)
{
	struct pack_ahead a;

	(void)state;
	ahead_init(&a);
	for (uint64_t i = 0; i < 9; i++)
		assert_false(makes_wish(&a, stretch(1, i * LEN), false));
	assert_false(makes_wish(&a, stretch(1, 9 * LEN), true)); /* it is unknown whether others follow */
	assert_false(makes_wish(&a, stretch(1, 10 * LEN), false));
	assert_true(makes_wish(&a, stretch(1, 11 * LEN), true));
	assert_false(makes_wish(&a, stretch(1, 12 * LEN), false));
	pack_ahead_release(&a);
}

static void little_is_no_sign(void **state)
{
	struct pack_ahead a;

	(void)state;
	ahead_init(&a);
	for (uint64_t i = 0; i < 40; i++)
		assert_false(makes_wish(&a, (struct pack_stretch){ 1, i * 4096, i * 4096 + 4096 }, true));
	pack_ahead_release(&a);
}

static void while_others_read_nothing_is_wished(void **state)
{
	struct pack_ahead a;

	(void)state;
	ahead_init(&a);
	assert_false(makes_wish(&a, stretch(1, 0), true));
	a.nr_readers = 2;
	assert_false(makes_wish(&a, stretch(1, LEN), true));
	a.nr_readers = 1;
	assert_true(makes_wish(&a, stretch(1, 2 * LEN), true));
	pack_ahead_release(&a);
}

/* Files of several steps in turn. What is decoded for one of too many would be gone before it is wanted. */
static void as_many_trails_as_can_be_held(void **state)
{
	struct pack_ahead a;

	(void)state;
	for (uint32_t nr = 1; nr <= PACK_AHEAD_NR + 2; nr++) {
		ahead_init(&a);
		for (uint64_t i = 0; i < 5; i++)
			for (uint32_t pack = 1; pack <= nr; pack++)
				assert_int_equal(makes_wish(&a, stretch(pack, i * LEN), true), i > 0 && nr <= PACK_AHEAD_NR);
		pack_ahead_release(&a);
	}
}

static void the_first_reader_takes_the_wish_back(void **state)
{
	struct pack_ahead a;
	struct pack_stretch s = stretch(1, LEN), got;

	(void)state;
	ahead_init(&a);
	has_read(&a, stretch(1, 0), true);
	has_read(&a, s, true);
	pack_ahead_claim(&a, &(struct pack_stretch){ 1, 0, s.to }); /* of others than what is wished for */
	pack_ahead_claim(&a, &(struct pack_stretch){ 2, s.to, s.to + 4096 });
	assert_int_equal(a.nr_open, 1);
	pack_ahead_claim(&a, &(struct pack_stretch){ 1, s.to + 4096, s.to + 8192 });
	assert_int_equal(a.nr_open, 0);
	assert_false(pack_ahead_take(&a, &got));
	pack_ahead_release(&a);
}

struct waiter {
	struct pack_ahead *a;
	struct pack_stretch s;
	atomic_bool may_go;
};

static void *claim_thread(void *arg)
{
	struct waiter *w = arg;

	pack_ahead_claim(w->a, &w->s);
	assert_true(w->may_go);
	return NULL;
}

static void a_late_reader_waits(void **state)
{
	struct pack_ahead a;
	struct pack_stretch got, more;
	struct waiter w = { .a = &a };
	pthread_t t;

	(void)state;
	ahead_init(&a);
	has_read(&a, stretch(1, PACK_FRAME_BYTES - 5 * LEN / 2), true);
	has_read(&a, stretch(1, PACK_FRAME_BYTES - 3 * LEN / 2), true);
	assert_true(pack_ahead_take(&a, &got));
	assert_false(pack_ahead_take(&a, &more)); /* of two frames, but one at a time */
	pack_ahead_claim(&a, &(struct pack_stretch){ 1, pack_stretch_at(1, 0), pack_stretch_at(1, 4096) }); /* not at that one */
	w.s = (struct pack_stretch){ 1, 0, 4096 }; /* its frame has one buffer, whatever is wanted of it */
	assert_int_equal(pthread_create(&t, NULL, claim_thread, &w), 0);
	usleep(20000);
	w.may_go = true;
	pack_ahead_done(&a);
	pthread_join(t, NULL);
	pack_ahead_release(&a);
}

/* --- files in packs --- */

enum { NR_FRAMES = 4, PER_FILE = 80, NR_FILES = NR_FRAMES * PACK_FRAME_BLOCKS / PER_FILE }; /* pages */

/* Steps, of which each has its frames with files one behind the other. */
struct files {
	struct rig rig;
	struct addr first[PACK_AHEAD_NR * NR_FRAMES];
};

static void files_init(struct files *f, uint32_t nr_steps)
{
	uint8_t *bytes = aligned_bytes(PACK_FRAME_BYTES);

	memset(coded_gone, 0, sizeof(coded_gone));
	rig_init(&f->rig, (struct packs_conf){ .table_memory = MiB(1), .fate = coded_mark_gone });
	for (uint32_t i = 0; i < nr_steps * NR_FRAMES; i++) {
		struct pack_frame *frame;

		assert_int_equal(packs_frame_open(f->rig.p, PACK_BULK, 4096, &frame), 0);
		for (uint32_t k = 0; k < PACK_FRAME_BLOCKS; k++) {
			uint8_t *page = bytes + k * 4096;
			struct addr a;

			fill_chunk(page, i * PACK_FRAME_BLOCKS + k, 4096);
			a = pack_frame_add(frame, fp_of(&f->rig.key, page, 4096), page);
			f->first[i] = k == 0 ? a : f->first[i];
		}
		write_coded_against(&f->rig, frame, bytes, PACK_FRAME_BYTES, 0, PACK_PART_BYTES * 3);
	}
	rig_sync(&f->rig);
	rig_reopen(&f->rig);
	free(bytes);
}

static uint64_t bytes_read(struct files *f)
{
	struct pack_stats s;

	packs_stats(f->rig.p, &s);
	return s.read_bytes;
}

/* What comes is right. */
static int read_file(struct files *f, uint32_t step, uint32_t file)
{
	uint8_t *got = aligned_bytes(PER_FILE * 4096), *want = aligned_bytes(PER_FILE * 4096);
	struct pack_piece pieces[PER_FILE];
	int r;

	for (uint32_t i = 0; i < PER_FILE; i++) {
		uint32_t page = step * NR_FRAMES * PACK_FRAME_BLOCKS + file * PER_FILE + i;
		struct addr a = f->first[page / PACK_FRAME_BLOCKS];

		a.off += page % PACK_FRAME_BLOCKS * 4096;
		pieces[i] = (struct pack_piece){ a, 4096, got + i * 4096 };
		fill_chunk(want + i * 4096, page, 4096);
	}
	r = packs_read_of_file(f->rig.p, pieces, PER_FILE, true);
	if (r == 0)
		assert_memory_equal(got, want, PER_FILE * 4096);
	free(got);
	free(want);
	return r;
}

static void read_two(struct files *f)
{
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(read_file(f, 0, i), 0);
		packs_read_ahead(f->rig.p);
	}
}

static void the_next_file_is_there_already(void **state)
{
	struct files f;

	(void)state;
	files_init(&f, 1);
	read_two(&f);
	for (uint32_t i = 2; i < NR_FILES; i++) {
		uint64_t before = bytes_read(&f);

		assert_int_equal(read_file(&f, 0, i), 0);
		assert_int_equal(bytes_read(&f), before);
		packs_read_ahead(f.rig.p);
	}
	/* All of it once, but for blocks that parts begin and end in, and for what the first guessed before it knew that
	 * anything is compressed. */
	assert_in_range(bytes_read(&f), f.rig.marks.counts.stored_bytes,
			f.rig.marks.counts.stored_bytes + (PER_FILE + NR_FRAMES + 2 * NR_FILES) * PACK_BLOCK);
	rig_release(&f.rig);
}

static void files_of_several_steps_are_read_in_turn(void **state)
{
	struct files f;

	(void)state;
	files_init(&f, PACK_AHEAD_NR);
	for (uint32_t i = 0; i < NR_FILES; i++)
		for (uint32_t step = 0; step < PACK_AHEAD_NR; step++) {
			uint64_t before = bytes_read(&f);

			assert_int_equal(read_file(&f, step, i), 0);
			assert_int_equal(bytes_read(&f) == before, i > 1);
			packs_read_ahead(f.rig.p);
		}
	rig_release(&f.rig);
}

/* Without a thread that fulfils wishes all is read when it is wanted. */
static void a_reader_without_help_reads_alone(void **state)
{
	struct files f;

	(void)state;
	files_init(&f, 1);
	for (uint32_t i = 0; i < NR_FILES; i++)
		assert_int_equal(read_file(&f, 0, i), 0);
	rig_release(&f.rig);
}

static void what_is_gone_is_not_decoded_ahead(void **state)
{
	struct files f;
	uint64_t before;

	(void)state;
	files_init(&f, 1);
	for (uint32_t i = 2 * PER_FILE / CODED_PER_PART * CODED_PER_PART; i < PACK_FRAME_BLOCKS; i++)
		coded_gone[i / 64] |= UINT64_C(1) << i % 64;
	assert_int_equal(packs_punch(f.rig.p, 1, 0, 4096, PACK_FRAME_BLOCKS, coded_gone), 0);
	packs_forget_table(f.rig.p, 1, 0);
	assert_int_equal(read_file(&f, 0, 0), 0);
	assert_int_equal(read_file(&f, 0, 1), 0);
	before = bytes_read(&f);
	packs_read_ahead(f.rig.p);
	assert_int_equal(bytes_read(&f), before);
	assert_int_equal(read_file(&f, 0, 2), -EBADMSG);
	rig_release(&f.rig);
}

/* Of the third file, before it is decoded ahead and afterwards. */
static void damage_is_met_by_its_reader(void **state)
{
	struct pack_frame_rec rec;
	struct files f;
	uint32_t part = 2 * PER_FILE / CODED_PER_PART + 1;

	(void)state;
	files_init(&f, 1);
	assert_int_equal(packs_frame_rec(f.rig.p, 1, 0, &rec), 1);
	flip_byte(&f.rig, 1, pack_data_off(0) + rec.part_end[part - 1] + 3000);
	rig_reopen(&f.rig);
	read_two(&f);
	assert_int_equal(read_file(&f, 0, 2), -EBADMSG);
	rig_release(&f.rig);

	files_init(&f, 1);
	read_two(&f);
	flip_byte(&f.rig, 1, pack_data_off(0) + rec.part_end[part - 1] + 3000);
	assert_int_equal(read_file(&f, 0, 2), 0);
	rig_release(&f.rig);
}

/* Bytes may be wrong on their way from the disk: no reader gets them later for that. */
static void what_could_not_be_decoded_ahead_is_read_again(void **state)
{
	uint32_t part = 2 * PER_FILE / CODED_PER_PART + 1, at;
	struct pack_frame_rec rec;
	struct files f;

	(void)state;
	files_init(&f, 1);
	assert_int_equal(packs_frame_rec(f.rig.p, 1, 0, &rec), 1);
	at = pack_data_off(0) + rec.part_end[part - 1] + 3000;
	flip_byte(&f.rig, 1, at);
	read_two(&f);
	flip_byte(&f.rig, 1, at); /* back */
	assert_int_equal(read_file(&f, 0, 2), 0);
	rig_release(&f.rig);
}

/* --- several at once --- */

struct crowd {
	struct files *f;
	atomic_uint nr_running;
};

static void *reader_thread(void *arg)
{
	struct crowd *c = arg;

	for (unsigned round = 0; round < 3; round++)
		for (uint32_t i = 0; i < NR_FILES; i++) {
			assert_int_equal(read_file(c->f, 0, i), 0);
			packs_read_ahead(c->f->rig.p);
		}
	c->nr_running--;
	return NULL;
}

static void readers_and_their_helpers(void **state)
{
	struct files f;
	struct crowd c = { .f = &f, .nr_running = 3 };
	pthread_t t[3];

	(void)state;
	files_init(&f, 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, reader_thread, &c), 0);
	while (c.nr_running > 0)
		packs_read_ahead(f.rig.p);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	rig_release(&f.rig);

	/* one reader, and another one that fulfils its wishes: they meet at each frame */
	files_init(&f, 1);
	c.nr_running = 1;
	assert_int_equal(pthread_create(&t[0], NULL, reader_thread, &c), 0);
	while (c.nr_running > 0)
		packs_read_ahead(f.rig.p);
	pthread_join(t[0], NULL);
	rig_release(&f.rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_third_file_is_foreseen),
		cmocka_unit_test(within_a_file_the_kernel_reads_ahead),
		cmocka_unit_test(little_is_no_sign),
		cmocka_unit_test(while_others_read_nothing_is_wished),
		cmocka_unit_test(as_many_trails_as_can_be_held),
		cmocka_unit_test(the_first_reader_takes_the_wish_back),
		cmocka_unit_test(a_late_reader_waits),
		cmocka_unit_test(the_next_file_is_there_already),
		cmocka_unit_test(files_of_several_steps_are_read_in_turn),
		cmocka_unit_test(a_reader_without_help_reads_alone),
		cmocka_unit_test(what_is_gone_is_not_decoded_ahead),
		cmocka_unit_test(damage_is_met_by_its_reader),
		cmocka_unit_test(what_could_not_be_decoded_ahead_is_read_again),
		cmocka_unit_test(readers_and_their_helpers),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("pack_ahead", tests, NULL, NULL);
}
