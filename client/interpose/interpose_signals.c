/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interposed functions (interpose.h): signals. The kernel kills a thread that blocks SIGSEGV and writes to a closed
 * page, so SIGSEGV cannot be blocked while memory is tracked by mprotect(2). The program's own handler of it is called
 * for the program's own faults only (track_mprotect.c).
 */
#include "client/interpose/interpose.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include "base/log.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* programs call them nevertheless */

/* Declared by headers only with some feature macros. */
sighandler_t bsd_signal(int number, sighandler_t handler);
int __sigpause(int signal_or_mask, int is_signal);

/* --- handlers --- */

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction open;

	if (!track_mprotect_installed)
		return NEXT(sigaction)(number, action, old);
	if (number == SIGSEGV && track_mprotect_action(action, old))
		return 0;
	if (action) {
		open = *action;
		sigdelset(&open.sa_mask, SIGSEGV); /* it may write to closed pages */
	}
	return NEXT(sigaction)(number, action ? &open : NULL, old);
}

/* Sets the program's handler of SIGSEGV, for functions other than sigaction(2). false: it is another signal, or ours is
 * not installed. */
static bool set_segv_handler(int number, sighandler_t handler, int flags, sighandler_t *ret)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags }, old;

	if (number != SIGSEGV || handler == SIG_ERR || !track_mprotect_action(&action, &old))
		return false;
	*ret = old.sa_flags & SA_SIGINFO ? SIG_DFL : old.sa_handler;
	return true;
}

sighandler_t signal(int number, sighandler_t handler)
{
	sighandler_t old;

	return set_segv_handler(number, handler, SA_RESTART, &old) ? old : NEXT(signal)(number, handler);
}

sighandler_t ssignal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

sighandler_t bsd_signal(int number, sighandler_t handler)
{
	return signal(number, handler);
}

/* The signal() of programs compiled for System V or X/Open only. */
sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	sighandler_t old;

	return set_segv_handler(number, handler, (int)(SA_RESETHAND | SA_NODEFER), &old) ?
		       old :
		       NEXT(__sysv_signal)(number, handler);
}

sighandler_t sysv_signal(int number, sighandler_t handler)
{
	return __sysv_signal(number, handler);
}

sighandler_t sigset(int number, sighandler_t handler)
{
	struct sigaction old;
	sighandler_t was;

	if (handler == SIG_HOLD && number == SIGSEGV && track_mprotect_action(NULL, &old))
		return old.sa_flags & SA_SIGINFO ? SIG_DFL : old.sa_handler; /* as it is: it cannot be blocked */
	return set_segv_handler(number, handler, 0, &was) ? was : NEXT(sigset)(number, handler);
}

int sigignore(int number)
{
	sighandler_t old;

	return set_segv_handler(number, SIG_IGN, 0, &old) ? 0 : NEXT(sigignore)(number);
}

/* --- masks --- */

const sigset_t *interpose_mask(const sigset_t *set, sigset_t *room)
{
	if (!set || !track_mprotect_installed || !sigismember(set, SIGSEGV))
		return set;
	*room = *set;
	sigdelset(room, SIGSEGV);
	return room;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t room;

	set = how == SIG_UNBLOCK ? set : interpose_mask(set, &room);
	return RESULT(old, at, NEXT(sigprocmask)(how, set, at));
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t room;

	set = how == SIG_UNBLOCK ? set : interpose_mask(set, &room);
	return RESULT(old, at, NEXT(pthread_sigmask)(how, set, at));
}

int sigsuspend(const sigset_t *set)
{
	sigset_t room;

	return NEXT(sigsuspend)(interpose_mask(set, &room));
}

int sighold(int number)
{
	return number == SIGSEGV && track_mprotect_installed ? 0 : NEXT(sighold)(number);
}

/* Masks of the first 32 signals. */
static int interpose_int_mask(int mask)
{
	return track_mprotect_installed ? mask & ~(1 << (SIGSEGV - 1)) : mask;
}

int sigblock(int mask)
{
	return NEXT(sigblock)(interpose_int_mask(mask));
}

int sigsetmask(int mask)
{
	return NEXT(sigsetmask)(interpose_int_mask(mask));
}

int __sigpause(int signal_or_mask, int is_signal)
{
	return NEXT(__sigpause)(is_signal ? signal_or_mask : interpose_int_mask(signal_or_mask), is_signal);
}

/* The headers declare X/Open's sigpause(), which takes a signal. */
int sigpause_with_mask(int mask) __asm__("sigpause");
int sigpause_with_mask(int mask)
{
	return __sigpause(mask, 0);
}

int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *set)
{
	sigset_t room;

	return NEXT(pthread_attr_setsigmask_np)(attr, interpose_mask(set, &room));
}

/* Changes the mask in the program's own context. swapcontext(3) cannot be interposed: when the context that it saves is
 * resumed a second time, the stack frame of the interposed function has already returned. */
int setcontext(const ucontext_t *context)
{
	if (track_mprotect_installed && sigismember(&context->uc_sigmask, SIGSEGV))
		sigdelset((sigset_t *)(uintptr_t)&context->uc_sigmask, SIGSEGV);
	return NEXT(setcontext)(context);
}

/* --- signals --- */

int sigpending(sigset_t *set)
{
	return RESULT(set, at, NEXT(sigpending)(at));
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	return RESULT(info, at, NEXT(sigtimedwait)(set, at, timeout));
}

int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
	return RESULT(info, at, NEXT(sigwaitinfo)(set, at));
}

/* The kernel cannot write a signal frame to a stack on closed pages. */
int sigaltstack(const stack_t *stack, stack_t *old)
{
	if (stack && !(stack->ss_flags & SS_DISABLE) && track_mprotect_may_close(stack->ss_sp, stack->ss_size) &&
	    track_mprotect_has(stack->ss_sp, stack->ss_size)) {
		log_error("checkpoints: signal stack at %p is in a region that is tracked by mprotect(2)", stack->ss_sp);
		errno = EINVAL;
		return -1;
	}
	return RESULT(old, at, NEXT(sigaltstack)(stack, at));
}
