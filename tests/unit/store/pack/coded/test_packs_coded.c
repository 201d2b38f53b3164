/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Frames of coded blocks are read, checked and freed like any compressed frame. */
#include "tests/unit/store/pack/coded_rig.h"

#define NR 64u /* chunks of a frame: four parts */

static struct addr coded_frame(struct rig *rig, uint64_t number, uint32_t chunk_len, unsigned nr)
{
	struct addr first;
	void *memory;
	struct pack_frame *f = rig_fill_frame(rig, PACK_BULK, chunk_len, number, nr, &first, &memory);

	write_coded(rig, f, memory, nr * chunk_len, 0);
	free(memory);
	return first;
}

static void coded_rig(struct rig *rig)
{
	rig_init(rig, (struct packs_conf){ .table_memory = MiB(1) });
}

static void coded_bytes_come_back(void **state)
{
	static const uint32_t lens[] = { 4096, 8192, 65536, 262144 };
	struct rig rig;
	struct addr a[ARRAY_SIZE(lens)];

	(void)state;
	coded_rig(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++)
		a[i] = coded_frame(&rig, 100 * i, lens[i], 4);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(lens); i++)
			for (unsigned k = 0; k < 4; k++) {
				struct addr one = { .pack = a[i].pack, .off = a[i].off + k * lens[i] };

				assert_int_equal(rig_check(&rig, one, lens[i], 100 * i + k, 4 - k), 0);
			}
		rig_sync(&rig);
		rig_reopen(&rig); /* without the tables in memory */
	}
	rig_release(&rig);
}

static void they_take_less(void **state)
{
	struct rig rig;
	uint64_t plain, coded;

	(void)state;
	coded_rig(&rig);
	coded_frame(&rig, 1, 4096, NR);
	rig_sync(&rig);
	plain = rig.marks.counts.chunk_bytes;
	coded = rig.marks.counts.stored_bytes;
	assert_int_equal(plain, NR * 4096);
	assert_in_range(coded, 1, plain * 4 / 5);
	assert_true((uint64_t)pack_stat(&rig, 1).st_blocks * 512 <= coded + 3 * PACK_BLOCK);
	rig_release(&rig);
}

/* A page needs the part that it is in: all others may hold anything. */
static void a_page_is_read_by_decoding_one_block(void **state)
{
	struct rig rig;
	struct addr a;
	struct pack_frame_rec rec;
	uint8_t junk[PACK_BLOCK];
	int fd;

	(void)state;
	coded_rig(&rig);
	a = coded_frame(&rig, 7, 4096, NR);
	rig_sync(&rig);
	assert_int_equal(packs_frame_rec(rig.p, 1, 0, &rec), 1);
	memset(junk, 0xa5, sizeof(junk));
	fd = openat(rig.dirfd, pack_name(1).s, O_WRONLY | O_CLOEXEC);
	for (uint32_t part = 0; part < NR / 16; part++)
		for (uint32_t at = part == 0 ? 0 : rec.part_end[part - 1]; at < rec.part_end[part] && part != 2;
		     at += PACK_BLOCK)
			assert_true(pwrite(fd, junk, MIN(PACK_BLOCK, rec.part_end[part] - at), pack_data_off(0) + at) > 0);
	close(fd);
	rig_reopen(&rig);
	for (unsigned i = 0; i < NR; i++) {
		struct addr one = { .pack = a.pack, .off = a.off + i * 4096 };

		assert_int_equal(rig_check(&rig, one, 4096, 7 + i, 1), i / 16 == 2 ? 0 : -EBADMSG);
	}
	rig_release(&rig);
}

static uint64_t read_so_far(struct rig *rig)
{
	struct pack_stats s;

	packs_stats(rig->p, &s);
	return s.read_bytes;
}

/* Requests end anywhere in a frame: what two of them want of it is read once, though its table is not in memory for the
 * first. */
static void halves_of_frames_are_not_read_twice(void **state)
{
	const uint32_t nr = PACK_FRAME_BLOCKS, half = PACK_FRAME_BYTES / 2;
	struct rig rig;
	struct addr a[3];
	uint64_t before;
	uint32_t stored;

	(void)state;
	coded_rig(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
		a[i] = coded_frame(&rig, i * nr, 4096, nr);
	rig_sync(&rig);
	stored = (uint32_t)(rig.marks.counts.stored_bytes / ARRAY_SIZE(a));
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a[0], 4096, 0, nr), 0); /* what its table says is guessed of the others */
	before = read_so_far(&rig);
	for (unsigned i = 1; i < ARRAY_SIZE(a); i++)
		for (uint32_t k = 0; k < 2; k++) {
			struct addr at = { .pack = a[i].pack, .off = a[i].off + k * half };

			assert_int_equal(rig_check(&rig, at, 4096, i * nr + k * nr / 2, nr / 2), 0);
		}
	assert_in_range(read_so_far(&rig) - before, 2 * stored, 2 * (stored + 4 * PACK_BLOCK));
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a[0], 4096, 0, nr), 0);
	before = read_so_far(&rig);
	a[1].off += half; /* the chunk before it was not requested */
	assert_int_equal(rig_check(&rig, a[1], 4096, nr + nr / 2, nr / 2), 0);
	assert_in_range(read_so_far(&rig) - before, stored / 2, stored / 2 + 3 * PACK_BLOCK);
	rig_release(&rig);
}

static void every_changed_byte_is_noticed(void **state)
{
	struct rig rig;
	struct addr a;
	uint32_t stored;
	struct pack_scrub *scrub = malloc(sizeof(*scrub));

	(void)state;
	coded_rig(&rig);
	a = coded_frame(&rig, 9, 4096, 16);
	rig_sync(&rig);
	assert_int_equal(packs_scrub_frame(rig.p, 1, 0, scrub), 1);
	assert_int_equal(scrub->bad[0], 0);
	stored = scrub->rec.part_end[0];
	for (uint32_t at = 0; at < stored; at += at < 64 ? 1 : 997) {
		flip_byte(&rig, 1, pack_data_off(0) + at);
		rig_reopen(&rig);
		assert_int_equal(rig_check(&rig, a, 4096, 9, 1), -EBADMSG);
		assert_int_equal(packs_scrub_frame(rig.p, 1, 0, scrub), 1);
		assert_int_equal(scrub->bad[0], 0xffff); /* coded together, lost together */
		flip_byte(&rig, 1, pack_data_off(0) + at);
	}
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, 4096, 9, 16), 0);
	free(scrub);
	rig_release(&rig);
}

static void parts_without_chunks_are_freed(void **state)
{
	uint64_t gone[PACK_GONE_WORDS] = { 0xffffffff }; /* of two parts of four */
	struct rig rig;
	struct addr a;
	blkcnt_t before;

	(void)state;
	coded_rig(&rig);
	a = coded_frame(&rig, 11, 4096, NR);
	rig_sync(&rig);
	before = pack_stat(&rig, 1).st_blocks;
	assert_int_equal(packs_punch(rig.p, 1, 0, 4096, NR, gone), 0);
	assert_true(pack_stat(&rig, 1).st_blocks * 512 <= before * 512 - (blkcnt_t)(64 << 10) / 2);
	a.off += 32 * 4096;
	assert_int_equal(rig_check(&rig, a, 4096, 11 + 32, 32), 0);
	rig_release(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(coded_bytes_come_back),
		cmocka_unit_test(they_take_less),
		cmocka_unit_test(a_page_is_read_by_decoding_one_block),
		cmocka_unit_test(halves_of_frames_are_not_read_twice),
		cmocka_unit_test(every_changed_byte_is_noticed),
		cmocka_unit_test(parts_without_chunks_are_freed),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_coded", tests, NULL, NULL);
}
