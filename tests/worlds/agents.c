/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Each agent's loop on a stack of its own, which it leaves when it naps; and the clock. */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "mpi-agent/wire/arena.h"
#include "mpi-agent/agent/agent_loop.h"
#include "worlds_internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define start_switch(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define finish_switch(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define start_switch(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#define finish_switch(save, bottom, size) ((void)(save), (void)(bottom), (void)(size))
#endif

#define STACK_LEN ((size_t)128 << 10)
#define SLOW_NS (3 * MS) /* more than it meant to nap, at most: others have the processor */

/* Kept for the next world. */
struct fiber {
	ucontext_t context;
	void *stack;
	void *fake_stack; /* of AddressSanitizer */
	struct reduction *reducing;
};
static struct fiber fibers[WORLDS_NODES];
static ucontext_t scheduler;
static void *scheduler_fake;
static const void *scheduler_bottom;
static size_t scheduler_size;

static void leave(struct fiber *f, bool for_good)
{
	start_switch(for_good ? NULL : &f->fake_stack, scheduler_bottom, scheduler_size);
	swapcontext(&f->context, &scheduler);
	finish_switch(f->fake_stack, &scheduler_bottom, &scheduler_size);
}

static void run(void)
{
	static const struct arenas none;
	struct agent *a = ws->current;

	finish_switch(NULL, &scheduler_bottom, &scheduler_size);
	a->result = loop_run(&a->w, &a->link, &none, &ws->waits, &ws->rounds_conf, -1);
	a->is_over = true;
	leave(a->fiber, true);
	abort();
}

void agent_begin(struct agent *a)
{
	struct fiber *f = &fibers[a - ws->agents];

	if (!f->stack) {
		f->stack = mmap(NULL, STACK_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (f->stack == MAP_FAILED)
			abort();
	}
	f->fake_stack = NULL;
	f->reducing = NULL;
	getcontext(&f->context);
	f->context.uc_stack = (stack_t){ .ss_sp = f->stack, .ss_size = STACK_LEN };
	f->context.uc_link = NULL;
	makecontext(&f->context, run, 0);
	a->fiber = f;
}

void agent_turn(struct agent *a)
{
	struct fiber *f = a->fiber;

	ws->current = a;
	ws->result->nr_turns++;
	reduction_swap(f->reducing);
	memory_track(true);
	start_switch(&scheduler_fake, f->stack, STACK_LEN);
	swapcontext(&scheduler, &f->context);
	finish_switch(scheduler_fake, NULL, NULL);
	memory_track(false);
	f->reducing = reduction_swap(NULL);
	ws->current = NULL;
}

void worlds_release(void)
{
	for (struct fiber *f = fibers; f < fibers + WORLDS_NODES; f++) {
		if (f->stack)
			munmap(f->stack, STACK_LEN);
		f->stack = NULL;
	}
}

/* --- what the loop calls --- */

uint64_t __real_monotonic_ns(void);
uint64_t __wrap_monotonic_ns(void);
int __wrap_ppoll(struct pollfd *fds, nfds_t nr, const struct timespec *ts, const sigset_t *mask);
int __wrap___ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *ts, const sigset_t *mask, size_t len);

uint64_t __wrap_monotonic_ns(void)
{
	return ws ? ws->now_ns : __real_monotonic_ns();
}

/* The daemon's socket wakes it. */
static bool daemon_speaks(const struct daemon *d)
{
	return !d->is_connected || wire_next_ns(&d->out) <= ws->now_ns;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t nr, const struct timespec *ts, const sigset_t *mask)
{
	struct agent *a = ws->current;

	(void)mask;
	a->wake_ns = ws->now_ns + (uint64_t)ts->tv_nsec + ws_between(0, SLOW_NS);
	if (ws_faulty(AGENT_STOPS)) { /* stopped, or on a machine that is */
		uint64_t ns = ws_between(10 * MS, 2 * ws->waits.stall_ns);

		ws_trace("agent %td: is not there for %ju ms", a - ws->agents, (uintmax_t)(ns / MS));
		a->stopped_ns = ws->now_ns + ns;
	}
	leave(a->fiber, false);
	for (nfds_t i = 0; i < nr; i++)
		fds[i].revents = 0;
	if (fds[0].fd >= 0 && daemon_speaks(a->daemon)) {
		fds[0].revents = POLLIN;
		return 1;
	}
	return 0;
}

int __wrap___ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *ts, const sigset_t *mask, size_t len)
{
	(void)len;
	return __wrap_ppoll(fds, nr, ts, mask);
}
