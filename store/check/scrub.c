/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Scrub: finds damage before the damaged data is needed, concurrent with all other work.
 *
 *   1. read all packs frame by frame and verify every chunk (store/pack/repair/pack_scrub.c). A damaged table is
 *      repaired at once, if its content is known from elsewhere
 *   2. if chunks are damaged: read all tables to find second copies, and repair the chunks from them (scrub_repair.c)
 *   3. if damage is left: read all recipes to find the files that refer to it (scrub_hits.c)
 *
 * Only the collector waits for a scrub, and for one frame at most: a frame is read inside `users`, as by any reader, so
 * that its chunks are not freed before they have been verified. Freed chunks are known from the table, which is read
 * inside `users`, too; packs removed meanwhile are skipped. Frames committed after the start are left to the next
 * scrub.
 *
 * The position is recorded in the log now and then. It never passes the first damage that has not been through steps 2
 * and 3: after a crash or stop before them the next scrub finds that damage again. A store without the record, as after
 * a rebuild, starts from the beginning.
 */
#include "store/check/scrub.h"

#include <errno.h>
#include <stdlib.h>

#include "base/conf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/check/scrub_job.h"
#include "store/engine_state.h"
#include "store/log/commit.h"

#define SAVE_NS (10 * 1000 * 1000 * 1000ull) /* a crash repeats at most so much work */

bool scrub_goes_on(struct scrub *s)
{
	if (s->deadline_ns > 0 && monotonic_ns() >= s->deadline_ns)
		s->timed_out = true;
	if (!s->stopped && s->conf->step && !s->conf->step(s->conf->userdata, s->report))
		s->stopped = true;
	return !s->stopped && !s->timed_out;
}

static bool may_continue(void *scrub)
{
	return scrub_goes_on(scrub);
}

void scrub_pace(struct scrub *s, uint64_t bytes)
{
	io_rate_wait_while(s->rate, bytes, may_continue, s);
}

/* --- position --- */

struct scrub_record {
	_Atomic bool running; /* one scrub at a time */
	struct mutex lock; /* leaf */
	struct scrub_state state GUARDED_BY(lock);
};

struct scrub_record *scrub_record_new(void)
{
	struct scrub_record *r = calloc(1, sizeof(*r));

	if (r)
		mutex_init(&r->lock);
	return r;
}

void scrub_record_free(struct scrub_record *r)
{
	if (!r)
		return;
	mutex_release(&r->lock);
	free(r);
}

int scrub_load(struct engine *e)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta("scrub");
	struct scrub_state st;
	int r = db_get(e->db, DB_VIEW, key.b, key.len, &value);

	if (r <= 0)
		return r;
	if (scrub_state_decode(value.data, value.len, &st) < 0) {
		log_warning("index: cannot read the scrub record; the next scrub starts from the beginning");
		return 0;
	}
	e->scrub->state = st;
	return 0;
}

void engine_scrub_state(struct engine *e, struct scrub_state *ret)
{
	mutex_lock(&e->scrub->lock);
	*ret = e->scrub->state;
	mutex_unlock(&e->scrub->lock);
}

/* If this fails, as on a full disk, the next mount repeats some work. */
static void save(struct scrub *s, const struct scrub_state *st)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct engine *e = s->e;

	s->saved_ns = monotonic_ns();
	mutex_lock(&e->scrub->lock);
	e->scrub->state = *st;
	mutex_unlock(&e->scrub->lock);
	if (e->read_only)
		return;
	scrub_state_encode(st, &value);
	engine_tx_put(&tx, ns_key_meta("scrub"), value.data, value.len);
	if (buf_error(&value) == 0)
		engine_tx_apply(e, &tx);
}

/* The state up to which no work is pending. */
static const struct scrub_state *safe_state(const struct scrub *s)
{
	return s->nr_bad > 0 ? &s->before_bad : &s->state;
}

/* --- step 1 --- */

static int add_bad(struct scrub *s, const struct bad *b)
{
	if (s->nr_bad == SCRUB_BAD_MAX) {
		s->nr_too_many += b->kind != BAD_ABSENT;
		return 0;
	}
	if (s->nr_bad == s->size_bad) {
		size_t size = MAX(2 * s->size_bad, (size_t)64);
		struct bad *more = realloc(s->bad, size * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->bad = more;
		s->size_bad = size;
	}
	if (s->nr_bad == 0)
		s->before_bad = s->state;
	s->bad[s->nr_bad++] = *b;
	return 0;
}

static int count_frame(struct scrub *s)
{
	const struct pack_frame_rec *rec = &s->found->rec;
	uint64_t nr_chunks = 0, bytes = 0;
	int r = 0;

	for (uint32_t i = 0; i < rec->nr_chunks && r == 0; i++) {
		struct addr a = pack_rec_addr(rec, i);

		if (fp_is_none(rec->fps[i]))
			continue;
		nr_chunks++;
		bytes += pack_rec_len(rec, i);
		if (!(s->found->bad[i / 64] >> i % 64 & 1))
			continue;
		s->report->nr_damaged++;
		r = add_bad(s,
			    &(struct bad){ rec->fps[i], a.pack, a.off, pack_rec_len(rec, i), BAD_CHUNK, false, false });
	}
	s->report->nr_chunks += nr_chunks;
	s->report->bytes += bytes;
	s->report->round_bytes += bytes;
	s->state.round.nr_chunks += nr_chunks;
	s->state.round.bytes += bytes;
	return r;
}

static int examine_frame(struct scrub *s, uint32_t pack, uint32_t frame)
{
	unsigned ticket = epoch_enter(&s->e->users);
	int r = packs_scrub_frame(s->e->packs, pack, frame, s->found);

	epoch_leave(&s->e->users, ticket);
	s->report->read_bytes += s->found->read_bytes;
	return r;
}

static int scrub_frame(struct scrub *s, uint32_t pack, uint32_t frame)
{
	const struct pack_frame_rec *rec = &s->found->rec;
	int r = examine_frame(s, pack, frame);

	if (r > 0 && rec->damaged && !s->found->absent) {
		s->report->nr_tables++;
		r = scrub_repair_table(s, pack, frame);
		s->report->nr_repaired += r > 0;
		r = r > 0 ? examine_frame(s, pack, frame) : r < 0 ? r : 1;
	}
	if (r <= 0)
		return r;
	s->report->nr_frames++;
	if (!rec->damaged)
		return count_frame(s);
	return add_bad(s, &(struct bad){ .pack = pack,
					 .off = rec->first.off,
					 .len = PACK_FRAME_BYTES,
					 .kind = s->found->absent ? BAD_ABSENT : BAD_TABLE });
}

int scrub_nr_frames(struct scrub *s, uint32_t pack, uint32_t *ret)
{
	unsigned ticket = epoch_enter(&s->e->users);
	bool is_full;
	int r;

	*ret = 0;
	r = packs_frames_of(s->e->packs, pack, ret, &is_full);
	epoch_leave(&s->e->users, ticket);
	for (unsigned i = 0; i < PACK_NR_STREAMS; i++)
		if (s->marks.stream[i].pack == pack)
			*ret = MIN(*ret, s->marks.stream[i].nr_frames);
	return MIN(r, 0);
}

/* 1: continue with its frames; 0: there are none. */
static int scrub_header(struct scrub *s, uint32_t pack)
{
	struct bad b = { .pack = pack, .kind = BAD_HEADER, .used = true };
	unsigned ticket = epoch_enter(&s->e->users);
	int r = packs_scrub_header(s->e->packs, pack);

	epoch_leave(&s->e->users, ticket);
	if (r >= 0 || r == -ENOMEM)
		return r;
	s->report->nr_tables++;
	if (r != -EBADMSG) {
		b.kind = BAD_PACK;
		b.len = UINT32_MAX;
		b.used = false;
	}
	r = b.kind == BAD_HEADER ? scrub_repair_header(s, pack) : 0;
	s->report->nr_repaired += r > 0;
	if (r == 0)
		r = add_bad(s, &b);
	return r < 0 ? r : b.kind == BAD_HEADER;
}

static int scrub_pack(struct scrub *s)
{
	uint32_t nr_frames = 0;
	int r = s->state.frame == 0 ? scrub_header(s, s->state.pack) : 1;

	if (r > 0)
		r = scrub_nr_frames(s, s->state.pack, &nr_frames);
	while (r >= 0 && s->state.frame < nr_frames && scrub_goes_on(s)) {
		r = scrub_frame(s, s->state.pack, s->state.frame);
		s->state.frame++;
		scrub_pace(s, s->found->read_bytes);
		if (monotonic_ns() - s->saved_ns > SAVE_NS)
			save(s, safe_state(s));
	}
	if (r < 0 || s->state.frame < nr_frames)
		return r;
	s->state.pack++;
	s->state.frame = 0;
	return 0;
}

static int scrub_packs(struct scrub *s)
{
	int r = 0;

	s->report->doing = "comparing data";
	while (r >= 0 && s->state.pack < s->marks.next_pack && scrub_goes_on(s))
		r = scrub_pack(s);
	s->report->complete = r >= 0 && s->state.pack >= s->marks.next_pack;
	return MIN(r, 0);
}

/* --- entry point --- */

static bool is_repaired(struct scrub *s, const struct bad *b)
{
	struct addr a = { .pack = b->pack, .off = b->off };

	/* A program may have written its content meanwhile. */
	return b->kind == BAD_CHUNK && (!packs_is_damaged(s->e->packs, a) || packs_is_replaced(s->e->packs, a));
}

static void find_repaired(struct scrub *s)
{
	for (size_t i = 0; i < s->nr_bad; i++)
		s->bad[i].repaired |= is_repaired(s, &s->bad[i]);
}

static void count_bad(struct scrub *s)
{
	struct scrub_report *rep = s->report;

	for (size_t i = 0; i < s->nr_bad; i++) {
		const struct bad *b = &s->bad[i];
		bool is_used = b->used || (!rep->is_named && b->kind != BAD_ABSENT);

		rep->nr_tables += b->kind == BAD_ABSENT && is_used;
		rep->nr_repaired += b->repaired;
		rep->nr_left += !b->repaired && is_used;
		rep->nr_unused += !b->repaired && !is_used && b->kind != BAD_ABSENT;
	}
	rep->nr_left += s->nr_too_many;
	s->state.round.nr_damaged += rep->nr_damaged + rep->nr_tables;
	s->state.round.nr_left += rep->nr_left;
}

static void report_pass(struct scrub *s)
{
	struct scrub_report *rep = s->report;
	struct scrub_state st;

	count_bad(s);
	if (rep->nr_left > 0)
		log_error("scrub: found %s; %" PRIu64 " not repaired; bytes are missing in %s",
			  human_nr(rep->nr_damaged + rep->nr_tables, "damaged place").s, rep->nr_left,
			  human_nr(rep->nr_files, "file").s);
	else if (rep->nr_damaged + rep->nr_tables > 0)
		log_notice("scrub: found %s; no file refers to those that were not repaired",
			   human_nr(rep->nr_damaged + rep->nr_tables, "damaged place").s);
	st = rep->is_named ? s->state : *safe_state(s);
	if (rep->complete && rep->is_named)
		st = (struct scrub_state){ .last_ns = now_ns(), .last = s->state.round };
	save(s, &st);
}

static int scrub(struct scrub *s)
{
	int r = scrub_packs(s);

	s->deadline_ns = 0;
	s->timed_out = false;
	if (r == 0 && !s->stopped && s->nr_bad > 0 && !s->e->read_only)
		r = scrub_repair_chunks(s);
	find_repaired(s);
	if (r == 0 && !s->stopped)
		r = scrub_report_files(s);
	s->report->is_named = r == 0 && !s->stopped;
	s->report->complete &= s->report->is_named;
	s->report->doing = "done";
	report_pass(s);
	return r;
}

static void begin_scrub(struct scrub *s)
{
	struct engine_stats st;

	engine_stats(s->e, &st);
	s->report->total_bytes = st.stored_bytes;
	commit_marks(s->e, &s->marks);
	engine_scrub_state(s->e, &s->state);
	if (s->conf->restart || s->state.pack == 0) {
		s->state.pack = 1;
		s->state.frame = 0;
		s->state.round = (struct scrub_sums){ 0 };
	}
	s->report->round_bytes = s->state.round.bytes;
	save(s, &s->state); /* a restarted round stays restarted after a crash */
	if (s->conf->budget_ns > 0)
		s->deadline_ns = monotonic_ns() + s->conf->budget_ns;
}

int engine_scrub(struct engine *e, const struct scrub_conf *conf, struct scrub_report *ret)
{
	_cleanup_(freep) struct pack_scrub *found = malloc(sizeof(*found));
	struct scrub_report report = { .doing = "beginning" };
	struct scrub s = { .e = e, .conf = conf, .report = &report, .found = found };
	int r;

	if (!found)
		return -ENOMEM;
	if (atomic_exchange(&e->scrub->running, true))
		return -EBUSY;
	r = io_rate_new(conf->rate, &s.rate);
	if (r == 0) {
		begin_scrub(&s);
		r = scrub(&s);
	}
	io_rate_free(s.rate);
	free(s.bad);
	atomic_store(&e->scrub->running, false);
	if (r < 0)
		return log_errno(r, "store %s: the scrub ended early", e->path);
	*ret = report;
	return 0;
}
