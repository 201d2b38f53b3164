/* Frames of a variable, as compacting would lay them: each by itself, or without what repeats in it. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_sets.h"
#include "tools/analyze_variables.h"

#define FRAME (MATCH_PARTS * MATCH_PART)

struct coded_frame {
	uint32_t end[MATCH_PARTS], base[MATCH_PARTS];
};

/* All blocks of a frame by themselves: their bytes; <0 */
static int code_blocks(struct variables *v, struct variable *x, uint32_t len, bool count)
{
	int n, all = 0;

	for (uint32_t at = 0; at < len; at += CODE_PLAIN_MAX) {
		n = code_alone(v, x, v->plain + at, MIN(CODE_PLAIN_MAX, len - at), count);
		if (n < 0)
			return n;
		all += n;
	}
	return all;
}

static int decode_part(struct variables *v, const struct coded_frame *f, uint32_t part, uint32_t len)
{
	uint32_t start = part > 0 ? f->end[part - 1] : 0, n = f->end[part] - start;
	uint8_t *before[MATCH_PARTS], *to = v->decoded + part * MATCH_PART;

	for (uint32_t i = 0; i < part; i++)
		before[i] = v->decoded + i * MATCH_PART;
	if (n < len && f->base[part] > 0)
		return match_decode(v->match_out, v->work, v->block + start, n, before, part, to, len);
	if (n < len)
		return code_decode(v->work, v->block + start, n, NULL, 0, to, len);
	memcpy(to, v->block + start, n);
	return (int)n;
}

/* What came of a frame without what repeats in it, which v->block has. */
static int count_matched(struct variables *v, struct variable *x, const struct coded_frame *f, uint32_t len,
			 uint32_t coded)
{
	uint64_t from = thread_cpu_ns();

	for (uint32_t at = 0; at < len; at += MATCH_PART) {
		uint32_t n = MIN(MATCH_PART, len - at);

		if (decode_part(v, f, at / MATCH_PART, n) != (int)n)
			return complain(-EBADMSG, "%s: cannot be decoded", x->key);
		x->nr_blocks++;
	}
	x->decode_ns += thread_cpu_ns() - from;
	if (memcmp(v->decoded, v->plain, len) != 0)
		return complain(-EBADMSG, "%s: does not come back as it was coded", x->key);
	x->plain += len;
	x->coded += coded;
	x->matched += len;
	return 0;
}

/* The frame in v->plain. */
static int code_frame(struct variables *v, struct variable *x, uint32_t len)
{
	enum matching_turn turn = matching_next(&x->matching);
	const uint32_t leads[MATCH_PARTS] = { 0 }; /* of variables elements follow one another */
	struct coded_frame f;
	int alone = 0, matched;
	uint64_t ns;

	if (turn == MATCHING_NOT)
		return MIN(code_blocks(v, x, len, true), 0);
	if (turn == MATCHING_BOTH) {
		alone = code_blocks(v, x, len, false);
		if (alone < 0)
			return alone;
	}
	ns = thread_cpu_ns();
	matched = matching_frame(&x->matching, v->plain, len, leads, v->block, f.end, f.base);
	ns = thread_cpu_ns() - ns;
	x->encode_ns += ns;
	if (matched < 0)
		return matched;
	if (turn == MATCHING_BOTH)
		matching_tell(&x->matching, len, (uint64_t)alone, (uint64_t)matched, ns);
	if (matched > 0 && x->matching.pays)
		return count_matched(v, x, &f, len, (uint32_t)matched);
	return MIN(code_blocks(v, x, len, true), 0);
}

int code_frames(struct variables *v, struct variable *x, struct stream *now)
{
	ssize_t len;
	int r = 0;

	while (r == 0) {
		/* what repeats does so within a file, most of all */
		len = stream_read(now, v->plain, x->matching.pays ? stream_whole(now, FRAME) : FRAME);
		if (len <= 0)
			return (int)len;
		r = code_frame(v, x, (uint32_t)len);
		if (r == 0)
			r = variables_step(v, (uint64_t)len);
	}
	return r;
}
