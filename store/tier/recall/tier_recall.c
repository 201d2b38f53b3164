/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/recall/tier_recall.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/reading/tier_pool.h"
#include "store/tier/reading/tier_tree.h"
#include "store/tier/seals/tier_heads.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_read.h"

#define POOL_THREADS 8u /* requests in flight, unless the caller has another number */

struct loaded {
	struct tier_recalled e; /* the first member */
	struct tier_reader *reader;
	struct tier_tree *tree;
	struct checkpoint *of;
	uint64_t memory;
};

/* A manifest of the store. */
struct checkpoint {
	struct tier_job job; /* loads it */
	struct tier_recall *recall;
	bool is_private; /* for one call at a time, and loaded for each */
	uint64_t number; /* of a private one: changes without users, under the lock */
	struct checkpoint *next;
	/* All below are guarded by the lock. */
	bool is_loading;
	int error; /* of the last attempt to load it */
	unsigned nr_attempts; /* ended */
	struct loaded *loaded; /* NULL: not now */
	unsigned nr_users; /* calls that use it, or wait for it */
	uint64_t used; /* value of the counter at its last use */
};

/* The head of a manifest. */
struct known_seal {
	uint64_t number, ino;
	int64_t sealed_ns;
};

struct tier_recall {
	struct tier_recall_conf conf; /* constant, as the next two */
	char *url, *config_file;
	struct tier_job find_job;
	/* Used by that job only. */
	struct tier_log log;
	bool has_log;
	struct mutex lock; /* a leaf, except for that of the pool */
	struct cond changed;
	bool stop GUARDED_BY(lock);
	struct tier_pool *pool GUARDED_BY(lock); /* set once, as the next two; NULL: not used yet */
	struct tier *tier GUARDED_BY(lock);
	struct tier_cache *cache GUARDED_BY(lock);
	bool is_opening GUARDED_BY(lock);
	struct checkpoint *checkpoints GUARDED_BY(lock); /* never removed: as many as were used */
	uint64_t trees GUARDED_BY(lock), nr_uses GUARDED_BY(lock);
	bool is_loading GUARDED_BY(lock); /* one at a time: each may need hundreds of MiB */
	struct known_seal *seals GUARDED_BY(lock); /* of the last list, by number */
	size_t nr_seals GUARDED_BY(lock);
	bool is_finding GUARDED_BY(lock);
	unsigned nr_finds GUARDED_BY(lock); /* ended */
	int find_error GUARDED_BY(lock); /* of the last one */
};

/* --- opening, on a thread of the pool --- */

static int open_tier(struct tier_recall *r, struct tier **ret_tier, struct tier_cache **ret_cache)
{
	const struct tier_conf conf = { .nr_in_flight = r->conf.nr_in_flight, .config_file = r->config_file };
	int k = r->conf.open ? r->conf.open(r->url, ret_tier) : tier_open(r->url, &conf, ret_tier);

	if (k < 0)
		return k;
	k = tier_cache_new(*ret_tier, r->pool,
			   &(struct tier_cache_conf){ .bytes = r->conf.cache, .timeout_ns = r->conf.timeout_ns },
			   ret_cache);
	if (k < 0)
		tier_close(*ret_tier);
	return k;
}

/* The first job opens the tier, others wait for it. After a failure the next one tries again. */
static int ensure_open(struct tier_recall *r)
{
	struct tier_cache *cache;
	struct tier *tier;
	int k = 0;

	mutex_lock(&r->lock);
	while (r->is_opening && !r->stop)
		cond_wait(&r->changed, &r->lock);
	if (r->stop)
		k = -EIO;
	if (k == 0 && !r->tier) {
		r->is_opening = true;
		mutex_unlock(&r->lock);
		k = open_tier(r, &tier, &cache);
		if (k == -ENOENT || k == -ESTALE || k == -EBADMSG)
			k = -EIO; /* of the tier, not of a manifest in it; tier_open() has logged it */
		mutex_lock(&r->lock);
		r->is_opening = false;
		if (k == 0) {
			r->tier = tier;
			r->cache = cache;
		}
		cond_broadcast(&r->changed);
	}
	mutex_unlock(&r->lock);
	return k;
}

/* --- loading a manifest, on a thread of the pool --- */

static void loaded_free(struct loaded *l)
{
	if (!l)
		return;
	tier_source_free(l->e.source);
	tier_tree_free(l->tree);
	tier_reader_close(l->reader);
	free(l);
}

static void loaded_freep(struct loaded **l)
{
	loaded_free(*l);
}

static int load(struct checkpoint *c, struct loaded **ret)
{
	_cleanup_(loaded_freep) struct loaded *l = calloc(1, sizeof(*l));
	struct tier_recall *r = c->recall;
	const struct tier_manifest *m;
	int k = l ? ensure_open(r) : -ENOMEM;

	if (k == 0)
		k = tier_reader_open(r->tier, tier_manifest_name(r->conf.store, c->number).s, &l->reader);
	if (k < 0)
		return k;
	m = tier_reader_manifest(l->reader);
	k = tier_tree_new(m, &l->tree);
	if (k == 0)
		k = tier_source_new(r->cache, m, tier_reader_key(l->reader), &l->e.source);
	if (k < 0)
		return k;
	if (c->is_private)
		tier_source_read_again(l->e.source);
	l->e.m = m;
	l->e.tree = l->tree;
	l->of = c;
	l->memory = l->tree->memory + m->catalog_len + m->path_len +
		    m->nr_packs * (sizeof(struct tier_pack_ref_disk) + sizeof(void *) + sizeof(struct tier_tables));
	*ret = TAKE(l);
	return 0;
}

/* Takes a private manifest, or the one that was used longest ago, if there are too many. The caller frees it without
 * the lock. */
static struct loaded *drop_oldest(struct tier_recall *r) REQUIRES(r->lock)
{
	struct checkpoint *oldest = NULL;
	struct loaded *l;

	for (struct checkpoint *c = r->checkpoints; c; c = c->next) {
		if (!c->loaded || c->nr_users > 0)
			continue;
		if (c->is_private) {
			oldest = c;
			break;
		}
		if (r->trees > r->conf.trees && c->used < r->nr_uses && (!oldest || c->used < oldest->used))
			oldest = c;
	}
	if (!oldest)
		return NULL;
	l = TAKE(oldest->loaded);
	r->trees -= l->memory;
	return l;
}

static void drop_trees(struct tier_recall *r)
{
	struct loaded *l;

	do {
		mutex_lock(&r->lock);
		l = drop_oldest(r);
		mutex_unlock(&r->lock);
		loaded_free(l);
	} while (l);
}

static void run_load(struct tier_job *job)
{
	struct checkpoint *c = container_of(job, struct checkpoint, job);
	struct tier_recall *r = c->recall;
	struct loaded *l = NULL;
	int k = load(c, &l);

	mutex_lock(&r->lock);
	c->is_loading = r->is_loading = false;
	c->error = k;
	c->nr_attempts++;
	c->loaded = l;
	r->trees += l ? l->memory : 0;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
	drop_trees(r);
}

/* --- listing, on a thread of the pool --- */

struct listing {
	struct tier_recall *r;
	struct buf wanted; /* names of manifests whose heads are not known */
	struct known_seal *v;
	size_t nr, room;
};

static void listing_release(struct listing *l)
{
	buf_release(&l->wanted);
	free(l->v);
}

static int read_log(struct tier_recall *r)
{
	int k = r->has_log ? tier_log_follow(&r->log, NULL, NULL) : -ESTALE;

	if (k != -ESTALE)
		return k;
	tier_log_release(&r->log);
	k = tier_log_read(r->tier, &r->log);
	r->has_log = k == 0;
	if (k < 0)
		tier_log_release(&r->log);
	return k;
}

static int add_seal(struct listing *l, const struct known_seal *s)
{
	int k = list_grow(&l->v, l->nr, &l->room, sizeof(*l->v));

	if (k == 0)
		l->v[l->nr++] = *s;
	return k;
}

/* The heads that an earlier list has read. A number is not used twice for valid manifests (tier_collect.c). */
static const struct known_seal *find_known(struct tier_recall *r, uint64_t number) REQUIRES(r->lock)
{
	for (size_t i = 0; i < r->nr_seals; i++)
		if (r->seals[i].number == number)
			return &r->seals[i];
	return NULL;
}

static int compare_list(struct listing *l, const struct buf *names)
{
	struct tier_recall *r = l->r;
	uint8_t store[TIER_ID_LEN];
	const struct known_seal *s;
	struct known_seal known;
	const char *name;
	uint64_t number;
	int k = 0;

	for (size_t at = 0; at < names->len && k == 0; at += strlen(name) + 1) {
		name = (const char *)names->data + at;
		if (!tier_manifest_name_parse(name, store, &number) || !tier_log_keeps(&r->log, store, number))
			continue;
		mutex_lock(&r->lock);
		s = find_known(r, number);
		known = s ? *s : (struct known_seal){ 0 };
		mutex_unlock(&r->lock);
		if (s)
			k = add_seal(l, &known);
		else
			buf_add(&l->wanted, name, strlen(name) + 1);
	}
	return k < 0 ? k : buf_error(&l->wanted);
}

static int add_head(void *userdata, _unused_ const char *name, int k, const struct tier_manifest *m)
{
	struct listing *l = userdata;

	if (k < 0)
		return k == -EBADMSG || k == -EOPNOTSUPP || k == -ENODATA ? 0 : k; /* it is no checkpoint to read */
	return add_seal(l, &(struct known_seal){ m->number, m->ino, m->sealed_ns });
}

static bool is_stopping(void *userdata)
{
	const struct listing *l = userdata;

	return tier_pool_is_stopping(l->r->pool);
}

/* The list may have manifests that collections have removed, so the log is read after it (tier_collect.c). */
static int list(struct listing *l)
{
	const struct tier_heads_sink to = { add_head, is_stopping, l };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	struct tier_object_name prefix = tier_manifest_name(l->r->conf.store, 0);
	int k = ensure_open(l->r);

	*(strrchr(prefix.s, '/') + 1) = '\0';
	if (k == 0)
		k = tier_list_all(l->r->tier, prefix.s, &names);
	if (k == 0)
		k = read_log(l->r);
	if (k == 0)
		k = compare_list(l, &names);
	if (k == 0)
		k = tier_heads_read(l->r->tier, &l->wanted, &to);
	return k < 0 ? k : is_stopping(l) ? -EIO : 0;
}

static void run_find(struct tier_job *job)
{
	struct tier_recall *r = container_of(job, struct tier_recall, find_job);
	_cleanup_(listing_release) struct listing l = { .r = r };
	int k = list(&l);

	mutex_lock(&r->lock);
	if (k == 0) {
		free(r->seals);
		r->seals = TAKE(l.v);
		r->nr_seals = l.nr;
	}
	r->find_error = k;
	r->is_finding = false;
	r->nr_finds++;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
}

/* --- waiting --- */

/* Waits for a while. The lock is released meanwhile. */
static int await_change(struct tier_recall *r, const struct tier_waiter *w, uint64_t until_ns) REQUIRES(r->lock)
{
	uint64_t now = monotonic_ns();
	bool is_interrupted = false;

	if (r->stop)
		return -EIO;
	if (w && w->must_not_wait)
		return -EINPROGRESS;
	if (now >= until_ns)
		return -ETIMEDOUT;
	cond_wait_for(&r->changed, &r->lock, MIN(until_ns - now, TIER_LOOK_NS));
	if (w && w->is_interrupted) {
		mutex_unlock(&r->lock);
		is_interrupted = w->is_interrupted(w->userdata);
		mutex_lock(&r->lock);
	}
	return is_interrupted ? -EINTR : 0;
}

static int submit(struct tier_recall *r, struct tier_job *job) REQUIRES(r->lock)
{
	int k = r->stop ? -EIO : r->pool ? 0 : tier_pool_new(r->conf.nr_in_flight, &r->pool);

	if (k == 0)
		tier_pool_submit(r->pool, job, TIER_URGENT);
	return k;
}

int tier_recall_find(struct tier_recall *r, uint64_t ino, int64_t sealed_ns, const struct tier_waiter *w,
		     uint64_t *ret_number)
{
	uint64_t until = monotonic_ns() + r->conf.timeout_ns;
	unsigned wanted;
	int k = 0;

	mutex_lock(&r->lock);
	wanted = r->nr_finds + 1 + r->is_finding; /* one that begins after this call */
	while (k == 0 && (int)(r->nr_finds - wanted) < 0) {
		if (!r->is_finding) {
			k = submit(r, &r->find_job);
			r->is_finding = k == 0;
		}
		if (k == 0)
			k = await_change(r, w, until);
	}
	if (k == 0)
		k = r->find_error;
	for (size_t i = 0; i < r->nr_seals && k == 0; i++)
		if (r->seals[i].ino == ino && r->seals[i].sealed_ns == sealed_ns) {
			*ret_number = r->seals[i].number;
			k = 1;
		}
	mutex_unlock(&r->lock);
	return k;
}

static bool is_unused(const struct checkpoint *c)
{
	return c->nr_users == 0 && !c->is_loading && !c->loaded;
}

static int get_checkpoint(struct tier_recall *r, uint64_t number, bool is_private, struct checkpoint **ret)
	REQUIRES(r->lock)
{
	struct checkpoint *c = r->checkpoints;

	while (c && !(c->is_private == is_private && (is_private ? is_unused(c) : c->number == number)))
		c = c->next;
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return -ENOMEM;
		*c = (struct checkpoint){
			.job.run = run_load, .recall = r, .is_private = is_private, .next = r->checkpoints
		};
		r->checkpoints = c;
	}
	c->number = number;
	c->nr_users++;
	c->used = ++r->nr_uses;
	*ret = c;
	return 0;
}

static int await_loaded(struct tier_recall *r, struct checkpoint *c, const struct tier_waiter *w) REQUIRES(r->lock)
{
	uint64_t until = monotonic_ns() + r->conf.timeout_ns;
	unsigned nr_attempts = c->nr_attempts;
	int k = 0;

	while (k == 0 && !c->loaded) {
		if (!c->is_loading && c->nr_attempts != nr_attempts)
			return c->error < 0 ? c->error : -EIO;
		if (!r->is_loading && !(w && w->must_not_wait)) {
			k = submit(r, &c->job);
			c->is_loading = r->is_loading = k == 0;
		}
		if (k == 0)
			k = await_change(r, w, until);
	}
	return k;
}

static const char *cause_of(int k)
{
	return k == -ENOENT	? "is missing" :
	       k == -ESTALE	? "is not the one that was put" :
	       k == -EBADMSG	? "is damaged" :
	       k == -EOPNOTSUPP ? "was written by a newer version" :
	       k == -ETIMEDOUT	? "cannot be read: no answer" :
				  "cannot be read";
}

static int enter(struct tier_recall *r, uint64_t number, bool is_private, const uint8_t *check,
		 const struct tier_waiter *w, struct tier_recalled **ret, const char **why)
{
	struct checkpoint *c;
	int k;

	mutex_lock(&r->lock);
	k = get_checkpoint(r, number, is_private, &c);
	if (k == 0) {
		k = await_loaded(r, c, w);
		if (k == 0 && check && memcmp(c->loaded->e.m->check, check, SHA256_LEN) != 0)
			k = -ESTALE;
		if (k == 0)
			*ret = &c->loaded->e;
		else
			c->nr_users--;
	}
	mutex_unlock(&r->lock);
	if (k < 0)
		drop_trees(r); /* of another digest, or loaded after the last look */
	if (k < 0 && why)
		*why = cause_of(k);
	return k;
}

int tier_recall_enter(struct tier_recall *r, uint64_t number, const uint8_t *check, const struct tier_waiter *w,
		      struct tier_recalled **ret, const char **why)
{
	return enter(r, number, false, check, w, ret, why);
}

int tier_recall_read_again(struct tier_recall *r, uint64_t number, const uint8_t *check, const struct tier_waiter *w,
			   struct tier_recalled **ret, const char **why)
{
	return enter(r, number, true, check, w, ret, why);
}

void tier_recall_leave(struct tier_recall *r, struct tier_recalled *e)
{
	if (!e)
		return;
	mutex_lock(&r->lock);
	container_of(e, struct loaded, e)->of->nr_users--;
	mutex_unlock(&r->lock);
	drop_trees(r);
}

/* --- reading --- */

static ssize_t read_loaded(struct tier_recall *r, const struct tier_recalled *e, struct tier_range *range, void *p,
			   const struct tier_waiter *w, struct tier_fault *fault)
{
	struct tier_bytes bytes = { 0 };
	uint8_t *to = p;
	uint64_t size;
	int k;

	if (range->inode >= e->tree->nr_inodes || !S_ISREG(e->tree->inodes[range->inode].mode))
		return -ESTALE;
	size = e->tree->inodes[range->inode].size;
	if (range->off >= size)
		return 0;
	range->source = e->source;
	range->tree = e->tree;
	range->len = MIN(range->len, (size_t)TIER_READ_MAX);
	range->len = (size_t)MIN((uint64_t)range->len, size - range->off);
	k = tier_cache_read(r->cache, range, w, &bytes, fault);
	if (k < 0)
		return k;
	for (size_t i = 0; i < bytes.nr; i++) {
		memcpy(to, bytes.iov[i].iov_base, bytes.iov[i].iov_len);
		to += bytes.iov[i].iov_len;
	}
	tier_bytes_release(r->cache, &bytes);
	return (ssize_t)range->len;
}

ssize_t tier_recall_read(struct tier_recall *r, const struct tier_place_of_file *at, void *p, size_t len, uint64_t off,
			 struct tier_ahead *ahead, const struct tier_waiter *w, struct tier_fault *fault)
{
	struct tier_range range = { .inode = at->index, .off = off, .len = len, .ahead = ahead };
	struct tier_recalled *e;
	ssize_t n;

	*fault = (struct tier_fault){ .object = tier_manifest_name(r->conf.store, at->number), .what = "cannot be read" };
	n = tier_recall_enter(r, at->number, at->check, w, &e, &fault->what);
	if (n < 0)
		return n;
	n = read_loaded(r, e, &range, p, w, fault);
	tier_recall_leave(r, e);
	return n;
}

/* --- the whole --- */

int tier_recall_new(const struct tier_recall_conf *conf, struct tier_recall **ret)
{
	struct tier_recall *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	mutex_init(&r->lock);
	cond_init(&r->changed);
	r->conf = *conf;
	r->conf.nr_in_flight = conf->nr_in_flight > 0 ? conf->nr_in_flight : POOL_THREADS;
	r->find_job.run = run_find;
	r->url = strdup(conf->url);
	r->config_file = conf->config_file ? strdup(conf->config_file) : NULL;
	if (!r->url || !r->config_file != !conf->config_file) {
		tier_recall_free(r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

bool tier_recall_stop(struct tier_recall *r)
{
	struct tier_cache *cache;
	struct tier_pool *pool;

	if (!r)
		return true;
	mutex_lock(&r->lock);
	r->stop = true;
	cache = r->cache;
	pool = r->pool;
	cond_broadcast(&r->changed);
	mutex_unlock(&r->lock);
	if (cache)
		tier_cache_stop(cache);
	return !pool || tier_pool_stop(pool);
}

void tier_recall_free(struct tier_recall *r)
{
	struct checkpoint *c;

	if (!r)
		return;
	while ((c = r->checkpoints)) {
		r->checkpoints = c->next;
		loaded_free(c->loaded);
		free(c);
	}
	tier_log_release(&r->log);
	tier_cache_free(r->cache);
	tier_pool_free(r->pool);
	tier_close(r->tier);
	free(r->seals);
	cond_release(&r->changed);
	mutex_release(&r->lock);
	free(r->url);
	free(r->config_file);
	free(r);
}
