/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/tier.h"
#include "store/tier/tier_known.h"
#include "store/tier/tier_read.h"

#define IN_FLIGHT 16u
#define RANGE_MAX ((size_t)MiB(4)) /* of one request, unless a chunk is alone in it */

struct restore {
	struct tier *tier;
	struct tier_object_name name;
	struct tier_reader *reader;
	const struct tier_manifest *m; /* of the reader, as the key */
	const struct fp_key *key;
	struct tier_known known; /* chunks of the catalog */
};

static int report_damaged(const struct restore *r, const char *what)
{
	return log_errno(-EBADMSG, "tier %s: %s: %s", tier_where(r->tier), r->name.s, what);
}

int restore_open(struct tier *t, const char *name, struct restore **ret)
{
	struct restore *r = calloc(1, sizeof(*r));
	int k = r ? tier_reader_open(t, name, &r->reader) : -ENOMEM;

	if (k < 0) {
		free(r);
		return k;
	}
	r->tier = t;
	r->m = tier_reader_manifest(r->reader);
	r->key = tier_reader_key(r->reader);
	r->name = tier_manifest_name(r->m->store, r->m->number);
	*ret = r;
	return 0;
}

void restore_close(struct restore *r)
{
	if (!r)
		return;
	tier_known_release(&r->known);
	tier_reader_close(r->reader);
	free(r);
}

void restore_closep(struct restore **r)
{
	restore_close(*r);
}

const struct tier_manifest *restore_manifest(const struct restore *r)
{
	return r->m;
}

struct tier_reader *restore_reader(const struct restore *r)
{
	return r->reader;
}

/* --- catalog --- */

struct expanding {
	struct restore *r;
	const struct tier_sink *to;
	struct catalog_reader check; /* of what is put */
	struct buf record, pieces;
	unsigned nr_pieces; /* in the record */
};

static void expanding_release(struct expanding *x)
{
	buf_release(&x->record);
	buf_release(&x->pieces);
}

/* Check a whole record, and put it. */
static int put_record(struct expanding *x, const void *p, size_t len)
{
	struct catalog_record rec;
	size_t used;
	int k = catalog_reader_next(&x->check, p, len, &used, &rec);

	if (k <= 0 || used != len)
		return k == -EOPNOTSUPP ? k : report_damaged(x->r, "its catalog is damaged");
	return x->to->put(x->to->userdata, p, len);
}

/* Returns its part of the run's bytes. */
static int add_chunk(struct expanding *x, const struct tier_run *run, uint32_t chunk, uint64_t *ret_len)
{
	struct content_piece piece = { .from = run->from, .len = run->len };
	const struct tier_tables *t;
	const struct tier_frame *frame;
	struct pack_cuts cuts;
	uint32_t in = 0;
	int k = tier_reader_tables(x->r->reader, run->pack - 1, &t);

	if (k < 0)
		return k;
	frame = tier_tables_find(t, chunk, &in);
	if (!frame || x->nr_pieces++ == CATALOG_PIECES_MAX)
		return report_damaged(x->r, "its catalog is damaged");
	cuts = pack_table_cuts(&frame->table);
	piece.fp = frame->table.fps[in];
	piece.chunk_len = pack_cut_len(&cuts, in);
	if (run->nr > 0)
		piece.len = piece.chunk_len;
	*ret_len = piece.len;
	catalog_piece_encode(&piece, &x->pieces);
	return tier_known_add(&x->r->known, piece.fp, piece.chunk_len, (struct tier_place){ run->pack - 1, chunk });
}

static int add_chunks(struct expanding *x, const struct tier_run *run)
{
	uint64_t sum = 0, len = 0;
	int k = 0;

	for (uint32_t i = 0; i < MAX(run->nr, 1u) && k >= 0; i++) {
		k = add_chunk(x, run, run->first + i, &len);
		sum += len;
	}
	return k < 0 || sum == run->len ? k : report_damaged(x->r, "its catalog is damaged");
}

static int expand_runs(struct expanding *x, struct cursor *c)
{
	struct tier_run run;
	int k;

	buf_clear(&x->pieces);
	x->nr_pieces = 0;
	while ((k = tier_run_next(c, &run)) > 0) {
		if (run.pack == 0) {
			catalog_piece_encode(&(struct content_piece){ .len = run.len }, &x->pieces);
			k = x->nr_pieces++ == CATALOG_PIECES_MAX ? report_damaged(x->r, "its catalog is damaged") : 0;
		} else {
			k = add_chunks(x, &run);
		}
		if (k < 0)
			return k;
	}
	if (k < 0)
		return report_damaged(x->r, "its catalog is damaged");
	buf_clear(&x->record);
	buf_add_u8(&x->record, CATALOG_PIECES);
	buf_add_varint(&x->record, x->pieces.len);
	buf_add(&x->record, x->pieces.data, x->pieces.len);
	k = buf_error(&x->pieces) < 0 ? -ENOMEM : buf_error(&x->record);
	return k < 0 ? k : put_record(x, x->record.data, x->record.len);
}

int restore_catalog(struct restore *r, const struct tier_sink *to)
{
	_cleanup_(expanding_release) struct expanding x = { .r = r, .to = to };
	struct cursor c = cursor_of(r->m->catalog, r->m->catalog_len);
	size_t head = sizeof(struct catalog_head_disk);
	int k = cursor_take(&c, head) ? put_record(&x, r->m->catalog, head) : report_damaged(r, "its catalog is damaged");

	while (k == 0 && cursor_left(&c) > 0) {
		const uint8_t *record = c.p, *payload;
		uint8_t type = cursor_u8(&c);
		uint64_t len = cursor_varint(&c);

		payload = len <= cursor_left(&c) ? cursor_take(&c, (size_t)len) : NULL;
		if (!payload || type == CATALOG_PIECES)
			return report_damaged(r, "its catalog is damaged");
		if (type == TIER_RUNS_TYPE) {
			struct cursor runs = cursor_of(payload, (size_t)len);

			k = expand_runs(&x, &runs);
		} else {
			k = put_record(&x, record, (size_t)(c.p - record));
		}
	}
	return k < 0 ? k : x.check.at_end ? 0 : report_damaged(r, "its catalog ends early");
}

/* --- chunks --- */

struct range {
	uint32_t pack; /* number in the manifest */
	uint64_t off;
};

static int locate_chunk(struct restore *r, const struct tier_want *w, struct range *ret)
{
	const struct tier_place *place = tier_known_find(&r->known, w->fp, w->len);
	const struct tier_tables *t;
	const struct tier_frame *frame;
	struct pack_cuts cuts;
	uint32_t in;
	int k;

	if (!place)
		return -EINVAL;
	k = tier_reader_tables(r->reader, place->pack, &t);
	if (k < 0)
		return k;
	frame = tier_tables_find(t, place->chunk, &in);
	if (frame->table.coding.codec != PACK_CODEC_NONE)
		return log_errno(-EOPNOTSUPP, "tier %s: %s: compressed frames are not supported yet",
				 tier_where(r->tier), r->name.s);
	cuts = pack_table_cuts(&frame->table);
	*ret = (struct range){ place->pack, frame->off + pack_cut_start(&cuts, in) };
	return 0;
}

/* Chunks that lie side by side in a pack, in one request. */
struct reading {
	struct tier_request q;
	struct tier_object_name name;
	const struct tier_want *wants;
	size_t nr;
	uint8_t *bytes; /* NULL: the buffers lie side by side, too */
};

/* As many of the first ones as go into one request. */
static int start_range(struct restore *r, struct tier_queue *u, struct reading *g, const struct tier_want *wants,
		       size_t nr)
{
	struct tier_footer f;
	struct range first, next;
	bool is_one_buffer = true;
	size_t len = wants->len;
	int k = locate_chunk(r, wants, &first);

	if (k == 0)
		k = tier_manifest_pack(r->m, first.pack, &f);
	if (k < 0)
		return k;
	*g = (struct reading){ .wants = wants, .nr = 1, .name = tier_pack_name(f.id) };
	for (; g->nr < nr && len + wants[g->nr].len <= RANGE_MAX; g->nr++) {
		const struct tier_want *w = &wants[g->nr];

		if (locate_chunk(r, w, &next) < 0 || next.pack != first.pack || next.off != first.off + len)
			break; /* an error is met again when this one is the first */
		is_one_buffer &= (uint8_t *)w->buf == (uint8_t *)wants->buf + len;
		len += w->len;
	}
	g->bytes = is_one_buffer ? NULL : malloc(len);
	if (!is_one_buffer && !g->bytes)
		return -ENOMEM;
	g->q = (struct tier_request){
		.op = TIER_GET,
		.name = g->name.s,
		.off = first.off,
		.buf = is_one_buffer ? wants->buf : g->bytes,
		.len = len,
	};
	tier_start(u, &g->q);
	return 0;
}

static int finish_range(struct restore *r, struct reading *g)
{
	_cleanup_(freep) uint8_t *bytes = TAKE(g->bytes);
	size_t at = 0;

	if (g->q.result < 0 && g->q.result != -ENOENT)
		return g->q.result;
	if (g->q.result == -ENOENT || g->q.got != g->q.len)
		return log_errno(-EBADMSG, "tier %s: %s: %s is missing or ends early", tier_where(r->tier), r->name.s,
				 g->name.s);
	for (size_t i = 0; i < g->nr; i++) {
		const struct tier_want *w = &g->wants[i];

		if (bytes)
			memcpy(w->buf, bytes + at, w->len);
		if (!fp_is_of(r->key, w->fp, w->buf, w->len))
			return log_errno(-EBADMSG, "tier %s: %s: %s: %" PRIu32 " bytes at %" PRIu64 " are damaged",
					 tier_where(r->tier), r->name.s, g->name.s, w->len, g->q.off + at);
		at += w->len;
	}
	return 0;
}

int restore_chunks(struct restore *r, const struct tier_want *wants, size_t nr)
{
	struct reading readings[IN_FLIGHT], *idle[IN_FLIGHT];
	struct tier_queue *u;
	unsigned nr_idle = IN_FLIGHT;
	int k = tier_queue_new(r->tier, &u);

	if (k < 0)
		return k;
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		idle[i] = &readings[i];
	for (size_t i = 0; (k == 0 && i < nr) || nr_idle < IN_FLIGHT;) {
		if (k == 0 && i < nr && nr_idle > 0) {
			struct reading *g = idle[nr_idle - 1];

			k = start_range(r, u, g, wants + i, nr - i);
			if (k == 0) {
				nr_idle--;
				i += g->nr;
			}
		} else { /* also after an error, all that are in flight */
			struct reading *g = container_of(tier_next(u), struct reading, q);
			int one = finish_range(r, g);

			idle[nr_idle++] = g;
			k = k < 0 ? k : one;
		}
	}
	tier_queue_free(u);
	return k;
}
