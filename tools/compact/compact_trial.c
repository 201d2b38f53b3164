/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_trial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/coding.h"
#include "store/codec/matching.h"
#include "tools/analyze/analyze_sets.h"
#include "tools/analyze/analyze_twins.h"

#define ORDER_SAMPLE MiB(4) /* of a variable, to choose how ranks are merged */
#define SAMPLE MiB(8) /* of files of a step */
#define WHOLE_PAYS 0.98 /* of the size of its variables: else they are kept, since reading one decodes less */
#define FRAME (MATCH_PARTS * MATCH_PART)

struct coder {
	const struct compact_trial *conf;
	struct code_work *work;
	uint8_t *plain, *base, *wide, *block; /* wide: the values that the base is rounded from */
};

/* A variable of all ranks, and the one that it was rounded from. */
struct sources {
	enum stream_of of;
	const struct coding_shape *shape;
	const struct stream_source *now, *base;
	size_t nr, nr_base; /* nr_base 0: not rounded */
	struct code_type wide;
};

static int coder_init(struct coder *c, const struct compact_trial *conf)
{
	*c = (struct coder){
		.conf = conf,
		.work = code_work_new(),
		.plain = malloc(FRAME),
		.base = malloc(CODE_PLAIN_MAX),
		.wide = malloc(2 * (size_t)CODE_PLAIN_MAX),
		.block = malloc(MATCHING_ROOM),
	};
	return c->work && c->plain && c->base && c->wide && c->block ? 0 : -ENOMEM;
}

static void coder_release(struct coder *c)
{
	code_work_free(c->work);
	free(c->plain);
	free(c->base);
	free(c->wide);
	free(c->block);
}

/* Codes blocks of at most CODE_PLAIN_MAX independently. */
static int code_blocks(struct coder *c, struct coding *coding, uint32_t len, uint64_t *ret)
{
	*ret = 0;
	for (uint32_t at = 0; at < len; at += CODE_PLAIN_MAX) {
		int n = coding_block(coding, c->plain + at, MIN(CODE_PLAIN_MAX, len - at), NULL, 0, c->block);

		if (n < 0)
			return n;
		*ret += (uint64_t)n;
	}
	return 0;
}

/* Codes a frame as compaction would: block by block, or with repeats removed, if that pays. */
static int code_frame(struct coder *c, struct coding *coding, struct matching *matching, uint32_t len, uint64_t *ret)
{
	enum matching_turn turn = matching_next(matching);
	const uint32_t leads[MATCH_PARTS] = { 0 }; /* elements of a variable are contiguous */
	uint32_t end[MATCH_PARTS], base[MATCH_PARTS];
	uint64_t alone, ns;
	int matched, r;

	if (turn != MATCHING_ONLY) {
		r = code_blocks(c, coding, len, ret);
		if (r < 0 || turn == MATCHING_NOT)
			return r;
	}
	alone = *ret;
	ns = thread_cpu_ns();
	matched = matching_frame(matching, c->plain, len, leads, c->block, end, base);
	if (matched < 0)
		return matched;
	if (turn == MATCHING_BOTH)
		matching_record(matching, len, alone, (uint64_t)matched, thread_cpu_ns() - ns);
	if (matched > 0 && matching->pays)
		*ret = (uint64_t)matched;
	else if (turn == MATCHING_ONLY)
		return code_blocks(c, coding, len, ret);
	return 0;
}

/* matching may be NULL. */
static int code_frames(struct coder *c, struct coding *coding, struct matching *matching, struct stream *now,
		       uint64_t most, uint64_t *ret)
{
	uint64_t coded = 0;
	ssize_t len;
	int r = 0;

	while (r == 0 && most > 0) {
		/* most repeats are within a file */
		len = stream_read(now, c->plain, matching && matching->pays ? stream_whole(now, FRAME) : FRAME);
		if (len <= 0)
			return (int)len;
		r = matching ? code_frame(c, coding, matching, (uint32_t)len, &coded) :
			       code_blocks(c, coding, (uint32_t)len, &coded);
		*ret += coded;
		most -= MIN(most, (uint64_t)len);
	}
	return r;
}

/* Codes blocks against the rounded wide variable. */
static int code_rounded(struct coder *c, struct coding *coding, const struct sources *from, struct stream *now,
			struct stream *wide, uint64_t *ret)
{
	struct code_type narrow = from->shape->type;
	ssize_t len, n;
	int r;

	while ((len = stream_read(now, c->plain, CODE_PLAIN_MAX)) > 0) {
		n = stream_read(wide, c->wide, (size_t)len / narrow.width * from->wide.width);
		if (n < 0)
			return (int)n;
		n /= (ssize_t)from->wide.width;
		twin_round(narrow, from->wide, c->wide, (size_t)n, c->base);
		r = coding_block(coding, c->plain, (size_t)len, c->base, (size_t)n * narrow.width, c->block);
		if (r < 0)
			return r;
		*ret += (uint64_t)r;
	}
	return (int)len;
}

/* Codes a variable in one order; or a sample of it, without a base and without matching. */
static int code_in_order(struct coder *c, const struct sources *from, uint64_t block, bool sample, uint64_t *ret)
{
	bool rounded = from->nr_base > 0 && !sample;
	struct stream now = { 0 }, wide = { 0 };
	struct matching matching = { 0 };
	struct coding coding = { 0 };
	int r = stream_init(&now, from->of, from->now, from->nr, block);

	if (r == 0 && rounded)
		r = stream_init(&wide, from->of, from->base, from->nr_base,
				block / from->shape->type.width * from->wide.width);
	if (r == 0)
		r = coding_init(&coding, c->work, from->shape, rounded, c->conf->budget, NULL);
	if (r == 0 && !sample)
		r = matching_init(&matching, c->work, from->shape, c->conf->budget, NULL);
	if (r == 0)
		r = rounded ? code_rounded(c, &coding, from, &now, &wide, ret) :
			      code_frames(c, &coding, sample ? NULL : &matching, &now, sample ? ORDER_SAMPLE : UINT64_MAX, ret);
	matching_release(&matching);
	coding_release(&coding);
	stream_release(&now);
	stream_release(&wide);
	return r;
}

/* Codes ranks one after the other or interleaved, whichever makes a sample smaller. */
static int code_variable(struct coder *c, const struct sources *from, uint64_t *ret)
{
	uint64_t behind = 0, turns = 0;
	int r = 0;

	if (from->nr > 1) {
		r = code_in_order(c, from, 0, true, &behind);
		if (r == 0)
			r = code_in_order(c, from, c->conf->block, true, &turns);
	}
	return r == 0 ? code_in_order(c, from, turns < behind ? c->conf->block : 0, false, ret) : r;
}

/* --- variables --- */

/* A variable of a set; sorted by key, then by rank. */
struct keyed {
	const char *key;
	const struct coding_shape *shape;
	struct stream_source source;
};

static int by_key_and_rank(const void *left, const void *right)
{
	const struct keyed *a = left, *b = right;
	int r = strcmp(a->key, b->key);

	if (r == 0)
		r = (a->source.member > b->source.member) - (a->source.member < b->source.member);
	/* rules may map several variables of a file to one key */
	return r ? r : (a->source.variable > b->source.variable) - (a->source.variable < b->source.variable);
}

/* Finds the variable that each of these was rounded from. `ret` has room for as many; `twins` are by member of the set.
 * 1; 0: not all were rounded, or their wide types differ. */
static int find_wide(const struct set *set, const struct twins *twins, const struct sources *from,
		     struct stream_source *ret, struct code_type *ret_type)
{
	for (size_t i = 0; i < from->nr; i++) {
		const struct set_member *m = from->now[i].member;
		struct code_type type;

		if (!twins_of(&twins[m - set->member], from->now[i].variable, &ret[i].variable))
			return 0;
		ret[i].member = m;
		type = m->typed.variable[ret[i].variable].shape.type;
		if (i > 0 && code_type_encode(type) != code_type_encode(*ret_type))
			return 0;
		*ret_type = type;
	}
	return 1;
}

/* `keyed` are all variables of the set, sorted; `now` are their sources. */
static int code_keyed(struct coder *c, const struct set *set, const struct twins *twins, const struct keyed *keyed,
		      const struct stream_source *now, size_t nr, uint64_t *ret)
{
	_cleanup_(freep) struct stream_source *wide = reallocarray(NULL, nr + 1, sizeof(*wide));
	int r = wide ? 0 : -ENOMEM;

	for (size_t at = 0; at < nr && r == 0;) {
		struct sources from = { .of = STREAM_VARIABLE, .shape = keyed[at].shape, .now = &now[at] };

		while (at + from.nr < nr && strcmp(keyed[at + from.nr].key, keyed[at].key) == 0)
			from.nr++;
		if (find_wide(set, twins, &from, wide, &from.wide)) {
			from.base = wide;
			from.nr_base = from.nr;
		}
		r = code_variable(c, &from, ret);
		at += from.nr;
	}
	return r;
}

static int code_typed(struct coder *c, const struct set *set, uint64_t *ret)
{
	_cleanup_(freep) struct twins *twins = calloc(set->nr + 1, sizeof(*twins));
	_cleanup_(freep) struct stream_source *source = NULL;
	_cleanup_(freep) struct keyed *keyed = NULL;
	size_t room = 1, nr = 0;
	int r = twins ? 0 : -ENOMEM;

	for (size_t i = 0; i < set->nr && r == 0; i++) {
		r = twins_find(&twins[i], &set->member[i]);
		room += set->member[i].typed.nr_variables;
	}
	if (r == 0) {
		keyed = reallocarray(NULL, room, sizeof(*keyed));
		source = reallocarray(NULL, room, sizeof(*source));
		r = keyed && source ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < set->nr && r == 0; i++)
		for (uint32_t k = 0; k < set->member[i].typed.nr_variables; k++) {
			const struct typed_variable *x = &set->member[i].typed.variable[k];

			keyed[nr++] = (struct keyed){ x->key, &x->shape, { &set->member[i], k } };
		}
	if (r == 0) {
		qsort(keyed, nr, sizeof(*keyed), by_key_and_rank);
		for (size_t i = 0; i < nr; i++)
			source[i] = keyed[i].source;
		r = code_keyed(c, set, twins, keyed, source, nr, ret);
	}
	for (size_t i = 0; twins && i < set->nr; i++)
		twins_release(&twins[i]);
	return r;
}

/* Codes bytes of no variable, or whole files. */
static int code_plain(struct coder *c, const struct set *set, enum stream_of of, uint64_t *ret)
{
	static const struct coding_shape bytes = { .type = { CODE_BYTES, 1, false } };
	_cleanup_(freep) struct stream_source *source = reallocarray(NULL, MAX(set->nr, (size_t)1), sizeof(*source));
	struct sources from = { .of = of, .shape = &bytes, .now = source };

	if (!source)
		return -ENOMEM;
	for (size_t i = 0; i < set->nr; i++)
		if (of == STREAM_FILE || set->member[i].rest_len > 0)
			source[from.nr++] = (struct stream_source){ .member = &set->member[i] };
	return from.nr > 0 ? code_variable(c, &from, ret) : 0;
}

static bool is_image(const struct set *set)
{
	for (size_t i = 0; i < set->nr; i++)
		if (set->member[i].typed.nr_variables > 0 && set->member[i].typed.variable[0].kind != SEGMENT_NONE)
			return true;
	return false;
}

int compact_trial_run(const struct compact_trial *t, const struct set *set, bool *ret_whole)
{
	struct set some = { .member = set->member };
	uint64_t bytes = 0, whole = 0, typed = 0;
	struct coder c;
	int r;

	*ret_whole = false;
	/* Areas of an image repeat mostly in other steps, which a sample of one step does not show. */
	if (is_image(set))
		return 0;
	while (some.nr < set->nr && bytes < SAMPLE)
		bytes += set->member[some.nr++].typed.size;
	r = coder_init(&c, t);
	if (r == 0)
		r = code_plain(&c, &some, STREAM_FILE, &whole);
	if (r == 0)
		r = code_typed(&c, &some, &typed);
	if (r == 0)
		r = code_plain(&c, &some, STREAM_REST, &typed);
	if (r == 0)
		*ret_whole = (double)whole < WHOLE_PAYS * (double)typed;
	coder_release(&c);
	return r;
}
