/* Parts that name runs of others in their frame: read, damaged, given up and found again as any that have a base. */
#include "coded_rig.h"

#include "base/checksum.h"
#include "store/code/matching.h"
#include "store/pack/pack_mend.h"

#define PER_PART (PACK_PART_BYTES / 4096)
#define LEN (12 * PACK_PART_BYTES)
#define NR (LEN / 4096)
#define BACK (5 * PACK_PART_BYTES + 4096) /* from a row to where it was before */

struct frame {
	struct rig rig;
	uint8_t *bytes;
	struct pack_parts parts;
	struct addr first;
};

static void fill(uint8_t *p)
{
	for (uint32_t i = 0; i < LEN / 8; i++) {
		uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

		x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9;
		memcpy(p + 8 * i, i % 100 < 70 && 8 * i >= BACK ? (void *)(p + 8 * i - BACK) : (void *)&x, 8);
	}
}

/* As blocks were before they named what is left: the same, but that nobody says so. */
static void forget_left(uint8_t *stored, struct pack_parts *parts)
{
	for (uint32_t i = 0, start = 0; i < PACK_PARTS; start = parts->end[i++]) {
		struct code_header_disk *d = (struct code_header_disk *)(stored + start);

		if (parts->base[i] == 0)
			continue;
		parts->base[i] &= ~CODE_PLACE_LEFT;
		*(struct le32 *)(d + 1) = le32_put(parts->base[i]);
		d->crc = le32_put(crc32c_add(crc32c(d, offsetof(struct code_header_disk, crc)), d + 1,
					     parts->end[i] - start - sizeof(*d)));
	}
}

static void frame_init_as(struct frame *f, bool is_old)
{
	uint8_t *stored = malloc(MATCHING_ROOM);
	struct code_work *work = code_work_new();
	uint32_t leads[MATCH_PARTS] = { 0 };
	struct pack_frame *to;
	struct matching m;

	*f = (struct frame){ .bytes = aligned_bytes(PACK_FRAME_BYTES) };
	rig_init(&f->rig, (struct packs_conf){ .table_memory = MiB(1) });
	fill(f->bytes);
	assert_int_equal(matching_init(&m, work, &(struct coding_shape){ .type = { CODE_UINT, 8, false } }, 0, NULL), 0);
	assert_in_range(matching_frame(&m, f->bytes, LEN, leads, stored, f->parts.end, f->parts.base), LEN / 2,
			LEN * 3 / 4);
	if (is_old)
		forget_left(stored, &f->parts);
	assert_int_equal(packs_frame_open(f->rig.p, PACK_BULK, 4096, &to), 0);
	for (uint32_t i = 0; i < NR; i++) {
		struct addr a = pack_frame_add(to, fp_of(&f->rig.key, f->bytes + i * 4096, 4096), f->bytes + i * 4096);

		f->first = i == 0 ? a : f->first;
	}
	assert_int_equal(packs_frame_write_coded(f->rig.p, to, stored, &f->parts), 0);
	rig_sync(&f->rig);
	matching_release(&m);
	code_work_free(work);
	free(stored);
}

static void frame_init(struct frame *f)
{
	frame_init_as(f, false);
}

static void frame_release(struct frame *f)
{
	rig_release(&f->rig);
	free(f->bytes);
}

static int read_pages(struct frame *f, uint32_t i, uint32_t nr)
{
	struct addr a = { .pack = f->first.pack, .off = f->first.off + i * 4096 };
	uint8_t *got = aligned_bytes(nr * 4096);
	int r = packs_read(f->rig.p, a, nr * 4096, got);

	if (r == 0)
		assert_memory_equal(got, f->bytes + i * 4096, nr * 4096);
	free(got);
	return r;
}

/* Parts that it takes to decode this one, itself too: of others what is left in them, and so none of theirs. */
static uint32_t needs(const struct frame *f, uint32_t part)
{
	return 1u << part | code_place_parts(f->parts.base[part]);
}

static void pages_come_back(void **state)
{
	struct frame f;
	unsigned named = 0;

	(void)state;
	frame_init(&f);
	for (uint32_t i = 0; i < LEN / PACK_PART_BYTES; i++) {
		named += code_place_parts(f.parts.base[i]) > 0;
		assert_true(__builtin_popcount(needs(&f, i)) <= (int)MATCH_DECODED_MAX);
	}
	assert_true(named >= 5);
	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < NR; i += 3)
			assert_int_equal(read_pages(&f, i, 1), 0);
		assert_int_equal(read_pages(&f, 0, NR), 0);
		assert_int_equal(read_pages(&f, NR / 2, NR / 2), 0);
		rig_reopen(&f.rig);
	}
	frame_release(&f);
}

static void pages_of_old_blocks_come_back(void **state)
{
	struct frame f;

	(void)state;
	frame_init_as(&f, true);
	rig_reopen(&f.rig);
	for (uint32_t i = NR; i-- > 0;)
		assert_int_equal(read_pages(&f, i, 1), 0);
	assert_int_equal(read_pages(&f, 0, NR), 0);
	frame_release(&f);
}

static void junk_all(struct frame *f)
{
	for (uint32_t i = 0, start = 0; i < LEN / PACK_PART_BYTES; start = f->parts.end[i++])
		flip_byte(&f->rig, 1, pack_data_off(0) + start + 3000);
}

/* Whoever reads on finds what was decoded for the last read, though the disk has lost it since. */
static void what_was_decoded_is_held(void **state)
{
	uint32_t part = LEN / PACK_PART_BYTES - 1, named;
	struct frame f;

	(void)state;
	frame_init(&f);
	named = code_place_parts(f.parts.base[part]);
	assert_true(named > 0);
	assert_int_equal(read_pages(&f, part * PER_PART, 1), 0);
	junk_all(&f);
	assert_int_equal(read_pages(&f, part * PER_PART, PER_PART), 0); /* whole */
	for (uint32_t i = 0; i < part; i++) /* of those that name others there is only what is left */
		if (named >> i & 1)
			assert_int_equal(read_pages(&f, i * PER_PART, 1), f.parts.base[i] > 0 ? -EBADMSG : 0);
	rig_reopen(&f.rig);
	assert_int_equal(read_pages(&f, part * PER_PART, 1), -EBADMSG);
	frame_release(&f);

	/* a reader of files that end anywhere: what it has read serves those that name it */
	frame_init(&f);
	rig_reopen(&f.rig);
	assert_int_equal(read_pages(&f, 0, part * PER_PART), 0);
	for (uint32_t i = 0; i < part; i++)
		flip_byte(&f.rig, 1, pack_data_off(0) + (i > 0 ? f.parts.end[i - 1] : 0) + 3000);
	assert_int_equal(read_pages(&f, part * PER_PART, PER_PART), 0);
	frame_release(&f);
}

static void damage_reaches_those_that_need_it(void **state)
{
	struct frame f;

	(void)state;
	for (uint32_t bad = 0; bad < 4; bad++) {
		frame_init(&f);
		flip_byte(&f.rig, 1, pack_data_off(0) + (bad > 0 ? f.parts.end[bad - 1] : 0) + 3000);
		rig_reopen(&f.rig);
		for (uint32_t part = LEN / PACK_PART_BYTES; part-- > 0;)
			if (part != bad || f.parts.end[bad] - (bad > 0 ? f.parts.end[bad - 1] : 0) < PACK_PART_BYTES)
				assert_int_equal(read_pages(&f, part * PER_PART, 1),
						 needs(&f, part) >> bad & 1 ? -EBADMSG : 0);
		frame_release(&f);
	}
}

static uint64_t gone[PACK_GONE_WORDS];

static int tell_gone(void *userdata, uint32_t pack, uint32_t frame, uint64_t ret[PACK_GONE_WORDS])
{
	(void)userdata;
	memcpy(ret, gone, sizeof(gone));
	return pack == 1 && frame == 0;
}

static void what_is_gone_stays_while_others_need_it(void **state)
{
	struct pack_scrub *scrub = malloc(sizeof(*scrub));
	struct frame f;
	blkcnt_t all;

	(void)state;
	frame_init(&f);
	memset(gone, 0, sizeof(gone));
	f.rig.conf.gone = tell_gone;
	rig_reopen(&f.rig);
	all = pack_stat(&f.rig, 1).st_blocks;
	for (uint32_t part = 0; part < 8; part++) {
		for (uint32_t i = part * PER_PART; i < (part + 1) * PER_PART; i++)
			gone[i / 64] |= UINT64_C(1) << i % 64;
		assert_int_equal(packs_punch(f.rig.p, 1, 0, 4096, NR, gone), 0);
		packs_forget_table(f.rig.p, 1, 0);
		for (uint32_t i = (part + 1) * PER_PART; i < NR; i += 5)
			assert_int_equal(read_pages(&f, i, 1), 0);
		assert_int_equal(packs_scrub_frame(f.rig.p, 1, 0, scrub), 1);
		assert_int_equal(scrub->bad[0] | scrub->bad[1] | scrub->bad[2] | scrub->bad[3], 0);
	}
	memset(gone, 0xff, NR / 8);
	assert_int_equal(packs_punch(f.rig.p, 1, 0, 4096, NR, gone), 0);
	assert_true(pack_stat(&f.rig, 1).st_blocks < all / 8);
	free(scrub);
	frame_release(&f);
}

static void a_lost_table_is_found_again(void **state)
{
	static const uint32_t lost[][2] = { { 0, 256 }, { 44, 64 }, { 108, 64 } };
	struct pack_salvage *salvage = malloc(sizeof(*salvage));
	uint8_t table[PACK_BLOCK], now[PACK_BLOCK], damaged[PACK_BLOCK];
	struct frame f;
	int fd;

	(void)state;
	frame_init(&f);
	fd = openat(f.rig.dirfd, pack_name(1).s, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, table, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
		memcpy(damaged, table, PACK_BLOCK);
		memset(damaged + lost[i][0], 0x5a, lost[i][1]);
		assert_int_equal(pwrite(fd, damaged, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
		rig_reopen(&f.rig);
		assert_int_equal(packs_salvage_table(f.rig.p, 1, 0, salvage), 1);
		assert_int_equal(packs_mend_table(f.rig.p, salvage), 0);
		assert_int_equal(pread(fd, now, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
		assert_memory_equal(now + 108, table + 108, 64);
		rig_reopen(&f.rig);
		assert_int_equal(read_pages(&f, 0, NR), 0);
	}
	close(fd);
	free(salvage);
	frame_release(&f);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_come_back),
		cmocka_unit_test(pages_of_old_blocks_come_back),
		cmocka_unit_test(what_was_decoded_is_held),
		cmocka_unit_test(damage_reaches_those_that_need_it),
		cmocka_unit_test(what_is_gone_stays_while_others_need_it),
		cmocka_unit_test(a_lost_table_is_found_again),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_matched", tests, NULL, NULL);
}
