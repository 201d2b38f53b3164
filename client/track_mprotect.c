/*
 * Tracking by mprotect(2): a closed page is read-only, and a write to it a SIGSEGV, whose handler opens it. The handler runs with all
 * signals blocked and calls fault_touch() alone (faults.c tells why that is safe) or, for a fault that is none of ours, what the program
 * had installed before, as the kernel would have called it; without one the default action is set and the fault comes again: the program
 * ends as it would have. A system call that writes to a closed page does not fault but fails with EFAULT: interpose.c.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "client/client.h"
#include "client/track.h"

static struct sigaction before; /* of the program; set before ours is, and then by sigaction() of interpose.c */
static bool started;

static void chain(int signal, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(signal, info, context);
	} else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
		struct sigaction action = { .sa_handler = SIG_DFL };

		sigaction(signal, &action, NULL);
	} else {
		before.sa_handler(signal);
	}
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	int saved = errno;

	if (info->si_code != SEGV_ACCERR || !fault_touch((uintptr_t)info->si_addr, true))
		chain(signal, info, context);
	errno = saved;
}

static int install(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };

	if (started)
		return 0;
	sigfillset(&action.sa_mask);
	if (sigaction(SIGSEGV, &action, &before) < 0)
		return log_errno(-errno, "checkpoints: handler of SIGSEGV");
	started = true;
	return 0;
}

void track_mprotect_stop(void)
{
	struct sigaction now;

	if (!started)
		return;
	/* Whoever has installed a handler since then calls ours, perhaps: it stays, and passes on what is not ours, which is all. */
	if (sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_fault) {
		sigaction(SIGSEGV, &before, NULL);
		started = false;
	}
}

static int set(void *p, size_t len, int protection)
{
	return mprotect(p, len, protection) < 0 ? -errno : 0;
}

static int mprotect_open(void *p, size_t len)
{
	return set(p, len, PROT_READ | PROT_WRITE);
}

static int mprotect_close(void *p, size_t len)
{
	return set(p, len, PROT_READ);
}

static int mprotect_attach(struct region *r)
{
	int error = install();

	if (error < 0 || r->nr_pages == 0)
		return error;
	/* Whether it can be done at all: memory that is not there, or of pages that are larger than that. */
	error = mprotect_open(r->start, (size_t)r->nr_pages * client.page_size);
	return error < 0 ? log_errno(error, "region %s: cannot be protected", r->name) : 0;
}

static void mprotect_detach(struct region *r)
{
	if (r->nr_pages > 0 && mprotect_open(r->start, (size_t)r->nr_pages * client.page_size) < 0)
		log_warning("region %s: %s", r->name, strerror(errno));
}

const struct track track_mprotect = {
	.name = "mprotect",
	.attach = mprotect_attach,
	.detach = mprotect_detach,
	.close = mprotect_close,
	.open = mprotect_open,
};
