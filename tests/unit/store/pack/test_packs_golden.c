/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * golden/pack pins the bytes of format version 1: what is written today equals v1.txt, varied.txt, coded.txt, bases.txt
 * and twins.txt, and what it holds is read. What a codec makes of its bytes may differ from one version of it to the
 * next, so compressed.txt, levels.txt and matched.txt are read only. CKPTFS_GOLDEN_OUT=DIRECTORY writes the files
 * for a new version of the format.
 */
#include "tests/unit/store/pack/coded_rig.h"

#include <inttypes.h>

#include "store/codec/coding.h"
#include "store/codec/matching.h"
#include "store/codec/twin.h"

#define GOLDEN TESTS_DIR "/golden/pack"
#define ROW 32
#define CREATED_NS UINT64_C(1700000000123456789)
#define NR_BYTES (PACK_BLOCK * (1 + 2 * PACK_FRAME_STRIDE + 4))

static const struct pack_marks golden_marks = {
	.stream = { { .pack = 1, .nr_frames = 3 } },
	.next_pack = 2,
	.counts = { .nr_chunks = 6, .chunk_bytes = 2 * 65536 + 4 * 4096, .nr_frames = 3 },
};

#define ROW_LEN 1024u

/* Mostly zeros, so that the file is small; those from number 120 to 183 have a row in common, at some place; from number
 * 200 on there is nothing that could be compressed. */
static void golden_chunk(uint8_t *p, uint8_t number, uint32_t len)
{
	uint32_t x = number;

	memset(p, 0, len);
	for (uint32_t i = 0; number >= 200 && i < len; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
	for (uint32_t i = 0; number >= 120 && number < 184 && i < ROW_LEN; i++) {
		x = (i == 0 ? 1 : x) * 1664525 + 1013904223;
		p[8 + 40 * (number - 120) + i] = (uint8_t)(x >> 24);
	}
	p[0] = number;
	p[len - 1] = (uint8_t)~number;
}

/* lead: coded behind so many bytes; < 0: not coded. back: against the bytes so many before; 0: against none. */
static void write_frame_as(struct rig *rig, uint8_t number, uint32_t chunk_len, unsigned nr, int lead, uint32_t back)
{
	uint8_t *memory = aligned_bytes((size_t)nr * chunk_len);
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < nr; i++) {
		uint8_t *chunk = memory + (size_t)i * chunk_len;

		golden_chunk(chunk, (uint8_t)(number + i), chunk_len);
		pack_frame_add(f, fp_of(&rig->key, chunk, chunk_len), chunk);
	}
	if (lead < 0)
		assert_int_equal(packs_frame_write(rig->p, f), 0);
	else
		write_coded_against(rig, f, memory, nr * chunk_len, (unsigned)lead, back);
	free(memory);
}

static void write_frame(struct rig *rig, uint8_t number, uint32_t chunk_len, unsigned nr)
{
	write_frame_as(rig, number, chunk_len, nr, -1, 0);
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

/* All of pack 1, filled up with zeros, but for the time of its making. */
static uint8_t *read_pack(struct rig *rig)
{
	uint8_t *p = aligned_bytes(NR_BYTES);
	int fd = openat(rig->dirfd, pack_name(1).s, O_RDONLY | O_CLOEXEC);
	struct pack_header h;

	assert_true(fd >= 0);
	assert_true(pack_stat(rig, 1).st_size <= NR_BYTES);
	memset(p, 0, NR_BYTES);
	assert_int_equal(pread(fd, p, NR_BYTES, 0), pack_stat(rig, 1).st_size);
	close(fd);
	assert_int_equal(pack_header_decode(p, PACK_BLOCK, &h), 0);
	h.created_ns = CREATED_NS;
	pack_header_encode(&h, (struct pack_header_disk *)p);
	return p;
}

static uint8_t *written_now(void)
{
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
	rig_release(&rig);
	return p;
}

/* The last frame ends with a part that is stored as it is. */
static uint8_t *compressed_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102, .compression = { .kind = PACK_COMPRESS_LZ4 } });
	write_frame(&rig, 1, 4096, 100);
	rig.conf.compression.kind = PACK_COMPRESS_ZSTD;
	rig_sync(&rig);
	rig_reopen(&rig);
	write_frame(&rig, 110, 65536, 3);
	write_frame(&rig, 200 - 16, 4096, 17);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

/* The second frame ends with a part that is stored as it is. */
static uint8_t *coded_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_frame_as(&rig, 1, 4096, 1, 0, 0);
	write_frame_as(&rig, 200 - 16, 4096, 17, 1, 0);
	write_frame_as(&rig, 20, 65536, 3, 2, 0);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

/* The second and third frame have parts that are coded against others of them. */
static uint8_t *bases_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_frame_as(&rig, 1, 4096, 1, 0, 0);
	write_frame_as(&rig, 30, 4096, 33, 1, PACK_PART_BYTES);
	write_frame_as(&rig, 20, 65536, 3, 2, 2 * PACK_PART_BYTES);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

/* The first part as it is, which is of 16-bit floats, and two with 32-bit ones against it. */
static void write_twins(struct rig *rig, uint8_t number, uint32_t chunk_len, enum code_place how)
{
	uint32_t len = 3 * PACK_PART_BYTES, at = PACK_PART_BYTES;
	uint8_t *memory = aligned_bytes(len), *stored = malloc(2 * len), *base = malloc(PACK_PART_BYTES);
	struct coder_spec spec = { .steps = { .type = { CODE_FLOAT, 4, false },
					      .base = CODE_BASE_XOR,
					      .split = CODE_SPLIT_BYTES } };
	struct pack_parts parts = { .end = { PACK_PART_BYTES } };
	struct code_work *w = code_work_new();
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < len / chunk_len; i++) {
		golden_chunk(memory + i * chunk_len, (uint8_t)(number + i), chunk_len);
		pack_frame_add(f, fp_of(&rig->key, memory + i * chunk_len, chunk_len), memory + i * chunk_len);
	}
	memcpy(stored, memory, at);
	for (unsigned i = 1; i < 3; i++) {
		uint32_t from = (i - 1) * PACK_PART_BYTES / 2, base_len;
		int n;

		base_len = twin_base(how, spec.steps.type, 0, memory + from, PACK_PART_BYTES / 2, PACK_PART_BYTES, base);
		spec.steps.base_place = parts.base[i] = code_place(how, from);
		n = code_encode(w, &spec, memory + i * PACK_PART_BYTES, PACK_PART_BYTES, base, base_len, stored + at);
		assert_in_range(n, 1, PACK_PART_BYTES - 1);
		at += (uint32_t)n;
		parts.end[i] = at;
	}
	assert_int_equal(packs_frame_write_coded(rig->p, f, stored, &parts), 0);
	code_work_free(w);
	free(memory);
	free(stored);
	free(base);
}

/* The first part by levels, and two others against those. */
static void write_levels(struct rig *rig, uint8_t number, uint32_t chunk_len)
{
	uint32_t len = 3 * PACK_PART_BYTES, at = 0;
	uint8_t *memory = aligned_bytes(len), *stored = malloc(2 * len);
	struct coder_spec spec = coding_by_levels((struct code_type){ CODE_FLOAT, 4, false });
	struct code_work *w = code_work_new();
	struct pack_parts parts = { 0 };
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < len / chunk_len; i++) {
		golden_chunk(memory + i * chunk_len, (uint8_t)(number + i), chunk_len);
		pack_frame_add(f, fp_of(&rig->key, memory + i * chunk_len, chunk_len), memory + i * chunk_len);
	}
	for (unsigned i = 0; i < 3; i++) {
		int n = code_encode(w, &spec, memory + i * PACK_PART_BYTES, PACK_PART_BYTES, memory, PACK_PART_BYTES,
				    stored + at);

		assert_in_range(n, 1, PACK_PART_BYTES - 1);
		parts.base[i] = spec.steps.base_place;
		at += (uint32_t)n;
		parts.end[i] = at;
		spec.steps.base = CODE_BASE_SUB;
		spec.steps.base_place = code_place_levels(0, (uint32_t)code_levels_end(stored, parts.end[0]));
	}
	assert_int_equal(packs_frame_write_coded(rig->p, f, stored, &parts), 0);
	code_work_free(w);
	free(memory);
	free(stored);
}

/* The others have runs of the first part. */
static void write_matched(struct rig *rig, uint8_t number, uint32_t chunk_len)
{
	uint32_t len = 3 * PACK_PART_BYTES, leads[MATCH_PARTS] = { 0 };
	uint8_t *memory = aligned_bytes(len), *stored = malloc(MATCHING_ROOM);
	struct code_work *w = code_work_new();
	struct pack_parts parts = { 0 };
	struct pack_frame *f;
	struct matching m;

	assert_int_equal(packs_frame_open(rig->p, PACK_BULK, chunk_len, &f), 0);
	for (unsigned i = 0; i < len / chunk_len; i++) {
		golden_chunk(memory + i * chunk_len, (uint8_t)(number + i), chunk_len);
		pack_frame_add(f, fp_of(&rig->key, memory + i * chunk_len, chunk_len), memory + i * chunk_len);
	}
	assert_int_equal(matching_init(&m, w, &(struct coding_shape){ .type = { CODE_UINT, 8, false } }, 0, NULL), 0);
	assert_in_range(matching_frame(&m, memory, len, leads, stored, parts.end, parts.base), 1, len / 8);
	for (unsigned i = 1; i < 3; i++)
		assert_true(code_place_how(parts.base[i]) == CODE_PLACE_MATCHED && (code_place_parts(parts.base[i]) & 1));
	assert_int_equal(packs_frame_write_coded(rig->p, f, stored, &parts), 0);
	matching_release(&m);
	code_work_free(w);
	free(memory);
	free(stored);
}

static uint8_t *matched_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_matched(&rig, 120, 4096);
	write_matched(&rig, 170, 65536);
	write_frame_as(&rig, 1, 4096, 1, 0, 0);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

static uint8_t *levels_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_levels(&rig, 30, 4096);
	write_levels(&rig, 20, 65536);
	write_frame_as(&rig, 1, 4096, 1, 0, 0);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

static uint8_t *twins_now(void)
{
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	write_twins(&rig, 30, 4096, CODE_PLACE_WIDENED_BFLOAT_LE);
	write_twins(&rig, 20, 65536, CODE_PLACE_WIDENED_FLOAT_BE);
	write_frame_as(&rig, 1, 4096, 1, 0, 0);
	p = read_pack(&rig);
	rig_release(&rig);
	return p;
}

static const uint32_t varied_lens[] = { 1, 4096, 700, 65536, 511, 12345 };

static uint8_t *varied_now(void)
{
	uint8_t *chunk = aligned_bytes(65536);
	struct pack_frame *f;
	struct rig rig;
	uint8_t *p;

	rig_init(&rig, (struct packs_conf){ .node = 0x0102 });
	assert_int_equal(packs_frame_open(rig.p, PACK_SMALL, PACK_VARIED, &f), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(varied_lens); i++) {
		golden_chunk(chunk, (uint8_t)(i + 1), varied_lens[i]);
		pack_frame_add_varied(f, fp_of(&rig.key, chunk, varied_lens[i]), chunk, varied_lens[i]);
	}
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	p = read_pack(&rig);
	free(chunk);
	rig_release(&rig);
	return p;
}

static void golden_save(const char *name, const char *what, const uint8_t *p)
{
	static const uint8_t zeros[ROW];
	char path[256];
	FILE *f;

	if (!getenv("CKPTFS_GOLDEN_OUT"))
		return;
	snprintf(path, sizeof(path), "%s/%s", getenv("CKPTFS_GOLDEN_OUT"), name);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "# a pack: %s; rows of zeros are left out\n", what);
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

static uint8_t *golden_load(const char *name)
{
	uint8_t *p = aligned_bytes(NR_BYTES);
	char line[128], hex[2 * ROW + 1], path[256];
	unsigned off, byte;
	FILE *f;

	snprintf(path, sizeof(path), GOLDEN "/%s", name);
	f = fopen(path, "re");
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
	golden_save("v1.txt", "three frames: 1 chunk of 4 KiB, 2 of 64 KiB, 3 of 4 KiB", ours);
	golden = golden_load("v1.txt");
	assert_memory_equal(ours, golden, NR_BYTES);
	free(ours);
	free(golden);
}

static void varied_chunks_are_written_and_read_as_in_version_1(void **state)
{
	const struct pack_marks marks = {
		.stream = { [PACK_SMALL] = { .pack = 1, .nr_frames = 1 } },
		.next_pack = 2,
		.counts = { .nr_chunks = 6, .chunk_bytes = 83189, .nr_frames = 1 },
	};
	uint8_t *ours = varied_now(), *golden, *got = aligned_bytes(65536), *want = aligned_bytes(65536);
	struct addr a = { .pack = 1, .off = pack_data_off(0) };
	struct rig rig;
	int fd;

	(void)state;
	golden_save("varied.txt", "6 chunks of varied lengths", ours);
	golden = golden_load("varied.txt");
	assert_memory_equal(ours, golden, NR_BYTES);
	rig_init(&rig, (struct packs_conf){ .read_only = true });
	fd = openat(rig.dirfd, pack_name(1).s, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(pwrite(fd, golden, NR_BYTES, 0), NR_BYTES);
	close(fd);
	rig.marks = marks;
	rig_reopen(&rig);
	for (unsigned i = 0; i < ARRAY_SIZE(varied_lens); a.off += varied_lens[i++]) {
		golden_chunk(want, (uint8_t)(i + 1), varied_lens[i]);
		assert_int_equal(packs_read(rig.p, a, varied_lens[i], got), 0);
		assert_memory_equal(got, want, varied_lens[i]);
	}
	free(ours);
	free(golden);
	free(got);
	free(want);
	rig_release(&rig);
}

/* Three frames: number of the first chunk, length and number of chunks. */
static void check_golden(const char *name, const uint32_t expected[3][3])
{
	uint8_t *golden = golden_load(name);
	struct pack_frame_rec rec;
	enum pack_stream stream;
	struct pack_iter it;
	struct rig rig;
	int fd;

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
		assert_int_equal(rec.chunk_len, expected[i][1]);
		assert_int_equal(rec.nr_chunks, expected[i][2]);
		assert_false(rec.damaged);
	}
	assert_int_equal(pack_iter_next(&it, &rec), 0);
	for (uint32_t i = 0; i < 3; i++)
		check_frame(&rig, i, (uint8_t)expected[i][0], expected[i][1], expected[i][2]);
	assert_int_equal(packs_stream_of(rig.p, 1, &stream), 1);
	assert_int_equal(stream, PACK_BULK);
	free(golden);
	rig_release(&rig);
}

static void packs_of_version_1_are_read(void **state)
{
	static const uint32_t expected[3][3] = { { 1, 4096, 1 }, { 10, 65536, 2 }, { 20, 4096, 3 } };

	(void)state;
	check_golden("v1.txt", expected);
}

static void compressed_packs_of_version_1_are_read(void **state)
{
	static const uint32_t expected[3][3] = { { 1, 4096, 100 }, { 110, 65536, 3 }, { 184, 4096, 17 } };
	uint8_t *ours = compressed_now();

	(void)state;
	golden_save("compressed.txt", "three frames: 100 chunks of 4 KiB in lz4, 3 of 64 KiB and 17 of 4 KiB in zstd",
		    ours);
	check_golden("compressed.txt", expected);
	free(ours);
}

static void levels_of_version_1_are_read(void **state)
{
	static const uint32_t expected[3][3] = { { 30, 4096, 48 }, { 20, 65536, 3 }, { 1, 4096, 1 } };
	uint8_t *ours = levels_now();

	(void)state;
	golden_save("levels.txt",
		    "three frames of coded blocks: 48 chunks of 4 KiB and 3 of 64 KiB, against levels of the first part; 1 of 4 KiB",
		    ours);
	check_golden("levels.txt", expected);
	free(ours);
}

static void runs_of_version_1_are_read(void **state)
{
	static const uint32_t expected[3][3] = { { 120, 4096, 48 }, { 170, 65536, 3 }, { 1, 4096, 1 } };
	uint8_t *ours = matched_now();

	(void)state;
	golden_save("matched.txt",
		    "three frames of coded blocks: 48 chunks of 4 KiB and 3 of 64 KiB, with runs of the first part; 1 of 4 KiB",
		    ours);
	check_golden("matched.txt", expected);
	free(ours);
}

/* `ours`, which is freed here, is equal to the file, and the file is read. */
static void check_as_in_version_1(const char *name, const char *what, uint8_t *ours, const uint32_t expected[3][3])
{
	uint8_t *golden;

	golden_save(name, what, ours);
	golden = golden_load(name);
	assert_memory_equal(ours, golden, NR_BYTES);
	check_golden(name, expected);
	free(ours);
	free(golden);
}

static void coded_packs_are_written_and_read_as_in_version_1(void **state)
{
	static const uint32_t expected[3][3] = { { 1, 4096, 1 }, { 184, 4096, 17 }, { 20, 65536, 3 } };

	(void)state;
	check_as_in_version_1("coded.txt",
			  "three frames of coded blocks: 1 chunk of 4 KiB, 17 of them, 3 of 64 KiB",
			  coded_now(), expected);
}

static void bases_are_written_and_read_as_in_version_1(void **state)
{
	static const uint32_t expected[3][3] = { { 1, 4096, 1 }, { 30, 4096, 33 }, { 20, 65536, 3 } };

	(void)state;
	check_as_in_version_1("bases.txt",
			  "three frames of coded blocks: 1 chunk of 4 KiB, 33 of them and 3 of 64 KiB against earlier parts",
			  bases_now(), expected);
}

static void twins_are_written_and_read_as_in_version_1(void **state)
{
	static const uint32_t expected[3][3] = { { 30, 4096, 48 }, { 20, 65536, 3 }, { 1, 4096, 1 } };

	(void)state;
	check_as_in_version_1("twins.txt",
			  "three frames of coded blocks: 48 chunks of 4 KiB and 3 of 64 KiB, against parts that are widened; 1 of 4 KiB",
			  twins_now(), expected);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_are_written_as_in_version_1),
		cmocka_unit_test(packs_of_version_1_are_read),
		cmocka_unit_test(varied_chunks_are_written_and_read_as_in_version_1),
		cmocka_unit_test(compressed_packs_of_version_1_are_read),
		cmocka_unit_test(coded_packs_are_written_and_read_as_in_version_1),
		cmocka_unit_test(bases_are_written_and_read_as_in_version_1),
		cmocka_unit_test(twins_are_written_and_read_as_in_version_1),
		cmocka_unit_test(levels_of_version_1_are_read),
		cmocka_unit_test(runs_of_version_1_are_read),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_golden", tests, NULL, NULL);
}
