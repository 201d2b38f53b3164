/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What is particular to compressed frames. That all else stays as it was, the other tests tell: they run with codecs
 * too. */
#include "tests/unit/store/pack/pack_rig.h"

#define LZ4 ((struct packs_conf){ .table_memory = MiB(1), .compression = { .kind = PACK_COMPRESS_LZ4 } })

static const struct pack_compression all[] = {
	{ PACK_COMPRESS_LZ4, 0 }, { PACK_COMPRESS_ZSTD, 0 }, { PACK_COMPRESS_ZSTD, 9 }, { PACK_COMPRESS_AUTO, 0 }
};

static void fill_noise(uint8_t *p, size_t len, unsigned seed)
{
	uint64_t x = seed + 1;

	for (size_t i = 0; i < len; i++) {
		x = x * 6364136223846793005 + 1442695040888963407;
		p[i] = (uint8_t)(x >> 56);
	}
}

/* Bytes as given, in chunks; where the first one is. */
static struct addr write_bytes(struct rig *rig, uint32_t chunk_len, const uint8_t *p, unsigned nr)
{
	struct addr first = ADDR_NONE;
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < nr; i++) {
		const uint8_t *chunk = p + (size_t)i * chunk_len;
		struct addr a = pack_frame_add(f, fp_of(&rig->key, chunk, chunk_len), chunk);

		first = i == 0 ? a : first;
	}
	assert_int_equal(packs_frame_write(rig->p, f), 0);
	return first;
}

static uint64_t disk_bytes(struct rig *rig, uint32_t pack)
{
	return (uint64_t)pack_stat(rig, pack).st_blocks * 512;
}

static void a_frame_that_shrinks_takes_less(void **state)
{
	struct pack_stats st;
	struct rig rig;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .compression = all[i] });
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
		rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 1000, 256);
		rig_sync(&rig);
		packs_stats(rig.p, &st);
		assert_int_equal(st.compressed_bytes, 2 * PACK_FRAME_BYTES);
		assert_in_range(st.compressed_to, 2 * PACK_FRAME_BYTES * 3 / 8, 2 * PACK_FRAME_BYTES * 8 / 10);
		assert_int_equal(st.compressed_to % PACK_BLOCK, 0);
		assert_int_equal(st.unshrinkable_bytes, 0);
		assert_int_equal(st.stored_bytes, st.compressed_to);
		assert_int_equal(rig.marks.counts.stored_bytes, st.compressed_to);
		assert_int_equal(rig.marks.counts.chunk_bytes, 2 * PACK_FRAME_BYTES);
		assert_int_equal(disk_bytes(&rig, 1) + disk_bytes(&rig, 2), st.compressed_to + 4 * PACK_BLOCK);
		assert_int_equal(st.disk_bytes, st.compressed_to + 4 * PACK_BLOCK);
		rig_release(&rig);
	}
}

static void a_frame_that_does_not_shrink_is_stored_as_it_is(void **state)
{
	uint8_t *noise = aligned_bytes(PACK_FRAME_BYTES), *got = aligned_bytes(PACK_FRAME_BYTES);
	struct pack_stats st;
	struct rig rig;
	struct addr a;
	int fd;

	(void)state;
	fill_noise(noise, PACK_FRAME_BYTES, 1);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .compression = all[i] });
		a = write_bytes(&rig, PACK_BLOCK, noise, 256);
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 1); /* a block cannot get smaller */
		rig_sync(&rig);
		packs_stats(rig.p, &st);
		assert_int_equal(st.compressed_bytes, 0);
		assert_int_equal(st.unshrinkable_bytes, PACK_FRAME_BYTES);
		assert_int_equal(st.stored_bytes, PACK_FRAME_BYTES + PACK_BLOCK);
		fd = openat(rig.dirfd, pack_name(a.pack).s, O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, got, PACK_FRAME_BYTES, a.off), PACK_FRAME_BYTES);
		assert_memory_equal(got, noise, PACK_FRAME_BYTES);
		close(fd);
		rig_release(&rig);
	}
	free(noise);
	free(got);
}

/* One quarter of the parts is noise and stored as it is, between others. */
static void parts_that_do_not_shrink_are_stored_as_they_are(void **state)
{
	static const uint32_t lens[] = { 4096, 12288, 65536, 131072, 1048576 };
	uint8_t *p = aligned_bytes(PACK_FRAME_BYTES), *got = aligned_bytes(PACK_FRAME_BYTES);
	struct pack_stats st;
	struct rig rig;

	(void)state;
	fill_chunk(p, 5, PACK_FRAME_BYTES);
	for (unsigned i = 2; i < PACK_PARTS; i += 4)
		fill_noise(p + i * PACK_PART_BYTES, PACK_PART_BYTES, i);
	for (size_t k = 0; k < ARRAY_SIZE(all); k++)
		for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
			uint32_t nr = PACK_FRAME_BYTES / lens[i];
			struct addr a;

			rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .compression = all[k] });
			a = write_bytes(&rig, lens[i], p, nr);
			rig_sync(&rig);
			packs_stats(rig.p, &st);
			assert_int_equal(st.compressed_bytes, nr * lens[i]);
			for (unsigned reopened = 0; reopened < 2; reopened++) {
				assert_int_equal(packs_read(rig.p, a, nr * lens[i], got), 0);
				assert_memory_equal(got, p, nr * lens[i]);
				for (uint32_t at = 100; at + 70000 < nr * lens[i]; at += 70000) {
					struct addr b = { .pack = a.pack, .off = a.off + at };

					assert_int_equal(packs_read(rig.p, b, 70000, got + 3), 0);
					assert_memory_equal(got + 3, p + at, 70000);
				}
				rig_reopen(&rig);
			}
			rig_release(&rig);
		}
	free(p);
	free(got);
}

static int count_read(void *userdata, const struct io_event *ev)
{
	uint64_t *nr = userdata;

	if (ev->op == IO_READ) {
		nr[0]++;
		nr[1] += ev->len;
	}
	return 0;
}

static void a_small_read_touches_one_part(void **state)
{
	uint64_t nr[2] = { 0 };
	struct io_hook hook = { .before = count_read, .userdata = nr };
	uint8_t *got = aligned_bytes(PACK_BLOCK), *want = aligned_bytes(PACK_BLOCK);
	struct rig rig;
	struct addr a;

	(void)state;
	rig_init(&rig, LZ4);
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	for (uint32_t i = 0; i < 256; i += 17) {
		struct addr at = { .pack = a.pack, .off = a.off + i * PACK_BLOCK };

		io_set_hook(&hook);
		nr[0] = nr[1] = 0;
		assert_int_equal(packs_read(rig.p, at, PACK_BLOCK, got), 0);
		io_set_hook(NULL);
		fill_chunk(want, i, PACK_BLOCK);
		assert_memory_equal(got, want, PACK_BLOCK);
		assert_int_equal(nr[0], 1);
		assert_in_range(nr[1], 1, PACK_PART_BYTES * 8 / 10 + 2 * PACK_BLOCK);
	}
	free(got);
	free(want);
	rig_release(&rig);
}

static void frames_in_order_are_one_disk_access_each(void **state)
{
	uint64_t nr[2] = { 0 };
	struct io_hook hook = { .before = count_read, .userdata = nr };
	uint8_t *got = aligned_bytes(PACK_FRAME_BYTES);
	struct addr a[8];
	struct rig rig;

	(void)state;
	rig_init(&rig, LZ4);
	for (unsigned i = 0; i < 8; i++)
		a[i] = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1000 * i, 256);
	rig_sync(&rig);
	rig_reopen(&rig);
	assert_int_equal(packs_read(rig.p, a[0], PACK_FRAME_BYTES, got), 0); /* now it is known how frames are stored */
	io_set_hook(&hook);
	for (unsigned i = 1; i < 8; i++)
		assert_int_equal(packs_read(rig.p, a[i], PACK_FRAME_BYTES, got), 0);
	io_set_hook(NULL);
	assert_in_range(nr[0], 7, 8); /* the sizes may differ by a block */
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(rig_check(&rig, a[i], PACK_BLOCK, 1000 * i, 256), 0);
	free(got);
	rig_release(&rig);
}

static enum pack_time no_time(void *userdata, uint32_t bytes)
{
	(void)userdata;
	assert_int_equal(bytes, PACK_FRAME_BYTES);
	return PACK_TIME_NONE;
}

static void auto_leaves_it_when_there_is_no_time(void **state)
{
	struct packs_conf conf = { .compression = { .kind = PACK_COMPRESS_AUTO }, .time_for = no_time };
	struct pack_stats st;
	struct rig rig;

	(void)state;
	rig_init(&rig, conf);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	packs_stats(rig.p, &st);
	assert_int_equal(st.compressed_bytes, 0);
	assert_int_equal(st.busy_bytes, PACK_FRAME_BYTES);
	rig_sync(&rig);
	rig_release(&rig);
}

static enum pack_time spare_time(void *userdata, uint32_t bytes)
{
	(void)userdata;
	(void)bytes;
	return PACK_TIME_SPARE;
}

/* Of a frame with 16 parts, this many are compressed before a request waits. */
static bool after_some(void *userdata)
{
	unsigned *left = userdata;

	return (*left)-- == 0;
}

static void spare_time_ends_when_a_request_waits(void **state)
{
	static const struct {
		unsigned parts;
		bool compressed;
	} cases[] = { { 0, false }, { 1, false }, { 15, false }, { 16, true } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned left = cases[i].parts;
		struct packs_conf conf = {
			.compression = { .kind = PACK_COMPRESS_AUTO },
			.time_for = spare_time,
			.is_disturbed = after_some,
			.userdata = &left,
		};
		struct pack_stats st;
		struct rig rig;

		rig_init(&rig, conf);
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
		packs_stats(rig.p, &st);
		assert_int_equal(st.compressed_bytes, cases[i].compressed ? PACK_FRAME_BYTES : 0);
		assert_int_equal(st.busy_bytes, cases[i].compressed ? 0 : PACK_FRAME_BYTES);
		rig_sync(&rig);
		rig_release(&rig);
	}
}

/* Where part i of the frame at a begins in the file, and ends. */
static uint64_t part_place(struct rig *rig, struct addr a, uint32_t part, uint64_t *ret_end)
{
	_Alignas(PACK_BLOCK) uint8_t block[PACK_BLOCK];
	static struct pack_table t;
	uint32_t frame = 0, in;
	int fd = openat(rig->dirfd, pack_name(a.pack).s, O_RDONLY | O_CLOEXEC);

	assert_true(pack_place_of(a.off, &frame, &in));
	assert_int_equal(pread(fd, block, sizeof(block), pack_table_off(frame)), sizeof(block));
	close(fd);
	assert_int_equal(pack_table_decode(block, sizeof(block), &rig->key, a.pack, frame, &t), 0);
	assert_int_not_equal(t.coding.codec, PACK_CODEC_NONE);
	*ret_end = pack_data_off(frame) + t.coding.part_end[part];
	return pack_data_off(frame) + pack_part_start(&t.coding, part);
}

static void damage_costs_its_part_and_is_not_written_over(void **state)
{
	uint8_t *chunk = aligned_bytes(PACK_BLOCK);
	struct rig rig;

	(void)state;
	for (size_t k = 0; k < 3; k++) {
		struct addr a, bad;
		uint64_t start, end;
		unsigned nr_damaged = 0;
		struct pack_stats st;

		rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .compression = all[k] });
		a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
		rig_sync(&rig);
		start = part_place(&rig, a, 3, &end);
		for (uint64_t at = start; at < end; at += 97)
			flip_byte(&rig, a.pack, at);
		bad = (struct addr){ .pack = a.pack, .off = a.off + (3 * 16 + 5) * PACK_BLOCK };
		assert_int_equal(packs_read(rig.p, bad, PACK_BLOCK, chunk), -EBADMSG);
		assert_true(packs_is_damaged(rig.p, bad));
		for (uint32_t i = 0; i < 256; i++) {
			struct addr at = { .pack = a.pack, .off = a.off + i * PACK_BLOCK };
			bool is_in = i / 16 == 3;

			assert_int_equal(rig_check(&rig, at, PACK_BLOCK, i, 1), is_in ? -EBADMSG : 0);
			assert_int_equal(packs_is_damaged(rig.p, at), is_in);
			nr_damaged += is_in;
		}
		packs_stats(rig.p, &st);
		assert_int_equal(st.nr_damaged, nr_damaged);
		fill_chunk(chunk, 3 * 16 + 5, PACK_BLOCK);
		assert_int_equal(packs_repair_chunk(rig.p, bad, chunk, PACK_BLOCK), -EOPNOTSUPP);
		rig_release(&rig);
	}
	free(chunk);
}

static void any_changed_byte_is_found_or_harmless(void **state)
{
	struct rig rig;

	(void)state;
	srand(3);
	for (size_t k = 0; k < 2; k++) {
		struct addr a;
		uint64_t start, end, last_end;

		rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1), .compression = all[k] });
		a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
		rig_sync(&rig);
		start = part_place(&rig, a, 0, &end);
		part_place(&rig, a, 15, &last_end);
		for (unsigned i = 0; i < 200; i++) {
			uint64_t at = start + (uint64_t)rand() % (last_end - start);
			int r;

			flip_byte(&rig, a.pack, at);
			r = rig_check(&rig, a, PACK_BLOCK, 0, 256);
			assert_true(r == 0 || r == -EBADMSG);
			flip_byte(&rig, a.pack, at);
			rig_reopen(&rig);
		}
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);
		rig_release(&rig);
	}
}

static void a_frame_that_was_cut_is_damage(void **state)
{
	struct rig rig;

	(void)state;
	for (unsigned blocks = 0; blocks < 4; blocks++) {
		struct addr a;
		int fd;

		rig_init(&rig,
			 (struct packs_conf){ .pack_bytes = PACK_BLOCK, .table_memory = MiB(1), .compression = all[0] });
		a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256); /* so that it is not the one to go on in */
		rig_sync(&rig);
		fd = openat(rig.dirfd, pack_name(a.pack).s, O_RDWR | O_CLOEXEC);
		assert_int_equal(ftruncate(fd, a.off + blocks * 33 * PACK_BLOCK), 0);
		close(fd);
		rig_reopen(&rig);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), -EBADMSG);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 16), blocks > 0 ? 0 : -EBADMSG);
		rig_release(&rig);
	}
}

static uint64_t gone_now[PACK_GONE_WORDS];

static int fate(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	(void)userdata;
	(void)pack;
	memcpy(ret->gone, gone_now, sizeof(gone_now));
	return frame == 0 ? PACK_GONE : 0;
}

static void what_is_gone_gives_its_parts_back(void **state)
{
	struct packs_conf conf = LZ4;
	uint64_t before, after;
	struct rig rig;
	struct addr a;

	(void)state;
	memset(gone_now, 0, sizeof(gone_now));
	conf.fate = fate;
	rig_init(&rig, conf);
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	before = disk_bytes(&rig, a.pack);
	gone_now[0] = 0xffff0000ffffffff & ~(uint64_t)1; /* parts 1 and 3, and all of 0 but one chunk */
	assert_int_equal(packs_punch(rig.p, a.pack, 0, PACK_BLOCK, 256, gone_now), 0);
	packs_forget_table(rig.p, a.pack, 0);
	after = disk_bytes(&rig, a.pack);
	assert_in_range(before - after, PACK_PART_BYTES * 3 / 4, PACK_PART_BYTES * 2);
	for (unsigned reopened = 0; reopened < 2; reopened++) {
		for (uint32_t i = 0; i < 256; i++) {
			struct addr at = { .pack = a.pack, .off = a.off + i * PACK_BLOCK };
			bool is_gone = gone_now[i / 64] >> i % 64 & 1;

			assert_int_equal(rig_check(&rig, at, PACK_BLOCK, i, 1), is_gone ? -EBADMSG : 0);
		}
		rig_reopen(&rig);
	}
	memset(gone_now, 0xff, sizeof(gone_now));
	assert_int_equal(packs_punch(rig.p, a.pack, 0, PACK_BLOCK, 256, gone_now), 0);
	assert_int_equal(disk_bytes(&rig, a.pack), PACK_BLOCK); /* its header */
	rig_release(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_that_shrinks_takes_less),
		cmocka_unit_test(a_frame_that_does_not_shrink_is_stored_as_it_is),
		cmocka_unit_test(parts_that_do_not_shrink_are_stored_as_they_are),
		cmocka_unit_test(a_small_read_touches_one_part),
		cmocka_unit_test(frames_in_order_are_one_disk_access_each),
		cmocka_unit_test(auto_leaves_it_when_there_is_no_time),
		cmocka_unit_test(spare_time_ends_when_a_request_waits),
		cmocka_unit_test(damage_costs_its_part_and_is_not_written_over),
		cmocka_unit_test(any_changed_byte_is_found_or_harmless),
		cmocka_unit_test(a_frame_that_was_cut_is_damage),
		cmocka_unit_test(what_is_gone_gives_its_parts_back),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_compress", tests, NULL, NULL);
}
