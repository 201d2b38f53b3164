/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/away/dropped.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "store/engine.h"
#include "store/tier/recall/tier_recall.h"

#define CACHE_MAX MiB(64) /* of content, and as much for manifests */

struct away {
	struct tier_recall *recall;
	char *url;
	bool has_stopped, is_left_behind; /* used by the thread that stops it */
};

struct away_file {
	struct tier_place_of_file at; /* constant */
	struct tier_ahead ahead;
};

int away_new(struct fs *fs, const struct options *o, struct away **ret)
{
	struct tier_recall_conf conf = {
		.url = o->tier,
		.config_file = o->tier_config,
		.nr_in_flight = (unsigned)o->tier_parallel,
		.cache = MIN(o->engine.cache / 4, CACHE_MAX),
		.trees = MIN(o->engine.cache / 4, CACHE_MAX),
		.timeout_ns = o->tier_timeout_ns,
	};
	struct away *a;
	int r;

	*ret = NULL;
	if (!o->tier)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	static_assert(sizeof(conf.store) == NS_STORE_ID_LEN, "ids of stores");
	memcpy(conf.store, engine_store_id(fs->engine), sizeof(conf.store));
	a->url = strdup(o->tier);
	r = a->url ? tier_recall_new(&conf, &a->recall) : -ENOMEM;
	if (r < 0) {
		away_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

bool away_stop(struct away *a)
{
	if (!a || a->has_stopped)
		return !a || !a->is_left_behind;
	a->has_stopped = true;
	a->is_left_behind = !tier_recall_stop(a->recall);
	if (a->is_left_behind)
		log_warning("tier %s: does not answer; reads of dropped checkpoints have ended", a->url);
	return !a->is_left_behind;
}

void away_free(struct away *a)
{
	if (!a || !away_stop(a))
		return;
	tier_recall_free(a->recall);
	free(a->url);
	free(a);
}

struct tier_recall *away_recall(struct away *a)
{
	return a->recall;
}

const char *away_where(const struct away *a)
{
	return a->url;
}

static bool is_cancelled(_unused_ void *userdata)
{
	return cancel_check() < 0;
}

struct tier_waiter away_waiter(void)
{
	return (struct tier_waiter){ .is_interrupted = is_cancelled };
}

int away_is_dropped(struct fs *fs, uint64_t dir)
{
	struct ns_away at;
	int r = engine_expects_away(fs->engine) ? ns_get_away(fs->db, dir, &at) : 0;

	return r == -EBADMSG ? 1 : r; /* a damaged record still tells that */
}

/* --- reading --- */

void away_file_free(struct away_file *f)
{
	free(f);
}

/* The state of an open file, which the first read makes. */
static int get_state(struct fs *fs, uint64_t ino, struct away_file *_Atomic *state, struct away_file **ret)
{
	struct away_file *f = atomic_load(state), *before = NULL;
	struct ns_away at;
	int r;

	*ret = f;
	if (f)
		return 0;
	r = ns_get_away(fs->db, ino, &at);
	if (r <= 0)
		return r < 0 ? r : -EIO;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->at = (struct tier_place_of_file){ .number = at.number, .index = at.index };
	static_assert(sizeof(f->at.check) == sizeof(at.check), "a digest");
	memcpy(f->at.check, at.check, sizeof(at.check));
	*ret = f;
	if (!atomic_compare_exchange_strong(state, &before, f)) {
		free(f);
		*ret = before;
	}
	return 0;
}

static void report(struct fs *fs, uint64_t ino, size_t len, uint64_t off, const struct tier_fault *fault, int r)
{
	static struct log_limit said;

	log_limited(&said, LOG_LEVEL_ERROR,
		    "inode %" PRIu64 ": cannot read %zu bytes at %" PRIu64
		    ", which were dropped here: tier %s: %s %s%s%s%s",
		    ino, len, off, away_where(fs->away), fault->object.s, fault->what,
		    r == -ETIMEDOUT ? " (tier_timeout=)" : "",
		    r == -ENOENT || r == -EBADMSG || r == -ETIMEDOUT || r == -ESTALE ? "" : ": ",
		    r == -ENOENT || r == -EBADMSG || r == -ETIMEDOUT || r == -ESTALE ? "" : strerror(-r));
}

ssize_t away_read(struct fs *fs, uint64_t ino, struct away_file *_Atomic *state, void *p, size_t len, uint64_t off,
		  bool may_wait)
{
	static struct log_limit said;
	struct tier_waiter w = away_waiter();
	struct tier_fault fault;
	struct away_file *f;
	ssize_t n;
	int r;

	if (!fs->away) {
		log_limited(&said, LOG_LEVEL_ERROR,
			    "inode %" PRIu64
			    ": its bytes were dropped here, and are in a tier: mount the store with tier=",
			    ino);
		return -EIO;
	}
	w.must_not_wait = !may_wait;
	r = get_state(fs, ino, state, &f);
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	n = tier_recall_read(fs->away->recall, &f->at, p, len, off, &f->ahead, &w, &fault);
	if (n >= 0 || n == -EINTR || n == -EINPROGRESS || n == -ENOMEM)
		return n;
	report(fs, ino, len, off, &fault, (int)n);
	return -EIO;
}

/* --- after a crash --- */

static int erase_bytes(struct fs *fs, uint64_t ino)
{
	struct ns_content st;
	struct content *c;
	int r = content_peek(fs->engine, ino, &st);

	if (r < 0 || st.mapped == 0)
		return r;
	r = content_open(fs->engine, ino, &c);
	if (r < 0)
		return r;
	r = content_send_away(c);
	content_close(c);
	return r < 0 ? r : 1;
}

/* What cannot be erased stays, and is read from the tier like the rest. */
static void erase_rest(struct fs *fs, uint64_t dir, uint64_t number)
{
	uint64_t ino = 0, last, nr = 0;
	struct ns_away at;
	int r, one;

	for (;;) {
		last = ino;
		r = ns_next_away(fs->db, last, &ino, &at);
		if (r == 0 || (r < 0 && ino == last))
			break;
		if (r < 0 || at.number != number || at.index == 0)
			continue;
		one = erase_bytes(fs, ino);
		if (one < 0)
			log_warning("inode %" PRIu64 ": cannot erase its bytes, which the tier has: %s", ino,
				    strerror(-one));
		nr += one > 0;
	}
	if (nr > 0)
		log_notice("directory %" PRIu64 ": a drop was interrupted when the store was last in use; erased the bytes "
			   "of %s, which the tier has",
			   dir, human_nr(nr, "file").s);
}

/* A directory is not marked as erased: files without a record are still here, and the next drop continues. */
void away_finish_all(struct fs *fs)
{
	struct ns_seal seal;
	struct ns_away at;
	uint64_t dir = 0;

	if (!engine_expects_away(fs->engine))
		return;
	while (ns_next_seal(fs->db, dir, &dir, &seal) > 0)
		if (ns_get_away(fs->db, dir, &at) > 0 && !at.is_erased)
			erase_rest(fs, dir, at.number);
}
