/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/matching.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define PAYS_PERCENT 97u /* of the size without it, or less: decoding needs other parts */
#define AGAIN 16u /* frames */
#define WAIT_MAX 256u
#define TRIED_MIN (4u * MATCH_PART) /* bytes that are significant */
#define REPEATED_MIN 32u /* one in so many elements must repeat to be worth a try */

int matching_init(struct matching *m, struct code_work *work, const struct coding_shape *shape, double budget,
		  uint64_t (*cpu_ns)(void))
{
	struct coding_shape elements = *shape;
	int r;

	*m = (struct matching){ .type = shape->type, .guess = shape->type.class == CODE_BYTES, .budget = budget, .last_wait = 1 };
	if (m->guess)
		m->type = elements.type = (struct code_type){ CODE_FLOAT, MATCH_WIDTH, false };
	elements.row = elements.plane = 0; /* the left-over rows have gaps */
	if (m->type.width != MATCH_WIDTH)
		return 0;
	r = coding_init(&m->rest, work, &elements, false, budget, cpu_ns);
	if (r < 0)
		return r;
	m->match = match_new();
	m->room = malloc(CODE_BLOCK_MAX(MATCH_PART));
	if (m->match && m->room)
		return 0;
	matching_release(m);
	return -ENOMEM;
}

void matching_release(struct matching *m)
{
	coding_release(&m->rest);
	match_free(m->match);
	free(m->room);
	*m = (struct matching){ 0 };
}

enum matching_turn matching_next(struct matching *m)
{
	if (!m->match)
		return MATCHING_NOT;
	if (m->wait == 0) {
		m->trial_ns = m->rest.choice.trial_ns;
		return MATCHING_BOTH;
	}
	m->wait--;
	return m->pays ? MATCHING_ONLY : MATCHING_NOT;
}

void matching_record(struct matching *m, uint64_t plain, uint64_t alone, uint64_t matched, uint64_t ns)
{
	uint64_t trials = m->rest.choice.trial_ns - m->trial_ns;

	m->tried.plain += plain;
	m->tried.alone += alone;
	m->tried.matched += matched > 0 ? matched : alone;
	m->tried.ns += ns - MIN(ns, trials);
	m->pays = m->tried.matched * 100 <= m->tried.alone * PAYS_PERCENT &&
		  (m->budget <= 0 || (double)m->tried.ns <= m->budget * (double)MAX(m->tried.plain, (uint64_t)1));
	if (m->tried.plain < TRIED_MIN)
		return;
	m->last_wait = m->pays ? AGAIN : MIN(2 * m->last_wait, WAIT_MAX);
	m->wait = m->last_wait;
	memset(&m->tried, 0, sizeof(m->tried));
}

/* Code one part that was taken. Returns its length, and its base. */
static int code_part(struct matching *m, const uint8_t *p, uint32_t len, uint32_t lead, const uint8_t *rest,
		     uint32_t rest_len, uint8_t *ret, uint32_t *ret_base)
{
	int n;

	*ret_base = 0;
	m->rest.lead = lead;
	n = coding_block(&m->rest, rest, rest_len, NULL, 0, m->room);
	if (n < 0)
		return n;
	if (rest_len == len) /* nothing repeats */
		memcpy(ret, m->room, (size_t)n);
	else
		n = match_encode(m->match, m->type, m->room, (uint32_t)n, ret, ret_base);
	if (n < 0)
		return n;
	if (n == 0 || (uint32_t)n >= len) {
		memcpy(ret, p, len);
		*ret_base = 0;
		n = (int)len;
	}
	return n;
}

int matching_frame(struct matching *m, const uint8_t *frame, uint32_t len, const uint32_t *leads, uint8_t *ret,
		   uint32_t *ret_end, uint32_t *ret_base)
{
	uint32_t guessed[MATCH_PARTS] = { 0 }, all = 0, rest_len;
	int n;

	for (uint32_t at = 0; m->guess && at < len; at += MATCH_PART)
		guessed[at / MATCH_PART] = match_guess_lead(frame + at, MIN(MATCH_PART, len - at));
	if (m->guess)
		leads = guessed;
	if (match_look(m->match, frame, len, leads, m->type.big_endian) < len / MATCH_WIDTH / REPEATED_MIN)
		return 0;
	for (uint32_t at = 0, part = 0; at < len; at += MATCH_PART, part++) {
		const uint8_t *rest = match_take(m->match, part, &rest_len);

		n = code_part(m, frame + at, MIN(MATCH_PART, len - at), leads[part], rest, rest_len, ret + all,
			      &ret_base[part]);
		if (n < 0)
			return n;
		all += (uint32_t)n;
		ret_end[part] = all;
	}
	return (int)all;
}

struct coder_spec matching_chosen(const struct matching *m)
{
	struct coder_spec spec = *coding_chosen(&m->rest);

	spec.steps.base = CODE_BASE_MATCHED;
	return spec;
}
