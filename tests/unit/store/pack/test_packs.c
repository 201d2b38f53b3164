/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/pack/pack_rig.h"

static const uint32_t chunk_lens[] = { 4096, 65536, 1048576 };

static void what_was_written_reads_back(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	for (size_t c = 0; c < ARRAY_SIZE(chunk_lens); c++)
		for (enum pack_stream s = 0; s <= PACK_SMALL; s++) {
			unsigned nr = PACK_FRAME_BYTES / chunk_lens[c];
			struct addr full = rig_write_frame(&rig, s, chunk_lens[c], 1000 * c, nr);
			struct addr one = rig_write_frame(&rig, s, chunk_lens[c], 1000 * c, 1);

			for (unsigned reopened = 0; reopened < 2; reopened++) {
				assert_int_equal(rig_check(&rig, full, chunk_lens[c], 1000 * c, nr), 0);
				assert_int_equal(rig_check(&rig, one, chunk_lens[c], 1000 * c, 1), 0);
				rig_sync(&rig);
				rig_reopen(&rig);
			}
		}
	rig_release(&rig);
}

static void any_range_into_any_memory_reads_right(void **state)
{
	uint8_t *want = aligned_bytes(PACK_FRAME_BYTES), *got = aligned_bytes(PACK_FRAME_BYTES + PACK_BLOCK);
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	srand(1);
	for (size_t c = 0; c < ARRAY_SIZE(chunk_lens); c++) {
		unsigned nr = PACK_FRAME_BYTES / chunk_lens[c];
		struct addr a = rig_write_frame(&rig, PACK_BULK, chunk_lens[c], 5, nr);

		rig_sync(&rig);
		for (unsigned i = 0; i < nr; i++)
			fill_chunk(want + (size_t)i * chunk_lens[c], 5 + i, chunk_lens[c]);
		for (unsigned i = 0; i < 100; i++) {
			uint32_t from = (uint32_t)rand() % PACK_FRAME_BYTES;
			uint32_t len = 1 + (uint32_t)rand() % MIN(PACK_FRAME_BYTES - from, i % 2 ? 9000u : UINT32_MAX);
			uint32_t shift = i % 3 ? from % PACK_BLOCK : (uint32_t)rand() % PACK_BLOCK;
			struct addr at = { .pack = a.pack, .off = a.off + from };

			if (i % 10 == 0)
				rig_reopen(&rig); /* forgets the table */
			memset(got, 0xee, PACK_FRAME_BYTES + PACK_BLOCK);
			assert_int_equal(packs_read(rig.p, at, len, got + shift), 0);
			assert_memory_equal(got + shift, want + from, len);
			if (shift > 0)
				assert_int_equal(got[shift - 1], 0xee);
			if (shift + len < PACK_FRAME_BYTES + PACK_BLOCK)
				assert_int_equal(got[shift + len], 0xee);
		}
	}
	free(got);
	free(want);
	rig_release(&rig);
}

static void pieces_come_from_many_frames_in_any_order(void **state)
{
	enum { NR_PIECES = 300, NR_FRAMES = 5 };
	struct pack_piece pieces[NR_PIECES];
	uint32_t numbers[NR_PIECES];
	uint8_t *memory = aligned_bytes(NR_PIECES * PACK_BLOCK), *want = aligned_bytes(PACK_BLOCK);
	struct addr first[NR_FRAMES];
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	for (unsigned f = 0; f < NR_FRAMES; f++)
		first[f] = rig_write_frame(&rig, f % 2 ? PACK_SMALL : PACK_BULK, PACK_BLOCK, f * 256, 256);
	rig_sync(&rig);
	srand(2);
	for (unsigned round = 0; round < 10; round++) {
		rig_reopen(&rig);
		for (unsigned i = 0; i < NR_PIECES; i++) {
			struct addr a;

			numbers[i] = (uint32_t)rand() % (NR_FRAMES * 256);
			a = first[numbers[i] / 256];
			a.off += numbers[i] % 256 * PACK_BLOCK;
			pieces[i] = (struct pack_piece){ a, PACK_BLOCK, memory + i * PACK_BLOCK };
		}
		memset(memory, 0, NR_PIECES * PACK_BLOCK);
		assert_int_equal(packs_read_pieces(rig.p, pieces, NR_PIECES), 0);
		for (unsigned i = 0; i < NR_PIECES; i++) {
			fill_chunk(want, numbers[i], PACK_BLOCK);
			assert_memory_equal(memory + i * PACK_BLOCK, want, PACK_BLOCK);
		}
	}
	free(memory);
	free(want);
	rig_release(&rig);
}

/* Counts reads, to see them merged. */
static int count_read(void *userdata, const struct io_event *ev)
{
	*(unsigned *)userdata += ev->op == IO_READ;
	return 0;
}

static void a_frame_is_one_disk_access(void **state)
{
	struct pack_piece pieces[64];
	uint8_t *memory = aligned_bytes(PACK_FRAME_BYTES);
	unsigned nr_reads = 0;
	struct io_hook hook = { .before = count_read, .userdata = &nr_reads };
	struct addr a;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	rig_reopen(&rig);
	io_set_hook(&hook);
	assert_int_equal(packs_read(rig.p, a, PACK_FRAME_BYTES, memory), 0);
	assert_int_equal(nr_reads, 1); /* table and data */
	nr_reads = 0;
	for (unsigned i = 0; i < 64; i++) /* every fourth page, into memory of another order */
		pieces[i] = (struct pack_piece){ { .pack = a.pack, .off = a.off + i * 4 * PACK_BLOCK },
						 PACK_BLOCK,
						 memory + (63 - i) * PACK_BLOCK };
	assert_int_equal(packs_read_pieces(rig.p, pieces, 64), 0);
	assert_int_equal(nr_reads, 1);
	io_set_hook(NULL);
	for (unsigned i = 0; i < 64; i++) {
		uint8_t want[PACK_BLOCK];

		fill_chunk(want, i * 4, PACK_BLOCK);
		assert_memory_equal(memory + (63 - i) * PACK_BLOCK, want, PACK_BLOCK);
	}
	free(memory);
	rig_release(&rig);
}

static void chunks_of_an_unwritten_frame_are_known_and_readable(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ 0 });
	for (enum pack_stream s = 0; s <= PACK_SMALL; s++) {
		struct addr a = ADDR_NONE, start;
		struct pack_frame *f;
		struct fp fps[3], fp;
		uint32_t len;
		void *memory;

		f = rig_fill_frame(&rig, s, PACK_BLOCK, 40, 3, &a, &memory);
		assert_int_equal(pack_frame_room(f), 253);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 40, 3), 0);
		assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 3, fps), 3);
		assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 4, fps), 3);
		start = (struct addr){ .pack = a.pack, .off = a.off + 2 * PACK_BLOCK + 77 };
		assert_int_equal(packs_chunk_at(rig.p, start, &start, &len, &fp), 1);
		assert_int_equal(start.off, a.off + 2 * PACK_BLOCK);
		assert_int_equal(len, PACK_BLOCK);
		assert_true(fp_equal(fp, fps[2]));
		assert_int_equal(packs_frame_write(rig.p, f), 0);
		assert_int_equal(packs_wait(rig.p, a), 0);
		free(memory);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 40, 3), 0);
	}
	rig_release(&rig);
}

static void fingerprints_are_reported_where_there_are_chunks(void **state)
{
	uint8_t chunk[8192];
	struct fp fps[256];
	struct addr a, at;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, 8192, 10, 100);
	rig_sync(&rig);
	for (unsigned reopened = 0; reopened < 2; reopened++) {
		assert_int_equal(packs_fps(rig.p, a, 8192, 100, fps), 100);
		for (unsigned i = 0; i < 100; i++) {
			fill_chunk(chunk, 10 + i, 8192);
			assert_true(fp_equal(fps[i], fp_of(&rig.key, chunk, 8192)));
		}
		at = (struct addr){ .pack = a.pack, .off = a.off + 99 * 8192 };
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 1);
		assert_int_equal(packs_fps(rig.p, at, 8192, 2, fps), 1);
		assert_int_equal(packs_fps(rig.p, at, 4096, 1, fps), 0);
		at.off += 4096;
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 0);
		at.off = a.off - 4096; /* the table */
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 0);
		at.off = pack_data_off(1); /* a frame never opened */
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 0);
		at = (struct addr){ .pack = a.pack + 1, .off = a.off };
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 0);
		at = (struct addr){ .pack = a.pack, .off = a.off, .node = 1 };
		assert_int_equal(packs_fps(rig.p, at, 8192, 1, fps), 0);
		rig_reopen(&rig);
	}
	rig_release(&rig);
}

static void marks_after_sync_are_exact(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ 0 });
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 0, 0);
	assert_mark(rig.marks.stream[PACK_SMALL], 0, 0);
	assert_int_equal(rig.marks.next_pack, 1);
	assert_int_equal(rig.marks.counts.nr_frames, 0);

	for (unsigned i = 0; i < 3; i++)
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, i, 10);
	rig_write_frame(&rig, PACK_SMALL, 65536, 9, 2);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 3);
	assert_mark(rig.marks.stream[PACK_SMALL], 2, 1);
	assert_int_equal(rig.marks.next_pack, 3);
	assert_int_equal(rig.marks.counts.nr_frames, 4);
	assert_int_equal(rig.marks.counts.nr_chunks, 32);
	assert_int_equal(rig.marks.counts.chunk_bytes, 30 * 4096 + 2 * 65536);

	rig_reopen(&rig);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 1);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 4);
	assert_int_equal(rig.marks.counts.nr_frames, 5);
	assert_int_equal(rig.marks.counts.nr_chunks, 33);
	rig_release(&rig);
}

static void opening_cuts_frames_after_the_marks(void **state)
{
	struct addr kept[PACK_SMALL + 1], cut[PACK_SMALL + 1];
	struct fp fp;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	for (enum pack_stream s = 0; s <= PACK_SMALL; s++)
		kept[s] = rig_write_frame(&rig, s, PACK_BLOCK, s, 256);
	rig_sync(&rig);
	for (enum pack_stream s = 0; s <= PACK_SMALL; s++)
		cut[s] = rig_write_frame(&rig, s, PACK_BLOCK, 10 + s, 256);
	rig_reopen(&rig);
	for (enum pack_stream s = 0; s <= PACK_SMALL; s++) {
		assert_int_equal(pack_stat(&rig, kept[s].pack).st_size, pack_table_off(1));
		assert_int_equal(rig_check(&rig, kept[s], PACK_BLOCK, s, 256), 0);
		assert_int_equal(packs_fps(rig.p, cut[s], PACK_BLOCK, 1, &fp), 0);
		assert_int_equal(rig_check(&rig, cut[s], PACK_BLOCK, 10 + s, 1), -EBADMSG);
		/* the place is given again */
		assert_true(addr_equal(rig_write_frame(&rig, s, PACK_BLOCK, 20 + s, 5), cut[s]));
		assert_int_equal(rig_check(&rig, cut[s], PACK_BLOCK, 20 + s, 5), 0);
	}
	rig_release(&rig);
}

/* Frames that are open at the same time go to different streams; a lone writer uses the first only. */
static void bulk_frames_spread_over_the_idlest_streams(void **state)
{
	struct pack_frame *f[5];
	struct addr a[5], alone;
	void *memory[5];
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .nr_bulk = 4 });
	alone = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	assert_int_equal(rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 500, 256).pack, alone.pack);
	for (unsigned i = 0; i < 5; i++) {
		f[i] = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 1000 * (i + 1), 256, &a[i], &memory[i]);
		for (unsigned k = 0; k < i; k++)
			assert_int_equal(a[i].pack == a[k].pack, i == 4 && k == 0); /* there are four */
	}
	assert_int_equal(a[0].pack, alone.pack);
	for (unsigned i = 5; i-- > 0;) {
		assert_int_equal(packs_frame_write(rig.p, f[i]), 0);
		free(memory[i]);
	}
	assert_int_equal(rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 9000, 1).pack, alone.pack);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], alone.pack, 5);
	for (unsigned i = 1; i < 4; i++)
		assert_mark(rig.marks.stream[PACK_MORE_BULK + i - 1], a[i].pack, 1);
	assert_mark(rig.marks.stream[PACK_MORE_BULK + 3], 0, 0);
	rig_reopen(&rig);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(rig_check(&rig, a[i], PACK_BLOCK, 1000 * (i + 1), 256), 0);
	rig_release(&rig);
}

/* After a crash each stream is cut at its own mark. A mount for fewer processors goes on with the streams there are. */
static void every_bulk_stream_is_cut_and_continued(void **state)
{
	enum { NR = PACK_NR_BULK_MAX };
	struct addr kept[NR], cut[NR];
	struct pack_frame *f[NR];
	void *memory[NR];
	struct fp fp;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .nr_bulk = 1000 });
	for (unsigned round = 0; round < 2; round++) {
		struct addr *a = round == 0 ? kept : cut;

		for (unsigned i = 0; i < NR; i++)
			f[i] = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 100 * i + round, 2, &a[i], &memory[i]);
		for (unsigned i = 0; i < NR; i++) {
			assert_int_equal(packs_frame_write(rig.p, f[i]), 0);
			free(memory[i]);
		}
		if (round == 0)
			rig_sync(&rig);
	}
	rig.conf.nr_bulk = 1;
	rig_reopen(&rig);
	for (unsigned i = 0; i < NR; i++) {
		struct addr a;

		assert_int_equal(cut[i].pack, kept[i].pack);
		assert_true(pack_marks_cover(&rig.marks, kept[i].pack, 0));
		assert_false(pack_marks_cover(&rig.marks, cut[i].pack, 1));
		assert_int_equal(pack_stat(&rig, kept[i].pack).st_size, pack_table_off(1));
		assert_int_equal(rig_check(&rig, kept[i], PACK_BLOCK, 100 * i, 2), 0);
		assert_int_equal(packs_fps(rig.p, cut[i], PACK_BLOCK, 1, &fp), 0);
		f[i] = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 100 * i + 50, 2, &a, &memory[i]);
		assert_true(addr_equal(a, cut[i])); /* the place is given again */
	}
	for (unsigned i = 0; i < NR; i++) {
		assert_int_equal(packs_frame_write(rig.p, f[i]), 0);
		free(memory[i]);
		assert_int_equal(rig_check(&rig, cut[i], PACK_BLOCK, 100 * i + 50, 2), 0);
	}
	rig_release(&rig);
}

static void opening_removes_packs_after_the_marks(void **state)
{
	struct addr a;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = MiB(2) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	rig_sync(&rig);
	for (unsigned i = 0; i < 5; i++)
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	assert_true(pack_exists(&rig, 2) && pack_exists(&rig, 3));
	rig_reopen(&rig);
	assert_false(pack_exists(&rig, 2) || pack_exists(&rig, 3));
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 1, 256), 0);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 2);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 2, 1);
	assert_int_equal(rig.marks.next_pack, 3);
	rig_release(&rig);
}

static void a_pack_is_full_at_its_bytes_or_frames(void **state)
{
	struct addr a = ADDR_NONE;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = 3 * PACK_BLOCK });
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, i, 1).pack, 1);
	assert_int_equal(rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 3, 1).pack, 2);
	rig_release(&rig);

	rig_init(&rig, (struct packs_conf){ 0 });
	for (unsigned i = 0; i < PACK_FRAMES_MAX; i++)
		a = rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, i, 1);
	assert_int_equal(a.pack, 1);
	assert_int_equal(a.off, pack_data_off(PACK_FRAMES_MAX - 1));
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, PACK_FRAMES_MAX - 1, 1), 0);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_SMALL], 1, PACK_FRAMES_MAX);
	rig_reopen(&rig);
	a = rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 1, 1);
	assert_int_equal(a.pack, 2);
	rig_release(&rig);
}

static void a_short_frame_costs_what_it_holds(void **state)
{
	struct pack_stats stats;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ 0 });
	for (unsigned i = 0; i < 4; i++)
		rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, i, 3);
	rig_sync(&rig);
	/* The filesystem may need a block of its own for so many extents. */
	assert_in_range(pack_stat(&rig, 1).st_blocks * 512, PACK_BLOCK * (1 + 4 * 4), PACK_BLOCK * (2 + 4 * 4));
	packs_stats(rig.p, &stats);
	assert_in_range(stats.disk_bytes, PACK_BLOCK * (1 + 4 * 4), PACK_BLOCK * (2 + 4 * 4));
	assert_int_equal(stats.nr_packs, 1);
	assert_int_equal(stats.nr_frames, 4);
	assert_int_equal(stats.nr_chunks, 12);
	assert_int_equal(stats.chunk_bytes, 12 * PACK_BLOCK);
	assert_int_equal(stats.written_bytes, 16 * PACK_BLOCK);
	rig_reopen(&rig);
	packs_stats(rig.p, &stats);
	assert_in_range(stats.disk_bytes, PACK_BLOCK * (1 + 4 * 4), PACK_BLOCK * (2 + 4 * 4));
	assert_int_equal(stats.nr_packs, 1);
	assert_int_equal(stats.nr_chunks, 12);
	rig_release(&rig);
}

static void iterating_gives_every_frame_once_in_order(void **state)
{
	static const struct {
		uint32_t pack, frame, chunk_len, nr_chunks;
	} expected[] = {
		{ 1, 0, 4096, 256 }, { 1, 1, 4096, 256 }, { 2, 0, 65536, 1 }, { 2, 2, 65536, 3 }, { 3, 0, 4096, 7 },
	};
	struct pack_frame_rec rec;
	struct pack_iter it;
	struct pack_frame *f;
	enum pack_stream stream;
	struct addr a;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = MiB(2), .table_memory = MiB(1) });
	rig_write_frame(&rig, PACK_BULK, 4096, 0, 256);
	rig_write_frame(&rig, PACK_SMALL, 65536, 0, 1);
	rig_write_frame(&rig, PACK_BULK, 4096, 0, 256);
	rig_write_frame(&rig, PACK_SMALL, 65536, 0, 0); /* leaves its place empty */
	rig_write_frame(&rig, PACK_SMALL, 65536, 0, 3);
	rig_write_frame(&rig, PACK_BULK, 4096, 0, 7);
	rig_sync(&rig);
	for (unsigned reopened = 0; reopened < 2; reopened++) {
		f = rig_fill_frame(&rig, PACK_BULK, 4096, 0, 1, &a, &memory); /* not written: not there */
		it = pack_iter(rig.p, 0, 0);
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
			assert_int_equal(pack_iter_next(&it, &rec), 1);
			assert_int_equal(rec.pack, expected[i].pack);
			assert_int_equal(rec.frame, expected[i].frame);
			assert_int_equal(rec.chunk_len, expected[i].chunk_len);
			assert_int_equal(rec.nr_chunks, expected[i].nr_chunks);
			assert_false(rec.damaged);
			assert_int_equal(rig_check(&rig, rec.first, rec.chunk_len, 0, rec.nr_chunks), 0);
		}
		assert_int_equal(pack_iter_next(&it, &rec), 0);
		it = pack_iter(rig.p, 2, 1);
		assert_int_equal(pack_iter_next(&it, &rec), 1);
		assert_int_equal(rec.pack, 2);
		assert_int_equal(rec.frame, 2);
		packs_frame_abandon(rig.p, f);
		free(memory);
		rig_reopen(&rig);
	}
	assert_int_equal(packs_stream_of(rig.p, 1, &stream), 1);
	assert_int_equal(stream, PACK_BULK);
	assert_int_equal(packs_stream_of(rig.p, 2, &stream), 1);
	assert_int_equal(stream, PACK_SMALL);
	assert_int_equal(packs_stream_of(rig.p, 4, &stream), 0);
	assert_int_equal(packs_stream_of(rig.p, 0, &stream), 0);
	rig_release(&rig);
}

static void an_abandoned_frame_keeps_its_place_and_says_so(void **state)
{
	struct addr a, after;
	struct pack_frame *f;
	struct fp fp;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256, &a, &memory);
	packs_frame_abandon(rig.p, f);
	free(memory);
	after = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 300, 1);
	assert_int_equal(after.off, pack_data_off(1));
	assert_int_equal(packs_wait(rig.p, a), -EIO);
	assert_int_equal(packs_wait(rig.p, after), 0);
	assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 1, &fp), 0);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 1), -EIO);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 2);
	assert_int_equal(rig.marks.counts.nr_frames, 1);
	rig_reopen(&rig);
	assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 1, &fp), 0);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 1), -EBADMSG);
	assert_int_equal(rig_check(&rig, after, PACK_BLOCK, 300, 1), 0);
	rig_release(&rig);
}

static void reading_only_changes_nothing(void **state)
{
	struct addr a, cut;
	struct pack_frame_rec rec;
	struct pack_iter it;
	struct pack_frame *f;
	struct pack_marks marks;
	struct fp fp;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = MiB(2), .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	rig_sync(&rig);
	cut = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 2, 256);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 3, 256);
	rig.conf.read_only = true;
	rig_reopen(&rig);
	assert_true(pack_exists(&rig, 2));
	assert_int_equal(pack_stat(&rig, 1).st_size, pack_table_off(2));
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 1, 256), 0);
	assert_int_equal(packs_fps(rig.p, cut, PACK_BLOCK, 1, &fp), 0);
	assert_int_equal(packs_frame_open(rig.p, PACK_BULK, PACK_BLOCK, &f), -EROFS);
	assert_int_equal(packs_repair_chunk(rig.p, a, "", 1), -EROFS);
	assert_int_equal(packs_sync(rig.p, &marks), 0);
	assert_mark(marks.stream[PACK_BULK], 1, 1);
	assert_int_equal(marks.next_pack, 2);
	assert_counts(marks.counts, rig.marks.counts);
	it = pack_iter(rig.p, 0, 0);
	assert_int_equal(pack_iter_next(&it, &rec), 1);
	assert_int_equal(pack_iter_next(&it, &rec), 0);
	rig.conf.read_only = false;
	rig_release(&rig);
}

static void tables_stay_within_their_memory(void **state)
{
	struct pack_stats stats;
	struct addr a[64];
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = KiB(128) });
	for (unsigned i = 0; i < 64; i++)
		a[i] = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, i, 256);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(rig_check(&rig, a[i], PACK_BLOCK, i, 256), 0);
	packs_stats(rig.p, &stats);
	assert_true(stats.table_memory <= KiB(128));
	assert_true(stats.table_misses > 0);
	rig_release(&rig);
}

static void impossible_requests_are_refused(void **state)
{
	struct pack_marks bad = { .stream = { { .pack = 3, .nr_frames = 1 } }, .next_pack = 3 };
	struct packs *p = NULL;
	struct pack_frame *f;
	uint8_t byte[2];
	struct addr a;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ 0 });
	assert_int_equal(packs_open(rig.dirfd, &rig.conf, &bad, &p), -EBADMSG);
	bad = (struct pack_marks){ 0 };
	assert_int_equal(packs_open(rig.dirfd, &rig.conf, &bad, &p), -EBADMSG);
	assert_null(p);
	assert_int_equal(packs_frame_open(rig.p, PACK_BULK, 0, &f), -EINVAL);
	assert_int_equal(packs_frame_open(rig.p, PACK_BULK, 100, &f), -EINVAL);
	assert_int_equal(packs_frame_open(rig.p, PACK_BULK, 2 * PACK_FRAME_BYTES, &f), -EINVAL);
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	assert_int_equal(packs_read(rig.p, a, 0, byte), -EINVAL);
	a.off += PACK_FRAME_BYTES - 1;
	assert_int_equal(packs_read(rig.p, a, 1, byte), 0);
	assert_int_equal(packs_read(rig.p, a, 2, byte), -EINVAL);
	a.off = 0;
	assert_int_equal(packs_read(rig.p, a, 1, byte), -EINVAL);
	rig_release(&rig);
}

static void a_sync_covers_the_frames_opened_before_it_began(void **state)
{
	struct addr before, after;
	struct pack_frame *f, *g;
	void *fm, *gm;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 10, &before, &fm);
	packs_sync_begin(rig.p);
	g = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 2, 20, &after, &gm); /* stays open, and is not waited for */
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 3, 30);
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	assert_int_equal(packs_sync_end(rig.p, &rig.marks), 0);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 1);
	assert_counts(rig.marks.counts, (struct pack_counts){ .nr_chunks = 10, .chunk_bytes = 40960, .nr_frames = 1 });
	assert_int_equal(packs_frame_write(rig.p, g), 0);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, before, PACK_BLOCK, 1, 10), 0);
	assert_int_equal(rig_check(&rig, after, PACK_BLOCK, 2, 20), -EBADMSG);
	free(fm);
	free(gm);
	rig_release(&rig);
}

static unsigned nr_open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void many_packs_need_few_descriptors(void **state)
{
	enum { NR_PACKS = 600 };
	unsigned nr_before;
	struct addr a[NR_PACKS];
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .pack_bytes = PACK_BLOCK, .table_memory = MiB(1) });
	nr_before = nr_open_files();
	for (unsigned i = 0; i < NR_PACKS; i++) {
		a[i] = rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, i, 1);
		assert_int_equal(a[i].pack, i + 1);
		if (i % 100 == 0)
			rig_sync(&rig);
	}
	rig_sync(&rig);
	for (unsigned i = 0; i < 2 * NR_PACKS; i++)
		assert_int_equal(rig_check(&rig, a[i % NR_PACKS], PACK_BLOCK, i % NR_PACKS, 1), 0);
	assert_true(nr_open_files() <= nr_before + 256 + 2);
	rig_release(&rig);
}

static void writing_keeps_to_its_rate(void **state)
{
	struct io_rate *rate;
	uint64_t begin;
	struct rig rig;

	(void)state;
	assert_int_equal(io_rate_new(MiB(20), &rate), 0);
	rig_init(&rig, (struct packs_conf){ .write_rate = rate });
	begin = monotonic_ns();
	for (unsigned i = 0; i < 4; i++)
		rig_write_frame(&rig, PACK_BULK, PACK_FRAME_BYTES, i, 1);
	assert_true(monotonic_ns() - begin >= 150 * UINT64_C(1000000)); /* the last one may begin after 3 MiB */
	rig_release(&rig);
	io_rate_free(rate);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_written_reads_back),
		cmocka_unit_test(any_range_into_any_memory_reads_right),
		cmocka_unit_test(pieces_come_from_many_frames_in_any_order),
		cmocka_unit_test(chunks_of_an_unwritten_frame_are_known_and_readable),
		cmocka_unit_test(fingerprints_are_reported_where_there_are_chunks),
		cmocka_unit_test(marks_after_sync_are_exact),
		cmocka_unit_test(opening_cuts_frames_after_the_marks),
		cmocka_unit_test(bulk_frames_spread_over_the_idlest_streams),
		cmocka_unit_test(every_bulk_stream_is_cut_and_continued),
		cmocka_unit_test(an_abandoned_frame_keeps_its_place_and_says_so),
		cmocka_unit_test(tables_stay_within_their_memory),
		cmocka_unit_test(impossible_requests_are_refused),
		cmocka_unit_test(a_sync_covers_the_frames_opened_before_it_began),
		cmocka_unit_test(many_packs_need_few_descriptors),
	}, of_exact_sizes[] = {
		cmocka_unit_test(a_frame_is_one_disk_access),
		cmocka_unit_test(a_pack_is_full_at_its_bytes_or_frames),
		cmocka_unit_test(a_short_frame_costs_what_it_holds),
		cmocka_unit_test(opening_removes_packs_after_the_marks),
		cmocka_unit_test(iterating_gives_every_frame_once_in_order),
		cmocka_unit_test(reading_only_changes_nothing),
		cmocka_unit_test(writing_keeps_to_its_rate),
	};
	int r;

	log_set_level(LOG_LEVEL_ERROR);
	r = cmocka_run_group_tests_name("packs", tests, NULL, NULL) +
	    cmocka_run_group_tests_name("packs, sizes", of_exact_sizes, NULL, NULL);
	rig_compression.kind = PACK_COMPRESS_LZ4;
	r += cmocka_run_group_tests_name("packs, lz4", tests, NULL, NULL);
	rig_compression.kind = PACK_COMPRESS_ZSTD;
	return r + cmocka_run_group_tests_name("packs, zstd", tests, NULL, NULL);
}
