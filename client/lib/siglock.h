/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An async-signal-safe lock and wait; pthread mutexes are not. The lock is one word and futex(2), which is a bare
 * system call. Outside of a handler all signals are blocked before a siglock is taken (siglock_enter()), and the
 * handlers that take it run with all signals blocked. So a thread that holds one cannot be interrupted by a handler
 * that takes it, and a handler that waits for it waits for another, running thread.
 */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mutex.h"

/* Blocks all signals of this thread, and of threads that it starts meanwhile. */
static inline void signals_block(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

static inline void signals_restore(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

struct CAPABILITY("mutex") siglock {
	_Atomic(uint32_t) word; /* 0: free, 1: held, 2: held, with possible waiters */
};

static inline void futex_wait(_Atomic(uint32_t) *word, uint32_t while_it_is)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, NULL, NULL, 0);
}

static inline void futex_wake_all(_Atomic(uint32_t) *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* In a handler with all signals blocked, or in a thread that has blocked them. Keeps errno. */
static inline void siglock_lock(struct siglock *l) ACQUIRE(*l) NO_THREAD_SAFETY_ANALYSIS
{
	uint32_t expected = 0;
	int saved = errno;

	if (!atomic_compare_exchange_strong_explicit(&l->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
		while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
			futex_wait(&l->word, 2);
	errno = saved;
}

static inline bool siglock_try(struct siglock *l) TRY_ACQUIRE(true, *l) NO_THREAD_SAFETY_ANALYSIS
{
	uint32_t expected = 0;

	return atomic_compare_exchange_strong_explicit(&l->word, &expected, 1, memory_order_acquire,
						       memory_order_relaxed);
}

static inline void siglock_unlock(struct siglock *l) RELEASE(*l) NO_THREAD_SAFETY_ANALYSIS
{
	int saved = errno;

	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

/* The same outside of handlers: blocks signals while the lock is held. */
static inline void siglock_enter(struct siglock *l, sigset_t *before) ACQUIRE(*l) NO_THREAD_SAFETY_ANALYSIS
{
	signals_block(before);
	siglock_lock(l);
}

static inline void siglock_leave(struct siglock *l, const sigset_t *before) RELEASE(*l) NO_THREAD_SAFETY_ANALYSIS
{
	siglock_unlock(l);
	signals_restore(before);
}
