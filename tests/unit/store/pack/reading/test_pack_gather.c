/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Requests for scattered chunks of many plain frames, which are read at once: with tables in memory or not, and when
 * something is damaged, cannot be read, or is of a kind that is not gathered. */
#include "tests/unit/store/pack/pack_rig.h"

#include <limits.h>

enum { NR = 150, PAGES = 16 }; /* frames, more than are read in one round; pages of each */

struct scattered {
	struct rig rig;
	struct addr first[NR];
	uint8_t *got;
	struct pack_piece pieces[2 * NR];
	uint64_t numbers[2 * NR]; /* content of each piece */
	size_t nr;
};

static void reopen(struct scattered *s)
{
	rig_sync(&s->rig);
	rig_reopen(&s->rig);
}

static void init(struct scattered *s)
{
	*s = (struct scattered){ .got = aligned_bytes(2 * NR * PACK_BLOCK) };
	rig_init(&s->rig, (struct packs_conf){ .table_memory = MiB(4) });
	for (uint64_t i = 0; i < NR; i++)
		s->first[i] = rig_write_frame(&s->rig, PACK_BULK, PACK_BLOCK, i * PAGES, PAGES);
	reopen(s);
}

static void release(struct scattered *s)
{
	free(s->got);
	rig_release(&s->rig);
}

static void want(struct scattered *s, unsigned frame, unsigned page)
{
	struct addr a = { .pack = s->first[frame].pack, .off = s->first[frame].off + page * PACK_BLOCK };

	s->pieces[s->nr] = (struct pack_piece){ a, PACK_BLOCK, s->got + s->nr * PACK_BLOCK };
	s->numbers[s->nr++] = frame * PAGES + page;
}

/* Two pages of each frame, the last frame first. */
static void want_two_of_each(struct scattered *s, unsigned page, unsigned other)
{
	s->nr = 0;
	for (unsigned i = NR; i-- > 0;) {
		want(s, i, page);
		want(s, i, other);
	}
}

/* Result of reading what is wanted. If it is 0, all of it is right. */
static int read_all(struct scattered *s, uint64_t *ret_bytes)
{
	struct pack_stats before, after;
	uint8_t right[PACK_BLOCK];
	int r;

	memset(s->got, 0xa5, 2 * NR * PACK_BLOCK);
	packs_stats(s->rig.p, &before);
	r = packs_read_pieces(s->rig.p, s->pieces, s->nr);
	packs_stats(s->rig.p, &after);
	if (ret_bytes)
		*ret_bytes = after.read_bytes - before.read_bytes;
	for (size_t i = 0; r == 0 && i < s->nr; i++) {
		fill_chunk(right, s->numbers[i], PACK_BLOCK);
		assert_memory_equal(s->pieces[i].buf, right, s->pieces[i].len);
	}
	return r;
}

/* Frame by frame, the gap between them would be read, too. */
static void only_what_is_wanted_is_read(void **state)
{
	struct pack_stats stats;
	struct scattered s;
	uint64_t bytes;

	(void)state;
	init(&s);
	want_two_of_each(&s, 0, PAGES - 1);
	assert_int_equal(read_all(&s, &bytes), 0);
	assert_int_equal(bytes, NR * 3 * PACK_BLOCK); /* with the tables */
	assert_int_equal(read_all(&s, &bytes), 0);
	assert_int_equal(bytes, NR * 2 * PACK_BLOCK);
	want_two_of_each(&s, 4, 7); /* a gap of 8 KiB is cheaper than another read */
	assert_int_equal(read_all(&s, &bytes), 0);
	assert_int_equal(bytes, NR * 4 * PACK_BLOCK);
	packs_stats(s.rig.p, &stats);
	assert_true(stats.parallel_reads);
	release(&s);
}

static void a_damaged_chunk_is_found_and_the_others_are_right(void **state)
{
	const unsigned bad = 77;
	struct pack_stats stats;
	struct scattered s;

	(void)state;
	init(&s);
	flip_byte(&s.rig, s.first[bad].pack, s.first[bad].off + 9 * PACK_BLOCK + 100);
	for (int is_known = 0; is_known < 2; is_known++) {
		want_two_of_each(&s, 2, 9);
		assert_int_equal(read_all(&s, NULL), -EBADMSG);
		want_two_of_each(&s, 2, 10);
		assert_int_equal(read_all(&s, NULL), 0);
	}
	packs_stats(s.rig.p, &stats);
	assert_int_equal(stats.nr_damaged, 1);
	release(&s);
}

static void a_damaged_table_is_found(void **state)
{
	struct scattered s;

	(void)state;
	init(&s);
	flip_byte(&s.rig, s.first[3].pack, s.first[3].off - PACK_BLOCK + 50);
	want_two_of_each(&s, 0, 5);
	assert_int_equal(read_all(&s, NULL), -EBADMSG);
	assert_int_equal(read_all(&s, NULL), -EBADMSG);
	release(&s);
}

struct failing {
	uint64_t from, to; /* reads that overlap it fail */
	unsigned nr_left;
};

static int fail_read(void *userdata, const struct io_event *ev)
{
	struct failing *f = userdata;

	if (ev->op != IO_READ || f->nr_left == 0 || ev->off >= f->to || ev->off + ev->len <= f->from)
		return 0;
	f->nr_left--;
	return -EIO;
}

static void a_failed_read_is_repeated_and_then_reported(void **state)
{
	struct failing f = { .nr_left = 1 };
	struct io_hook hook = { .before = fail_read, .userdata = &f };
	struct scattered s;

	(void)state;
	init(&s);
	f.from = s.first[20].off + 3 * PACK_BLOCK;
	f.to = f.from + PACK_BLOCK;
	want_two_of_each(&s, 3, 12);
	io_set_hook(&hook);
	assert_int_equal(read_all(&s, NULL), 0);
	assert_int_equal(f.nr_left, 0);
	f.nr_left = UINT_MAX;
	assert_int_equal(read_all(&s, NULL), -EIO);
	io_set_hook(NULL);
	assert_int_equal(read_all(&s, NULL), 0);
	release(&s);
}

/* Frames that are not gathered beside others that are: in memory only, compressed, of varied chunks; and pieces that are
 * wanted twice, or in part. */
static void all_kinds_are_read_in_one_request(void **state)
{
	struct scattered s;
	struct pack_frame *open;
	uint8_t text[1000], piece[1000];
	struct addr a;
	void *memory;

	(void)state;
	init(&s);
	rig_compression = (struct pack_compression){ .kind = PACK_COMPRESS_LZ4 };
	s.rig.conf.compression = rig_compression;
	reopen(&s);
	s.first[0] = rig_write_frame(&s.rig, PACK_BULK, PACK_BLOCK, 0, PAGES);
	rig_compression = (struct pack_compression){ 0 };
	s.rig.conf.compression = rig_compression;
	reopen(&s);
	open = rig_fill_frame(&s.rig, PACK_SMALL, PACK_BLOCK, PAGES, PAGES, &s.first[1], &memory);
	free(memory);
	for (int is_cached = 0; is_cached < 2; is_cached++) {
		want_two_of_each(&s, 6, 11);
		s.pieces[40].addr.off += 512; /* neither aligned nor whole */
		s.pieces[40].len = 0x700;
		s.pieces[60] = (struct pack_piece){ s.pieces[61].addr, PACK_BLOCK, s.pieces[60].buf }; /* twice */
		s.numbers[60] = s.numbers[61];
		memset(s.got, 0xa5, 2 * NR * PACK_BLOCK);
		assert_int_equal(packs_read_pieces(s.rig.p, s.pieces, s.nr), 0);
		for (size_t i = 0; i < s.nr; i++) {
			uint8_t right[PACK_BLOCK];

			fill_chunk(right, s.numbers[i], PACK_BLOCK);
			assert_memory_equal(s.pieces[i].buf, right + (i == 40 ? 512 : 0), s.pieces[i].len);
		}
	}
	assert_int_equal(packs_frame_write(s.rig.p, open), 0);

	fill_chunk(text, 1, sizeof(text));
	assert_int_equal(packs_frame_open(s.rig.p, PACK_SMALL, PACK_VARIED, &open), 0);
	a = pack_frame_add_varied(open, fp_of(&s.rig.key, text, sizeof(text)), text, sizeof(text));
	assert_int_equal(packs_frame_write(s.rig.p, open), 0);
	reopen(&s);
	want_two_of_each(&s, 6, 11);
	s.pieces[0] = (struct pack_piece){ a, sizeof(text), piece };
	assert_int_equal(packs_read_pieces(s.rig.p, s.pieces, s.nr), 0);
	assert_memory_equal(piece, text, sizeof(text));
	release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_wanted_is_read),
		cmocka_unit_test(a_damaged_chunk_is_found_and_the_others_are_right),
		cmocka_unit_test(a_damaged_table_is_found),
		cmocka_unit_test(a_failed_read_is_repeated_and_then_reported),
		cmocka_unit_test(all_kinds_are_read_in_one_request),
	};

	return cmocka_run_group_tests_name("pack_gather", tests, NULL, NULL);
}
