/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/mutex.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "base/util.h"

#define NS_PER_S 1000000000

/* pthread calls do not fail on locks that are initialised and used correctly. */
static void must(_unused_ int r)
{
	assert(r == 0);
}

static void set_owner(struct mutex *m, pthread_t owner)
{
	atomic_store_explicit(&m->owner, owner, memory_order_relaxed);
}

void mutex_init(struct mutex *m)
{
	must(pthread_mutex_init(&m->m, NULL));
	set_owner(m, 0);
}

void mutex_release(struct mutex *m)
{
	must(pthread_mutex_destroy(&m->m));
}

void mutex_lock(struct mutex *m) NO_THREAD_SAFETY_ANALYSIS
{
	must(pthread_mutex_lock(&m->m));
	set_owner(m, pthread_self());
}

void mutex_unlock(struct mutex *m) NO_THREAD_SAFETY_ANALYSIS
{
	assert(mutex_held(m));
	set_owner(m, 0);
	must(pthread_mutex_unlock(&m->m));
}

bool mutex_trylock(struct mutex *m) NO_THREAD_SAFETY_ANALYSIS
{
	int r = pthread_mutex_trylock(&m->m);

	if (r == EBUSY)
		return false;
	must(r);
	set_owner(m, pthread_self());
	return true;
}

/* Relaxed is enough: only this thread stores its own id, and it erases it before it unlocks. */
bool mutex_held(struct mutex *m)
{
	return atomic_load_explicit(&m->owner, memory_order_relaxed) == pthread_self();
}

void cond_init(struct cond *c)
{
	pthread_condattr_t attr;

	must(pthread_condattr_init(&attr));
	must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
	must(pthread_cond_init(&c->c, &attr));
	must(pthread_condattr_destroy(&attr));
}

void cond_release(struct cond *c)
{
	must(pthread_cond_destroy(&c->c));
}

void cond_signal(struct cond *c)
{
	must(pthread_cond_signal(&c->c));
}

void cond_broadcast(struct cond *c)
{
	must(pthread_cond_broadcast(&c->c));
}

void cond_wait(struct cond *c, struct mutex *m)
{
	assert(mutex_held(m));
	set_owner(m, 0);
	must(pthread_cond_wait(&c->c, &m->m));
	set_owner(m, pthread_self());
}

bool cond_wait_for(struct cond *c, struct mutex *m, uint64_t timeout_ns)
{
	uint64_t until, now = monotonic_ns();
	struct timespec ts;
	int r;

	assert(mutex_held(m));
	if (__builtin_add_overflow(now, timeout_ns, &until) || until > INT64_MAX)
		until = INT64_MAX; /* for ever */
	ts = (struct timespec){ .tv_sec = (time_t)(until / NS_PER_S), .tv_nsec = (long)(until % NS_PER_S) };
	set_owner(m, 0);
	r = pthread_cond_timedwait(&c->c, &m->m, &ts);
	set_owner(m, pthread_self());
	if (r == ETIMEDOUT)
		return false;
	must(r);
	return true;
}

void rwlock_init(struct rwlock *l)
{
	pthread_rwlockattr_t attr;

	must(pthread_rwlockattr_init(&attr));
	/* Without _NONRECURSIVE_ glibc ignores the preference. */
	must(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
	must(pthread_rwlock_init(&l->l, &attr));
	must(pthread_rwlockattr_destroy(&attr));
}

void rwlock_release(struct rwlock *l)
{
	must(pthread_rwlock_destroy(&l->l));
}

void rwlock_lock_shared(struct rwlock *l) NO_THREAD_SAFETY_ANALYSIS
{
	must(pthread_rwlock_rdlock(&l->l));
}

void rwlock_unlock_shared(struct rwlock *l) NO_THREAD_SAFETY_ANALYSIS
{
	must(pthread_rwlock_unlock(&l->l));
}

void rwlock_lock(struct rwlock *l) NO_THREAD_SAFETY_ANALYSIS
{
	must(pthread_rwlock_wrlock(&l->l));
}

void rwlock_unlock(struct rwlock *l) NO_THREAD_SAFETY_ANALYSIS
{
	must(pthread_rwlock_unlock(&l->l));
}
