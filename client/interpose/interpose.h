/*
 * Functions that are put before those of the C library because the kernel writes to the program's memory for them: with
 * memory that is tracked by mprotect(2) it does not raise SIGSEGV then, but the call fails with EFAULT. Two ways, both
 * only where the memory may be closed:
 *
 *   borrow   what is small, or comes in messages: the kernel writes to memory of ours, and we from there to the program's, which opens pages as any write
 *            does. So it does not matter when a checkpoint closes them, nothing is lost and nothing is done twice.
 *   open     what is large: pages are opened first. If another thread takes a checkpoint in between, they are closed again and the call may fail; then it
 *            is made once more. That is for calls that have done nothing when they fail: reading files, pipes and streams.
 *
 * One file for each subject. Functions whose results the C library itself writes, from where the kernel has put them,
 * need none of this: statvfs(3), sigwait(3), tcgetattr(3), timer_create(2).
 *
 * They are called before anything has been initialised: by constructors, by the loader, by sanitizers that begin; and
 * in handlers of signals. So up to the look at a variable, which is all that they cost where no region is tracked that
 * way, they use nothing but static data; and all this is compiled without sanitizers, and with exceptions: a thread
 * that is cancelled in a call gives back what it has borrowed.
 */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"
#include "client/ckptfs.h"
#include "client/track.h"

/* A function that another one is put before. All are looked for when the library begins: later may be in a handler of
 * signals. */
struct interposed {
	const char *name;
	void *next; /* NULL: not yet */
} __attribute__((aligned(16))); /* its size: so all of them are an array, if with gaps */
/* now, by somebody who comes before that. Ends the program if there is none */
void *interposed_find(struct interposed *f);

#define NEXT(name_)                                                                     \
	({                                                                              \
		static struct interposed _f __attribute__((section("ckptfs_interposed"))) = { .name = #name_ }; \
		void *_next = __atomic_load_n(&_f.next, __ATOMIC_RELAXED);              \
		(__typeof__(&name_))(_next ? _next : interposed_find(&_f));             \
	})

/* A mask of signals as it may be set: who has SIGSEGV blocked and writes to a closed page would be ended by the
 * kernel. */
const sigset_t *interpose_mask(const sigset_t *set, sigset_t *room);

/* --- open --- */

/* which checkpoint there was last; settled: when the one that is just closing pages has done so */
uint64_t interpose_epoch(bool settled);

/* `open` opens what `call` writes to. Pages that were open when it was made and are not any more have been closed by a
 * checkpoint in between: an EFAULT that comes without one is the program's. */
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

/* The argument of a function that may have one more, behind `last`. */
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

#define LOAN_SMALL 512u /* bytes: on the stack, which may be that of a handler */
#define LOAN_MAX (256u << 10) /* larger than any message that there is */

struct loan {
	void *p, *lent; /* the program's; where the kernel writes: there as well, or our copy */
	size_t len;
	size_t mapped; /* bytes of `lent`; 0: it is `small` or the program's */
	char small[LOAN_SMALL] __attribute__((aligned(16)));
};

/* NULL is nothing to write to. keep: the kernel reads it, too. Without memory to lend it is the program's own,
 * opened. */
void loan_take(struct loan *l, void *p, size_t len, bool keep);
void loan_return(struct loan *l, size_t len); /* so much of it has been written. errno stays */
void loan_end(struct loan *l); /* without anything */

static inline bool is_lent(const struct loan *l)
{
	return l->lent != l->p;
}

/* Names of variables are made from `at`, so that one can stand in another.
 *
 * One result, or several of `bytes` together, that the kernel may have written whatever comes of the call. In `call`,
 * `at` stands for `p`. */
#define RESULTS(p, bytes, at, call)							\
	({										\
		_cleanup_(loan_end) struct loan _loan_##at;				\
		__typeof__(p) at = (p);							\
		__typeof__(call) _r_##at;						\
		bool _lent_##at = track_mprotect_may_close(p, bytes);			\
		_loan_##at.mapped = 0; /* the rest is not touched where nothing is lent */	\
		if (_lent_##at) {							\
			loan_take(&_loan_##at, (void *)(p), bytes, true);		\
			at = _loan_##at.lent;						\
		}									\
		_r_##at = (call);							\
		if (_lent_##at)								\
			loan_return(&_loan_##at, _loan_##at.len);			\
		_r_##at;								\
	})
#define RESULT(p, at, call) RESULTS(p, sizeof(*(p)), at, call)

/* What is read: as many bytes as `call` returns. Large ones are opened. */
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
			at = _loan_##at.lent;						\
			_r_##at = (call);						\
			loan_return(&_loan_##at, _r_##at > 0 ? MIN((size_t)_r_##at, (size_t)(bytes)) : 0);	\
		}									\
		_r_##at;								\
	})

/* The same for an address of a socket, whose room `len` tells, and what has become of it. */
#define ADDRESS(address, len, at, at_len, call)						\
	RESULTS(address, (address) && (len) ? *(len) : 0, at, RESULT(len, at_len, call))
