/*
 * Changes of a file that are in the log, and that its segments get later.
 *
 * Whoever commits a version waits for the log to be durable, and not for what memory makes of it. So the clone of a
 * whole file (run.h) and the many small changes of a patch enter the log, and then wait at the file. They are brought
 * into the segments when the commit has been answered, or by whoever looks at a segment before that: the recipe of the
 * logged state is the segments and what waits. Whoever changes segments otherwise does this first, so that it all comes
 * in the order of the log.
 *
 *   log ──▶ waiting at the file ─ after the answer; or the next who looks; or writing into the view ─▶ segments
 *
 * Nothing is lost with it: a crash, a file that is dropped, and the log is all there is. Sizes and times are not late,
 * and how many bytes are mapped only where there are holes, so that content_stat() does not wait for the others. It can
 * fail for want of memory, and is then tried again by the next.
 *
 * The lock of the file is enough to do it: what the log says does not change. To let changes wait takes view_lock,
 * shared, as any change of the log. They refer to what they say since they are in the log.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"
#include "store/engine/run.h"
#include "store/journal/journal.h"

#define AT_ONCE 64u /* while the file is locked, and nobody waits for it */

/* Some that came together: segments of another file, or patches. */
struct later {
	struct later *next;
	size_t nr, done;
	struct run *run; /* NULL: patches */
	size_t bytes; /* that are counted for it: in memory, and waiting for the view */
	struct extent *x; /* all their extents */
	struct replace rp[];
};

static void later_count(struct engine *e, struct later *l)
{
	l->bytes = sizeof(*l) + l->nr * (l->run ? sizeof(struct segment) : sizeof(*l->rp));
	for (size_t i = 0; !l->run && i < l->nr; i++)
		l->bytes += l->rp[i].nr * sizeof(*l->rp[i].x);
	atomic_fetch_add(&e->segment_memory, l->bytes);
	atomic_fetch_add(&e->dirty_segment_memory, l->bytes);
}

static void later_free(struct engine *e, struct later *l)
{
	atomic_fetch_sub(&e->segment_memory, l->bytes);
	atomic_fetch_sub(&e->dirty_segment_memory, l->bytes);
	run_put(l->run);
	free(l->x);
	free(l);
}

static void later_add(struct content *c, struct later *l)
{
	struct later **end = &c->later;

	while (*end)
		end = &(*end)->next;
	*end = l;
	later_count(c->e, l);
	content_forget_run(c);
}

/* May they wait? Not what has to be told to somebody as it comes, or what needs segments that must be read first. */
static bool can_wait(const struct content *c)
{
	return !c->in_view && !c->dropped && !c->e->repointed.m;
}

#define EXTENT_BYTES 12u /* in a record, about */

static int encode(const struct replace *rp, size_t nr, struct buf *ret)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;
	size_t nr_extents = 0;

	for (size_t i = 0; i < nr; i++)
		nr_extents += rp[i].nr;
	(void)buf_reserve(ret, nr * RECORD_BYTES + nr_extents * EXTENT_BYTES);
	for (size_t i = 0; i < nr; i++) {
		buf_clear(&rec);
		replace_encode(&rp[i], &rec);
		journal_record_add(ret, RECORD_PATCH, rec.data, rec.len);
		ret->failed |= buf_error(&rec) < 0;
	}
	return buf_error(ret);
}

int content_log_later(struct content *c, const struct replace *rp, size_t nr, struct extent_list *x)
{
	_cleanup_(buf_release) struct buf records = BUF_EMPTY;
	struct later *l;
	int r = 0;

	assert(mutex_held(&c->lock));
	for (size_t i = 0; i < nr; i++)
		if (!rp[i].keeps)
			return 0;
	if (nr == 0 || !can_wait(c))
		return 0;
	l = malloc(sizeof(*l) + nr * sizeof(*l->rp));
	if (l)
		r = encode(rp, nr, &records);
	if (l && r == 0)
		r = log_append_records(c->e, &records, &c->log_end);
	if (!l || r < 0) {
		free(l);
		return l ? r : -ENOMEM;
	}
	*l = (struct later){ .nr = nr, .x = TAKE(x->x) };
	*x = (struct extent_list){ 0 };
	for (size_t i = 0; i < nr; i++) {
		l->rp[i] = rp[i];
		freed_referred(c->e, rp[i].x, rp[i].nr);
	}
	later_add(c, l);
	content_is_changed(c, &rp[nr - 1]);
	return 1;
}

/* It has nothing yet, and nobody wants to hear of each extent. */
static bool can_get_all(const struct content *to)
{
	return can_wait(to) && to->nr_segments == 0 && !to->later && to->logged.size == 0 &&
	       !atomic_load(&to->e->gc.window);
}

int content_clone_later(struct content *from, struct content *to, const struct clone *cl, size_t nr)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY, records = BUF_EMPTY;
	struct replace last = { .size = cl[nr - 1].size, .mtime_ns = cl[nr - 1].mtime_ns, .ctime_ns = cl[nr - 1].ctime_ns };
	struct later *l;
	int r;

	assert(mutex_held(&from->lock) && mutex_held(&to->lock));
	if (from->dropped || from->later || !from->run || !can_get_all(to))
		return 0;
	for (size_t i = 0; i < nr; i++) {
		buf_clear(&rec);
		clone_encode(&cl[i], &rec);
		journal_record_add(&records, RECORD_CLONE, rec.data, rec.len);
	}
	l = malloc(sizeof(*l));
	if (!l || buf_error(&rec) < 0) {
		free(l);
		return -ENOMEM;
	}
	r = log_append_records(to->e, &records, &to->log_end);
	if (r < 0) {
		free(l);
		return r;
	}
	*l = (struct later){ .run = run_get(from->run), .nr = from->run->nr };
	later_add(to, l);
	to->logged.mapped += l->run->mapped;
	atomic_fetch_add(&to->e->logical, (int64_t)l->run->mapped);
	content_is_changed(to, &last);
	to->live = to->logged;
	return 1;
}

static int catch_up_with(struct content *c, struct later *l) REQUIRES(c->lock)
{
	if (l->run)
		return content_add_layers(c, l->done, l->run->v[l->done]);
	return content_apply_extents(c, &l->rp[l->done]);
}

int content_catch_up(struct content *c, size_t max)
{
	struct later *l;
	int r = 0;

	assert(mutex_held(&c->lock));
	while (r == 0 && max > 0 && (l = c->later)) {
		c->later = NULL; /* who looks at segments now is us */
		for (; r == 0 && max > 0 && l->done < l->nr; max--) {
			r = catch_up_with(c, l);
			l->done += r == 0;
		}
		c->later = l;
		if (l->done == l->nr) {
			c->later = l->next;
			later_free(c->e, l);
		}
	}
	return r;
}

void content_forget_later(struct content *c)
{
	struct later *l;

	while ((l = c->later)) {
		c->later = l->next;
		later_free(c->e, l);
	}
}

/* So that the next version can be made of it with one reference. */
static void make_run(struct content *c) REQUIRES(c->lock)
{
	uint64_t nr = (c->logged.size + SEGMENT_SIZE - 1) / SEGMENT_SIZE;

	if (!c->run && !c->dropped && c->nr_segments == nr)
		(void)run_new(&c->segments, (size_t)nr, &c->run); /* what is not there is not used */
}

void content_catch_up_all(struct content *c)
{
	bool more;

	do {
		mutex_lock(&c->lock);
		more = content_catch_up(c, AT_ONCE) == 0 && c->later;
		if (!c->later)
			make_run(c);
		mutex_unlock(&c->lock);
	} while (more);
}
