/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/inquiry.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/places.h"
#include "fs/subuids.h"

#define FIRST_OF_USERS 10u /* for users that have none */
#define INQUIRIES_MAX (16u + FIRST_OF_USERS)
static const struct places places = { .all = 16, .reserved = 4, .per_user = 4, .first = FIRST_OF_USERS };
/*
 * Memory of all together: 9 MiB of names, in blocks, and of each that is being computed some 19 MiB
 * (store/gc/exclusive.c) and a list of its files. The others that have been started wait.
 */
#define SET_BYTES MiB(16) /* half a million names, or two million files of an owner */
#define SET_BYTES_OF_ROOT MiB(256) /* 32 million files of an owner */
#define BLOCK 4096u /* directories and single names, 16 bytes each */
static const struct places blocks = { .all = 128, .reserved = 32, .per_user = 64, .first = FIRST_OF_USERS };
static const struct places computed = { .all = 3, .reserved = 1, .per_user = 1 };
#define PATIENCE_NS 30000000000u /* without a request from the client */
#define WAIT_NS 1000000000u /* between two checks whether the client is gone */

struct inquiry {
	struct inquiries *all;
	uint64_t number; /* 0: not in use */
	uint32_t user; /* that began it; see fs/subuids.h */
	bool is_root;
	uint64_t asked_ns; /* last request from the client */
	struct exclusive_name *names; /* owned by its thread once started */
	size_t nr;
	unsigned nr_blocks;
	struct fp_domain owner; /* FP_OF_ALL: the names are used */
	struct inquiry_reader *reader; /* NULL: reads everything */
	bool has_thread; /* to be joined */
	bool is_computed; /* now */
	bool stop;
	pthread_t thread;
	struct inquiry_status status;
};

struct inquiries {
	struct engine *e; /* constant */

	struct mutex lock; /* leaf */
	struct cond turn; /* one has ended or is to stop */
	struct inquiry v[INQUIRIES_MAX] GUARDED_BY(lock);
};

int inquiries_new(struct engine *e, struct inquiries **ret)
{
	struct inquiries *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->e = e;
	mutex_init(&q->lock);
	cond_init(&q->turn);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		q->v[i].all = q;
	*ret = q;
	return 0;
}

/* It must not be running. */
static void forget(struct inquiry *i)
{
	struct inquiries *all = i->all;

	if (i->has_thread)
		pthread_join(i->thread, NULL); /* it has ended, or is about to end */
	free(i->names);
	if (i->reader)
		i->reader->free(i->reader);
	*i = (struct inquiry){ .all = all };
}

void inquiries_free(struct inquiries *q)
{
	if (!q)
		return;
	mutex_lock(&q->lock);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		q->v[i].stop = true;
	cond_broadcast(&q->turn);
	mutex_unlock(&q->lock);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		forget(&q->v[i]);
	cond_release(&q->turn);
	mutex_release(&q->lock);
	free(q);
}

static bool is_forgotten(const struct inquiry *i)
{
	return i->stop || monotonic_ns() - i->asked_ns > PATIENCE_NS;
}

typedef unsigned nr_fn(const struct inquiry *i); /* how many places it takes */

static unsigned nr_begun(const struct inquiry *i)
{
	return i->number != 0;
}

static unsigned nr_computed(const struct inquiry *i)
{
	return i->is_computed;
}

static unsigned nr_blocks(const struct inquiry *i)
{
	return i->nr_blocks;
}

static bool has_room(const struct inquiries *q, const struct places *p, nr_fn *nr_of, uint32_t user, bool is_root)
	REQUIRES(q->lock)
{
	unsigned nr = 0, nr_own = 0;

	for (const struct inquiry *at = q->v; at < q->v + INQUIRIES_MAX; at++) {
		nr += nr_of(at);
		nr_own += at->user == user ? nr_of(at) : 0;
	}
	return places_has_room(p, nr, nr_own, is_root);
}

/* Waits until it may be computed. false: it is to stop. */
static bool take_turn(struct inquiry *i)
{
	struct inquiries *q = i->all;
	bool go_on;

	mutex_lock(&q->lock);
	while ((go_on = !is_forgotten(i)) && !has_room(q, &computed, nr_computed, i->user, i->is_root))
		cond_wait_for(&q->turn, &q->lock, WAIT_NS);
	i->is_computed = go_on;
	mutex_unlock(&q->lock);
	return go_on;
}

static bool report_progress(void *userdata, const struct exclusive_report *so_far)
{
	struct inquiry *i = userdata;
	bool go_on;

	mutex_lock(&i->all->lock);
	i->status.report = *so_far;
	go_on = !is_forgotten(i);
	mutex_unlock(&i->all->lock);
	return go_on;
}

static int check(void *userdata, uint64_t ino)
{
	struct inquiry *i = userdata;

	return i->reader ? i->reader->check(i->reader, ino) : 0;
}

static void *run(void *arg)
{
	struct inquiry *i = arg;
	struct exclusive_conf conf = { .names = i->names,
				       .nr_names = i->nr,
				       .owner = i->owner,
				       .set_bytes = i->is_root ? SET_BYTES_OF_ROOT : SET_BYTES,
				       .check = check,
				       .step = report_progress,
				       .userdata = i };
	struct exclusive_report report;
	int r;

	pthread_setname_np(pthread_self(), "ckptfs-inquiry");
	r = take_turn(i) ? engine_exclusive(i->all->e, &conf, &report) : -ECANCELED;
	mutex_lock(&i->all->lock);
	if (r == 0)
		i->status.report = report;
	i->status.error = r;
	i->status.running = i->is_computed = false;
	free(TAKE(i->names));
	i->nr_blocks = 0;
	cond_broadcast(&i->all->turn);
	mutex_unlock(&i->all->lock);
	return NULL;
}

/* NULL: none. Restarts the timeout. */
static struct inquiry *find_inquiry(struct inquiries *q, uint64_t number) REQUIRES(q->lock)
{
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		if (number != 0 && q->v[i].number == number) {
			q->v[i].asked_ns = monotonic_ns();
			return &q->v[i];
		}
	return NULL;
}

/* Frees those that the client has left. */
static void forget_left(struct inquiries *q) REQUIRES(q->lock)
{
	for (struct inquiry *at = q->v; at < q->v + INQUIRIES_MAX; at++)
		if (at->number != 0 && !at->status.running && is_forgotten(at))
			forget(at);
}

/* NULL: no room for this user. */
static struct inquiry *find_free(struct inquiries *q, uint32_t user, bool is_root) REQUIRES(q->lock)
{
	forget_left(q);
	if (!has_room(q, &places, nr_begun, user, is_root))
		return NULL;
	for (struct inquiry *at = q->v; at < q->v + INQUIRIES_MAX; at++)
		if (at->number == 0)
			return at;
	return NULL;
}

int inquiry_begin(struct inquiries *q, uint32_t uid, bool is_root, uint64_t *ret)
{
	uint32_t user = subuids_user(uid);
	struct inquiry *i;
	uint64_t number;

	do
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return -EIO;
	while (number == 0);
	mutex_lock(&q->lock);
	i = find_free(q, user, is_root);
	if (i) {
		i->number = *ret = number;
		i->user = user;
		i->is_root = is_root;
		i->asked_ns = monotonic_ns();
	}
	mutex_unlock(&q->lock);
	return i ? 0 : -EBUSY;
}

/* Room for another block of names. */
static int add_block(struct inquiries *q, struct inquiry *i) REQUIRES(q->lock)
{
	struct exclusive_name *more;

	forget_left(q); /* not this one: it was asked for right now */
	if (!has_room(q, &blocks, nr_blocks, i->user, i->is_root))
		return -E2BIG;
	more = reallocarray(i->names, (i->nr_blocks + 1) * (size_t)BLOCK, sizeof(*more));
	if (!more)
		return -ENOMEM;
	i->names = more;
	i->nr_blocks++;
	return 0;
}

static int add_locked(struct inquiries *q, struct inquiry *i, struct exclusive_name name) REQUIRES(q->lock)
{
	int r;

	if (!i || i->has_thread)
		return -ESTALE;
	if (i->owner.kind != FP_OF_ALL)
		return -EINVAL;
	r = i->nr == (size_t)i->nr_blocks * BLOCK ? add_block(q, i) : 0;
	if (r < 0)
		return r;
	i->names[i->nr++] = name;
	return 0;
}

int inquiry_add(struct inquiries *q, uint64_t number, struct exclusive_name name)
{
	int r;

	mutex_lock(&q->lock);
	r = add_locked(q, find_inquiry(q, number), name);
	mutex_unlock(&q->lock);
	return r;
}

int inquiry_add_owner(struct inquiries *q, uint64_t number, struct fp_domain owner)
{
	struct inquiry *i;
	int r = 0;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (!i || i->has_thread)
		r = -ESTALE;
	else if (i->nr > 0 || i->owner.kind != FP_OF_ALL)
		r = -EINVAL;
	else
		i->owner = owner;
	mutex_unlock(&q->lock);
	return r;
}

static int start_locked(struct inquiry *i, struct inquiry_reader *reader)
{
	int r;

	if (!i || i->has_thread)
		return -ESTALE;
	i->status.running = true;
	i->reader = reader;
	/* the new thread takes the lock only later, and the caller releases it soon */
	r = pthread_create(&i->thread, NULL, run, i);
	if (r != 0) {
		i->status.running = false;
		i->reader = NULL;
		return -r;
	}
	i->has_thread = true;
	return 0;
}

int inquiry_start(struct inquiries *q, uint64_t number, struct inquiry_reader *reader)
{
	int r;

	mutex_lock(&q->lock);
	r = start_locked(find_inquiry(q, number), reader);
	mutex_unlock(&q->lock);
	return r;
}

int inquiry_status(struct inquiries *q, uint64_t number, struct inquiry_status *ret)
{
	struct inquiry *i;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (i)
		*ret = i->status;
	mutex_unlock(&q->lock);
	return i ? 0 : -ESTALE;
}

int inquiry_end(struct inquiries *q, uint64_t number)
{
	struct inquiry *i;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (i && i->status.running) {
		i->stop = true; /* its slot is freed after the thread has seen this */
		cond_broadcast(&q->turn);
	} else if (i) {
		forget(i);
	}
	mutex_unlock(&q->lock);
	return i ? 0 : -ESTALE;
}
