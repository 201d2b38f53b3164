/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Frames of bytes that the caller has coded. */
#pragma once

#include "base/checksum.h"
#include "tests/unit/store/pack/pack_rig.h"
#include "store/codec/code.h"
#include "store/pack/repair/pack_repair.h"

/* One block: of 32-bit numbers with upper bytes that are mostly zero, behind a lead. Without an entropy coder, so that
 * it never changes. `base`: as many bytes that it is coded against, from `place` on; NULL: none. */
static inline size_t code_numbers_against(const void *p, size_t len, unsigned lead, const void *base, uint32_t place,
					  void *ret)
{
	struct code_work *w = code_work_new();
	struct coder_spec spec = { .steps = { .type = { CODE_UINT, 4, false }, .split = CODE_SPLIT_BYTES, .lead = lead } };
	int n;

	assert_non_null(w);
	if (base) {
		spec.steps.base = CODE_BASE_XOR;
		spec.steps.base_place = code_place(CODE_PLACE_SAME, place);
	}
	n = code_encode(w, &spec, p, len, base, base ? len : 0, ret);
	assert_true(n > 0);
	code_work_free(w);
	return (size_t)n;
}

static inline size_t code_numbers(const void *p, size_t len, unsigned lead, void *ret)
{
	return code_numbers_against(p, len, lead, NULL, 0, ret);
}

/* The frame's bytes again, all of them, to be coded and written. A part that does not get smaller is stored as it is.
 * Those for which there are are coded against the bytes `back` before them; 0: none is. */
static inline void write_coded_against(struct rig *rig, struct pack_frame *f, const uint8_t *bytes, uint32_t len,
				       unsigned lead, uint32_t back)
{
	struct pack_parts parts = { 0 };
	uint32_t at = 0;
	uint8_t *stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));

	assert_non_null(stored);
	for (uint32_t i = 0; i < pack_nr_parts(len); i++) {
		uint32_t part = pack_part_len(len, i);
		uint32_t start = i * PACK_PART_BYTES;
		bool has_base = back > 0 && start >= back;
		size_t n = code_numbers_against(bytes + start, part, lead, has_base ? bytes + start - back : NULL,
						start - back, stored + at);

		if (n >= part) {
			memcpy(stored + at, bytes + start, part);
			n = part;
		} else if (has_base) {
			parts.base[i] = code_place(CODE_PLACE_SAME, start - back);
		}
		at += (uint32_t)n;
		parts.end[i] = at;
	}
	assert_int_equal(packs_frame_write_coded(rig->p, f, stored, &parts), 0);
	free(stored);
}

static inline void write_coded(struct rig *rig, struct pack_frame *f, const uint8_t *bytes, uint32_t len, unsigned lead)
{
	write_coded_against(rig, f, bytes, len, lead, 0);
}

/* --- a frame of pages, coded, in packs of its own --- */

#define CODED_PER_PART (PACK_PART_BYTES / 4096)

struct coded {
	struct rig rig;
	uint8_t *bytes; /* PACK_FRAME_BYTES */
	struct addr first;
};

static inline void coded_init(struct coded *c)
{
	*c = (struct coded){ .bytes = aligned_bytes(PACK_FRAME_BYTES) };
	rig_init(&c->rig, (struct packs_conf){ .table_memory = MiB(1) });
}

static inline void coded_release(struct coded *c)
{
	rig_release(&c->rig);
	free(c->bytes);
}

/* Its first `nr` pages, to be coded and written. */
static inline struct pack_frame *coded_open(struct coded *c, uint32_t nr)
{
	struct pack_frame *f;

	assert_int_equal(packs_frame_open(c->rig.p, PACK_BULK, 4096, &f), 0);
	for (uint32_t i = 0; i < nr; i++) {
		struct addr a = pack_frame_add(f, fp_of(&c->rig.key, c->bytes + i * 4096, 4096), c->bytes + i * 4096);

		c->first = i == 0 ? a : c->first;
	}
	return f;
}

/* What comes is right. */
static inline int coded_read(struct coded *c, uint32_t i, uint32_t nr)
{
	struct addr a = { .pack = c->first.pack, .off = c->first.off + i * 4096 };
	uint8_t *got = aligned_bytes(nr * 4096);
	int r = packs_read(c->rig.p, a, nr * 4096, got);

	if (r == 0)
		assert_memory_equal(got, c->bytes + i * 4096, nr * 4096);
	free(got);
	return r;
}

struct coded_word {
	uint32_t word;
	int r;
};

/* What a table with each of these as the base of a part is decoded to. */
static inline void coded_try_words(struct coded *c, uint32_t part, const struct coded_word *words, size_t nr)
{
	int fd = openat(c->rig.dirfd, pack_name(1).s, O_RDONLY | O_CLOEXEC);
	struct pack_table *t = malloc(sizeof(*t));
	struct pack_table_disk d;

	assert_int_equal(pread(fd, &d, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	close(fd);
	for (size_t i = 0; i < nr; i++) {
		d.base[part] = le32_put(words[i].word);
		d.seal = le64_put(pack_table_seal(&d, &c->rig.key));
		assert_int_equal(pack_table_decode(&d, sizeof(d), &c->rig.key, 1, 0, t), words[i].r);
	}
	free(t);
}

/* Pages that are gone; coded_mark_gone() as conf.fate of packs reports them. */
static uint64_t coded_gone[PACK_GONE_WORDS] _unused_;

static inline int coded_mark_gone(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	(void)userdata;
	memcpy(ret->gone, coded_gone, sizeof(coded_gone));
	return pack == 1 && frame == 0 ? PACK_GONE : 0;
}

/* These go, of so many that there were. */
static inline void coded_free(struct coded *c, uint32_t from, uint32_t to, uint32_t nr)
{
	for (uint32_t i = from; i < to; i++)
		coded_gone[i / 64] |= UINT64_C(1) << i % 64;
	assert_int_equal(packs_punch(c->rig.p, 1, 0, 4096, nr, coded_gone), 0);
	packs_forget_table(c->rig.p, 1, 0);
}

/* The table, without bytes [off, off + len), is mended to where parts have their bases. */
static inline void coded_repair_without(struct coded *c, uint32_t off, uint32_t len)
{
	struct pack_salvage *salvage = malloc(sizeof(*salvage));
	uint8_t table[PACK_BLOCK], now[PACK_BLOCK], damaged[PACK_BLOCK];
	int fd = openat(c->rig.dirfd, pack_name(1).s, O_RDWR | O_CLOEXEC);

	assert_int_equal(pread(fd, table, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	memcpy(damaged, table, PACK_BLOCK);
	memset(damaged + off, 0x5a, len);
	assert_int_equal(pwrite(fd, damaged, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	rig_reopen(&c->rig);
	assert_int_equal(packs_salvage_table(c->rig.p, 1, 0, salvage), 1);
	assert_int_equal(packs_repair_table(c->rig.p, salvage), 0);
	assert_int_equal(pread(fd, now, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	assert_memory_equal(now + 108, table + 108, 64);
	close(fd);
	free(salvage);
}
