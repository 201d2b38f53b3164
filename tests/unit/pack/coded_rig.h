/* Frames whose bytes the caller has coded. */
#pragma once

#include "pack_rig.h"
#include "store/code/code.h"

/* One block: of 32-bit numbers whose upper bytes are mostly zero, behind a lead. Without an entropy coder, so that it never changes. */
static inline size_t code_numbers(const void *p, size_t len, unsigned lead, void *ret)
{
	struct code_work *w = code_work_new();
	struct coder_spec spec = { .steps = { .type = { CODE_UINT, 4, false }, .split = CODE_SPLIT_BYTES, .lead = lead } };
	int n;

	assert_non_null(w);
	n = code_encode(w, &spec, p, len, NULL, 0, ret);
	assert_true(n > 0);
	code_work_free(w);
	return (size_t)n;
}

/* The frame's bytes again, all of them, to be coded and written. A part that does not get smaller is stored as it is. */
static inline void write_coded(struct rig *rig, struct pack_frame *f, const uint8_t *bytes, uint32_t len, unsigned lead)
{
	uint32_t end[PACK_PARTS] = { 0 }, at = 0;
	uint8_t *stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));

	assert_non_null(stored);
	for (uint32_t i = 0; i < pack_nr_parts(len); i++) {
		uint32_t part = pack_part_len(len, i);
		size_t n = code_numbers(bytes + i * PACK_PART_BYTES, part, lead, stored + at);

		if (n >= part) {
			memcpy(stored + at, bytes + i * PACK_PART_BYTES, part);
			n = part;
		}
		at += (uint32_t)n;
		end[i] = at;
	}
	assert_int_equal(packs_frame_write_coded(rig->p, f, stored, end), 0);
	free(stored);
}
