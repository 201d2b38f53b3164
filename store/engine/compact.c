/*
 * Storing variables side by side, coded by what they are.
 *
 * Variable by variable, in the order of compact_walk.c, chunks are gathered into frames. A frame is coded part by part in the way that
 * pays for the variable (store/code/coding.h); if it takes 5 % less than its chunks did it is written, else nothing of it moves. The rest
 * is that of any move: gc_copy.c copies, and moving.c tells the order that makes it safe:
 *
 *   1. the note in the log, before the first frame             crash: nothing has happened
 *   2. frames, for up to MOVES_MAX chunks                      crash: the next mount finds copies behind the note, and does 3
 *   3. recipes, old places given up, the note taken out        crash: likewise, from whichever step it was
 *   4. the space of the old places                             crash: the next collection gives it back
 *
 * Where elements begin differs from chunk to chunk, but hardly from one to the next: in a file they lie side by side. So a part has one
 * lead, that of the chunk at its start. Where another phase follows in the part, it is coded badly, and no byte is lost.
 *
 * Where the plan says that variables are steps of one, up to 1 + chain of them are coded together, if a sample shows that it pays: pages of the
 * same place, rows of them (compact_steps.h), become one frame, in which each version is coded against the one after it. So what a block is coded
 * against is in its own frame (store/pack), and nothing here or in the collector has to keep it. Chunks that are coded already are coded
 * once more where they complete such a row: whoever compacts each step as it comes has all of them together in the end, and wrote them twice.
 *
 * Memory: a frame and its coded twin, the moves, what has been seen, and of each file that has the variable a segment's recipe.
 */
#include "store/engine/compact_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/gc_copy.h"
#include "store/engine/variables.h"

#define MOVES_MAX (1024u * 1024) /* chunks between two passes over all recipes: 28 bytes each */
#define SAMPLE MiB(4) /* of a variable, to find out in which order it is smaller */
#define SWEPT_AT_ONCE 32u /* packs: as many frames as a window of the collector takes */
#define LOOKED_AT 64u /* chunks, to tell whether a step has been coded with others */
#define YIELD_NS (20 * 1000 * 1000)

struct compact {
	const struct compact_conf *conf;
	struct gc g;
	struct gc_conf gc_conf;
	struct gc_report gc_report;
	struct compact_report report;
	struct gc_copy copy;
	struct layer_set seen; /* chunks, by place_of() */
	uint32_t *left; /* packs that chunks have moved from */
	size_t nr_left, size_left;
	uint8_t *stored; /* a frame as coded, and room for a block that is larger than its part */
	struct code_work *work;

	size_t *next; /* by variable: 1 more than that of the step after it; 0: none */

	/* The variable that is being coded. */
	struct coding coding, against; /* by itself, and against another version */
	struct compact_result *result;
	bool is_sample;
	uint64_t sampled, sample_coded, sample_alone; /* as it would be, and if each version were coded by itself */
	/* The row that becomes the next frame. */
	uint32_t back; /* bytes from a version to the one that it is coded against; 0: there is none */
	unsigned nr_row; /* chunks */
	struct compact_steps *steps; /* that rows are of */
};

/* A number for the set: dense where chunks are pages. */
static uint64_t place_of(struct addr a)
{
	uint64_t place = (uint64_t)a.pack << 32 | a.off;

	return place % PACK_BLOCK == 0 ? place / PACK_BLOCK : UINT64_C(1) << 63 | place;
}

static void add_up(struct compact_result *sum, const struct compact_result *r)
{
	sum->plain += r->plain;
	sum->coded += r->coded;
	sum->before += r->before;
	sum->after += r->after;
	sum->kept += r->kept;
	sum->known += r->known;
	sum->code_ns += r->code_ns;
}

static bool step(void *userdata, const struct gc_report *so_far)
{
	struct compact *c = userdata;
	struct compact_report report = c->report;

	(void)so_far;
	if (c->result)
		add_up(&report.sum, c->result);
	return !c->conf->step || c->conf->step(c->conf->userdata, &report);
}

/* Until nobody who writes waits. */
static void yield_to_writers(struct compact *c)
{
	while (c->conf->yields && compress_is_disturbed(c->g.e) && gc_goes_on(&c->g))
		nanosleep(&(struct timespec){ .tv_nsec = YIELD_NS }, NULL);
}

/* --- coding a frame --- */

/* The bytes before the first element of each part, and what all chunks take now. */
static uint64_t find_leads(const struct gc_copy *copy, uint32_t ret[PACK_PARTS])
{
	uint32_t at = 0, part = 0;
	uint64_t before = 0;

	for (unsigned i = 0; i < copy->nr_next; at += copy->next[i++].len) {
		before += copy->next[i].stored;
		for (; part * PACK_PART_BYTES < at + copy->next[i].len; part++)
			ret[part] = (copy->next[i].phase - (part * PACK_PART_BYTES - at)) % 8;
	}
	return before;
}

/* Of a sample: what it would be by itself. */
static int try_alone(struct compact *c, const uint8_t *p, uint32_t len, uint32_t lead, uint8_t *room)
{
	int n;

	c->coding.lead = lead;
	n = coding_block(&c->coding, p, len, NULL, 0, room);
	if (n >= 0)
		c->sample_alone += MIN((uint32_t)n, len);
	return n;
}

/* One part, to `ret`: its bytes, and where its base is. */
static int code_part(struct compact *c, const uint8_t *frame, uint32_t off, uint32_t len, uint32_t lead, uint8_t *ret,
		     uint32_t *ret_base)
{
	bool has_base = c->back > 0 && off >= c->back;
	struct coding *coding = has_base ? &c->against : &c->coding;
	const uint8_t *p = frame + off;
	struct code_header h;
	int n = has_base && c->is_sample ? try_alone(c, p, len, lead, ret) : 0;

	if (n < 0)
		return n;
	coding->lead = lead;
	coding->base_place = has_base ? code_place(CODE_PLACE_SAME, off - c->back) : 0;
	n = coding_block(coding, p, len, has_base ? p - c->back : NULL, has_base ? MIN(len, c->back) : 0, ret);
	if (n < 0)
		return n;
	if ((uint32_t)n >= len) {
		memcpy(ret, p, len);
		n = (int)len;
	} else if (has_base && code_header_decode(ret, (size_t)n, &h) == 0) {
		*ret_base = h.base_place; /* it may not have paid */
	}
	c->sample_alone += has_base ? 0 : (uint64_t)n;
	return n;
}

/* Bytes of all parts, which are in c->stored; <0 */
static int code_parts(struct compact *c, const struct gc_copy *copy, const uint32_t *leads, struct pack_parts *ret)
{
	uint32_t at = 0;

	if (copy->nr_next != c->nr_row)
		c->back = 0; /* one is damaged, and left out: the others do not lie as they should */
	for (uint32_t off = 0, i = 0; off < copy->used; off += PACK_PART_BYTES, i++) {
		int n = code_part(c, copy->buffer, off, MIN(PACK_PART_BYTES, copy->used - off), leads[i], c->stored + at, &ret->base[i]);

		if (n < 0)
			return n;
		at += (uint32_t)n;
		ret->end[i] = at;
	}
	return (int)at;
}

static int code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret)
{
	struct compact *c = userdata;
	struct compact_result *res = c->result;
	uint64_t from, after, before;
	uint32_t leads[PACK_PARTS];
	bool is_worth_it;
	int n;

	yield_to_writers(c);
	from = thread_cpu_ns();
	before = find_leads(copy, leads);
	n = code_parts(c, copy, leads, ret);
	if (n < 0)
		return n;
	if (c->is_sample) {
		c->sampled += copy->used;
		c->sample_coded += (uint64_t)n;
		return GC_STAYS;
	}
	res->code_ns += thread_cpu_ns() - from;
	/* with the tables: that of this frame, and what the chunks had of theirs */
	after = round_up((uint64_t)n, PACK_BLOCK) + PACK_BLOCK;
	before += copy->used / PACK_FRAME_BLOCKS;
	is_worth_it = pack_is_worth_it(after, before) && !gc_copy_is_mixed(copy);
	if (is_worth_it) {
		res->coded += copy->used;
		res->before += before;
		res->after += after;
		if (c->back > 0 || res->coder.steps.base == CODE_BASE_NONE) /* not that of what was left over */
			res->coder = *coding_chosen(c->back > 0 ? &c->against : &c->coding);
	} else {
		res->kept += copy->used;
	}
	*ret_stored = c->stored;
	return is_worth_it && !c->conf->dry_run ? GC_CODED : GC_STAYS;
}

/* --- moving --- */

static int note_packs_left(struct compact *c)
{
	for (size_t i = 0; i < c->copy.nr; i++) {
		uint32_t pack = c->copy.m[i].pack;

		if (c->nr_left > 0 && c->left[c->nr_left - 1] == pack)
			continue;
		if (c->nr_left == c->size_left) {
			size_t size = MAX(2 * c->size_left, (size_t)256);
			uint32_t *more = reallocarray(c->left, size, sizeof(*more));

			if (!more)
				return -ENOMEM;
			c->left = more;
			c->size_left = size;
		}
		c->left[c->nr_left++] = pack;
	}
	return 0;
}

/* What has been copied becomes what files refer to. */
static int repoint_copies(struct compact *c, struct compact_walk *w)
{
	int r = gc_copy_flush(&c->copy);

	if (r == 0)
		r = note_packs_left(c);
	if (r == 0)
		r = gc_copy_repoint(&c->copy);
	if (r == 0)
		r = gc_write_back(c->g.e);
	if (w)
		compact_walk_forget(w);
	return r;
}

/* It stays as it is. */
static void leave(struct compact *c, const struct pack_chunk_info *info)
{
	*(info->is_coded ? &c->result->known : &c->result->kept) += c->is_sample ? 0 : info->len;
}

static int move_chunk(struct compact *c, const struct compact_chunk *chunk)
{
	const struct pack_chunk_info *info = &chunk->info;
	int r;

	r = gc_copy_add(&c->copy, info->start, info->len, info->chunk_len, info->fp);
	if (r == 0) {
		struct gc_chunk *last = &c->copy.next[c->copy.nr_next - 1];

		last->phase = chunk->phase;
		last->stored = info->stored;
	}
	return r;
}

static int add_chunk(struct compact *c, const struct compact_chunk *chunk)
{
	const struct pack_chunk_info *info = &chunk->info;

	if (info->is_coded || shares_has_pack(c->g.e, info->start.pack)) { /* other nodes know it by where it is */
		leave(c, info);
		return 0;
	}
	return move_chunk(c, chunk);
}

/* 1: for the first time. */
static int set_seen(struct compact *c, struct addr a)
{
	uint64_t place = place_of(a);
	int r;

	if (layer_set_has(&c->seen, place))
		return 0;
	r = layer_set_add(&c->seen, place);
	return r < 0 ? r : 1;
}

/* --- a variable --- */

static int start_coding(struct compact *c, const struct compact_variable *v)
{
	return coding_init(&c->coding, c->work, &v->shape, false, c->conf->budget, NULL);
}

static void begin_sample(struct compact *c)
{
	c->is_sample = true;
	c->sampled = c->sample_coded = c->sample_alone = 0;
}

/* How much smaller it would be: stored bytes for each 1000 of a sample, coded in this order. */
static int try_order(struct compact *c, const struct compact_variable *v, uint64_t block, uint64_t *ret)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	uint64_t bytes = 0;
	int r;

	begin_sample(c);
	r = compact_walk_init(&w, c->g.e, v, c->conf->inos, block);
	while (r >= 0 && bytes < SAMPLE && (r = compact_walk_next(&w, &chunk)) > 0) {
		bytes += chunk.info.len;
		r = add_chunk(c, &chunk);
	}
	if (r >= 0)
		r = gc_copy_flush(&c->copy);
	c->is_sample = false;
	*ret = c->sample_coded * 1000 / MAX(c->sampled, (uint64_t)1);
	return MIN(r, 0);
}

/* Which order, and coding that has begun to learn. The block to take turns with, or 0, is *ret. */
static int choose_order(struct compact *c, const struct compact_variable *v, uint64_t *ret)
{
	bool has_one_file = v->nr_extents == 0 || v->extent[0].file == v->extent[v->nr_extents - 1].file;
	uint64_t whole, turns;
	struct coding of_whole;
	int r = start_coding(c, v);

	*ret = c->conf->order == COMPACT_TURNS && !has_one_file ? c->conf->block : 0;
	if (r < 0 || c->conf->order != COMPACT_BEST || has_one_file)
		return r;
	r = try_order(c, v, 0, &whole);
	if (r < 0)
		return r;
	of_whole = c->coding;
	r = start_coding(c, v);
	if (r == 0)
		r = try_order(c, v, c->conf->block, &turns);
	if (r == 0 && turns < whole) {
		*ret = c->conf->block;
		coding_release(&of_whole);
		return 0;
	}
	coding_release(&c->coding);
	c->coding = of_whole;
	return r;
}

static int code_variable(struct compact *c, const struct compact_variable *v, uint64_t block)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	int r;

	c->result->turns = block > 0;
	r = compact_walk_init(&w, c->g.e, v, c->conf->inos, block);
	while (r >= 0 && gc_goes_on(&c->g) && (r = compact_walk_next(&w, &chunk)) > 0) {
		r = set_seen(c, chunk.info.start);
		if (r <= 0)
			continue;
		c->result->plain += chunk.info.len;
		r = add_chunk(c, &chunk);
		if (r == 0 && gc_copy_nr(&c->copy) == c->copy.max)
			r = repoint_copies(c, &w);
	}
	return r < 0 ? r : gc_copy_flush(&c->copy); /* variables do not share frames */
}

static int compact_variable(struct compact *c, size_t i)
{
	const struct compact_variable *v = &c->conf->variable[i];
	uint64_t block;
	int r;

	c->result = &c->conf->result[i];
	*c->result = (struct compact_result){ 0 };
	r = choose_order(c, v, &block);
	if (r == 0)
		r = code_variable(c, v, block);
	coding_release(&c->coding);
	add_up(&c->report.sum, TAKE(c->result));
	c->report.nr_variables++;
	return r;
}

/* --- steps of one --- */

static int emit_row(void *userdata, const struct step_row *row, unsigned nr_versions)
{
	struct compact *c = userdata;
	int r = 0;

	if (!c->is_sample && gc_copy_nr(&c->copy) + nr_versions * row->nr > c->copy.max) {
		r = repoint_copies(c, NULL);
		compact_steps_forget(c->steps);
	}
	for (unsigned v = 0; v < nr_versions; v++)
		for (uint32_t i = 0; i < row->nr && r == 0; i++)
			r = move_chunk(c, &row->chunk[v * row->max + i]);
	if (r < 0)
		return r;
	/* what is less than a part would be coded against a part of itself */
	if (nr_versions > 1 && row->nr * row->chunk_len >= PACK_PART_BYTES) {
		c->back = row->nr * row->chunk_len;
		c->nr_row = c->copy.nr_next;
	}
	r = gc_copy_flush(&c->copy);
	c->back = 0;
	return r;
}

/* 1: a version of the place that may be coded with the others. `last`: the one before it, or NULL. */
static int take_version(struct compact *c, const struct compact_chunk *chunk, const struct compact_chunk *last)
{
	const struct pack_chunk_info *info = &chunk->info;
	int r = c->is_sample ? !last || !addr_equal(last->info.start, info->start) : set_seen(c, info->start);

	if (r <= 0)
		return r;
	c->result->plain += c->is_sample ? 0 : info->len;
	if (!info->is_based && !shares_has_pack(c->g.e, info->start.pack))
		return 1;
	leave(c, info);
	return 0;
}

/* Those that are coded by themselves move only if there are as many as can be coded together. */
static unsigned drop_coded(struct compact *c, const struct compact_chunk **chunk, unsigned *step, unsigned nr)
{
	unsigned n = 0;

	if (nr == c->conf->chain + 1)
		return nr;
	for (unsigned i = 0; i < nr; i++) {
		if (chunk[i]->info.is_coded) {
			leave(c, &chunk[i]->info);
			continue;
		}
		chunk[n] = chunk[i];
		step[n++] = step[i];
	}
	return n;
}

static int take_place(struct compact *c, struct step_rows *rows, const struct compact_place *place)
{
	const struct compact_chunk *chunk[STEPS_MAX];
	unsigned step[STEPS_MAX], nr = 0;
	int r;

	for (unsigned i = c->steps->nr; i-- > 0;) {
		r = place->chunk[i] ? take_version(c, place->chunk[i], nr > 0 ? chunk[nr - 1] : NULL) : 0;
		if (r < 0)
			return r;
		if (r > 0) {
			chunk[nr] = place->chunk[i];
			step[nr++] = i;
		}
	}
	return step_rows_add(rows, chunk, step, drop_coded(c, chunk, step, nr));
}

static int code_steps(struct compact *c, const struct compact_variable *const *v, unsigned nr, uint64_t block)
{
	_cleanup_(step_rows_release) struct step_rows rows = { .emit = emit_row, .userdata = c };
	_cleanup_(compact_steps_release) struct compact_steps steps = { 0 };
	struct compact_place place;
	int r;

	c->steps = &steps;
	r = compact_steps_init(&steps, c->g.e, v, nr, c->conf->inos, block);
	while (r >= 0 && (!c->is_sample || c->sampled < SAMPLE) && gc_goes_on(&c->g) && (r = compact_steps_next(&steps, &place)) > 0)
		r = take_place(c, &rows, &place);
	if (r >= 0)
		r = step_rows_flush(&rows);
	c->steps = NULL;
	return r;
}

/* Is it smaller so than if each step were coded by itself? 1/0/<0 */
static int steps_pay(struct compact *c, const struct compact_variable *const *v, unsigned nr, uint64_t block)
{
	int r;

	begin_sample(c);
	r = code_steps(c, v, nr, block);
	c->is_sample = false;
	return r < 0 ? r : pack_is_worth_it(c->sample_coded, c->sample_alone) && c->sample_alone > 0;
}

static int compact_versions(struct compact *c, const size_t *number, unsigned nr)
{
	const struct compact_variable *v[STEPS_MAX];
	uint64_t block;
	int r;

	for (unsigned i = 0; i < nr; i++) {
		v[i] = &c->conf->variable[number[i]];
		c->conf->result[number[i]] = (struct compact_result){ 0 };
	}
	c->result = &c->conf->result[number[0]];
	r = choose_order(c, v[0], &block);
	if (r == 0)
		r = coding_init(&c->against, c->work, &v[0]->shape, true, c->conf->budget, NULL);
	if (r == 0)
		r = steps_pay(c, v, nr, block);
	if (r > 0) {
		c->result->turns = block > 0;
		r = code_steps(c, v, nr, block);
	} else if (r == 0) {
		for (unsigned i = 0; i < nr && r == 0; i++)
			r = code_variable(c, v[i], block);
	}
	coding_release(&c->against);
	coding_release(&c->coding);
	add_up(&c->report.sum, TAKE(c->result));
	c->report.nr_variables += nr;
	return r;
}

static int compact_together(struct compact *c, const size_t *number, unsigned *nr)
{
	int r = *nr > 1 ? compact_versions(c, number, *nr) : *nr > 0 ? compact_variable(c, number[0]) : 0;

	*nr = 0;
	return r;
}

/* Is most of its beginning coded with other steps already? 1/0/<0 */
static int is_done(struct compact *c, const struct compact_variable *v)
{
	_cleanup_(compact_walk_release) struct compact_walk w = { 0 };
	struct compact_chunk chunk;
	unsigned nr = 0, nr_done = 0;
	int r = compact_walk_init(&w, c->g.e, v, c->conf->inos, 0);

	for (; r >= 0 && nr < LOOKED_AT && (r = compact_walk_next(&w, &chunk)) > 0; nr++)
		nr_done += chunk.info.is_based;
	return r < 0 ? r : 2 * nr_done > nr;
}

static bool go_together(const struct compact_variable *a, const struct compact_variable *b)
{
	return code_type_encode(a->shape.type) == code_type_encode(b->shape.type) && a->shape.parts == b->shape.parts &&
	       a->shape.row == b->shape.row && a->shape.plane == b->shape.plane && compact_same_parts(a, b);
}

/* A variable, and all that are later steps of it. */
static int compact_chain(struct compact *c, size_t first)
{
	const struct compact_variable *v = c->conf->variable;
	size_t number[STEPS_MAX];
	unsigned nr = 0;
	int r = 0;

	for (size_t i = first + 1; i > 0 && r >= 0 && gc_goes_on(&c->g); i = c->next[i - 1]) {
		if (nr == c->conf->chain + 1 || (nr > 0 && !go_together(&v[number[nr - 1]], &v[i - 1])))
			r = compact_together(c, number, &nr);
		if (r == 0 && c->next[first] > 0)
			r = is_done(c, &v[i - 1]);
		if (r > 0) { /* it is looked at by itself, and stays */
			r = compact_together(c, number, &nr);
			number[nr++] = i - 1;
			r = r < 0 ? r : compact_together(c, number, &nr);
		} else if (r == 0) {
			number[nr++] = i - 1;
		}
	}
	return r < 0 ? r : compact_together(c, number, &nr);
}

/* Which is a step after which. What is said twice, or of itself, does not count. */
static int find_chains(struct compact *c, bool **ret_follows)
{
	size_t nr = c->conf->nr_variables;
	bool *follows = calloc(nr + 1, sizeof(*follows));

	c->next = calloc(nr + 1, sizeof(*c->next));
	*ret_follows = follows;
	if (!follows || !c->next)
		return -ENOMEM;
	for (size_t i = 0; c->conf->chain > 0 && i < nr; i++) {
		size_t before = c->conf->variable[i].before;

		if (before == 0 || before > i || c->next[before - 1] > 0)
			continue;
		c->next[before - 1] = i + 1;
		follows[i] = true;
	}
	return 0;
}

/* --- all of them --- */

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int sweep_packs(struct gc *g, const uint32_t *packs, size_t nr)
{
	int r = gc_collect_packs(g, packs, nr);

	free(TAKE(g->sparse)); /* no more is moved */
	g->nr_sparse = 0;
	return r;
}

/* The space of what has moved. */
static int sweep_left(struct compact *c)
{
	size_t nr = 0;
	int r = 0;

	if (c->nr_left == 0)
		return 0;
	qsort(c->left, c->nr_left, sizeof(*c->left), by_number);
	for (size_t i = 0; i < c->nr_left; i++)
		if (nr == 0 || c->left[i] != c->left[nr - 1])
			c->left[nr++] = c->left[i];
	for (size_t i = 0; i < nr && r == 0 && gc_goes_on(&c->g); i += SWEPT_AT_ONCE)
		r = sweep_packs(&c->g, c->left + i, MIN(nr - i, (size_t)SWEPT_AT_ONCE));
	return r == -ECANCELED ? 0 : r; /* stopped: the next collection does it */
}

static int compact_all(struct compact *c)
{
	_cleanup_(freep) bool *follows = NULL;
	struct engine *e = c->g.e;
	size_t i = 0;
	int r = e->conf.read_only ? 0 : engine_sync(e), q;

	if (r == 0 && !e->conf.read_only)
		r = gc_write_back(e);
	if (r == 0)
		r = find_chains(c, &follows);
	for (; i < c->conf->nr_variables && r == 0 && gc_goes_on(&c->g); i++)
		r = follows[i] ? 0 : compact_chain(c, i);
	c->report.complete = r == 0 && i == c->conf->nr_variables && !c->g.stopped;
	if (c->conf->dry_run || (r < 0 && r != -ENOSPC))
		return r;
	q = repoint_copies(c, NULL); /* also of what was stopped, or had no more room */
	if (q == 0)
		q = variables_remember(e, c->conf);
	if (q == 0)
		q = sweep_left(c);
	return r < 0 ? r : q;
}

static int compact_init(struct compact *c)
{
	int r = gc_copy_init(&c->copy, &c->g, MOVES_MAX);

	c->copy.code = code_frame;
	c->copy.userdata = c;
	c->stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));
	c->work = code_work_new();
	if (r == 0 && c->stored && c->work)
		r = io_rate_new(c->conf->rate, &c->g.rate);
	else
		r = -ENOMEM;
	return r;
}

static void compact_release(struct compact *c)
{
	gc_copy_release(&c->copy);
	layer_set_release(&c->seen);
	layer_set_release(&c->g.layers.live);
	free(c->left);
	free(c->next);
	free(c->stored);
	code_work_free(c->work);
	io_rate_free(c->g.rate);
}

int engine_compact(struct engine *e, const struct compact_conf *conf, struct compact_report *ret)
{
	struct compact c = { .conf = conf };
	int r;

	if (conf->chain > COMPACT_CHAIN_MAX)
		return -EINVAL;
	if (!conf->dry_run && e->conf.read_only)
		return -EROFS;
	if (atomic_exchange(&e->gc.running, true))
		return -EBUSY;
	c.gc_conf = (struct gc_conf){ .delete = true, .rate = conf->rate, .step = step, .userdata = &c };
	c.g = (struct gc){ .e = e, .conf = &c.gc_conf, .report = &c.gc_report };
	if (conf->budget_ns > 0)
		c.g.deadline_ns = monotonic_ns() + conf->budget_ns;
	mutex_lock(&e->gc.lock);
	r = compact_init(&c);
	if (r == 0)
		r = compact_all(&c);
	compact_release(&c);
	mutex_unlock(&e->gc.lock);
	atomic_store(&e->gc.running, false);
	if (r < 0)
		return log_errno(r, "store %s: compacting ended early", e->path);
	*ret = c.report;
	return 0;
}
