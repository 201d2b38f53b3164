#include "fs/autoseal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/seal.h"

#define RENAME "rename"
#define WAITING_MAX 1024u
#define FIRST_DELAY_NS UINT64_C(100000000) /* then twice as long, ... */
#define LAST_DELAY_NS UINT64_C(10000000000)
#define PATIENCE_NS UINT64_C(600000000000) /* with somebody who writes */

struct waiting {
	uint64_t dir;
	struct who who;
	uint64_t due_ns, delay_ns, until_ns;
};

struct autoseal {
	struct fs *fs; /* constant, as the two below */
	char *list;
	pthread_t thread;

	struct mutex lock; /* leaf; not held while something is sealed */
	struct cond changed;
	struct waiting waiting[WAITING_MAX] GUARDED_BY(lock); /* in no order */
	size_t nr GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
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

/* --- the thread --- */

static void add(struct autoseal *a, uint64_t dir, const struct who *who)
{
	uint64_t now = monotonic_ns();
	bool is_full;
	size_t i = 0;

	mutex_lock(&a->lock);
	while (i < a->nr && a->waiting[i].dir != dir)
		i++;
	is_full = i == WAITING_MAX;
	if (!is_full) {
		a->waiting[i] = (struct waiting){ dir, *who, now, FIRST_DELAY_NS, now + PATIENCE_NS };
		a->nr = MAX(a->nr, i + 1);
		cond_signal(&a->changed);
	}
	mutex_unlock(&a->lock);
	if (is_full)
		log_warning("directory %" PRIu64 ": not sealed by itself: too many wait for it", dir);
}

/* 1: one that is due, 0: to stop, and nothing is left. When it is to stop, all are due. */
static int take(struct autoseal *a, struct waiting *ret)
{
	int r = -EAGAIN;

	mutex_lock(&a->lock);
	while (r == -EAGAIN) {
		uint64_t now = monotonic_ns(), next = UINT64_MAX;
		size_t first = 0;

		for (size_t i = 0; i < a->nr; i++)
			if (a->waiting[i].due_ns < next) {
				next = a->waiting[i].due_ns;
				first = i;
			}
		if (a->nr > 0 && (next <= now || a->stop)) {
			*ret = a->waiting[first];
			a->waiting[first] = a->waiting[--a->nr];
			r = 1;
		} else if (a->stop) {
			r = 0;
		} else if (a->nr > 0) {
			cond_wait_for(&a->changed, &a->lock, next - now);
		} else {
			cond_wait(&a->changed, &a->lock);
		}
	}
	mutex_unlock(&a->lock);
	return r;
}

/* Somebody writes to it: again a little later. false: he has done so for too long. */
static bool put_back(struct autoseal *a, struct waiting *w)
{
	bool waits;

	mutex_lock(&a->lock);
	waits = !a->stop && a->nr < WAITING_MAX && monotonic_ns() < w->until_ns;
	if (waits) {
		w->due_ns = monotonic_ns() + w->delay_ns;
		w->delay_ns = MIN(2 * w->delay_ns, LAST_DELAY_NS);
		a->waiting[a->nr++] = *w;
	}
	mutex_unlock(&a->lock);
	return waits;
}

static void seal(struct autoseal *a, struct waiting *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal seal;
	int r = seal_directory(a->fs, w->dir, &w->who, &seal, &culprit);

	if (r == 0 || r == -EALREADY || r == -ENOENT || r == -ECANCELED || (r == -EBUSY && put_back(a, w)))
		return;
	log_errno(r, "directory %" PRIu64 ": not sealed by itself%s%.*s", w->dir, culprit.len > 0 ? ", because of " : "",
		  (int)MIN(culprit.len, (size_t)200), culprit.len > 0 ? (const char *)culprit.data : "");
}

static void *work(void *userdata)
{
	struct autoseal *a = userdata;
	struct waiting w;

	pthread_setname_np(pthread_self(), "ckptfs-sealer");
	while (take(a, &w) > 0)
		seal(a, &w);
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
	r = a->list ? -pthread_create(&a->thread, NULL, work, a) : -ENOMEM;
	if (r < 0) {
		free(a->list);
		free(a);
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
	cond_signal(&a->changed);
	mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
	mutex_release(&a->lock);
	cond_release(&a->changed);
	free(a->list);
	free(a);
}

/* --- what has happened --- */

void autoseal_made(struct autoseal *a, uint64_t dir, const char *name, const struct who *who)
{
	if (a && strcmp(name, RENAME) != 0 && is_in(a->list, name))
		add(a, dir, who);
}

void autoseal_renamed(struct autoseal *a, const char *from, uint64_t dir, const char *to, const struct who *who)
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
		autoseal_made(a, dir, to, who);
	else if (is_in(a->list, RENAME) && autoseal_is_temporary(from) && !autoseal_is_temporary(to))
		add(a, d.ino, who);
}
