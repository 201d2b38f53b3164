/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/long_requests.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/ops/ops.h"
#include "fs/places.h"
#include "fs/subuids.h"

#define RESERVED 2u
#define FIRST_OF_USERS 40u /* more places, each for a user without one; see fs/fuse_loop.c, MAX_THREADS */
#define LOOK_NS 20000000u /* between two checks of clients that received a signal */
#define LOOKS_MAX 16u /* clients of queued requests per check: each costs a file of /proc */

enum waits_for {
	WAITS_FOR_PLACE,
	WAITS_FOR_THAW,
	WAITS_FOR_THREAD, /* thawed */
	WAITS_FOR_KERNEL, /* its work is done: long_request_hold() */
};

struct request {
	struct long_request r; /* must be first */
	struct long_requests *all;
	struct request *next;
	uint64_t unique;
	uint32_t user, pid; /* user: of places, see fs/subuids.h */
	bool is_root;
	bool has_place; /* if running */
	enum waits_for waits_for; /* if not running */
	bool is_answered; /* only if held: its client was killed */
	atomic_bool interrupted;
	uint64_t look_ns; /* next check of the client, by the thread that runs it */
	uint64_t round; /* last check of the client while queued */
	uint8_t copy[];
};

struct long_requests {
	int fd; /* constant, as the next two */
	struct places places;
	unsigned queued_of_user;
	atomic_bool stop;
	atomic_uint nr_signalled; /* queued requests with a client that survived a signal */
	_Atomic uint64_t sweep_ns; /* next check of those clients */

	_Atomic uint64_t nr_thaws; /* changed under `lock` */
	struct mutex lock; /* leaf */
	struct cond thawed;
	struct request *running GUARDED_BY(lock);
	struct request *waiting GUARDED_BY(lock); /* in the order in which they will run */
	uint64_t round GUARDED_BY(lock); /* of checks of clients that received a signal */
};

int long_requests_new(int fd, const struct long_requests_conf *conf, struct long_requests **ret)
{
	struct long_requests *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->fd = fd;
	l->queued_of_user = conf->queued;
	l->places.per_user = conf->per_user;
	l->places.reserved = RESERVED;
	l->places.all = 2 * l->places.per_user + RESERVED;
	l->places.first = FIRST_OF_USERS;
	l->round = 1;
	mutex_init(&l->lock);
	cond_init(&l->thawed);
	*ret = l;
	return 0;
}

unsigned long_requests_nr_places(const struct long_requests *l)
{
	return l->places.all + l->places.first;
}

void long_requests_free(struct long_requests *l)
{
	if (!l)
		return;
	cond_release(&l->thawed);
	mutex_release(&l->lock);
	free(l);
}

/* Is the thread that waits for the reply about to end? */
static bool is_dying(uint32_t tid)
{
	char path[32], line[128];
	unsigned long long pending = 0;
	FILE *f;

	if (tid == 0)
		return true; /* in a PID namespace that is not visible here */
	snprintf(path, sizeof(path), "/proc/%u/status", tid);
	f = fopen(path, "re");
	if (!f)
		return true;
	while (fgets(line, sizeof(line), f) && sscanf(line, "SigPnd: %llx", &pending) != 1)
		;
	fclose(f);
	return pending >> (SIGKILL - 1) & 1;
}

static struct request *find_unique(struct request *list, uint64_t unique)
{
	while (list && list->unique != unique)
		list = list->next;
	return list;
}

static void dequeue(struct request **list, struct request *q)
{
	while (*list != q)
		list = &(*list)->next;
	*list = q->next;
}

/* Answer a queued request of a client that is being killed. long_request_release() frees one that is held, perhaps
 * before it is answered. */
static void drop_queued(struct long_requests *l, uint64_t unique)
{
	struct request *q, *owned;

	mutex_lock(&l->lock);
	q = owned = find_unique(l->waiting, unique);
	if (q) {
		dequeue(&l->waiting, q);
		q->is_answered = q->waits_for == WAITS_FOR_KERNEL;
		owned = q->is_answered ? NULL : q;
	}
	mutex_unlock(&l->lock);
	if (q)
		ops_answer_error(l->fd, unique, EINTR);
	free(owned);
}

struct client {
	uint64_t unique;
	uint32_t pid;
};

/* Choose clients to check. However many there are, LOOKS_MAX are checked at a time, and each in its turn. */
static unsigned choose_clients(struct long_requests *l, struct client ret[LOOKS_MAX])
{
	unsigned nr = 0, nr_signalled = 0;

	atomic_store(&l->sweep_ns, monotonic_ns() + LOOK_NS);
	mutex_lock(&l->lock);
	for (struct request *q = l->waiting; q; q = q->next) {
		if (!atomic_load(&q->interrupted))
			continue;
		nr_signalled++;
		if (q->round == l->round || nr == LOOKS_MAX)
			continue;
		q->round = l->round;
		ret[nr++] = (struct client){ q->unique, q->pid };
	}
	l->round += nr < LOOKS_MAX; /* all have been checked */
	atomic_store(&l->nr_signalled, nr_signalled);
	mutex_unlock(&l->lock);
	return nr;
}

/*
 * Drop queued requests of clients that are being killed, if it is time for a check. Called by running requests and by the thread for thawed
 * requests, since queued requests have no thread.
 */
static void drop_abandoned(struct long_requests *l)
{
	struct client v[LOOKS_MAX];
	unsigned nr = 0;

	if (atomic_load(&l->nr_signalled) > 0 && monotonic_ns() >= atomic_load(&l->sweep_ns))
		nr = choose_clients(l, v);
	for (unsigned i = 0; i < nr; i++)
		if (is_dying(v[i].pid))
			drop_queued(l, v[i].unique);
}

static bool is_cancelled(void *userdata)
{
	struct request *q = userdata;
	struct long_requests *l = q->all;
	uint64_t now;

	if (atomic_load(&l->stop))
		return true;
	drop_abandoned(l);
	if (!atomic_load(&q->interrupted))
		return false;
	now = monotonic_ns();
	if (now < q->look_ns)
		return false;
	q->look_ns = now + LOOK_NS;
	return is_dying(q->pid);
}

/* Requests may run for hours: root takes none of the places for users that have none. */
static bool may_run(struct long_requests *l, const struct request *q) REQUIRES(l->lock)
{
	unsigned nr = 0, nr_own = 0;

	for (const struct request *at = l->running; at; at = at->next) {
		nr += at->has_place;
		nr_own += at->has_place && at->user == q->user;
	}
	return places_has_room(&l->places, nr, nr_own, q->is_root) && nr_own < l->places.all;
}

/* true: the user has as many queued requests as allowed. */
static bool is_crowded(struct long_requests *l, const struct request *q) REQUIRES(l->lock)
{
	unsigned nr = 0;

	for (const struct request *at = l->waiting; at; at = at->next)
		nr += at->user == q->user;
	return nr >= l->queued_of_user;
}

static void enqueue(struct request **list, struct request *q)
{
	while (*list)
		list = &(*list)->next;
	*list = q;
	q->next = NULL;
}

/* Users take turns: when a request of a user starts, the queued requests of that user move behind all others. */
static void run(struct long_requests *l, struct request *q) REQUIRES(l->lock)
{
	struct request *own = NULL, **last = &own, **at = &l->waiting;

	q->has_place = true;
	enqueue(&l->running, q);
	while (*at)
		if ((*at)->user == q->user) {
			*last = *at;
			last = &(*at)->next;
			*at = *last;
		} else {
			at = &(*at)->next;
		}
	*last = NULL;
	*at = own;
}

static struct request *new_request(struct long_requests *l, const struct fuse_in_header *in, size_t len)
{
	struct request *q = calloc(1, sizeof(*q) + len);

	if (!q)
		return NULL;
	*q = (struct request){
		.r = { .start_ns = monotonic_ns(), .bytes = q->copy, .len = len, .cancel = { is_cancelled, q } },
		.all = l,
		.unique = in->unique,
		.user = subuids_user(in->uid),
		.pid = in->pid,
		.is_root = in->uid == 0 || in->uid == geteuid(),
	};
	memcpy(q->copy, in, len);
	return q;
}

/* Queue it, or answer and free it. */
static void wait_in_queue(struct long_requests *l, struct request *q, const struct fuse_in_header *in) REQUIRES(l->lock)
{
	if (atomic_load(&l->stop) || is_crowded(l, q)) {
		ops_answer_error(l->fd, in->unique, atomic_load(&l->stop) ? EINTR : EAGAIN);
		free(q);
		return;
	}
	enqueue(&l->waiting, q);
}

bool long_request_begin(struct long_requests *l, const struct fuse_in_header *in, size_t len, struct long_request **ret)
{
	struct request *q = new_request(l, in, len);
	bool runs;

	if (!q) {
		ops_answer_error(l->fd, in->unique, ENOMEM);
		return false;
	}
	mutex_lock(&l->lock);
	runs = may_run(l, q) && !atomic_load(&l->stop);
	if (runs)
		run(l, q);
	else
		wait_in_queue(l, q, in);
	mutex_unlock(&l->lock);
	if (runs)
		*ret = &q->r;
	return runs;
}

struct long_request *long_request_end(struct long_requests *l, struct long_request *r)
{
	struct request *done = (struct request *)r, *next = NULL;

	mutex_lock(&l->lock);
	dequeue(&l->running, done);
	if (done->has_place)
		for (next = l->waiting; next && (next->waits_for != WAITS_FOR_PLACE || !may_run(l, next));)
			next = next->next;
	if (next) {
		dequeue(&l->waiting, next);
		run(l, next);
	}
	mutex_unlock(&l->lock);
	free(done);
	return next ? &next->r : NULL;
}

void long_request_park(struct long_requests *l, const struct fuse_in_header *in, size_t len, uint64_t nr_thaws,
		       bool is_interrupted)
{
	struct request *q = new_request(l, in, len);

	if (!q) {
		ops_answer_error(l->fd, in->unique, ENOMEM);
		return;
	}
	q->interrupted = is_interrupted;
	mutex_lock(&l->lock);
	q->waits_for = l->nr_thaws == nr_thaws ? WAITS_FOR_THAW : WAITS_FOR_THREAD;
	if (is_interrupted)
		atomic_fetch_add(&l->nr_signalled, 1);
	wait_in_queue(l, q, in);
	cond_signal(&l->thawed);
	mutex_unlock(&l->lock);
}

uint64_t long_requests_nr_thaws(struct long_requests *l)
{
	return atomic_load(&l->nr_thaws);
}

void long_requests_thaw(struct long_requests *l)
{
	mutex_lock(&l->lock);
	atomic_fetch_add(&l->nr_thaws, 1);
	for (struct request *q = l->waiting; q; q = q->next)
		if (q->waits_for == WAITS_FOR_THAW)
			q->waits_for = WAITS_FOR_THREAD;
	cond_signal(&l->thawed);
	mutex_unlock(&l->lock);
}

static struct request *find_thawed(struct long_requests *l) REQUIRES(l->lock)
{
	struct request *q = l->waiting;

	while (q && q->waits_for != WAITS_FOR_THREAD)
		q = q->next;
	if (!q)
		return NULL;
	dequeue(&l->waiting, q);
	enqueue(&l->running, q);
	return q;
}

struct long_request *long_request_take_thawed(struct long_requests *l)
{
	struct request *q = NULL;

	while (!q && !atomic_load(&l->stop)) {
		mutex_lock(&l->lock);
		q = find_thawed(l);
		if (!q && atomic_load(&l->nr_signalled) > 0)
			cond_wait_for(&l->thawed, &l->lock, LOOK_NS);
		else if (!q && !atomic_load(&l->stop))
			cond_wait(&l->thawed, &l->lock);
		mutex_unlock(&l->lock);
		drop_abandoned(l);
	}
	return q ? &q->r : NULL;
}

struct long_request *long_request_hold(struct long_requests *l, const struct fuse_in_header *in)
{
	struct request *q = new_request(l, in, 0), *running;

	if (!q)
		return NULL;
	q->waits_for = WAITS_FOR_KERNEL;
	mutex_lock(&l->lock);
	running = find_unique(l->running, in->unique);
	if (running && atomic_load(&running->interrupted)) {
		q->interrupted = true;
		atomic_fetch_add(&l->nr_signalled, 1);
		cond_signal(&l->thawed);
	}
	enqueue(&l->waiting, q);
	mutex_unlock(&l->lock);
	return &q->r;
}

bool long_request_release(struct long_requests *l, struct long_request *r)
{
	struct request *q = (struct request *)r;
	bool is_answered;

	mutex_lock(&l->lock);
	is_answered = q->is_answered;
	if (!is_answered)
		dequeue(&l->waiting, q);
	mutex_unlock(&l->lock);
	free(q);
	return is_answered;
}

/* The kernel sends one INTERRUPT per request, so a client that is not ending now is checked from time to time. */
bool long_requests_interrupt(struct long_requests *l, uint64_t unique)
{
	struct request *running, *waiting;
	uint32_t pid = 0;

	mutex_lock(&l->lock);
	running = find_unique(l->running, unique);
	waiting = find_unique(l->waiting, unique);
	if (running)
		atomic_store(&running->interrupted, true);
	if (waiting) {
		atomic_store(&waiting->interrupted, true);
		atomic_fetch_add(&l->nr_signalled, 1);
		cond_signal(&l->thawed);
		pid = waiting->pid;
	}
	mutex_unlock(&l->lock);
	if (waiting && is_dying(pid))
		drop_queued(l, unique);
	return running || waiting;
}

/* Requests that are held are answered by their holders. */
void long_requests_stop(struct long_requests *l)
{
	struct request *abandoned = NULL, *q;

	mutex_lock(&l->lock);
	atomic_store(&l->stop, true);
	cond_broadcast(&l->thawed);
	for (struct request **at = &l->waiting; (q = *at);) {
		if (q->waits_for == WAITS_FOR_KERNEL) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		q->next = abandoned;
		abandoned = q;
	}
	mutex_unlock(&l->lock);
	while ((q = abandoned)) {
		abandoned = q->next;
		ops_answer_error(l->fd, q->unique, EINTR);
		free(q);
	}
}
