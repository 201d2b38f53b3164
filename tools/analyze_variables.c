#include "tools/analyze_variables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_names.h"
#include "tools/analyze_sets.h"
#include "tools/analyze_twins.h"

#define CLASSIFY_MS 120000u
#define SCHEME_SAMPLE MiB(4) /* of a variable, to choose how it is merged */
#define WHOLE_SAMPLE MiB(8) /* of files, to choose whether variables are looked at */
#define WHOLE_PAYS 0.98 /* of what variables take: else they are preferred, as a read of one needs less of others */

const char *const scheme_names[NR_SCHEMES] = { "auto", "agnostic", "agnostic-block", "aware", "aware-block" };

int variables_init(struct variables *v, const struct variables_conf *conf)
{
	*v = (struct variables){
		.conf = *conf,
		.work = code_work_new(),
		.plain = malloc(MATCH_PARTS * MATCH_PART),
		.base = malloc(CODE_PLAIN_MAX),
		.wide = malloc(2 * (size_t)CODE_PLAIN_MAX),
		.decoded = malloc(MATCH_PARTS * MATCH_PART),
		.block = malloc(MATCHING_ROOM),
		.match_out = match_out_new(),
		.complete = true,
	};
	return v->work && v->plain && v->base && v->wide && v->decoded && v->block && v->match_out ? 0 : -ENOMEM;
}

static void variable_free(struct variable *x)
{
	for (int i = 0; i < 2; i++)
		if (x->coding_ready[i])
			coding_release(&x->coding[i]);
	matching_release(&x->matching);
	free(x->key);
	free(x);
}

void variables_release(struct variables *v)
{
	for (size_t i = 0; i < v->nr; i++)
		variable_free(v->variable[i]);
	free(v->variable);
	code_work_free(v->work);
	free(v->plain);
	free(v->base);
	free(v->wide);
	free(v->decoded);
	free(v->block);
	match_out_free(v->match_out);
	*v = (struct variables){ 0 };
}

static int by_key(const void *left, const void *right)
{
	return strcmp((*(struct variable *const *)left)->key, (*(struct variable *const *)right)->key);
}

/* The list is kept in order: there are few new ones, and many look-ups. */
static struct variable *variable_get(struct variables *v, const char *key, const struct coding_shape *shape)
{
	struct variable want = { .key = (char *)key }, *pointer = &want, **found, *x;
	size_t at;

	found = v->nr > 0 ? bsearch(&pointer, v->variable, v->nr, sizeof(*v->variable), by_key) : NULL;
	if (found)
		return *found;
	if (v->nr == v->room) {
		size_t room = MAX(2 * v->room, (size_t)64);
		struct variable **more = reallocarray(v->variable, room, sizeof(*more));

		if (!more)
			return NULL;
		v->variable = more;
		v->room = room;
	}
	x = calloc(1, sizeof(*x));
	if (!x || !(x->key = strdup(key))) {
		free(x);
		return NULL;
	}
	x->shape = *shape;
	for (at = v->nr; at > 0 && strcmp(v->variable[at - 1]->key, key) > 0; at--)
		v->variable[at] = v->variable[at - 1];
	v->variable[at] = x;
	v->nr++;
	return x;
}

/* What a variable is made of in one set, and what its base is made of: the same variable in the set of the step before,
 * or the one that it was rounded from. */
struct sources {
	enum stream_of of;
	const struct stream_source *now, *base;
	size_t nr, nr_base; /* nr_base 0: no base */
	struct code_type wide; /* of width 0 unless the base is to be rounded */
};

static bool is_rounded(const struct sources *from)
{
	return from->wide.width > 0;
}

/* Bytes of the base of `len` bytes, in v->base: how many. base: NULL if there is none. Whoever decodes has to round,
 * too. */
static ssize_t read_base(struct variables *v, struct variable *x, const struct sources *from, struct stream *base,
			 size_t len)
{
	struct code_type narrow = x->shape.type;
	uint64_t ns;
	ssize_t n;

	if (!base)
		return 0;
	if (!is_rounded(from))
		return stream_read(base, v->base, len);
	n = stream_read(base, v->wide, len / narrow.width * from->wide.width);
	if (n < 0)
		return n;
	n /= (ssize_t)from->wide.width;
	ns = thread_cpu_ns();
	twin_round(narrow, from->wide, v->wide, (size_t)n, v->base);
	ns = thread_cpu_ns() - ns;
	x->encode_ns += ns;
	x->decode_ns += ns;
	return n * (ssize_t)narrow.width;
}

static int code_block(struct variables *v, struct variable *x, struct coding *c, const uint8_t *p, size_t len,
		      size_t base_len, bool count)
{
	uint64_t from = thread_cpu_ns(), coded, decoded;
	int n, r;

	n = coding_block(c, p, len, v->base, base_len, v->block);
	if (n < 0)
		return n;
	coded = thread_cpu_ns();
	x->encode_ns += coded - from;
	if (!count)
		return n;
	r = code_decode(v->work, v->block, (size_t)n, v->base, base_len, v->decoded, len);
	decoded = thread_cpu_ns();
	if (r != (int)len || memcmp(v->decoded, p, len) != 0)
		return complain(-EBADMSG, "%s: does not come back as it was coded", x->key);
	x->decode_ns += decoded - coded;
	x->plain += len;
	x->coded += (uint64_t)n;
	x->nr_blocks++;
	x->nr_based += base_len > 0;
	return n;
}

int code_alone(struct variables *v, struct variable *x, const uint8_t *p, size_t len, bool count)
{
	return code_block(v, x, &x->coding[0], p, len, 0, count);
}

int variables_step(struct variables *v, uint64_t bytes)
{
	v->looked_at += bytes;
	if (!v->conf.step || v->conf.step(v->conf.userdata, v->looked_at))
		return 0;
	v->complete = false;
	return -EINTR;
}

/* Codes up to `most` bytes of a stream; *ret_coded: how many they become. */
static int code_stream(struct variables *v, struct variable *x, struct coding *c, const struct sources *from,
		       struct stream *now, struct stream *base, uint64_t most, bool count, uint64_t *ret_coded)
{
	ssize_t len, base_len;
	int n;

	*ret_coded = 0;
	while (most > 0) {
		len = stream_read(now, v->plain, MIN((uint64_t)CODE_PLAIN_MAX, most));
		if (len <= 0)
			return (int)len;
		base_len = read_base(v, x, from, base, (size_t)len);
		if (base_len < 0)
			return (int)base_len;
		n = code_block(v, x, c, v->plain, (size_t)len, (size_t)base_len, count);
		if (n < 0)
			return n;
		*ret_coded += (uint64_t)n;
		most -= (uint64_t)len;
		if (count) {
			x->nr_rounded += base_len > 0 && is_rounded(from);
			n = variables_step(v, (uint64_t)len);
			if (n < 0)
				return n;
		}
	}
	return 0;
}

static bool takes_turns(enum scheme s)
{
	return s == SCHEME_AGNOSTIC_BLOCK || s == SCHEME_AWARE_BLOCK;
}

/* How large the start of a variable gets, merged in this way. */
static int try_scheme(struct variables *v, struct variable *x, const struct sources *from, enum scheme scheme,
		      uint64_t *ret)
{
	struct stream stream;
	struct coding c;
	int r;

	r = stream_init(&stream, from->of, from->now, from->nr, takes_turns(scheme) ? v->conf.block : 0);
	if (r < 0)
		return r;
	r = coding_init(&c, v->work, &x->shape, false, v->conf.budget, NULL);
	if (r == 0)
		r = code_stream(v, x, &c, from, &stream, NULL, SCHEME_SAMPLE, false, ret);
	coding_release(&c);
	stream_release(&stream);
	return r;
}

static int choose_scheme(struct variables *v, struct variable *x, const struct sources *from)
{
	bool typed = from->of == STREAM_VARIABLE;
	enum scheme whole = typed ? SCHEME_AWARE : SCHEME_AGNOSTIC,
		    block = typed ? SCHEME_AWARE_BLOCK : SCHEME_AGNOSTIC_BLOCK;
	uint64_t coded_whole, coded_block;
	int r;

	x->scheme = whole;
	if (v->conf.scheme != SCHEME_AUTO) {
		x->scheme = takes_turns(v->conf.scheme) ? block : whole;
		return 0;
	}
	if (from->nr < 2)
		return 0;
	r = try_scheme(v, x, from, whole, &coded_whole);
	if (r == 0)
		r = try_scheme(v, x, from, block, &coded_block);
	if (r == 0 && coded_block < coded_whole)
		x->scheme = block;
	return r;
}

static int code_variable(struct variables *v, struct variable *x, const struct sources *from)
{
	bool based = from->nr_base > 0;
	struct stream now = { 0 }, base = { 0 };
	uint64_t coded, block;
	int r = 0;

	if (x->scheme == SCHEME_AUTO)
		r = choose_scheme(v, x, from);
	if (r < 0)
		return r;
	block = takes_turns(x->scheme) ? v->conf.block : 0;
	if (!x->coding_ready[based]) {
		r = coding_init(&x->coding[based], v->work, &x->shape, based, v->conf.budget, NULL);
		x->coding_ready[based] = r == 0;
		if (r == 0 && !based)
			r = matching_init(&x->matching, v->work, &x->shape, v->conf.budget, NULL);
	}
	if (r == 0)
		r = stream_init(&now, from->of, from->now, from->nr, block);
	if (r == 0 && based)
		r = stream_init(&base, from->of, from->base, from->nr_base,
				is_rounded(from) ? block / x->shape.type.width * from->wide.width : block);
	if (r == 0)
		r = based ? code_stream(v, x, &x->coding[based], from, &now, &base, UINT64_MAX, true, &coded) :
			    code_frames(v, x, &now);
	x->nr_parts += from->nr;
	stream_release(&now);
	stream_release(&base);
	return r;
}

/* All variables of a set, by key and then by rank. */
struct keyed {
	const char *key;
	const struct coding_shape *shape;
	struct stream_source source;
};

struct catalog {
	struct keyed *entry;
	struct stream_source *source; /* in the same order */
	size_t nr;
};

static int by_key_and_rank(const void *left, const void *right)
{
	const struct keyed *a = left, *b = right;
	int r = strcmp(a->key, b->key);

	if (r == 0)
		r = (a->source.member > b->source.member) - (a->source.member < b->source.member);
	/* one file may have several, where rules say that they mean the same */
	return r ? r : (a->source.variable > b->source.variable) - (a->source.variable < b->source.variable);
}

static void catalog_release(struct catalog *c)
{
	free(c->entry);
	free(c->source);
	*c = (struct catalog){ 0 };
}

static int catalog_init(struct catalog *c, const struct set *set)
{
	size_t nr = 0;

	*c = (struct catalog){ 0 };
	for (size_t i = 0; i < set->nr; i++)
		nr += set->member[i].typed.nr_variables;
	c->entry = reallocarray(NULL, nr + 1, sizeof(*c->entry));
	c->source = reallocarray(NULL, nr + 1, sizeof(*c->source));
	if (!c->entry || !c->source) {
		catalog_release(c);
		return -ENOMEM;
	}
	for (size_t i = 0; i < set->nr; i++)
		for (uint32_t k = 0; k < set->member[i].typed.nr_variables; k++) {
			const struct typed_variable *x = &set->member[i].typed.variable[k];

			c->entry[c->nr++] = (struct keyed){ x->key, &x->shape, { &set->member[i], k } };
		}
	qsort(c->entry, c->nr, sizeof(*c->entry), by_key_and_rank);
	for (size_t i = 0; i < c->nr; i++)
		c->source[i] = c->entry[i].source;
	return 0;
}

/* The run of entries with this key from `at` on; at its end *at is behind it. Entries before `at` have smaller keys. */
static size_t run_of(const struct catalog *c, const char *key, size_t *at)
{
	size_t from;

	while (*at < c->nr && strcmp(c->entry[*at].key, key) < 0)
		(*at)++;
	from = *at;
	while (*at < c->nr && strcmp(c->entry[*at].key, key) == 0)
		(*at)++;
	return *at - from;
}

/* What each of these was rounded from, in `ret`, which has room for as many: 1; 0: not all were, or from other types.
 * Their twins are as many as the members of the set. */
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

static int code_catalog(struct variables *v, const struct set *set, const struct catalog *now,
			const struct catalog *then, const struct twins *twins)
{
	_cleanup_(freep) struct stream_source *wide = reallocarray(NULL, now->nr + 1, sizeof(*wide));
	size_t at = 0, at_then = 0;
	int r = wide ? 0 : -ENOMEM;

	while (r == 0 && at < now->nr) {
		const struct keyed *first = &now->entry[at];
		struct variable *x = variable_get(v, first->key, first->shape);
		struct sources from = { .of = STREAM_VARIABLE, .now = &now->source[at] };
		struct code_type type;

		from.nr = run_of(now, first->key, &at);
		from.nr_base = run_of(then, first->key, &at_then);
		from.base = then->source + at_then - from.nr_base;
		if (find_wide(set, twins, &from, wide, &type)) {
			from.base = wide;
			from.nr_base = from.nr;
			from.wide = type;
		}
		r = x ? code_variable(v, x, &from) : -ENOMEM;
	}
	return r;
}

static int code_typed(struct variables *v, const struct set *set, const struct set *before)
{
	_cleanup_(freep) struct twins *twins = calloc(set->nr + 1, sizeof(*twins));
	struct catalog now = { 0 }, then = { 0 };
	int r = twins ? 0 : -ENOMEM;

	for (size_t i = 0; i < set->nr && r == 0 && !v->conf.no_twins; i++)
		r = twins_find(&twins[i], &set->member[i]);
	if (r == 0)
		r = catalog_init(&now, set);
	if (r == 0 && before)
		r = catalog_init(&then, before);
	if (r == 0)
		r = code_catalog(v, set, &now, &then, twins);
	for (size_t i = 0; twins && i < set->nr; i++)
		twins_release(&twins[i]);
	catalog_release(&now);
	catalog_release(&then);
	return r;
}

static int code_plain(struct variables *v, const struct set *set, enum stream_of of)
{
	static const struct coding_shape bytes = { .type = { CODE_BYTES, 1, false } };
	_cleanup_(freep) struct stream_source *source = reallocarray(NULL, MAX(set->nr, (size_t)1), sizeof(*source));
	struct sources from = { .of = of, .now = source };
	struct variable *x;

	if (!source)
		return -ENOMEM;
	for (size_t i = 0; i < set->nr; i++)
		if (of == STREAM_FILE || set->member[i].rest_len > 0)
			source[from.nr++] = (struct stream_source){ .member = &set->member[i] };
	if (from.nr == 0)
		return 0;
	x = variable_get(v, of == STREAM_FILE ? WHOLE_KEY : "", &bytes);
	return x ? code_variable(v, x, &from) : -ENOMEM;
}

static int code_set(struct variables *v, const struct set *set, const struct set *before, bool whole)
{
	int r;

	if (whole)
		return code_plain(v, set, STREAM_FILE);
	r = code_typed(v, set, before);
	return r < 0 ? r : code_plain(v, set, STREAM_REST);
}

/* How large the files become; but for the time nothing of it is counted. */
static int try_set(struct variables *v, const struct set *set, const struct set *before, bool whole, uint64_t *ret)
{
	struct variables_conf conf = v->conf;
	struct variables trial;
	int r;

	conf.step = NULL;
	r = variables_init(&trial, &conf);
	if (r == 0)
		r = code_set(&trial, set, before, whole);
	*ret = 0;
	for (size_t i = 0; i < trial.nr; i++) {
		*ret += trial.variable[i]->coded;
		v->trial_ns += trial.variable[i]->encode_ns;
	}
	variables_release(&trial);
	return r;
}

/* Files of which one variable repeats another are smaller as a whole: found out with some of them. */
static int choose_whole(struct variables *v, const struct set *set, const struct set *before, bool *ret)
{
	struct set some = { .member = set->member }, some_before = { 0 };
	uint64_t bytes = 0, coded_whole, coded_typed;
	int r;

	*ret = v->conf.scheme == SCHEME_AGNOSTIC || v->conf.scheme == SCHEME_AGNOSTIC_BLOCK;
	if (v->conf.scheme != SCHEME_AUTO)
		return 0;
	while (some.nr < set->nr && bytes < WHOLE_SAMPLE)
		bytes += set->member[some.nr++].typed.size;
	if (before)
		some_before = (struct set){ .member = before->member, .nr = MIN(before->nr, some.nr) };
	r = try_set(v, &some, before ? &some_before : NULL, true, &coded_whole);
	if (r == 0)
		r = try_set(v, &some, before ? &some_before : NULL, false, &coded_typed);
	if (r == 0)
		*ret = (double)coded_whole < WHOLE_PAYS * (double)coded_typed;
	return r;
}

int variables_choose_whole(const struct variables_conf *conf, const struct set *set, bool *ret)
{
	struct variables v;
	int r = variables_init(&v, conf);

	if (r == 0)
		r = choose_whole(&v, set, NULL, ret);
	variables_release(&v);
	return r;
}

/* The steps of a group of ranks, one after the other. The files of each step are together, and as many as nr[step]. */
static int code_group(struct variables *v, struct file **file, const size_t *nr, size_t nr_steps)
{
	struct classify_conf conf = { .helper = v->conf.helper, .limit_ms = CLASSIFY_MS, .names = v->conf.names };
	struct set sets[2] = { { 0 }, { 0 } };
	bool chosen[2] = { false, false }, whole[2]; /* of steps without a base, and with one */
	int r = 0;

	for (size_t step = 0; step < nr_steps && r == 0; file += nr[step++]) {
		struct set *now = &sets[step % 2], *before = &sets[(step + 1) % 2];
		bool based = step > 0 && v->conf.chain > 0 && step % (v->conf.chain + 1) != 0;

		set_close(now);
		r = set_open(now, &conf, file, nr[step]);
		if (r == 0 && now->nr < nr[step])
			v->complete = false;
		if (r == 0 && !chosen[based])
			r = choose_whole(v, now, based ? before : NULL, &whole[based]);
		chosen[based] = true;
		if (r == 0)
			r = code_set(v, now, based ? before : NULL, whole[based]);
	}
	set_close(&sets[0]);
	set_close(&sets[1]);
	return r;
}

static int compare_steps(const struct file *a, const struct file *b)
{
	return number_compare(a->path + a->step_at, a->step_len, b->path + b->step_at, b->step_len);
}

static int by_step_and_rank(const void *left, const void *right)
{
	const struct file *a = *(struct file *const *)left, *b = *(struct file *const *)right;
	int r = compare_steps(a, b);

	if (r == 0)
		r = (a->series > b->series) - (a->series < b->series);
	return r ? r : strcmp(a->path, b->path);
}

/* file[0] to file[n - 1] are all of a family: of its ranks those from first to last. */
static int code_family(struct variables *v, struct file *file, size_t n, uint32_t first, uint32_t last)
{
	_cleanup_(freep) struct file **list = reallocarray(NULL, n, sizeof(*list));
	_cleanup_(freep) size_t *nr = calloc(n, sizeof(*nr));
	size_t nr_files = 0, nr_steps = 0;

	if (!list || !nr)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (file[i].series >= first && file[i].series <= last)
			list[nr_files++] = &file[i];
	qsort(list, nr_files, sizeof(*list), by_step_and_rank);
	for (size_t i = 0; i < nr_files; i++) {
		nr_steps += i == 0 || compare_steps(list[i - 1], list[i]) != 0;
		nr[nr_steps - 1]++;
	}
	return code_group(v, list, nr, nr_steps);
}

int variables_run(struct variables *v, struct files *files)
{
	size_t end;
	int r = 0;

	for (size_t i = 0; i < files->nr && r == 0; i = end) {
		struct file *f = &files->file[i];

		for (end = i + 1; end < files->nr && files->file[end].family == f->family; end++)
			;
		for (uint32_t rank = f->series; r == 0 && rank <= files->file[end - 1].series; rank += v->conf.group)
			r = code_family(v, f, end - i, rank, rank + v->conf.group - 1);
	}
	return r == -EINTR ? 0 : r;
}
