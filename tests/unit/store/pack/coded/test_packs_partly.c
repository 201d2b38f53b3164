/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Frames with remote chunks: what is written when, and what a read returns. */
#include "tests/unit/store/pack/pack_rig.h"

#define NR 64u

/* What the rig's calls know: chunk i is chunk number i of the pattern, and these are elsewhere. */
struct remote {
	uint64_t remote[PACK_GONE_WORDS];
	unsigned nr_fetched, nr_asked; /* chunks; what has become of a frame */
	bool is_down;
};

static int fate(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	struct remote *e = userdata;

	(void)pack;
	(void)frame;
	memcpy(ret->remote, e->remote, sizeof(e->remote));
	e->nr_asked++;
	return PACK_REMOTE;
}

static int fetch(void *userdata, uint32_t pack, uint32_t frame, const struct pack_remote *chunks, size_t nr)
{
	struct remote *e = userdata;

	(void)pack;
	(void)frame;
	for (size_t i = 0; i < nr; i++) {
		assert_true(pack_is_remote(e->remote, chunks[i].number));
		fill_chunk(chunks[i].buf, chunks[i].number, chunks[i].len);
		e->nr_fetched++;
	}
	return e->is_down ? -EIO : 0;
}

static struct pack_frame *fill(struct rig *rig, uint8_t *bytes)
{
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_SMALL, PACK_BLOCK, &f), 0);
	for (unsigned i = 0; i < NR; i++) {
		fill_chunk(bytes + i * PACK_BLOCK, i, PACK_BLOCK);
		pack_frame_add(f, fp_of(&rig->key, bytes + i * PACK_BLOCK, PACK_BLOCK), bytes + i * PACK_BLOCK);
	}
	return f;
}

static void check(struct rig *rig, const uint8_t *bytes)
{
	uint8_t *got = aligned_bytes(NR * PACK_BLOCK);

	assert_int_equal(packs_read(rig->p, (struct addr){ .pack = 1, .off = pack_data_off(0) }, NR * PACK_BLOCK, got),
			 0);
	assert_memory_equal(got, bytes, NR * PACK_BLOCK);
	memset(got, 0, PACK_BLOCK);
	assert_int_equal(packs_read(rig->p, (struct addr){ .pack = 1, .off = pack_data_off(0) + 5 * PACK_BLOCK + 9 },
				    100, got),
			 0);
	assert_memory_equal(got, bytes + 5 * PACK_BLOCK + 9, 100);
	free(got);
}

static uint64_t disk_bytes(struct rig *rig)
{
	struct stat st;

	assert_int_equal(fstatat(rig->dirfd, "00000001.pack", &st, 0), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void what_is_remote_takes_no_space_and_is_fetched(void **state)
{
	struct remote e = { .remote = { 0xfffffffffffff0f0 } };
	struct rig rig;
	uint8_t *bytes = aligned_bytes(NR * PACK_BLOCK);
	struct pack_scrub *scrub = malloc(sizeof(*scrub));
	struct pack_frame *f;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .fate = fate, .fetch = fetch, .userdata = &e });
	f = fill(&rig, bytes);
	assert_int_equal(packs_frame_write_partly(rig.p, f, e.remote), 0);
	check(&rig, bytes);
	assert_int_equal(e.nr_fetched, 0); /* all is in memory */
	assert_int_equal(packs_sync(rig.p, &rig.marks), 0);
	assert_int_equal(packs_frame_settle(rig.p, f, e.remote), 0);
	assert_true(disk_bytes(&rig) < 16 * PACK_BLOCK);
	check(&rig, bytes);
	assert_int_equal(e.nr_fetched, 56 + 1);
	rig_reopen(&rig);
	e.nr_asked = 0;
	check(&rig, bytes);
	assert_int_equal(e.nr_asked, 1); /* with the table, which is in memory then */
	assert_int_equal(packs_is_remote(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) }), 0);
	assert_int_equal(packs_is_remote(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) + 4 * PACK_BLOCK }),
			 1);
	assert_int_equal(packs_scrub_frame(rig.p, 1, 0, scrub), 1);
	assert_true((scrub->bad[0] | scrub->bad[1] | scrub->bad[2] | scrub->bad[3]) == 0);
	e.is_down = true;
	assert_int_equal(packs_read(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) }, NR * PACK_BLOCK, bytes),
			 -EIO);
	assert_int_equal(packs_read(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) }, 4 * PACK_BLOCK, bytes),
			 0);
	assert_false(packs_is_damaged(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) + 4 * PACK_BLOCK }));
	free(scrub);
	free(bytes);
	rig_release(&rig);
}

static void what_is_not_remote_after_all_is_written(void **state)
{
	struct remote e = { .remote = { 0xff00 } };
	const uint64_t first[PACK_GONE_WORDS] = { 0xffffffff };
	struct rig rig;
	uint8_t *bytes = aligned_bytes(NR * PACK_BLOCK);
	struct pack_frame *f;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .fate = fate, .fetch = fetch, .userdata = &e });
	f = fill(&rig, bytes);
	assert_int_equal(packs_frame_write_partly(rig.p, f, first), 0);
	assert_int_equal(packs_sync(rig.p, &rig.marks), 0);
	assert_int_equal(packs_frame_settle(rig.p, f, e.remote), 0);
	rig_reopen(&rig);
	check(&rig, bytes);
	assert_int_equal(e.nr_fetched, 8);
	free(bytes);
	rig_release(&rig);
}

/* Blocks that hold a byte of what is here are written, whatever else is in them. */
static void chunks_of_any_lengths(void **state)
{
	struct remote e = { .remote = { 0xfffffffffffffff6 } };
	struct rig rig;
	uint8_t *bytes = aligned_bytes(NR * PACK_BLOCK), *got = aligned_bytes(NR * PACK_BLOCK);
	struct pack_frame *f;
	uint32_t at = 0;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .fate = fate, .fetch = fetch, .userdata = &e });
	assert_int_equal(packs_frame_open(rig.p, PACK_SMALL, PACK_VARIED, &f), 0);
	for (unsigned i = 0; i < NR; i++) {
		uint32_t len = 1000 + 8 * i;

		fill_chunk(bytes + at, i, len);
		pack_frame_add_varied(f, fp_of(&rig.key, bytes + at, len), bytes + at, len);
		at += len;
	}
	assert_int_equal(packs_frame_write_partly(rig.p, f, e.remote), 0);
	assert_int_equal(packs_sync(rig.p, &rig.marks), 0);
	assert_int_equal(packs_frame_settle(rig.p, f, e.remote), 0);
	rig_reopen(&rig);
	assert_true(disk_bytes(&rig) < 8 * PACK_BLOCK);
	assert_int_equal(packs_read(rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) }, at, got), 0);
	assert_memory_equal(got, bytes, at);
	assert_int_equal(e.nr_fetched, NR - 2);
	free(got);
	free(bytes);
	rig_release(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_remote_takes_no_space_and_is_fetched),
		cmocka_unit_test(what_is_not_remote_after_all_is_written),
		cmocka_unit_test(chunks_of_any_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
