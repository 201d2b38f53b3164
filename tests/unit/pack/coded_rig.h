/* Frames whose bytes the caller has coded. */
#pragma once

#include "pack_rig.h"
#include "store/code/code.h"

/* One block: of 32-bit numbers whose upper bytes are mostly zero, behind a lead. Without an entropy coder, so that it
 * never changes. `base`: as many bytes that it is coded against, from `place` on; NULL: none. */
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
