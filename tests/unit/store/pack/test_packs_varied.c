/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks of varied lengths: their tables, reading, hints, healing, giving back, mending. Each test runs plain and
 * compressed. */
#include "tests/unit/store/pack/pack_rig.h"

#include "store/pack/repair/pack_repair.h"

#define NR 200u

struct chunks {
	struct addr addr[NR];
	uint32_t off[NR + 1]; /* in all bytes */
	uint8_t *bytes;
};

/* 1 to 9001 bytes, in no order; number 7 is the longest there is. */
static uint32_t len_of(unsigned i)
{
	return i == 7 ? PACK_VARIED_LEN_MAX : (i * 2654435761u >> 7) % 9001 + 1;
}

static struct chunks *chunks_new(void)
{
	struct chunks *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	for (unsigned i = 0; i < NR; i++)
		c->off[i + 1] = c->off[i] + len_of(i);
	assert_true(c->off[NR] < PACK_FRAME_BYTES && c->off[NR] % PACK_BLOCK != 0);
	c->bytes = aligned_bytes(c->off[NR] + 8);
	fill_chunk(c->bytes, 5, (uint32_t)round_up(c->off[NR], 8));
	return c;
}

static void chunks_free(struct chunks *c)
{
	free(c->bytes);
	free(c);
}

static struct pack_frame *fill(struct rig *rig, struct chunks *c)
{
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_SMALL, PACK_VARIED, &f), 0);
	for (unsigned i = 0; i < NR; i++) {
		uint32_t len = c->off[i + 1] - c->off[i];

		assert_true(pack_frame_takes(f, len));
		c->addr[i] =
			pack_frame_add_varied(f, fp_of(&rig->key, c->bytes + c->off[i], len), c->bytes + c->off[i], len);
		assert_int_equal(c->addr[i].off, pack_data_off(0) + c->off[i]);
		assert_int_equal(pack_frame_last(f), i);
	}
	return f;
}

static struct chunks *rig_with_chunks(struct rig *rig)
{
	struct chunks *c = chunks_new();

	rig_init(rig, (struct packs_conf){ .table_memory = MiB(1) });
	assert_int_equal(packs_frame_write(rig->p, fill(rig, c)), 0);
	rig_sync(rig);
	return c;
}

static int read_and_compare(struct rig *rig, const struct chunks *c, uint32_t off, uint32_t len)
{
	struct addr a = c->addr[0];
	uint8_t *got = malloc(len);
	int r;

	a.off += off;
	r = packs_read(rig->p, a, len, got);
	if (r == 0)
		r = memcmp(got, c->bytes + off, len) != 0;
	free(got);
	return r;
}

static void read_everything(struct rig *rig, const struct chunks *c)
{
	assert_int_equal(read_and_compare(rig, c, 0, c->off[NR]), 0);
	for (unsigned i = 0; i < NR; i++) {
		uint32_t len = c->off[i + 1] - c->off[i];

		assert_int_equal(read_and_compare(rig, c, c->off[i], len), 0);
		assert_int_equal(read_and_compare(rig, c, c->off[i] + len / 2, 1), 0);
		if (i + 3 < NR)
			assert_int_equal(
				read_and_compare(rig, c, c->off[i] + len / 2, c->off[i + 3] - c->off[i] - len / 2), 0);
	}
	assert_int_equal(read_and_compare(rig, c, c->off[NR] - 1, 1), 0);
	assert_int_equal(read_and_compare(rig, c, c->off[NR] - 1, 2), -EBADMSG);
}

static void chunks_are_read_from_memory_and_disk(void **state)
{
	struct chunks *c = chunks_new();
	struct pack_frame *f;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = fill(&rig, c);
	read_everything(&rig, c);
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	read_everything(&rig, c);
	rig_sync(&rig);
	assert_counts(rig.marks.counts,
		      (struct pack_counts){ .nr_frames = 1, .nr_chunks = NR, .chunk_bytes = c->off[NR] });
	rig_reopen(&rig);
	read_everything(&rig, c);
	rig_reopen(&rig);
	assert_int_equal(read_and_compare(&rig, c, c->off[100] + 1, c->off[110] - c->off[100] - 2), 0);
	chunks_free(c);
	rig_release(&rig);
}

static void several_pieces_of_a_frame_are_one_request(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	uint8_t *got = malloc(c->off[NR]);
	struct pack_piece pieces[NR / 2];

	(void)state;
	rig_reopen(&rig);
	for (unsigned i = 0; i < NR; i += 2)
		pieces[i / 2] = (struct pack_piece){ c->addr[i], c->off[i + 1] - c->off[i], got + c->off[i] };
	assert_int_equal(packs_read_pieces(rig.p, pieces, NR / 2), 0);
	for (unsigned i = 0; i < NR; i += 2)
		assert_memory_equal(got + c->off[i], c->bytes + c->off[i], c->off[i + 1] - c->off[i]);
	free(got);
	chunks_free(c);
	rig_release(&rig);
}

static void a_frame_takes_225_chunks_or_1_mib(void **state)
{
	uint8_t *bytes = aligned_bytes(PACK_VARIED_LEN_MAX);
	struct pack_frame *f;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ 0 });
	fill_chunk(bytes, 1, PACK_VARIED_LEN_MAX);
	assert_int_equal(packs_frame_open(rig.p, PACK_BULK, PACK_VARIED, &f), -EINVAL);
	assert_int_equal(packs_frame_open(rig.p, PACK_SMALL, PACK_VARIED, &f), 0);
	for (unsigned i = 0; i < 225; i++) {
		assert_true(pack_frame_takes(f, 1));
		pack_frame_add_varied(f, fp_of(&rig.key, bytes + i, 1), bytes + i, 1);
	}
	assert_false(pack_frame_takes(f, 1));
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	assert_int_equal(packs_frame_open(rig.p, PACK_SMALL, PACK_VARIED, &f), 0);
	for (unsigned i = 0; i < 15; i++)
		pack_frame_add_varied(f, fp_of(&rig.key, bytes, PACK_VARIED_LEN_MAX), bytes, PACK_VARIED_LEN_MAX);
	pack_frame_add_varied(f, fp_of(&rig.key, bytes, 9), bytes, 9);
	assert_false(pack_frame_takes(f, PACK_VARIED_LEN_MAX - 8));
	assert_true(pack_frame_takes(f, PACK_VARIED_LEN_MAX - 9));
	pack_frame_add_varied(f, fp_of(&rig.key, bytes, PACK_VARIED_LEN_MAX - 9), bytes, PACK_VARIED_LEN_MAX - 9);
	assert_false(pack_frame_takes(f, 1));
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	rig_sync(&rig);
	assert_counts(rig.marks.counts,
		      (struct pack_counts){ .nr_frames = 2, .nr_chunks = 242, .chunk_bytes = 225 + MiB(1) });
	free(bytes);
	rig_release(&rig);
}

static void hints_lead_to_chunks_by_their_number(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	struct addr pages = rig_write_frame(&rig, PACK_BULK, 8192, 50, 3), start;
	uint32_t len;
	struct fp fp;

	(void)state;
	for (unsigned i = 0; i <= NR; i++) {
		struct addr hint = { .pack = 1, .off = pack_hint(c->addr[i % NR], (uint8_t)i) * PACK_BLOCK };

		assert_int_equal(hint.off, pack_data_off(0) + i * PACK_BLOCK);
		assert_int_equal(packs_find(rig.p, hint, &start, &len, &fp), i < NR);
		if (i == NR)
			break;
		assert_true(addr_equal(start, c->addr[i]));
		assert_int_equal(len, c->off[i + 1] - c->off[i]);
		assert_true(fp_equal(fp, fp_of(&rig.key, c->bytes + c->off[i], len)));
	}
	assert_int_equal(packs_find(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) + 1 }, &start, &len, &fp),
			 0);
	/* Of pages it is where they begin. */
	pages.off += 8192;
	assert_int_equal(packs_find(rig.p, pages, &start, &len, &fp), 1);
	assert_true(addr_equal(start, pages));
	assert_int_equal(len, 8192);
	pages.off += 4096;
	assert_int_equal(packs_find(rig.p, pages, &start, &len, &fp), 0);
	chunks_free(c);
	rig_release(&rig);
}

static void chunks_are_reported_by_where_they_begin(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	struct pack_chunk got[NR + 1];
	struct addr a, start;
	uint32_t len;
	struct fp fp;

	(void)state;
	assert_int_equal(packs_chunks(rig.p, c->addr[10], MiB(2), NR + 1, got), NR - 10);
	for (unsigned i = 10; i < NR; i++) {
		assert_int_equal(got[i - 10].off, c->addr[i].off);
		assert_int_equal(got[i - 10].len, c->off[i + 1] - c->off[i]);
		assert_true(fp_equal(got[i - 10].fp, fp_of(&rig.key, c->bytes + c->off[i], got[i - 10].len)));
	}
	assert_int_equal(packs_chunks(rig.p, c->addr[10], MiB(1), 3, got), 3);
	assert_int_equal(packs_chunks(rig.p, c->addr[10], c->off[12] - c->off[10], NR, got), 2);
	assert_int_equal(packs_chunks(rig.p, c->addr[10], c->off[12] - c->off[10] + 1, NR, got), 3);
	a = c->addr[7];
	a.off++;
	assert_int_equal(packs_chunks(rig.p, a, MiB(1), 3, got), 0);
	assert_int_equal(packs_fps(rig.p, c->addr[0], PACK_BLOCK, 1, &fp), 0); /* no page */
	a.off = c->addr[8].off - 1;
	assert_int_equal(packs_chunk_at(rig.p, a, &start, &len, &fp), 1);
	assert_int_equal(start.off, c->addr[7].off);
	assert_int_equal(len, PACK_VARIED_LEN_MAX);
	a.off = pack_data_off(0) + c->off[NR];
	assert_int_equal(packs_chunk_at(rig.p, a, &start, &len, &fp), 0);
	chunks_free(c);
	rig_release(&rig);
}

static void frames_are_listed_with_their_cuts(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct pack_iter it = pack_iter(rig.p, 1, 0);

	(void)state;
	assert_int_equal(pack_iter_next(&it, rec), 1);
	assert_int_equal(rec->chunk_len, PACK_VARIED);
	assert_int_equal(rec->nr_chunks, NR);
	for (unsigned i = 0; i < NR; i++) {
		assert_true(addr_equal(pack_rec_addr(rec, i), c->addr[i]));
		assert_int_equal(pack_rec_len(rec, i), c->off[i + 1] - c->off[i]);
		assert_int_equal(pack_rec_number(rec, i), i);
	}
	assert_int_equal(packs_frame_rec(rig.p, 1, 0, rec), 1);
	assert_int_equal(rec->nr_chunks, NR);
	assert_int_equal(packs_frame_rec(rig.p, 1, 1, rec), 0);
	free(rec);
	chunks_free(c);
	rig_release(&rig);
}

static uint64_t gone_words[PACK_GONE_WORDS];

static int report_gone(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	(void)userdata, (void)pack, (void)frame;
	memcpy(ret->gone, gone_words, sizeof(gone_words));
	return PACK_GONE;
}

static void giving_back_leaves_neighbours_alone(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	blkcnt_t before = pack_stat(&rig, 1).st_blocks;

	(void)state;
	memset(gone_words, 0, sizeof(gone_words));
	for (unsigned i = 0; i < NR; i++)
		if (i % 3 != 0 || i < 40)
			gone_words[i / 64] |= UINT64_C(1) << i % 64;
	rig.conf.fate = report_gone;
	rig_reopen(&rig);
	assert_int_equal(packs_punch(rig.p, 1, 0, PACK_VARIED, NR, gone_words), 0);
	assert_true(pack_stat(&rig, 1).st_blocks < before);
	for (unsigned i = 0; i < NR; i++) {
		bool is_gone = gone_words[i / 64] >> i % 64 & 1;

		assert_int_equal(read_and_compare(&rig, c, c->off[i], c->off[i + 1] - c->off[i]), is_gone ? -EBADMSG : 0);
	}
	memset(gone_words, 0xff, sizeof(gone_words));
	assert_int_equal(packs_punch(rig.p, 1, 0, PACK_VARIED, NR, gone_words), 0);
	assert_true(pack_stat(&rig, 1).st_blocks <= 16); /* the header, and what the filesystem needs to say so */
	assert_int_equal(packs_punch(rig.p, 1, 0, PACK_VARIED, NR, gone_words), 0);
	chunks_free(c);
	rig_release(&rig);
}

static void a_damaged_chunk_is_repaired_and_its_neighbours_stay(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);

	(void)state;
	for (unsigned i = 0; i < NR; i += 13) {
		uint32_t len = c->off[i + 1] - c->off[i];

		if (rig_compression.kind != PACK_COMPRESS_NONE)
			break; /* its place is not its own: test_packs_compress.c */
		flip_byte(&rig, 1, c->addr[i].off + len / 2);
		assert_int_equal(read_and_compare(&rig, c, c->off[i], len), -EBADMSG);
		assert_true(packs_is_damaged(rig.p, c->addr[i]));
		assert_int_equal(packs_repair_chunk(rig.p, c->addr[i], c->bytes + c->off[i] + 1, len), -EINVAL);
		assert_int_equal(packs_repair_chunk(rig.p, c->addr[i], c->bytes + c->off[i], len), 0);
		assert_false(packs_is_damaged(rig.p, c->addr[i]));
		assert_int_equal(read_and_compare(&rig, c, 0, c->off[NR]), 0);
	}
	rig_reopen(&rig);
	read_everything(&rig, c);
	chunks_free(c);
	rig_release(&rig);
}

/* The last part has one byte, which no codec makes smaller. */
static void a_frame_may_end_one_byte_into_a_part(void **state)
{
	uint8_t *bytes = aligned_bytes(PACK_PART_BYTES + 1), *got = aligned_bytes(PACK_PART_BYTES + 1);
	struct pack_frame *f;
	struct addr a;
	struct rig rig;

	(void)state;
	fill_chunk(bytes, 5, PACK_PART_BYTES);
	bytes[PACK_PART_BYTES] = 7;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	assert_int_equal(packs_frame_open(rig.p, PACK_SMALL, PACK_VARIED, &f), 0);
	a = pack_frame_add_varied(f, fp_of(&rig.key, bytes, PACK_PART_BYTES), bytes, PACK_PART_BYTES);
	pack_frame_add_varied(f, fp_of(&rig.key, bytes + PACK_PART_BYTES, 1), bytes + PACK_PART_BYTES, 1);
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	rig_sync(&rig);
	rig_reopen(&rig);
	assert_int_equal(packs_read(rig.p, a, PACK_PART_BYTES + 1, got), 0);
	assert_memory_equal(got, bytes, PACK_PART_BYTES + 1);
	free(bytes);
	free(got);
	rig_release(&rig);
}

static void wipe_bytes(struct rig *rig, uint64_t off, size_t len)
{
	static const uint8_t zeros[512];
	int fd = openat(rig->dirfd, pack_name(1).s, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0 && len <= sizeof(zeros));
	assert_int_equal(pwrite(fd, zeros, len, (off_t)off), len);
	close(fd);
}

/* Any byte of the table changes: all chunks are proved, or all but the one of the changed entry. */
static void a_table_with_a_changed_byte_is_repaired(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	struct pack_salvage *s = malloc(sizeof(*s));

	(void)state;
	for (uint32_t at = 0; at < PACK_BLOCK && rig_compression.kind == PACK_COMPRESS_NONE; at += 7) {
		unsigned nr_proved = 0;

		flip_byte(&rig, 1, pack_table_off(0) + at);
		rig_reopen(&rig);
		assert_int_equal(read_and_compare(&rig, c, 0, 1), -EBADMSG);
		assert_int_equal(packs_salvage_table(rig.p, 1, 0, s), 1);
		assert_int_equal(s->chunk_len, PACK_VARIED);
		for (unsigned i = 0; i < NR; i++) {
			assert_int_equal(s->ends[i], c->off[i + 1]);
			nr_proved += s->proved[i];
		}
		assert_int_equal(nr_proved, NR);
		assert_int_equal(packs_repair_table(rig.p, s), 0);
		rig_reopen(&rig);
		assert_int_equal(read_and_compare(&rig, c, 0, c->off[NR]), 0);
	}
	free(s);
	chunks_free(c);
	rig_release(&rig);
}

static void a_table_without_a_sector_is_repaired_but_for_the_chunks_in_it(void **state)
{
	struct rig rig;
	struct chunks *c = rig_with_chunks(&rig);
	struct pack_salvage *s = malloc(sizeof(*s));
	unsigned first = (1024 - 256) / 17, end = (1536 - 256) / 17 + 1;

	(void)state;
	if (rig_compression.kind == PACK_COMPRESS_NONE) {
		wipe_bytes(&rig, pack_table_off(0) + 1024, 512);
		rig_reopen(&rig);
		assert_int_equal(packs_salvage_table(rig.p, 1, 0, s), 1);
		for (unsigned i = 0; i < NR; i++)
			assert_int_equal(s->proved[i], i < first || i >= end);
		assert_int_equal(packs_repair_table(rig.p, s), 0);
		rig_reopen(&rig);
		assert_int_equal(read_and_compare(&rig, c, 0, c->off[first]), 0);
		assert_int_equal(read_and_compare(&rig, c, c->off[first], c->off[end] - c->off[first]), -EBADMSG);
		assert_int_equal(read_and_compare(&rig, c, c->off[end], c->off[NR] - c->off[end]), 0);
	}
	free(s);
	chunks_free(c);
	rig_release(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(chunks_are_read_from_memory_and_disk),
	cmocka_unit_test(several_pieces_of_a_frame_are_one_request),
	cmocka_unit_test(a_frame_takes_225_chunks_or_1_mib),
	cmocka_unit_test(hints_lead_to_chunks_by_their_number),
	cmocka_unit_test(chunks_are_reported_by_where_they_begin),
	cmocka_unit_test(frames_are_listed_with_their_cuts),
	cmocka_unit_test(giving_back_leaves_neighbours_alone),
	cmocka_unit_test(a_damaged_chunk_is_repaired_and_its_neighbours_stay),
	cmocka_unit_test(a_frame_may_end_one_byte_into_a_part),
	cmocka_unit_test(a_table_with_a_changed_byte_is_repaired),
	cmocka_unit_test(a_table_without_a_sector_is_repaired_but_for_the_chunks_in_it),
};

int main(void)
{
	int r;

	log_set_level(LOG_LEVEL_ERROR);
	r = cmocka_run_group_tests_name("packs_varied", tests, NULL, NULL);
	rig_compression = (struct pack_compression){ .kind = PACK_COMPRESS_LZ4 };
	return r != 0 ? r : cmocka_run_group_tests_name("packs_varied, compressed", tests, NULL, NULL);
}
