/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "base/util.h"

#define NS_PER_S UINT64_C(1000000000)

static volatile sig_atomic_t caught;

static void on_interrupt(_unused_ int signal)
{
	caught = 1;
}

void interrupt_catch(void)
{
	struct sigaction action = { .sa_handler = on_interrupt }, before;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL); /* unless nohup(1) has it ignored */
}

bool interrupted(void)
{
	return caught != 0;
}

void interrupt_sleep(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
	sigset_t block, before;

	/* Blocked until ppoll() waits: a signal between the check of `caught` and the wait would be lost. */
	sigemptyset(&block);
	sigaddset(&block, SIGINT);
	sigaddset(&block, SIGTERM);
	sigaddset(&block, SIGHUP);
	sigprocmask(SIG_BLOCK, &block, &before);
	if (!caught)
		ppoll(NULL, 0, &ts, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
}
