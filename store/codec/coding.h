/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Codes a variable block by block in the way that pays (code_choice.h). Belongs to one thread.
 */
#pragma once

#include "store/codec/code.h"
#include "store/codec/code_choice.h"

/* Known properties of a variable. */
struct coding_shape {
	struct code_type type;
	uint32_t parts; /* of an element that lie side by side: 2 for complex numbers, else 0 or 1 */
	uint32_t row, plane; /* elements from one row, or plane, to the next; 0: unknown, or there is none */
};

/* Candidates worth a try for this shape. Returns their number. */
unsigned coding_candidates(const struct coding_shape *shape, bool with_base, struct coder_spec ret[CODE_CANDIDATES_MAX]);

/* Floats by levels, without a base. */
struct coder_spec coding_by_levels(struct code_type type);

struct coding {
	struct code_work *work; /* borrowed */
	uint64_t (*cpu_ns)(void);
	unsigned nr;
	bool is_untyped; /* floats among the candidates are a guess */
	struct coder_spec spec[CODE_CANDIDATES_MAX];
	struct code_choice choice;
	size_t sampled; /* bytes used in the last trial */
	uint8_t *room; /* for trials */
	uint32_t lead; /* of the following blocks, as in code_format.h; set by the caller, initially 0 */
	uint32_t base_place; /* likewise, if a base is used */
};

/* The work is borrowed. cpu_ns: NULL for the thread's own time. -ENOMEM. */
int coding_init(struct coding *c, struct code_work *work, const struct coding_shape *shape, bool with_base,
		double budget, uint64_t (*cpu_ns)(void));
void coding_release(struct coding *c);
/* Like code_encode(), in the way that pays; may first try all candidates on a part of the block. */
int coding_block(struct coding *c, const void *p, size_t len, const void *base, size_t base_len, void *ret);
/* The way chosen last; the first candidate before any use. */
const struct coder_spec *coding_chosen(const struct coding *c);
