/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutexes, condition variables and reader-writer locks with clang's thread-safety annotations and,
 * for gcc, an owner that assert(mutex_held()) can ask for. The order of all locks: docs/locking.md.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define TSA(x) __attribute__((x))
#else
#define TSA(x)
#endif
#define CAPABILITY(name) TSA(capability(name))
#define REQUIRES(...) TSA(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) TSA(requires_shared_capability(__VA_ARGS__))
#define ACQUIRE(...) TSA(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) TSA(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) TSA(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) TSA(release_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TSA(try_acquire_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS TSA(no_thread_safety_analysis)
#define GUARDED_BY(x) /* documentation: clang 14 does not check it on C members */

struct CAPABILITY("mutex") mutex {
	pthread_mutex_t m;
	_Atomic(pthread_t) owner; /* 0 = free */
};

/* For annotations: stands for a lock inside a struct that the annotated function does not see. Never defined. */
struct CAPABILITY("hidden lock") hidden_lock {
	char unused;
};

#define MUTEX_INIT { .m = PTHREAD_MUTEX_INITIALIZER }

void mutex_init(struct mutex *m);
void mutex_release(struct mutex *m);
void mutex_lock(struct mutex *m) ACQUIRE(*m);
void mutex_unlock(struct mutex *m) RELEASE(*m);
bool mutex_trylock(struct mutex *m) TRY_ACQUIRE(true, *m);
bool mutex_held(struct mutex *m); /* by the calling thread */

struct cond {
	pthread_cond_t c; /* on CLOCK_MONOTONIC */
};

void cond_init(struct cond *c);
void cond_release(struct cond *c);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m) REQUIRES(*m);
/* false: `timeout_ns` passed */
bool cond_wait_for(struct cond *c, struct mutex *m, uint64_t timeout_ns) REQUIRES(*m);

/* Prefers writers: a waiting writer keeps new readers out, so the rare exclusive holder is not starved. */
struct CAPABILITY("rwlock") rwlock {
	pthread_rwlock_t l;
};

void rwlock_init(struct rwlock *l);
void rwlock_release(struct rwlock *l);
void rwlock_lock_shared(struct rwlock *l) ACQUIRE_SHARED(*l);
void rwlock_unlock_shared(struct rwlock *l) RELEASE_SHARED(*l);
void rwlock_lock(struct rwlock *l) ACQUIRE(*l);
void rwlock_unlock(struct rwlock *l) RELEASE(*l);
