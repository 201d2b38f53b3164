/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A thread seals one directory at a time and does not wait for one with files open for writing, or with files of other
 * users: that is tried again later. A user occupies one thread at most, so that a large directory does not delay other
 * users. Among the directories of the remaining users that are due, a thread takes one of the least recently served
 * user, so that many directories of one user delay another user by one attempt, even if all threads are occupied.
 */
#include "fs/seal/autoseal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/places.h"
#include "fs/seal/seal.h"
#include "fs/subuids.h"

#define RENAME "rename"
#define THREADS 4u /* users with a directory that is being sealed */
#define WAITING_MAX 1024u
static const struct places places = { .all = WAITING_MAX, .reserved = 256, .per_user = 256 };
/* Doubled after each attempt. The kernel reports the last close() of a file a little after it has returned. */
#define FIRST_DELAY_NS UINT64_C(20000000)
#define LAST_DELAY_NS UINT64_C(10000000000)
#define END_NS UINT64_C(5000000000) /* time limit for pending seals at shutdown */
#define PATIENCE_NS UINT64_C(600000000000) /* no seal if files stay open for writing, or in the way, this long */

struct waiting {
	uint64_t dir;
	struct cred cred;
	uint32_t user; /* see fs/subuids.h */
	uint64_t due_ns, delay_ns, until_ns;
	uint64_t turn; /* the last attempt for this user; the same in all entries of a user */
};

struct autoseal {
	struct fs *fs; /* constant, as the three below */
	char *list;
	pthread_t threads[THREADS];
	unsigned nr_threads;

	struct mutex lock; /* leaf; not held while sealing */
	struct cond changed;
	struct waiting waiting[WAITING_MAX] GUARDED_BY(lock); /* unordered */
	size_t nr GUARDED_BY(lock);
	uint32_t served[THREADS] GUARDED_BY(lock); /* users, each with a directory that is being sealed */
	unsigned nr_served GUARDED_BY(lock);
	uint64_t turn GUARDED_BY(lock); /* number of attempts so far */
	bool stop GUARDED_BY(lock);
	_Atomic uint64_t end_ns; /* shutdown deadline; 0: not shutting down */
};

/* --- conventions --- */

static bool is_in(const char *list, const char *name)
{
	size_t len = strlen(name), n;

	for (const char *s = list;; s += n + 1) {
		n = strcspn(s, ":");
		if (n == len && memcmp(s, name, n) == 0)
			return true;
		if (s[n] == '\0')
			return false;
	}
}

int autoseal_check(const char *list)
{
	size_t n;

	for (const char *s = list;; s += n + 1) {
		n = strcspn(s, ":");
		if (n == 0 || n > NS_NAME_MAX || memchr(s, '/', n) ||
		    (s[0] == '.' && (n == 1 || (n == 2 && s[1] == '.'))))
			return -EINVAL;
		if (s[n] == '\0')
			return 0;
	}
}

static bool is_temporary_word(const char *s, size_t len)
{
	static const char *const words[] = { "tmp", "temp", "partial", "incomplete", "inprogress" };

	while (len > 0 && isdigit((unsigned char)s[len - 1]))
		len--;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == len && strncasecmp(s, words[i], len) == 0)
			return true;
	return false;
}

bool autoseal_is_temporary(const char *name)
{
	while (*name) {
		size_t len = 0;

		while (isalnum((unsigned char)name[len]))
			len++;
		if (is_temporary_word(name, len))
			return true;
		name += MAX(len, (size_t)1);
	}
	return false;
}

/* --- the threads --- */

/* A directory may wait for several users: any that can create names in it. Returns a->nr if it does not wait for this one. */
static size_t find_waiting(struct autoseal *a, uint64_t dir, uint32_t uid) REQUIRES(a->lock)
{
	size_t i = 0;

	while (i < a->nr && (a->waiting[i].dir != dir || a->waiting[i].cred.uid != uid))
		i++;
	return i;
}

static unsigned count_waiting(struct autoseal *a, uint32_t user) REQUIRES(a->lock)
{
	unsigned nr = 0;

	for (size_t i = 0; i < a->nr; i++)
		nr += a->waiting[i].user == user;
	return nr;
}

/* A user without directories here comes after all waiting users. */
static uint64_t turn_of(struct autoseal *a, uint32_t user) REQUIRES(a->lock)
{
	for (size_t i = 0; i < a->nr; i++)
		if (a->waiting[i].user == user)
			return a->waiting[i].turn;
	return a->turn;
}

static void add_waiting(struct autoseal *a, uint64_t dir, const struct cred *cred)
{
	static struct log_limit limit;
	uint32_t user = subuids_user(cred->uid);
	uint64_t now = monotonic_ns();
	uint64_t turn;
	bool is_full;
	size_t i;

	mutex_lock(&a->lock);
	turn = turn_of(a, user);
	i = find_waiting(a, dir, cred->uid);
	is_full = i == a->nr && !places_has_room(&places, (unsigned)a->nr, count_waiting(a, user), cred->uid == 0);
	if (!is_full) {
		a->waiting[i] = (struct waiting){ dir, *cred, user, now, FIRST_DELAY_NS, now + PATIENCE_NS, turn };
		a->waiting[i].cred.pid = PID_ANSWERED; /* another process may have the pid by then */
		a->nr = MAX(a->nr, i + 1);
		cond_signal(&a->changed);
	}
	mutex_unlock(&a->lock);
	if (is_full)
		log_limited(&limit, LOG_LEVEL_WARNING,
			    "directory %" PRIu64 ": not sealed by itself: too many wait for it", dir);
}

static bool is_served(struct autoseal *a, uint32_t user) REQUIRES(a->lock)
{
	for (unsigned i = 0; i < a->nr_served; i++)
		if (a->served[i] == user)
			return true;
	return false;
}

/* The next one to seal, WAITING_MAX: none is due. When stopping, all are due. */
static size_t next_due(struct autoseal *a, uint64_t now) REQUIRES(a->lock)
{
	size_t best = WAITING_MAX;

	for (size_t i = 0; i < a->nr; i++) {
		const struct waiting *w = &a->waiting[i], *b = best < WAITING_MAX ? &a->waiting[best] : NULL;

		if ((w->due_ns <= now || a->stop) && !is_served(a, w->user) &&
		    (!b || w->turn < b->turn || (w->turn == b->turn && w->due_ns < b->due_ns)))
			best = i;
	}
	return best;
}

static void take_at(struct autoseal *a, size_t i, struct waiting *ret) REQUIRES(a->lock)
{
	*ret = a->waiting[i];
	a->waiting[i] = a->waiting[--a->nr];
	ret->turn = ++a->turn;
	for (i = 0; i < a->nr; i++)
		if (a->waiting[i].user == ret->user)
			a->waiting[i].turn = a->turn;
	a->served[a->nr_served++] = ret->user;
}

static void wait_until_due(struct autoseal *a, uint64_t now) REQUIRES(a->lock)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < a->nr; i++)
		if (!is_served(a, a->waiting[i].user))
			next = MIN(next, a->waiting[i].due_ns);
	if (next != UINT64_MAX)
		cond_wait_for(&a->changed, &a->lock, next - now);
	else
		cond_wait(&a->changed, &a->lock);
}

/* 1: a directory that is due; 0: stopping, and none is left but those of users that other threads serve. */
static int take_due(struct autoseal *a, struct waiting *ret)
{
	int r = -EAGAIN;

	mutex_lock(&a->lock);
	while (r == -EAGAIN) {
		uint64_t now = monotonic_ns();
		size_t i = next_due(a, now);

		if (i < WAITING_MAX) {
			take_at(a, i, ret);
			r = 1;
		} else if (a->stop) {
			r = 0;
		} else {
			wait_until_due(a, now);
		}
	}
	mutex_unlock(&a->lock);
	return r;
}

/* The thread that served this user takes the next directory; another one may take the user's next. */
static void end_turn(struct autoseal *a, const struct waiting *w)
{
	unsigned i = 0;

	mutex_lock(&a->lock);
	while (a->served[i] != w->user)
		i++;
	a->served[i] = a->served[--a->nr_served];
	cond_broadcast(&a->changed);
	mutex_unlock(&a->lock);
}

/* Retry later, unless it has been requested again. false: the seal has been impossible for too long. */
static bool put_back(struct autoseal *a, struct waiting *w)
{
	bool waits, is_there;

	mutex_lock(&a->lock);
	is_there = find_waiting(a, w->dir, w->cred.uid) < a->nr;
	waits = is_there || (!a->stop && a->nr < WAITING_MAX && monotonic_ns() < w->until_ns);
	if (waits && !is_there) {
		w->due_ns = monotonic_ns() + w->delay_ns;
		w->delay_ns = MIN(2 * w->delay_ns, LAST_DELAY_NS);
		a->waiting[a->nr++] = *w;
	}
	mutex_unlock(&a->lock);
	return waits;
}

/*
 * A file that is open for writing is closed some time. One of another user, below a directory of this one, may be
 * removed or given away; if the directory itself belongs to another user, there is no culprit.
 */
static bool may_end(int r, const struct buf *culprit)
{
	return r == -EBUSY || (r == -EPERM && culprit->len > 0);
}

static void seal(struct autoseal *a, struct waiting *w)
{
	static struct log_limit limit; /* any user can create markers in directories of others */
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal seal;
	int r = seal_directory_now(a->fs, w->dir, &w->cred, &seal, &culprit);

	if (r == 0 || r == -EALREADY || r == -ENOENT || (may_end(r, &culprit) && put_back(a, w)))
		return;
	log_limited(&limit, LOG_LEVEL_ERROR, "directory %" PRIu64 ": not sealed by itself%s%.*s: %s", w->dir,
		    culprit.len > 0 ? ", because of " : "", (int)MIN(culprit.len, (size_t)200),
		    culprit.len > 0 ? (const char *)culprit.data : "",
		    r == -EPERM && culprit.len > 0 ? "belongs to another user" : strerror(-r));
}

static bool is_too_late(void *userdata)
{
	struct autoseal *a = userdata;
	uint64_t end = atomic_load(&a->end_ns);

	return end != 0 && monotonic_ns() >= end;
}

static void *run_sealer(void *userdata)
{
	struct autoseal *a = userdata;
	struct cancel cancel = { is_too_late, a };
	struct waiting w;

	pthread_setname_np(pthread_self(), "ckptfs-sealer");
	cancel_set(&cancel);
	while (take_due(a, &w) > 0) {
		seal(a, &w);
		end_turn(a, &w);
	}
	cancel_set(NULL);
	return NULL;
}

int autoseal_new(struct fs *fs, const char *list, struct autoseal **ret)
{
	struct autoseal *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->fs = fs;
	a->list = strdup(list);
	mutex_init(&a->lock);
	cond_init(&a->changed);
	r = a->list ? 0 : -ENOMEM;
	while (r == 0 && a->nr_threads < THREADS) {
		r = -pthread_create(&a->threads[a->nr_threads], NULL, run_sealer, a);
		a->nr_threads += r == 0;
	}
	if (r < 0) {
		autoseal_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void autoseal_free(struct autoseal *a)
{
	if (!a)
		return;
	mutex_lock(&a->lock);
	a->stop = true;
	atomic_store(&a->end_ns, monotonic_ns() + END_NS);
	cond_broadcast(&a->changed);
	mutex_unlock(&a->lock);
	for (unsigned i = 0; i < a->nr_threads; i++)
		pthread_join(a->threads[i], NULL);
	mutex_release(&a->lock);
	cond_release(&a->changed);
	free(a->list);
	free(a);
}

/* --- events --- */

void autoseal_made(struct autoseal *a, uint64_t dir, const char *name, const struct cred *cred)
{
	if (a && strcmp(name, RENAME) != 0 && is_in(a->list, name))
		add_waiting(a, dir, cred);
}

void autoseal_renamed(struct autoseal *a, const char *from, uint64_t dir, const char *to, const struct cred *cred)
{
	struct ns_dirent d;
	int r;

	if (!a)
		return;
	rwlock_lock_shared(&a->fs->names);
	r = ns_find(a->fs->db, a->fs->key, dir, to, &d);
	rwlock_unlock_shared(&a->fs->names);
	if (r <= 0)
		return;
	if (d.type != DT_DIR)
		autoseal_made(a, dir, to, cred);
	else if (is_in(a->list, RENAME) && autoseal_is_temporary(from) && !autoseal_is_temporary(to))
		add_waiting(a, d.ino, cred);
}
