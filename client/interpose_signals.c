/*
 * Of interpose.h: signals. Whoever blocks SIGSEGV and writes to a closed page would be ended by the kernel, so nobody can while memory is tracked by mprotect(2); and
 * a handler of it that the program sets is called for faults that are its own (track_mprotect.c).
 */
#include "client/interpose.h"

#include <signal.h>

#include "base/log.h"

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

sighandler_t signal(int number, sighandler_t handler)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART }, old;

	if (number == SIGSEGV && track_mprotect_installed && track_mprotect_action(&action, &old))
		return old.sa_flags & SA_SIGINFO ? SIG_DFL : old.sa_handler;
	return NEXT(signal)(number, handler);
}

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

/* A stack for handlers, ours among them: the kernel could not write to it when it is closed. */
int sigaltstack(const stack_t *stack, stack_t *old)
{
	if (stack && !(stack->ss_flags & SS_DISABLE) && track_mprotect_may_close(stack->ss_sp, stack->ss_size) &&
	    track_mprotect_has(stack->ss_sp, stack->ss_size)) {
		log_error("checkpoints: a stack for handlers at %p is in a region, which is tracked by mprotect(2)", stack->ss_sp);
		errno = EINVAL;
		return -1;
	}
	return RESULT(old, at, NEXT(sigaltstack)(stack, at));
}
