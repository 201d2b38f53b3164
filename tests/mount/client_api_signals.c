/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Of client_api.c: older and rarer ways to block signals and to set handlers, none of which keeps the program from
 * writing to closed pages. */
#include "client_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* which programs call all the same */

static uint8_t *volatile nowhere = (uint8_t *)16; /* a mistake of the program's */
static uint8_t *p; /* closed */

static void closed(void)
{
	p[0] = 1;
	api_take();
}

/* --- threads that block all signals --- */

static void by_sighold(void)
{
	CHECK(sighold(SIGSEGV) == 0 && sighold(SIGUSR1) == 0);
}

static void by_sigblock(void)
{
	sigblock(~0);
}

static void by_sigsetmask(void)
{
	sigsetmask(~0);
}

static void by_sigset(void)
{
	CHECK(sigset(SIGSEGV, SIG_HOLD) != SIG_ERR && sigset(SIGUSR1, SIG_HOLD) == SIG_DFL);
}

static void by_setcontext(void)
{
	static ucontext_t context;
	static volatile bool been;

	been = false;
	CHECK(getcontext(&context) == 0);
	if (been)
		return;
	been = true;
	sigfillset(&context.uc_sigmask);
	setcontext(&context);
	CHECK(false);
}

static void *write_to_it(void *arg)
{
	sigset_t now;

	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
	p[0]++;
	return arg;
}

static void by_the_attributes_of_a_thread(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;

	sigfillset(&all);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setsigmask_np(&attr, &all) == 0);
	CHECK(pthread_create(&thread, &attr, write_to_it, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(p[0] == 2 && pthread_attr_destroy(&attr) == 0);
	by_sigblock(); /* as the others */
	closed();
}

static void a_thread_that_blocks_all_signals_may_write(void)
{
	static void (*const ways[])(void) = { by_sighold, by_sigblock,	 by_sigsetmask,
					      by_sigset,  by_setcontext, by_the_attributes_of_a_thread };
	sigset_t before, now;

	api_begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		closed();
		ways[i]();
		p[0]++;
		CHECK(p[0] == 2 && sigprocmask(SIG_SETMASK, &before, &now) == 0 && sigismember(&now, SIGUSR1));
	}
	api_end();
}

static void on_alarm(int number)
{
	(void)number;
	p[0]++;
}

static void a_thread_that_waits_with_an_old_mask_may_write(void)
{
	/* the headers have another one of that name */
	int (*wait_with_mask)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "sigpause");
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	sigset_t alarm, before;

	api_begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(sigprocmask(SIG_BLOCK, &alarm, &before) == 0 && signal(SIGALRM, on_alarm) != SIG_ERR);
	closed();
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	CHECK(wait_with_mask(~(1 << (SIGALRM - 1))) == -1 && errno == EINTR && p[0] == 2);
	closed();
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	CHECK(sigpause(SIGALRM) == -1 && errno == EINTR && p[0] == 2);
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && signal(SIGALRM, SIG_DFL) == on_alarm);
	api_end();
}

/* --- programs that set a handler of faults --- */

static sigjmp_buf back;
static int nr_faults;

static void on_fault(int number)
{
	CHECK(number == SIGSEGV);
	nr_faults++;
	p[0]++;
	siglongjmp(back, 1);
}

sighandler_t bsd_signal(int number, sighandler_t handler);

/* Each has the last handler, is called for a fault of the program's, and for no other. */
static void handlers_that_were_set_in_older_ways_are_called(void)
{
	static const struct {
		sighandler_t (*set)(int, sighandler_t);
		bool once; /* System V */
	} ways[] = { { signal, false }, { ssignal, false },    { bsd_signal, false },
		     { sigset, false }, { sysv_signal, true }, { __sysv_signal, true } };

	api_begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR); /* sanitizers have one */
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		nr_faults = 0;
		CHECK(ways[i].set(SIGSEGV, on_fault) == SIG_DFL);
		closed();
		p[0] = 1;
		CHECK(nr_faults == 0);
		closed();
		if (sigsetjmp(back, 1) == 0)
			*nowhere = 1;
		CHECK(nr_faults == 1 && p[0] == 2);
		CHECK(ways[i].set(SIGSEGV, SIG_DFL) == (ways[i].once ? SIG_DFL : on_fault));
	}
	CHECK(signal(SIGSEGV, on_fault) == SIG_DFL && sigset(SIGSEGV, SIG_HOLD) == on_fault && sigignore(SIGSEGV) == 0);
	closed();
	p[0] = 2; /* which is not a fault that is ignored */
	CHECK(signal(SIGSEGV, SIG_DFL) == SIG_IGN && signal(SIGSEGV, SIG_ERR) == SIG_ERR);
	api_end();
}

const struct api_test api_signals_tests[] = {
	{ "a thread that blocks all signals may write", a_thread_that_blocks_all_signals_may_write },
	{ "a thread that waits with an old mask may write", a_thread_that_waits_with_an_old_mask_may_write },
	{ "handlers that were set in older ways are called", handlers_that_were_set_in_older_ways_are_called },
	{ NULL, NULL },
};
