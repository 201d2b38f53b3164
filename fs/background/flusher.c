/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A directory is flushed in this order:
 *   1. Save a durable note in the store with the number of the next manifest (flush_note.h).
 *   2. Put the packs, then the manifest (store/tier/flush/tier_flush.c).
 * After a crash between the two, a manifest of this number either is absent or has a seal of the note.
 *
 * At each connection the flusher compares the last manifest of this store with the note. If another machine put it,
 * which has a copy of the store or replaces this machine, flushing stops.
 */
#include "fs/background/flusher.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/conf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/background/flush_note.h"
#include "fs/background/flush_queue.h"
#include "fs/fs.h"
#include "fs/seal/dir_path.h"
#include "fs/seal/seal_catalog.h"
#include "fs/subuids.h"
#include "index/namespace_table.h"
#include "store/catalog/catalog_format.h"
#include "store/engine.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_worker.h"

#define NS_PER_S UINT64_C(1000000000)
#define FIRST_DELAY_NS NS_PER_S /* doubled after each failure in a row */
#define LAST_DELAY_NS (60 * NS_PER_S)
#define UNREADABLE_DELAY_NS (60 * NS_PER_S)
#define TOO_LARGE_DELAY_NS (3600 * NS_PER_S) /* an attempt sends all chunks before it fails again */
#define CHANGED_DELAY_NS (NS_PER_S / 10) /* doubled each time, up to UNREADABLE_DELAY_NS */
#define PATIENCE_NS (3 * NS_PER_S) /* for requests in flight at an unmount */
#define CHECK_NS (60 * NS_PER_S) /* between reads of the log of an idle tier */
#define CHECK_AGAIN_NS NS_PER_S /* if users request them */
#define HUNG_NS (30 * NS_PER_S) /* without an answer, until this is reported */
/* Memory per known chunk (tier_flush.h): 110 in the table, 16 of filters, and 16 while half of them become a run. */
#define SLOT_BYTES_MAX 142u
#define TAKEN_MAX 3u /* consecutive attempts whose manifest number is taken, although it is not listed */

struct flusher {
	struct fs *fs; /* constant, as the fields up to the lock */
	char *url, *config_file;
	struct flusher_conf conf;
	struct tier_writer_conf writer;
	struct io_rate *rate; /* NULL: no limit */
	pthread_t thread;
	bool has_thread; /* used by the thread that starts and stops the flusher */

	/* Of the thread. */
	bool is_probed;
	bool has_note;
	struct flush_note note;
	uint64_t number; /* of the last manifest of this store in the tier */
	uint64_t generation; /* of the tier, with which the seals were compared */
	uint64_t checked_ns; /* monotonic: when the log of the tier was read last */
	uint64_t repeated_bytes; /* on this connection, and counted for the rate */
	uint64_t delay_ns;
	unsigned nr_taken;

	struct mutex lock; /* outside that of the worker */
	struct cond changed;
	struct tier_worker *worker GUARDED_BY(lock); /* set by the thread; NULL: not connected */
	bool stop GUARDED_BY(lock), left_behind GUARDED_BY(lock);
	struct flusher_status status GUARDED_BY(lock); /* without sums over the queue */
	struct flush_queue queue GUARDED_BY(lock);
	uint64_t nr_changes GUARDED_BY(lock); /* of seals */
	uint64_t nr_listed GUARDED_BY(lock); /* nr_changes when the seals in the queue were listed */
	uint64_t nr_seen GUARDED_BY(lock); /* nr_changes at the last list of the thread; others list, too */
	/* Counters of reads of the tier's log, for flusher_check(): begun; ended, with the seals updated; requested. */
	uint64_t check_begun GUARDED_BY(lock), check_done GUARDED_BY(lock), check_wanted GUARDED_BY(lock);
	uint64_t check_seen GUARDED_BY(lock); /* check_wanted when the thread last read it */
	uint64_t begun_ns GUARDED_BY(lock); /* monotonic: the flush of queue.current */
	uint64_t done_bytes GUARDED_BY(lock), done_ns GUARDED_BY(lock); /* flushed before it since the mount, and how long
									 * that took */
};

static bool is_running(void *userdata)
{
	struct flusher *f = userdata;
	bool stop;

	mutex_lock(&f->lock);
	stop = f->stop;
	mutex_unlock(&f->lock);
	return !stop;
}

static void set_state(struct flusher *f, enum flusher_state state, int error, const char *reason)
{
	mutex_lock(&f->lock);
	f->status.state = state;
	f->status.error = error;
	snprintf(f->status.reason, sizeof(f->status.reason), "%s", reason);
	mutex_unlock(&f->lock);
}

/* Waits until this time, a request to stop, a change of the seals, or, while connected, a new request to read the log. */
static void wait_until(struct flusher *f, uint64_t until)
{
	uint64_t now = monotonic_ns();

	mutex_lock(&f->lock);
	while (!f->stop && now < until && f->nr_seen == f->nr_changes &&
	       (!f->worker || f->check_seen == f->check_wanted)) {
		cond_wait_for(&f->changed, &f->lock, until - now);
		now = monotonic_ns();
	}
	mutex_unlock(&f->lock);
}

/* --- the seals --- */

struct seal_list {
	struct flush_seal *v;
	size_t nr, room;
};

static void seal_list_release(struct seal_list *l)
{
	free(l->v);
}

static int list_seals(struct flusher *f, struct seal_list *ret)
{
	uint32_t uid = 0, user = 0; /* of the seal before: most follow one of the same user */
	struct ns_seal seal;
	uint64_t ino = 0;
	int r;

	while ((r = ns_next_seal(f->fs->db, ino, &ino, &seal)) > 0) {
		if (!seal.is_complete)
			continue;
		if (seal.uid != uid)
			user = subuids_user(seal.uid);
		uid = seal.uid;
		r = list_grow(&ret->v, ret->nr, &ret->room, sizeof(*ret->v));
		if (r < 0)
			return r;
		ret->v[ret->nr++] =
			(struct flush_seal){ .ino = ino, .sealed_ns = seal.sealed_ns, .bytes = seal.bytes, .user = user };
	}
	return r;
}

static void mark_uncompared(struct flusher *f) REQUIRES(f->lock)
{
	for (size_t i = 0; i < f->queue.nr; i++)
		f->queue.v[i].is_compared = false;
}

/* Compares the seals with the manifests in the tier. */
static void compare_seals(struct flusher *f, const struct tier_worker *idle) REQUIRES(f->lock)
{
	for (size_t i = 0; i < f->queue.nr; i++) {
		struct flush_seal *s = &f->queue.v[i];

		if (s->is_compared)
			continue;
		s->is_in_tier = tier_worker_has(idle, s->ino, s->sealed_ns);
		s->is_removed = tier_worker_was_removed(idle, s->ino, s->sealed_ns);
		s->is_compared = true;
	}
	f->status.is_known = true;
}

/* Updates the queue from the store and, with an idle worker, from the manifests in the tier. Any thread. */
static int update_seals(struct flusher *f, const struct tier_worker *idle)
{
	_cleanup_(seal_list_release) struct seal_list l = { 0 };
	uint64_t nr_changes;
	int r;

	mutex_lock(&f->lock);
	nr_changes = f->nr_changes;
	mutex_unlock(&f->lock);
	r = list_seals(f, &l);
	if (r < 0)
		return log_errno(r, "sealed directories: cannot list");
	mutex_lock(&f->lock);
	if (nr_changes >= f->nr_listed) { /* else another thread has a newer list */
		flush_queue_replace(&f->queue, TAKE(l.v), l.nr);
		f->nr_listed = nr_changes;
	}
	if (idle)
		compare_seals(f, idle);
	mutex_unlock(&f->lock);
	return 0;
}

/* The same, for the flusher's thread. */
static int update_own_seals(struct flusher *f)
{
	struct tier_worker *idle;

	mutex_lock(&f->lock);
	f->nr_seen = f->nr_changes;
	idle = f->worker;
	if (idle && tier_worker_generation(idle) != f->generation) { /* it may have removed some */
		f->generation = tier_worker_generation(idle);
		mark_uncompared(f);
	}
	mutex_unlock(&f->lock);
	return update_seals(f, idle);
}

/* false: none is due before *ret_due. */
static bool take_next(struct flusher *f, struct flush_seal *ret, uint64_t *ret_due)
{
	bool any;

	mutex_lock(&f->lock);
	any = flush_queue_take(&f->queue, monotonic_ns(), ret, ret_due);
	mutex_unlock(&f->lock);
	return any;
}

static bool has_seal(struct flusher *f, uint64_t ino, int64_t sealed_ns)
{
	const struct flush_seal *s;
	bool has;

	mutex_lock(&f->lock);
	s = flush_queue_find(&f->queue, ino);
	has = s && s->sealed_ns == sealed_ns;
	mutex_unlock(&f->lock);
	return has;
}

/* --- the tier --- */

static void disconnect(struct flusher *f)
{
	struct tier_worker *w;
	bool has_ended;

	mutex_lock(&f->lock);
	w = f->worker; /* f->worker stays set, so that a request to stop cancels it */
	mutex_unlock(&f->lock);
	if (!w)
		return;
	has_ended = tier_worker_end(w, PATIENCE_NS);
	mutex_lock(&f->lock);
	f->worker = NULL;
	f->left_behind |= !has_ended;
	mark_uncompared(f);
	mutex_unlock(&f->lock);
	tier_worker_free(w);
}

/*
 * Disconnects, and waits before the next attempt. All users see `what`; only the log has `path`, if the failure is that
 * of a checkpoint: a directory above it may be private.
 */
static void wait_and_retry(struct flusher *f, int error, const char *what, const char *path, const char *reason)
{
	uint64_t random = 0, delay;
	char text[FLUSHER_REASON_MAX];
	uint64_t until;

	disconnect(f);
	if (!is_running(f))
		return;
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = monotonic_ns();
	f->delay_ns = f->delay_ns == 0 ? FIRST_DELAY_NS : MIN(2 * f->delay_ns, LAST_DELAY_NS);
	delay = f->delay_ns / 2 + random % (f->delay_ns / 2); /* random, so that nodes do not retry at the same time */
	snprintf(text, sizeof(text), "%s: %s", what, reason);
	log_warning("tier %s: %s: %s; retrying in %.1f s", f->url, path ? path : what, reason, (double)delay / 1e9);
	mutex_lock(&f->lock);
	f->status.nr_failures++;
	mutex_unlock(&f->lock);
	set_state(f, FLUSHER_RETRYING, error, text);
	until = monotonic_ns() + delay;
	while (is_running(f) && monotonic_ns() < until) {
		wait_until(f, until);
		if (update_own_seals(f) < 0) /* for the statistics */
			sleep(1);
	}
}

/* Flushes nothing until the next mount. */
static void stop_flushing(struct flusher *f, int error, const char *reason)
{
	disconnect(f);
	log_error("tier %s: flushing has stopped: %s", f->url, reason);
	set_state(f, FLUSHER_STOPPED, error, reason);
	while (is_running(f)) {
		wait_until(f, UINT64_MAX);
		if (update_own_seals(f) < 0) /* for the statistics */
			sleep(1);
	}
}

static const char another_machine[] =
	"another machine has flushed to it as this store: it has a copy of the store, or replaces this machine. Unmount one "
	"of them; to continue here, mount once with tier_takeover";

/* Did this machine put the last manifest of this store? 0; -ENOTUNIQ: no. */
static int compare_with_note(struct flusher *f, const struct tier_written *last)
{
	int r = flush_note_compare(f->has_note ? &f->note : NULL, f->url, last);

	if (r == -ENOENT)
		r = last->ino != 0 && has_seal(f, last->ino, last->sealed_ns) ? 0 : -ENOTUNIQ;
	return r;
}

static int start_worker(struct flusher *f)
{
	struct tier_worker *w;
	int r = tier_worker_new(
		&(struct tier_worker_conf){ .url = f->url, .config_file = f->config_file, .writer = f->writer }, &w);

	if (r < 0)
		return r;
	f->repeated_bytes = 0;
	mutex_lock(&f->lock);
	f->worker = w;
	if (f->stop)
		tier_worker_cancel(w);
	mutex_unlock(&f->lock);
	return 0;
}

/* 1: connected; 0: not connected. */
static int connect_tier(struct flusher *f)
{
	char reason[TIER_PROBE_REASON_MAX] = "";
	struct tier_written last;
	int r = start_worker(f);

	if (r < 0) {
		wait_and_retry(f, r, "cannot start a thread", NULL, strerror(-r));
		return 0;
	}
	r = tier_worker_open(f->worker, !f->is_probed, reason);
	if (r == -ECANCELED)
		return 0;
	if (r == -EOPNOTSUPP && !f->is_probed) {
		stop_flushing(f, r, reason);
		return 0;
	}
	if (r < 0) {
		wait_and_retry(f, r, "not usable", NULL, reason);
		return 0;
	}
	f->is_probed = true;
	r = update_own_seals(f);
	if (r < 0) {
		wait_and_retry(f, r, "cannot list the sealed directories", NULL, strerror(-r));
		return 0;
	}
	f->checked_ns = monotonic_ns();
	tier_worker_last(f->worker, &last);
	f->number = last.number;
	r = f->conf.takes_over ? 0 : compare_with_note(f, &last);
	if (r < 0) {
		stop_flushing(f, r, another_machine);
		return 0;
	}
	return 1;
}

/* --- a checkpoint --- */

/* Reads a checkpoint from the store. */
struct source {
	struct flusher *f;
	uint64_t ino;
	int64_t sealed_ns;
	const struct tier_sink *to;
	int error; /* of the store; not of the tier */
	bool is_gone; /* it was unsealed meanwhile */

	/* The current record. */
	struct content *c; /* NULL: it has no chunks */
	uint64_t off;
	const struct content_piece *pieces;
	size_t nr;
	struct content_chunk chunks[CATALOG_PIECES_MAX];
};

static void set_pieces(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr)
{
	struct source *s = userdata;

	s->c = c;
	s->off = off;
	s->pieces = p;
	s->nr = nr;
}

/* Is the flush still wanted? A directory that was unsealed meanwhile is not flushed to its end. */
static bool is_wanted(void *userdata)
{
	struct source *s = userdata;
	struct ns_seal seal;
	int r = ns_get_seal(s->f->fs->db, s->ino, &seal);

	s->is_gone |= r == 0 || (r > 0 && (!seal.is_complete || seal.sealed_ns != s->sealed_ns));
	return !s->is_gone && is_running(s->f);
}

static int put_record(void *userdata, const void *p, size_t len)
{
	struct source *s = userdata;
	uint64_t bytes = 0;
	int r;

	(void)is_wanted(s);
	if (s->is_gone)
		return -ESTALE;
	r = s->to->put(s->to->userdata, p, len);
	for (size_t i = 0; i < s->nr; i++)
		bytes += s->pieces[i].len;
	s->nr = 0;
	mutex_lock(&s->f->lock);
	s->f->queue.current_bytes += bytes;
	mutex_unlock(&s->f->lock);
	if (r < 0)
		s->to = NULL; /* marks a failure of the sink, not of the store */
	return r;
}

static int write_catalog(void *userdata, const struct tier_sink *to)
{
	struct source *s = userdata;
	int r;

	s->to = to;
	r = catalog_write_located(s->f->fs, s->ino, &(struct catalog_sink){ put_record, s }, set_pieces);
	s->is_gone |= s->to && (r == -ENODATA || r == -ESTALE);
	if (r < 0 && s->to && !s->is_gone)
		s->error = r;
	return r;
}

/* The wants are in the order of the pieces, except that chunks of varied lengths come last. */
static int read_chunks(void *userdata, const struct tier_want *wants, size_t nr)
{
	struct source *s = userdata;
	uint64_t off = s->off, len = 0, repeated;
	size_t at = 0, seen = 0;
	int r;

	assert(nr <= ARRAY_SIZE(s->chunks));
	for (size_t i = 0; i < nr; i++) {
		for (seen = 0; seen < s->nr; seen++) {
			const struct content_piece *p = &s->pieces[at];

			if (p->chunk_len == wants[i].len && fp_equal(p->fp, wants[i].fp))
				break;
			off += p->len;
			if (++at == s->nr) {
				at = 0;
				off = s->off;
			}
		}
		if (seen == s->nr)
			return s->error = -EINVAL; /* not a chunk of this record */
		s->chunks[i] = (struct content_chunk){ off, wants[i].fp, wants[i].len, wants[i].buf };
		len += wants[i].len;
	}
	repeated = tier_worker_repeated_bytes(s->f->worker);
	io_rate_wait_while(s->f->rate, len + repeated - s->f->repeated_bytes, is_wanted, s);
	s->f->repeated_bytes = repeated;
	r = content_read_chunks(s->c, s->chunks, nr);
	if (r < 0)
		s->error = r;
	return r;
}

static void record_start(struct flusher *f, const struct flush_seal *s)
{
	mutex_lock(&f->lock);
	f->status.state = FLUSHER_FLUSHING; /* the reason of a failure stays until a flush succeeds */
	f->queue.current = s->ino;
	f->queue.current_bytes = 0;
	f->begun_ns = monotonic_ns();
	mutex_unlock(&f->lock);
}

static void record_end(struct flusher *f, const struct flush_seal *s, bool is_done, const struct tier_flushed *sums)
{
	mutex_lock(&f->lock);
	f->done_bytes += f->queue.current_bytes;
	f->done_ns += monotonic_ns() - f->begun_ns;
	f->queue.current = 0;
	if (is_done) {
		f->checked_ns = monotonic_ns();
		f->check_done = ++f->check_begun; /* a flush reads the log at its end */
		flush_queue_done(&f->queue, s);
		f->status.error = 0;
		f->status.reason[0] = '\0';
		f->status.nr_flushed += !sums->was_there;
		f->status.sent_bytes += sums->bytes;
		f->status.sent_chunks += sums->chunks;
		f->status.nr_packs += sums->packs;
	}
	mutex_unlock(&f->lock);
}

/* Postpones a checkpoint that cannot be flushed, so that others are. error 0: it changed during the flush. */
static void postpone(struct flusher *f, const struct flush_seal *s, const char *path, int error)
{
	uint64_t delay = error == -EFBIG ? TOO_LARGE_DELAY_NS : error < 0 ? UNREADABLE_DELAY_NS : CHANGED_DELAY_NS;
	struct flush_seal *own;
	int r;

	if (error < 0)
		log_warning("%s: cannot flush to the tier: %s; retrying in %u s", path, strerror(-error),
			    (unsigned)(delay / NS_PER_S));
	mutex_lock(&f->lock);
	own = flush_queue_find(&f->queue, s->ino);
	if (own && own->sealed_ns == s->sealed_ns)
		own->error = error;
	r = flush_queue_delay(&f->queue, s->ino, monotonic_ns(), delay, MAX(delay, UNREADABLE_DELAY_NS));
	f->status.nr_failures += error < 0;
	mutex_unlock(&f->lock);
	if (r < 0)
		sleep(1);
}

static int save_note(struct flusher *f, const struct flush_seal *s)
{
	int r;

	flush_note_add(&f->note, f->url, f->number, s->ino, s->sealed_ns);
	f->has_note = true; /* even if this fails: the note may have been written */
	r = flush_note_save(f->fs->engine, &f->note);
	return r;
}

/* 1; 0: unsealed meanwhile; <0 */
static int prepare_checkpoint(struct flusher *f, const struct flush_seal *s, struct tier_checkpoint *c, struct buf *path)
{
	struct ns_seal seal;
	int r = ns_get_seal(f->fs->db, s->ino, &seal);

	if (r == 0 || (r > 0 && (!seal.is_complete || seal.sealed_ns != s->sealed_ns)))
		return 0;
	if (r > 0)
		r = dir_path_prepend(f->fs, s->ino, path);
	if (r < 0)
		return r == -ENOENT ? 0 : r == -ELOOP ? -ENAMETOOLONG : r; /* removed, or renamed meanwhile */
	buf_add_u8(path, 0);
	c->ino = s->ino;
	c->sealed_ns = s->sealed_ns;
	c->files = seal.files;
	c->directories = seal.directories;
	c->bytes = seal.bytes;
	memcpy(c->root, seal.root, sizeof(c->root));
	r = buf_error(path);
	c->path = (const char *)path->data;
	return r < 0 ? r : 1;
}

/* The next connection compares all seals with the tier again. */
static void forget_what_is_in_tier(struct flusher *f)
{
	mutex_lock(&f->lock);
	for (size_t i = 0; i < f->queue.nr; i++)
		f->queue.v[i].is_in_tier = false;
	mutex_unlock(&f->lock);
}

struct seal_name {
	char text[40];
};

static struct seal_name name_of(const struct flush_seal *s)
{
	struct seal_name name;

	snprintf(name.text, sizeof(name.text), "directory %" PRIu64, s->ino);
	return name;
}

/* The store failed to read the checkpoint, or the tier to write it. */
static void handle_failure(struct flusher *f, const struct flush_seal *s, const struct source *from, const char *path,
			   int r)
{
	bool has_failed;

	if (r == -ECANCELED)
		return;
	has_failed = tier_worker_has_failed(f->worker);
	if (!has_failed || from->is_gone || from->error < 0 || r == -ENOMEM) {
		bool has_changed = from->is_gone || from->error == -ESTALE; /* unsealed, or recoded meanwhile */

		if (has_failed)
			disconnect(f);
		postpone(f, s, path, has_changed ? 0 : from->error < 0 ? from->error : r);
		return;
	}
	mutex_lock(&f->lock);
	flush_queue_failed(&f->queue, s);
	mutex_unlock(&f->lock);
	/* It may be an own manifest, put by an attempt whose response was lost. The next connection checks that. */
	if (r == -ENOTUNIQ && ++f->nr_taken == TAKEN_MAX) {
		stop_flushing(f, r, another_machine);
		return;
	}
	if (r == -ENOENT)
		forget_what_is_in_tier(f);
	if (r == -ENOTUNIQ)
		disconnect(f);
	else
		wait_and_retry(f, r, name_of(s).text, path,
			       r == -ENOENT ? "objects were deleted from the tier: comparing all checkpoints again" :
			       r == -ESTALE ? "a collection has deleted packs that it needs" :
			       r == -EEXIST ? "something that is not an object has the name of its manifest" :
					      strerror(-r));
}

static void flush_seal(struct flusher *f, const struct flush_seal *s)
{
	_cleanup_(freep) struct source *from = calloc(1, sizeof(*from));
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct tier_checkpoint c = { .catalog = write_catalog, .read = read_chunks, .userdata = from };
	struct tier_flushed sums = { 0 };
	int r = from ? prepare_checkpoint(f, s, &c, &path) : -ENOMEM;

	if (r == 0)
		return;
	if (r < 0) {
		postpone(f, s, name_of(s).text, r);
		return;
	}
	r = save_note(f, s);
	if (r < 0) {
		wait_and_retry(f, r, "cannot prepare a checkpoint", NULL, strerror(-r));
		return;
	}
	from->f = f;
	from->ino = s->ino;
	from->sealed_ns = s->sealed_ns;
	record_start(f, s);
	r = tier_worker_flush(f->worker, &c, &sums);
	record_end(f, s, r == 0, &sums);
	if (r < 0) {
		handle_failure(f, s, from, c.path[0] ? c.path : "/", r);
		return;
	}
	f->number = MAX(f->number, sums.number);
	f->delay_ns = 0;
	f->nr_taken = 0;
	log_info("%s: flushed to tier %s; sent %" PRIu64 " chunks, %" PRIu64 " bytes in %" PRIu64 " packs",
		 c.path[0] ? c.path : "/", f->url, sums.chunks, sums.bytes, sums.packs);
}

/* --- what was removed --- */

/* When the log of the tier is to be read next. */
static uint64_t next_check_ns(struct flusher *f)
{
	bool is_wanted;

	mutex_lock(&f->lock);
	f->check_seen = f->check_wanted;
	is_wanted = f->check_wanted > f->check_done;
	mutex_unlock(&f->lock);
	return f->checked_ns + (is_wanted ? CHECK_AGAIN_NS : CHECK_NS);
}

/*
 * Reads the log, which records the checkpoints that a collection has removed. A failure changes nothing: the seals in
 * the tier were durable there, and the next flush reports the cause.
 */
static void check_tier(struct flusher *f)
{
	uint64_t check;
	int r;

	mutex_lock(&f->lock);
	check = ++f->check_begun;
	mutex_unlock(&f->lock);
	r = tier_worker_follow(f->worker);
	if (r == -ECANCELED)
		return;
	f->checked_ns = monotonic_ns();
	if (tier_worker_has_failed(f->worker)) {
		disconnect(f); /* the next connection compares everything */
		return;
	}
	if (update_own_seals(f) < 0)
		return;
	mutex_lock(&f->lock);
	f->check_done = check;
	mutex_unlock(&f->lock);
}

/* --- the thread --- */

static void *work(void *userdata)
{
	struct flusher *f = userdata;
	struct flush_seal next;
	uint64_t due, check;

	pthread_setname_np(pthread_self(), "ckptfs-flush");
	while (is_running(f)) {
		int r = update_own_seals(f);

		if (r == 0 && !f->worker && connect_tier(f) == 0)
			continue;
		if (r < 0) {
			wait_and_retry(f, r, "cannot list the sealed directories", NULL, strerror(-r));
		} else if (take_next(f, &next, &due)) {
			flush_seal(f, &next);
		} else {
			f->delay_ns = 0;
			set_state(f, FLUSHER_IDLE, 0, "");
			check = next_check_ns(f);
			if (check <= monotonic_ns())
				check_tier(f);
			else
				wait_until(f, MIN(due, check));
		}
	}
	disconnect(f);
	return NULL;
}

/* --- interface --- */

int flusher_new(struct fs *fs, const struct flusher_conf *conf, struct flusher **ret)
{
	struct flusher *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	cond_init(&f->changed);
	f->fs = fs;
	f->conf = *conf;
	f->url = strdup(conf->url);
	f->conf.url = f->url;
	f->config_file = conf->config_file ? strdup(conf->config_file) : NULL;
	r = f->url && !f->config_file == !conf->config_file ? 0 : -ENOMEM;
	tier_key_init(&f->writer.key, fs->key->kind, engine_secret(fs->engine));
	memcpy(f->writer.store, engine_store_id(fs->engine), sizeof(f->writer.store));
	f->writer.known_max = conf->memory / SLOT_BYTES_MAX;
	f->writer.has_store = true;
	f->writer.store_dirfd = engine_root(fs->engine);
	if (r == 0 && conf->rate > 0)
		r = io_rate_new(conf->rate, &f->rate);
	if (r == 0) {
		r = flush_note_load(fs->engine, &f->note);
		f->has_note = r > 0;
		r = MIN(r, 0);
	}
	if (r < 0) {
		flusher_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

int flusher_start(struct flusher *f)
{
	int r;

	if (!f)
		return 0;
	r = -pthread_create(&f->thread, NULL, work, f);
	f->has_thread = r == 0;
	return r;
}

/* Reports the checkpoints that are not in the tier. The next mount flushes them. */
static void report_unflushed(struct flusher *f)
{
	struct flusher_status s;

	flusher_status(f, &s);
	if (s.nr_sealed > s.nr_in_tier)
		log_notice("tier %s: not%s flushed: %" PRIu64 " of %s%s%s", f->url, s.is_known ? "" : " known to be",
			   s.nr_sealed - s.nr_in_tier, human_nr(s.nr_sealed, "sealed checkpoint").s,
			   s.reason[0] ? ": " : "", s.reason);
}

bool flusher_stop(struct flusher *f)
{
	if (!f || !f->has_thread)
		return !f || !f->left_behind;
	report_unflushed(f);
	mutex_lock(&f->lock);
	f->stop = true;
	if (f->worker)
		tier_worker_cancel(f->worker);
	cond_broadcast(&f->changed);
	mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->has_thread = false;
	if (f->left_behind)
		log_warning("tier %s: does not answer; requests in flight are repeated after the next mount", f->url);
	return !f->left_behind;
}

void flusher_free(struct flusher *f)
{
	if (!f)
		return;
	flusher_stop(f);
	io_rate_free(f->rate);
	cond_release(&f->changed);
	mutex_release(&f->lock);
	flush_queue_release(&f->queue);
	free(f->url);
	free(f->config_file);
	free(f);
}

void flusher_wake(struct flusher *f)
{
	if (!f)
		return;
	mutex_lock(&f->lock);
	f->nr_changes++;
	cond_broadcast(&f->changed);
	mutex_unlock(&f->lock);
}

const char *flusher_where(const struct flusher *f)
{
	return f->url;
}

const char *flusher_state_name(enum flusher_state state)
{
	static const char *const names[] = {
		[FLUSHER_CONNECTING] = "connecting", [FLUSHER_IDLE] = "idle",	    [FLUSHER_FLUSHING] = "flushing",
		[FLUSHER_RETRYING] = "retrying",     [FLUSHER_STOPPED] = "stopped",
	};

	return names[state];
}

/* At the mean rate since the mount; 0: unknown. */
static uint64_t estimate_ns(const struct flusher *f, uint64_t bytes) REQUIRES(f->lock)
{
	uint64_t done = f->done_bytes + (f->queue.current > 0 ? f->queue.current_bytes : 0);
	uint64_t ns = f->done_ns + (f->queue.current > 0 ? monotonic_ns() - f->begun_ns : 0);

	return done > 0 ? (uint64_t)((double)bytes * (double)ns / (double)done) : 0;
}

void flusher_status(struct flusher *f, struct flusher_status *ret)
{
	uint64_t waits = 0;
	bool is_current;

	*ret = (struct flusher_status){ 0 };
	if (!f)
		return;
	mutex_lock(&f->lock);
	is_current = f->nr_listed == f->nr_changes;
	mutex_unlock(&f->lock);
	if (!is_current)
		(void)update_seals(
			f, NULL); /* the thread does not do this during a flush; on failure the previous list is reported */
	mutex_lock(&f->lock);
	*ret = f->status;
	ret->nr_sealed = f->queue.nr;
	for (size_t i = 0; i < f->queue.nr; i++) {
		const struct flush_seal *s = &f->queue.v[i];
		uint64_t since = (uint64_t)MAX(s->sealed_ns, INT64_C(1));

		if (s->is_removed) {
			ret->nr_sealed--;
			continue;
		}
		ret->nr_in_tier += s->is_in_tier;
		ret->waiting_bytes += flush_queue_bytes_left(&f->queue, s);
		if (!s->is_in_tier)
			ret->waiting_since_ns =
				MIN(ret->waiting_since_ns > 0 ? ret->waiting_since_ns : UINT64_MAX, since);
		if (s->error < 0 && ret->error == 0) {
			ret->error = s->error;
			snprintf(ret->reason, sizeof(ret->reason), "directory %" PRIu64 ": cannot flush: %s", s->ino,
				 strerror(-s->error));
		}
	}
	ret->left_ns = estimate_ns(f, ret->waiting_bytes);
	if (f->worker)
		waits = tier_worker_waits_ns(f->worker);
	mutex_unlock(&f->lock);
	if (waits >= HUNG_NS)
		snprintf(ret->reason, sizeof(ret->reason), "the tier has not answered for %" PRIu64 " s",
			 waits / NS_PER_S);
}

bool flusher_check(struct flusher *f, uint64_t *check)
{
	bool is_awaited;

	mutex_lock(&f->lock);
	*check = MIN(*check, f->check_begun + 1); /* one that begins after this request */
	is_awaited = *check > f->check_done && f->status.state == FLUSHER_IDLE;
	if (is_awaited && *check > f->check_wanted) {
		f->check_wanted = *check;
		cond_broadcast(&f->changed);
	}
	mutex_unlock(&f->lock);
	return is_awaited;
}

int flusher_find(struct flusher *f, uint64_t ino, struct flusher_checkpoint *ret)
{
	struct flusher_checkpoint c = { 0 };
	struct ns_seal seal;
	const struct flush_seal *s;
	int r = ns_get_seal(f->fs->db, ino, &seal);

	if (r <= 0 || !seal.is_complete)
		return r < 0 ? r : -ENODATA;
	c.bytes = seal.bytes;
	mutex_lock(&f->lock);
	s = flush_queue_find(&f->queue, ino);
	if (s && s->sealed_ns == seal.sealed_ns) { /* else not listed yet */
		c.is_in_tier = s->is_in_tier;
		c.is_removed = s->is_removed;
		c.error = s->error;
		c.flushed_bytes = s->bytes - flush_queue_bytes_left(&f->queue, s);
		c.left_ns = estimate_ns(f, flush_queue_bytes_until(&f->queue, s));
	}
	mutex_unlock(&f->lock);
	*ret = c;
	return 0;
}
