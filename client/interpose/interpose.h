/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interposed functions of the C library: those for which the kernel writes to the program's memory. If that memory is
 * tracked by mprotect(2), such a call fails with EFAULT instead of raising SIGSEGV. There are two remedies, used only
 * where the memory may be closed:
 *
 *   borrow   for small results, and messages: the kernel writes to a buffer of libckptfs, which is copied to the
 *            program's memory; that opens pages as any write does. It does not matter when a checkpoint closes them:
 *            nothing is lost and nothing is done twice.
 *   open     for large results: pages are opened first. If another thread takes a checkpoint in between, they are
 *            closed again and the call may fail; then it is repeated. This is for calls without effect if they fail: reading
 *            files, pipes and streams.
 *
 * There is one file for each subject. Functions whose results are copied by the C library from its own buffers need no
 * remedy: statvfs(3), sigwait(3), tcgetattr(3), timer_create(2).
 *
 * The functions may be called before initialisation (by constructors, the loader and starting sanitizers) and in signal
 * handlers. So up to the test of one variable, which is their whole cost where no region is tracked by mprotect(2),
 * they use static data only. They are compiled without sanitizers, and with exceptions: a thread that is cancelled in a
 * call returns its loans.
 */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/lib/track.h"

/* An interposed function. All are resolved when the library is loaded: dlsym(3) is not async-signal-safe. */
struct interposed {
	const char *name;
	void *next; /* the C library's function; NULL: not resolved */
} __attribute__((aligned(16))); /* its size, so that the section is an array, possibly with gaps */
/* Resolves a function that is called before that. Aborts if there is none. */
void *interposed_resolve(struct interposed *f);

#define NEXT(name_)                                                                     \
	({                                                                              \
		static struct interposed _f __attribute__((section("ckptfs_interposed"))) = { .name = #name_ }; \
		void *_next = __atomic_load_n(&_f.next, __ATOMIC_RELAXED);              \
		(__typeof__(&name_))(_next ? _next : interposed_resolve(&_f));          \
	})

/* Removes SIGSEGV from a signal mask: the kernel kills a thread that blocks it and writes to a closed page. */
const sigset_t *interpose_mask(const sigset_t *set, sigset_t *room);

/* --- open --- */

/* Identifies the last checkpoint. settled: waits for one that is closing pages. */
uint64_t interpose_epoch(bool settled);

/* `open` opens the pages that `call` writes to. The call is repeated if a checkpoint has closed them in between; an
 * EFAULT without a checkpoint is the program's own. */
#define OPENED(open, call)								\
	({										\
		uint64_t _epoch;							\
		__typeof__(call) _opened;						\
		do {									\
			_epoch = interpose_epoch(false);				\
			if (track_mprotect_used())					\
				open;							\
			_opened = (call);						\
		} while (_opened == (__typeof__(_opened))-1 && errno == EFAULT && track_mprotect_used() && _epoch != interpose_epoch(true));	\
		_opened;								\
	})

/* The optional argument of a function behind `last`. */
#define TAKE_ARGUMENT(last)                     \
	({                                      \
		va_list _args;                  \
		void *_p;                       \
		va_start(_args, last);          \
		_p = va_arg(_args, void *);     \
		va_end(_args);                  \
		_p;                             \
	})

/* --- borrow --- */

#define LOAN_SMALL 512u /* bytes on the stack, which may be that of a handler */
#define LOAN_MAX (256u << 10) /* larger than any message */

struct loan {
	void *p, *buffer; /* the program's memory; where the kernel writes: a buffer, or p itself */
	size_t len;
	size_t mapped; /* bytes of `buffer`; 0: it is `small` or p */
	char small[LOAN_SMALL] __attribute__((aligned(16)));
};

/* keep: the kernel also reads it. Without memory for a buffer, `p` itself is opened and used. */
void loan_take(struct loan *l, void *p, size_t len, bool keep);
void loan_return(struct loan *l, size_t len); /* copies `len` bytes to the program and ends the loan; errno unchanged */
void loan_end(struct loan *l);

static inline bool is_borrowed(const struct loan *l)
{
	return l->buffer != l->p;
}

/* For one result, or several of `bytes` together, that the kernel may have written even if the call fails. In `call`,
 * `at` stands for `p`. Names of variables are derived from `at`, so that these macros can be nested. */
#define RESULTS(p, bytes, at, call)                                                 \
	({                                                                          \
		_cleanup_(loan_end) struct loan _loan_##at;                         \
		__typeof__(p) at = (p);                                             \
		__typeof__(call) _r_##at;                                           \
		bool _borrowed_##at = track_mprotect_may_close(p, bytes);           \
		_loan_##at.mapped = 0; /* the rest is not touched without a loan */ \
		if (_borrowed_##at) {                                               \
			loan_take(&_loan_##at, (void *)(p), bytes, true);           \
			at = _loan_##at.buffer;                                     \
		}                                                                   \
		_r_##at = (call);                                                   \
		if (_borrowed_##at)                                                 \
			loan_return(&_loan_##at, _loan_##at.len);                   \
		_r_##at;                                                            \
	})
#define RESULT(p, at, call) RESULTS(p, sizeof(*(p)), at, call)

/* For a buffer of which the kernel writes as many bytes as `call` returns. Large ones are opened. */
#define BUFFER(p, bytes, at, call)							\
	({										\
		_cleanup_(loan_end) struct loan _loan_##at;				\
		__typeof__(p) at = (p);							\
		__typeof__(call) _r_##at;						\
		_loan_##at.mapped = 0;							\
		if (!track_mprotect_may_close(p, bytes)) {				\
			_r_##at = (call);						\
		} else if ((bytes) > LOAN_MAX) {					\
			_r_##at = OPENED(ckptfs_touch(p, bytes), call);			\
		} else {								\
			loan_take(&_loan_##at, (void *)(p), bytes, false);		\
			at = _loan_##at.buffer;						\
			_r_##at = (call);						\
			loan_return(&_loan_##at, _r_##at > 0 ? MIN((size_t)_r_##at, (size_t)(bytes)) : 0);	\
		}									\
		_r_##at;								\
	})

/* For a socket address with its size in and out in `len`. */
#define ADDRESS(address, len, at, at_len, call)						\
	RESULTS(address, (address) && (len) ? *(len) : 0, at, RESULT(len, at_len, call))
