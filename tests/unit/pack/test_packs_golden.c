/*
 * golden/pack pins the bytes of format version 1: what is written today equals it, and what it holds is read.
 * CKPTFS_GOLDEN_OUT=FILE writes the file anew, for a new version of the format.
 */
#include "pack_rig.h"

#include <inttypes.h>

#define GOLDEN TESTS_DIR "/golden/pack/v1.txt"
#define ROW 32
#define CREATED_NS UINT64_C(1700000000123456789)
#define NR_BYTES (PACK_BLOCK * (1 + 2 * PACK_FRAME_STRIDE + 4))

static const struct pack_marks golden_marks = {
	.stream = { { .pack = 1, .nr_frames = 3 } },
	.next_pack = 2,
	.counts = { .nr_chunks = 6, .chunk_bytes = 2 * 65536 + 4 * 4096, .nr_frames = 3 },
};

/* Mostly zeros, so that the file is small. */
static void golden_chunk(uint8_t *p, uint8_t number, uint32_t len)
{
	memset(p, 0, len);
	p[0] = number;
	p[len - 1] = (uint8_t)~number;
}

static void write_frame(struct rig *rig, uint8_t number, uint32_t chunk_len, unsigned nr)
{
	uint8_t *memory = aligned_bytes((size_t)nr * chunk_len);
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < nr; i++) {
		uint8_t *chunk = memory + (size_t)i * chunk_len;

		golden_chunk(chunk, (uint8_t)(number + i), chunk_len);
		pack_frame_add(f, fp_of(&rig->key, chunk, chunk_len), chunk);
	}
	assert_int_equal(packs_frame_write(rig->p, f), 0);
	free(memory);
}

static void check_frame(struct rig *rig, uint32_t frame, uint8_t number, uint32_t chunk_len, unsigned nr)
{
	uint8_t *got = aligned_bytes((size_t)nr * chunk_len), *want = aligned_bytes(chunk_len);
	struct addr a = { .pack = 1, .off = pack_data_off(frame) };

	assert_int_equal(packs_read(rig->p, a, nr * chunk_len, got), 0);
	for (unsigned i = 0; i < nr; i++) {
		golden_chunk(want, (uint8_t)(number + i), chunk_len);
		assert_memory_equal(got + (size_t)i * chunk_len, want, chunk_len);
	}
	free(got);
	free(want);
}

static uint8_t *read_pack(struct rig *rig)
{
	uint8_t *p = aligned_bytes(NR_BYTES);
	int fd = openat(rig->dirfd, pack_name(1).s, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pack_stat(rig, 1).st_size, NR_BYTES);
	assert_int_equal(pread(fd, p, NR_BYTES, 0), NR_BYTES);
	close(fd);
	return p;
}

/* What this version writes, but for the time of its making. */
static uint8_t *written_now(void)
{
	struct pack_header h;
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_frame(&rig, 1, 4096, 1);
	write_frame(&rig, 10, 65536, 2);
	write_frame(&rig, 20, 4096, 3);
	rig_sync(&rig);
	assert_memory_equal(&rig.marks.stream[PACK_BULK], &golden_marks.stream[PACK_BULK], sizeof(struct pack_mark));
	assert_counts(rig.marks.counts, golden_marks.counts);
	p = read_pack(&rig);
	assert_int_equal(pack_header_decode(p, PACK_BLOCK, &h), 0);
	h.created_ns = CREATED_NS;
	pack_header_encode(&h, (struct pack_header_disk *)p);
	rig_release(&rig);
	return p;
}

static void golden_save(const char *path, const uint8_t *p)
{
	static const uint8_t zeros[ROW];
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fprintf(f, "# a pack of three frames: 1 chunk of 4 KiB, 2 of 64 KiB, 3 of 4 KiB; rows of zeros are left out\n");
	fprintf(f, "file %s %u\n", pack_name(1).s, NR_BYTES);
	for (uint32_t off = 0; off < NR_BYTES; off += ROW) {
		if (memcmp(p + off, zeros, ROW) == 0)
			continue;
		fprintf(f, "%08" PRIx32 " ", off);
		for (unsigned i = 0; i < ROW; i++)
			fprintf(f, "%02x", p[off + i]);
		fputc('\n', f);
	}
	assert_int_equal(fclose(f), 0);
}

static uint8_t *golden_load(void)
{
	uint8_t *p = aligned_bytes(NR_BYTES);
	char line[128], hex[2 * ROW + 1];
	FILE *f = fopen(GOLDEN, "re");
	unsigned off, byte;

	assert_non_null(f);
	memset(p, 0, NR_BYTES);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%8x %64[0-9a-f]", &off, hex) != 2)
			continue;
		assert_true(off <= NR_BYTES - ROW);
		for (unsigned i = 0; i < ROW; i++) {
			assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
			p[off + i] = (uint8_t)byte;
		}
	}
	fclose(f);
	return p;
}

static void packs_are_written_as_in_version_1(void **state)
{
	uint8_t *ours = written_now(), *golden;

	(void)state;
	if (getenv("CKPTFS_GOLDEN_OUT"))
		golden_save(getenv("CKPTFS_GOLDEN_OUT"), ours);
	golden = golden_load();
	assert_memory_equal(ours, golden, NR_BYTES);
	free(ours);
	free(golden);
}

static void packs_of_version_1_are_read(void **state)
{
	static const uint32_t expected[][2] = { { 4096, 1 }, { 65536, 2 }, { 4096, 3 } };
	uint8_t *golden = golden_load();
	struct pack_frame_rec rec;
	enum pack_stream stream;
	struct pack_iter it;
	struct rig rig;
	int fd;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .read_only = true });
	fd = openat(rig.dirfd, pack_name(1).s, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(pwrite(fd, golden, NR_BYTES, 0), NR_BYTES);
	close(fd);
	rig.marks = golden_marks;
	rig_reopen(&rig);
	it = pack_iter(rig.p, 0, 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pack_iter_next(&it, &rec), 1);
		assert_int_equal(rec.frame, i);
		assert_int_equal(rec.chunk_len, expected[i][0]);
		assert_int_equal(rec.nr_chunks, expected[i][1]);
		assert_false(rec.damaged);
	}
	assert_int_equal(pack_iter_next(&it, &rec), 0);
	check_frame(&rig, 0, 1, 4096, 1);
	check_frame(&rig, 1, 10, 65536, 2);
	check_frame(&rig, 2, 20, 4096, 3);
	assert_int_equal(packs_stream_of(rig.p, 1, &stream), 1);
	assert_int_equal(stream, PACK_BULK);
	free(golden);
	rig_release(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_are_written_as_in_version_1),
		cmocka_unit_test(packs_of_version_1_are_read),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_golden", tests, NULL, NULL);
}
