/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Tables that are repaired, of frames stored in every way: as they are, with each codec, with parts that no codec made
 * smaller, short ones; chunks of one length and of varied ones. A table written again is the one that was there, to the
 * byte.
 *
 * A repair of a large frame takes some milliseconds, under ASan ten times as many. So each change is tried in some of the
 * frames, which take turns; with TEST_EVERY, in all of them.
 */
#include "tests/unit/store/pack/coded_rig.h"

#include "store/pack/coded/codec.h"
#include "store/pack/repair/pack_repair.h"

static const enum pack_codec kinds[] = { PACK_CODEC_NONE, PACK_CODEC_LZ4, PACK_CODEC_ZSTD, PACK_CODEC_CODED };
static const enum pack_compress compress_of[] = { PACK_COMPRESS_NONE, PACK_COMPRESS_LZ4, PACK_COMPRESS_ZSTD,
						  PACK_COMPRESS_NONE };

/* Frames, by how their chunks are cut and which parts are noise. */
static const struct shape {
	const char *name;
	uint32_t chunk_len, len; /* chunk_len 0: varied */
	uint32_t noise; /* bit i: part i */
	/* Each byte is changed, with lz4, but for those behind the last chunk, where nothing is. Else only some of those
	 * of single chunks; and of each number of the frame one byte, not the same one for each shape. */
	bool every_byte;
} shapes[] = {
	{ "pages", 4096, PACK_FRAME_BYTES, 0, false },
	{ "pages, some noise", 4096, PACK_FRAME_BYTES, 0x1821, false },
	{ "pages, a part of noise last", 4096, PACK_FRAME_BYTES, 0x8000, false },
	{ "few pages", 4096, 7 * 4096, 0, true },
	{ "pages, a short part of noise last", 4096, 5 * 65536 + 8192, 0x20, false },
	{ "chunks of 64 KiB", 65536, 10 * 65536, 0x4, false },
	{ "chunks larger than a part", 262144, PACK_FRAME_BYTES, 0x110, false },
	{ "varied", 0, 987654, 0, false },
	{ "varied, some noise", 0, 987654, 0x4046, false },
	{ "few of varied lengths", 0, 41234, 0, true },
	{ "varied, a short part of noise last", 0, 3 * 65536 + 1234, 0x8, false },
	{ "varied, one byte last", 0, 2 * 65536 + 1, 0, false },
};

/* Is it the turn of frame `nr`, one of as many that take turns? */
static bool is_turn(uint32_t nr, uint32_t of)
{
	return getenv("TEST_EVERY") || nr % of == 0;
}

struct frame {
	const struct shape *shape;
	struct rig rig;
	uint8_t *bytes;
	struct addr first;
	uint8_t table[PACK_BLOCK]; /* as it was written */
	struct pack_table t;
};

static void fill_noise(uint8_t *p, size_t len, uint64_t x)
{
	for (size_t i = 0; i < len; i++) {
		x = x * 6364136223846793005 + 1442695040888963407;
		p[i] = (uint8_t)(x >> 56);
	}
}

static void read_table(struct frame *f, uint8_t ret[PACK_BLOCK])
{
	int fd = openat(f->rig.dirfd, pack_name(1).s, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, ret, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	close(fd);
}

static void write_at(struct frame *f, const void *p, size_t len, uint32_t off)
{
	int fd = openat(f->rig.dirfd, pack_name(1).s, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, p, len, off), len);
	close(fd);
}

static uint32_t next_len(const struct shape *s, uint32_t at, unsigned i)
{
	uint32_t len = s->chunk_len ? s->chunk_len : i == 20 ? PACK_VARIED_LEN_MAX : (i * 2654435761u >> 7) % 9001 + 1;

	return MIN(len, s->len - at);
}

/* The parts of noise begin with these bytes. */
static struct frame *frame_new_with(const struct shape *s, enum pack_codec kind, const void *p, size_t len)
{
	struct frame *f = calloc(1, sizeof(*f));
	struct pack_frame *open;

	f->shape = s;
	f->bytes = aligned_bytes(PACK_FRAME_BYTES);
	fill_chunk(f->bytes, 5, PACK_FRAME_BYTES);
	for (uint32_t i = 0; i < PACK_PARTS; i++)
		if (s->noise >> i & 1) {
			fill_noise(f->bytes + i * PACK_PART_BYTES, PACK_PART_BYTES, i);
			memcpy(f->bytes + i * PACK_PART_BYTES, p, len);
		}
	rig_init(&f->rig, (struct packs_conf){ .table_memory = MiB(1), .compression.kind = compress_of[kind] });
	assert_int_equal(packs_frame_open(f->rig.p, PACK_SMALL, s->chunk_len, &open), 0);
	for (uint32_t at = 0, i = 0, n; at < s->len; at += n, i++) {
		struct fp fp;
		struct addr a;

		n = next_len(s, at, i);
		fp = fp_of(&f->rig.key, f->bytes + at, n);
		a = s->chunk_len ? pack_frame_add(open, fp, f->bytes + at) :
				   pack_frame_add_varied(open, fp, f->bytes + at, n);
		f->first = i == 0 ? a : f->first;
	}
	if (kind == PACK_CODEC_CODED)
		write_coded(&f->rig, open, f->bytes, s->len, 0);
	else
		assert_int_equal(packs_frame_write(f->rig.p, open), 0);
	rig_sync(&f->rig);
	read_table(f, f->table);
	assert_int_equal(pack_table_decode(f->table, PACK_BLOCK, &f->rig.key, 1, 0, &f->t), 0);
	assert_int_equal(f->t.coding.codec, kind);
	return f;
}

static struct frame *frame_new(const struct shape *s, enum pack_codec kind)
{
	return frame_new_with(s, kind, "", 0);
}

static void frame_free(struct frame *f)
{
	rig_release(&f->rig);
	free(f->bytes);
	free(f);
}

static int read_all(struct frame *f)
{
	uint8_t *got = aligned_bytes(f->shape->len);
	int r;

	rig_reopen(&f->rig);
	r = packs_read(f->rig.p, f->first, f->shape->len, got);
	if (r == 0)
		r = memcmp(got, f->bytes, f->shape->len) != 0;
	free(got);
	return r;
}

/* The table is damaged so. Is it the same as before, then? */
static bool is_repaired(struct frame *f, const uint8_t damaged[PACK_BLOCK], struct pack_salvage *s)
{
	uint8_t now[PACK_BLOCK];

	write_at(f, damaged, PACK_BLOCK, pack_table_off(0));
	if (packs_salvage_table(f->rig.p, 1, 0, s) <= 0)
		return false;
	assert_int_equal(packs_repair_table(f->rig.p, s), 0);
	read_table(f, now);
	return memcmp(now, f->table, PACK_BLOCK) == 0;
}

static uint32_t entry_len(const struct frame *f)
{
	return f->shape->chunk_len ? FP_LEN : sizeof(struct pack_varied_disk);
}

static bool is_tried(const struct frame *f, uint32_t at)
{
	static const uint32_t steps[] = {
		[PACK_CODEC_NONE] = 67, [PACK_CODEC_LZ4] = 1, [PACK_CODEC_ZSTD] = 3, [PACK_CODEC_CODED] = 5
	};
	uint32_t end = 256 + f->t.nr_chunks * entry_len(f);
	uint32_t nr = (uint32_t)(f->shape - shapes) + 3 * f->t.coding.codec; /* of the frame, when it takes turns */
	bool of_frame = (at >= 20 && at < 24) || (at >= 32 && at < 108);

	if (f->shape->every_byte)
		return of_frame || (at % steps[f->t.coding.codec] == 0 && (at < end || is_turn(at, 61)));
	return (of_frame && (at + nr) % 4 == 0 && is_turn(at / 4 + nr, 3)) ||
	       (at % 149 == 0 && is_turn(at / 149 + nr, 3));
}

static void change_bytes(struct frame *f, const char *how)
{
	struct pack_salvage *s = malloc(sizeof(*s));
	uint8_t damaged[PACK_BLOCK];
	unsigned nr_not = 0;

	for (uint32_t at = 0; at < PACK_BLOCK; at++) {
		if (!is_tried(f, at))
			continue;
		memcpy(damaged, f->table, PACK_BLOCK);
		damaged[at] ^= (uint8_t)(1 + at * 40503u % 255);
		if (!is_repaired(f, damaged, s)) {
			print_error("%s, %s: byte %u\n", how, f->shape->name, at);
			nr_not++;
		}
	}
	free(s);
	assert_int_equal(nr_not, 0);
	assert_int_equal(read_all(f), 0);
}

static void a_table_with_a_changed_byte_is_as_it_was(void **state)
{
	static const char *const names[] = { "as it is", "lz4", "zstd", "coded" };

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
			struct frame *f = frame_new(&shapes[i], kinds[k]);

			change_bytes(f, names[k]);
			frame_free(f);
		}
}

/* The bytes of a chunk that is not in use may have been given back to the filesystem. */
static void a_wrong_length_beside_freed_bytes_is_repaired(void **state)
{
	static const struct shape varied = { .name = "varied", .len = 987654 };
	static const uint32_t wrong[] = { 25, 29, 31, 35 }, freed = 30;
	struct pack_salvage *s = malloc(sizeof(*s));
	static const uint8_t zeros[9001];
	uint32_t from = 0, len;

	(void)state;
	for (uint32_t i = 0; i < freed; i++)
		from += next_len(&varied, from, i);
	len = next_len(&varied, from, freed);
	assert_in_range(len, 1, sizeof(zeros));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		for (unsigned byte = 0; byte < 2; byte++) {
			struct frame *f = frame_new(&varied, PACK_CODEC_NONE);
			uint8_t damaged[PACK_BLOCK];

			write_at(f, zeros, len, pack_table_off(0) + PACK_BLOCK + from);
			memcpy(damaged, f->table, PACK_BLOCK);
			((struct pack_table_disk *)damaged)->varied[wrong[i]].len.b[byte] ^= 0x15;
			assert_true(is_repaired(f, damaged, s));
			frame_free(f);
		}
	free(s);
}

static bool is_in(const struct frame *f, uint32_t chunk, uint32_t parts)
{
	struct pack_cuts cuts = pack_table_cuts(&f->t);

	for (uint32_t k = pack_cut_start(&cuts, chunk) / PACK_PART_BYTES;
	     k * PACK_PART_BYTES < pack_cut_end(&cuts, chunk); k++)
		if (parts >> k & 1)
			return true;
	return false;
}

/* Chunks that lie in none of these parts are right, and all others right or an error; how many of them. */
static unsigned read_chunks(struct frame *f, uint32_t lost_parts)
{
	struct pack_cuts cuts = pack_table_cuts(&f->t);
	uint8_t *got = aligned_bytes(PACK_FRAME_BYTES);
	unsigned nr_errors = 0;

	rig_reopen(&f->rig);
	for (uint32_t i = 0; i < f->t.nr_chunks; i++) {
		uint32_t start = pack_cut_start(&cuts, i), len = pack_cut_len(&cuts, i);
		struct addr a = { .pack = 1, .off = f->first.off + start };
		int r = packs_read(f->rig.p, a, len, got);

		assert_true(r == 0 || (r == -EBADMSG && is_in(f, i, lost_parts)));
		if (r == 0)
			assert_memory_equal(got, f->bytes + start, len);
		nr_errors += r < 0;
	}
	free(got);
	return nr_errors;
}

/* How many entries have so many bytes of their fingerprints changed, or a byte of their length. */
static unsigned entries_changed(const struct frame *f, const uint8_t *damaged, unsigned nr_bytes, bool or_length)
{
	uint32_t size = entry_len(f);
	unsigned nr = 0;

	for (uint32_t i = 0; i < f->t.nr_chunks; i++) {
		const uint8_t *a = f->table + 256 + i * size, *b = damaged + 256 + i * size;
		unsigned n = 0;

		for (unsigned k = 0; k < FP_LEN; k++)
			n += a[k] != b[k];
		nr += n >= nr_bytes || (or_length && memcmp(a + FP_LEN, b + FP_LEN, size - FP_LEN) != 0);
	}
	return nr;
}

/* But for the entries that are gone themselves. Without a codec nothing else tells where the first of varied lengths
 * are. */
static void a_table_without_a_sector_is_repaired(void **state)
{
	struct pack_salvage *s = malloc(sizeof(*s));

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
			struct frame *f = frame_new(&shapes[i], kinds[k]);
			bool hopeless = kinds[k] == PACK_CODEC_NONE && shapes[i].chunk_len == 0;

			for (uint32_t at = hopeless ? 512 : 0; at < PACK_BLOCK; at += 512) {
				uint8_t damaged[PACK_BLOCK];
				unsigned nr_lost, nr_doubtful, nr_proved = 0;

				memcpy(damaged, f->table, PACK_BLOCK);
				memset(damaged + at, 0, 512);
				if (memcmp(damaged, f->table, PACK_BLOCK) == 0 || !is_turn(at / 512 + i + k, 3))
					continue;
				nr_lost = entries_changed(f, damaged, 4, false);
				nr_doubtful = entries_changed(f, damaged, 4, true);
				write_at(f, damaged, PACK_BLOCK, pack_table_off(0));
				assert_int_equal(packs_salvage_table(f->rig.p, 1, 0, s), nr_lost < f->t.nr_chunks);
				if (nr_lost == f->t.nr_chunks)
					continue;
				for (uint32_t c = 0; c < s->nr_chunks; c++)
					nr_proved += s->proved[c];
				assert_in_range(nr_proved, f->t.nr_chunks - nr_doubtful, f->t.nr_chunks - nr_lost);
				assert_int_equal(packs_repair_table(f->rig.p, s), 0);
				if (is_turn(at / 512 + i + k, 9))
					assert_int_equal(read_chunks(f, ~0u), f->t.nr_chunks - nr_proved);
			}
			frame_free(f);
		}
	free(s);
}

/* Change each byte that tells of the parts and of all chunks: what is not in `lost_parts` is proved, and can be
 * read. */
static void change_bytes_beside(struct frame *f, uint32_t lost_parts, uint32_t nr)
{
	struct pack_salvage *s = malloc(sizeof(*s));
	uint8_t damaged[PACK_BLOCK];

	for (uint32_t at = 36; at < 108; at += at % 4 == 1 ? 3 : 1) { /* of numbers the lower half */
		if (!is_turn(at / 4 + at % 4 + nr, 3))
			continue;
		memcpy(damaged, f->table, PACK_BLOCK);
		damaged[at] ^= (uint8_t)(1 + at * 40503u % 255);
		write_at(f, damaged, PACK_BLOCK, pack_table_off(0));
		assert_int_equal(packs_salvage_table(f->rig.p, 1, 0, s), 1);
		for (uint32_t i = 0; i < f->t.nr_chunks; i++)
			if (!is_in(f, i, lost_parts) && (i >= s->nr_chunks || !s->proved[i]))
				fail_msg("parts %x lost, byte %u changed: chunk %u is not proved", lost_parts, at, i);
		assert_int_equal(packs_repair_table(f->rig.p, s), 0);
		if (at % 9 == 0)
			read_chunks(f, lost_parts);
	}
	free(s);
}

/* As the collector leaves them: no block is there that has nothing else. Or the disk has other bytes there. */
static void parts_that_are_lost_too_cost_no_others(void **state)
{
	static const uint32_t lost[] = { 0x1, 0x8, 0x218c, 0x8000, 0xf000 };
	uint8_t *junk = aligned_bytes(PACK_PART_BYTES);

	(void)state;
	for (size_t k = 1; k < ARRAY_SIZE(kinds); k++)
		for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
			struct frame *f = frame_new(&shapes[i % 3 == 2 ? 7 : 0], kinds[k]);

			fill_noise(junk, PACK_PART_BYTES, i);
			if ((i + k) % 2 == 0)
				memset(junk, 0, PACK_PART_BYTES);
			for (uint32_t part = 0; part < PACK_PARTS; part++) {
				uint32_t start = (uint32_t)round_up(pack_part_start(&f->t.coding, part), PACK_BLOCK);
				uint32_t end = (uint32_t)round_down(f->t.coding.part_end[part], PACK_BLOCK);

				if (lost[i] >> part & 1)
					write_at(f, junk, end - start, pack_data_off(0) + start);
			}
			change_bytes_beside(f, lost[i], (uint32_t)(i + k));
			frame_free(f);
		}
	free(junk);
}

/* A user stores what looks like a compressed part, and then noise so that it is not made smaller. */
static void bytes_that_look_compressed_do_not_deceive(void **state)
{
	uint8_t *plain = aligned_bytes(PACK_PART_BYTES), *stored = aligned_bytes(PACK_PART_BYTES);
	struct coders cs;

	(void)state;
	coders_init(&cs);
	memset(plain, 'x', PACK_PART_BYTES);
	for (size_t k = 1; k < ARRAY_SIZE(kinds); k++) {
		struct coder *c = coder_get(&cs);
		size_t n = kinds[k] == PACK_CODEC_CODED ? code_numbers(plain, PACK_PART_BYTES, 0, stored) :
							  codec_compress(c, kinds[k], 3, plain, PACK_PART_BYTES, stored);
		struct frame *f = frame_new_with(&shapes[1], kinds[k], stored, n);

		assert_in_range(n, 1, 1000);
		change_bytes(f, "deceiving");
		frame_free(f);
		coder_put(&cs, c);
	}
	coders_release(&cs);
	free(plain);
	free(stored);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_with_a_changed_byte_is_as_it_was),
		cmocka_unit_test(a_wrong_length_beside_freed_bytes_is_repaired),
		cmocka_unit_test(a_table_without_a_sector_is_repaired),
		cmocka_unit_test(parts_that_are_lost_too_cost_no_others),
		cmocka_unit_test(bytes_that_look_compressed_do_not_deceive),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_repair", tests, NULL, NULL);
}
