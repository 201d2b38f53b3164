/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tracking by mprotect(2): a closed page is read-only; a write to it raises SIGSEGV, and the handler opens it. The
 * handler runs with all signals blocked and only calls fault_touch() (faults.c explains why that is safe). A fault
 * outside tracked pages is passed to the program's own handler, as the kernel would have called it. Without one the
 * default action is set and the fault repeats, so that the program ends as it would have. A system call that writes to
 * a closed page does not fault but fails with EFAULT; interpose.h handles these.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/track.h"

/* the program's own action, saved or set while ours is installed; under client.lock once ours is installed */
static struct sigaction programs;
_Atomic(bool) track_mprotect_installed;
_Atomic(uint32_t) track_mprotect_regions;
bool track_mprotect_not_interposed;
_Atomic(uintptr_t) track_mprotect_low = UINTPTR_MAX, track_mprotect_high;

/* Bypasses the sigaction() of interpose_signals.c. */
static int next_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	static int (*real)(int, const struct sigaction *, struct sigaction *);

	if (!real)
		real = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	return real ? real(number, action, old) : -1;
}

/* Returns the program's action; `next`, if not NULL, replaces it. With signals blocked. */
static struct sigaction swap_programs_action(const struct sigaction *next)
{
	struct sigaction action;

	client_lock();
	action = programs;
	if (next)
		programs = *next;
	client_unlock();
	return action;
}

/* Blocks the signals that the kernel would have blocked for the handler, except SIGSEGV: it may write to closed
 * pages. */
static void set_handler_mask(const struct sigaction *action, const ucontext_t *context)
{
	sigset_t mask;

	sigorset(&mask, &context->uc_sigmask, &action->sa_mask);
	sigdelset(&mask, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &mask, NULL); /* returning from the handler restores the previous mask */
}

static void call_programs_handler(int signal, siginfo_t *info, void *context)
{
	static const struct sigaction none = { .sa_handler = SIG_DFL };
	struct sigaction action = swap_programs_action(NULL);

	if (action.sa_flags & (int)SA_RESETHAND)
		swap_programs_action(&none);
	set_handler_mask(&action, context);
	if (action.sa_flags & SA_SIGINFO) {
		action.sa_sigaction(signal, info, context);
	} else if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
		action = (struct sigaction){ .sa_handler = SIG_DFL };
		next_sigaction(SIGSEGV, &action, NULL);
	} else {
		action.sa_handler(signal);
	}
}

/* Handles a fault on tracked memory. false: the fault is the program's own. The region may have been removed since the
 * write, and its memory opened: then a retry succeeds. If the fault repeats without another removal, it is the
 * program's own. */
static bool handle_fault(const siginfo_t *info)
{
	static _Thread_local struct {
		const void *p;
		uint32_t nr_gone;
	} last __attribute__((tls_model("initial-exec")));
	const void *p = info->si_addr;
	uint32_t nr_gone;

	if (info->si_code != SEGV_ACCERR)
		return false;
	if (fault_touch((uintptr_t)p, true))
		return true;
	nr_gone = atomic_load(&client.nr_gone);
	if ((uintptr_t)p < track_mprotect_low || (uintptr_t)p >= track_mprotect_high ||
	    (p == last.p && nr_gone == last.nr_gone))
		return false;
	last.p = p;
	last.nr_gone = nr_gone;
	return true;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	int saved = errno;

	if (!handle_fault(info))
		call_programs_handler(signal, info, context);
	errno = saved;
}

/* Unblocks SIGSEGV in this thread, in threads it will start and in installed handlers: all may write to closed pages.
 * interpose_signals.c does the same for handlers installed later. */
static void unblock_faults(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	for (int i = 1; i <= SIGRTMAX; i++) {
		struct sigaction action;

		if (i == SIGSEGV || next_sigaction(i, NULL, &action) < 0 || !sigismember(&action.sa_mask, SIGSEGV))
			continue;
		sigdelset(&action.sa_mask, SIGSEGV);
		next_sigaction(i, &action, NULL);
	}
}

static int install_handler(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };

	if (track_mprotect_installed)
		return 0;
	sigfillset(&action.sa_mask);
	if (next_sigaction(SIGSEGV, &action, &programs) < 0)
		return log_errno(-errno, "checkpoints: cannot install a handler of SIGSEGV");
	track_mprotect_installed = true;
	unblock_faults();
	if (track_mprotect_not_interposed)
		log_warning(
			"checkpoints: libckptfs was loaded after the C library: system calls that write to regions may fail with EFAULT; link it, or LD_PRELOAD it");
	return 0;
}

void track_mprotect_stop(void)
{
	struct sigaction now;

	/* A handler that was installed bypassing sigaction() may call ours: then ours stays, and passes all faults
	 * on. */
	if (track_mprotect_installed && next_sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_fault) {
		next_sigaction(SIGSEGV, &programs, NULL);
		track_mprotect_installed = false;
	}
}

bool track_mprotect_action(const struct sigaction *action, struct sigaction *old)
{
	struct sigaction was, next;
	sigset_t before;

	if (!track_mprotect_installed)
		return false;
	if (action)
		next = *action; /* it may be in protected memory */
	signals_block(&before);
	was = swap_programs_action(action ? &next : NULL);
	signals_restore(&before);
	if (old)
		*old = was;
	return true;
}

bool track_mprotect_has(const void *p, size_t len)
{
	uintptr_t begin = (uintptr_t)p, end = begin + len;
	bool found = false;
	sigset_t before;

	signals_block(&before);
	client_lock();
	for (uint32_t i = 0; !found && i < client.nr_regions; i++) {
		const struct region *r = client.by_address[i];
		uintptr_t start = (uintptr_t)r->start;

		found = r->track == &track_mprotect && start < end &&
			begin < start + (size_t)r->nr_pages * client.page_size;
	}
	client_unlock();
	signals_restore(&before);
	return found;
}

static int mprotect_open(void *p, size_t len)
{
	return mprotect(p, len, PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

static int mprotect_close(void *p, size_t len)
{
	return mprotect(p, len, PROT_READ) < 0 ? -errno : 0;
}

/* With client.call. */
static void widen_bounds(const struct region *r)
{
	uintptr_t low = (uintptr_t)r->start, high = low + (size_t)r->nr_pages * client.page_size;

	track_mprotect_low = MIN(low, track_mprotect_low);
	track_mprotect_high = MAX(high, track_mprotect_high);
}

static int mprotect_attach(struct region *r)
{
	int error = install_handler();

	if (error < 0 || r->nr_pages == 0)
		return error;
	/* Fails for unmapped memory, and for pages larger than client.page_size. */
	error = mprotect_open(r->start, (size_t)r->nr_pages * client.page_size);
	if (error < 0)
		return log_errno(error, "region %s: cannot protect", r->name);
	widen_bounds(r);
	track_mprotect_regions++;
	return 0;
}

static void mprotect_detach(struct region *r)
{
	if (r->nr_pages == 0)
		return;
	track_mprotect_regions--;
	if (mprotect_open(r->start, (size_t)r->nr_pages * client.page_size) < 0)
		log_warning("region %s: cannot make writable: %s", r->name, strerror(errno));
}

void track_mprotect_forget(void)
{
	track_mprotect_regions = 0;
}

const struct track track_mprotect = {
	.name = "mprotect",
	.attach = mprotect_attach,
	.detach = mprotect_detach,
	.close = mprotect_close,
	.open = mprotect_open,
};
