/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/pool.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define HANG_S 600 /* a state takes milliseconds, but over 120 s where others have the processors at a higher priority */
#define NOT_AGAIN UINT64_MAX

struct shared {
	_Atomic uint64_t next;
	_Atomic bool stop, wrong;
	struct {
		_Atomic uint64_t nr, since_ns;
		uint64_t again; /* a case that it was killed in, and has begun again with */
	} worker[POOL_JOBS_MAX];
};

int pool_jobs(void)
{
	return MIN((int)sysconf(_SC_NPROCESSORS_ONLN), POOL_JOBS_MAX / 8);
}

static void report(const struct pool *p, struct shared *sh, int me, const char *how)
{
	char command[300];

	printf("FAILED (%s): ", how);
	p->describe(p->userdata, me, sh->worker[me].nr);
	fflush(stdout);
	snprintf(command, sizeof(command), "cat %s/why.%d", p->scratch, me);
	if (system(command) != 0)
		printf("no reason given\n");
}

static int work(const struct pool *p, struct shared *sh, int me)
{
	char why[256];

	snprintf(why, sizeof(why), "%s/why.%d", p->scratch, me);
	for (uint64_t nr = sh->worker[me].again; !atomic_load(&sh->stop); nr = NOT_AGAIN) {
		enum pool_verdict verdict;
		FILE *to;

		if (nr == NOT_AGAIN)
			nr = p->first + atomic_fetch_add(&sh->next, 1);
		if (nr >= p->end)
			return 0;
		atomic_store(&sh->worker[me].nr, nr);
		atomic_store(&sh->worker[me].since_ns, monotonic_ns());
		unlink(why);
		to = fopen(why, "ae"); /* as the engine's log does: their lines come in order */
		if (!to || log_to_file(why) < 0)
			return 1;
		setvbuf(to, NULL, _IOLBF, 0);
		verdict = p->run(p->userdata, me, nr, to);
		fclose(to);
		if (verdict == POOL_WRONG && !p->keep_going)
			return 1;
		if (verdict == POOL_WRONG) {
			report(p, sh, me, "wrong");
			atomic_store(&sh->wrong, true);
		}
		if (verdict == POOL_ENOUGH)
			atomic_store(&sh->stop, true);
	}
	return 0;
}

static pid_t start(const struct pool *p, struct shared *sh, int me)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(work(p, sh, me));
	return pid;
}

/* Nothing that is tested kills itself: another process has, or there was no memory. If it happens again in the same case,
 * that case is to blame. */
static bool was_killed(struct shared *sh, int me, int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && sh->worker[me].again != sh->worker[me].nr;
}

/* Look after one worker. false: it failed. *pid is 0 when it is gone. */
static bool look_after(const struct pool *p, struct shared *sh, int me, pid_t *pid, bool tell)
{
	uint64_t since = sh->worker[me].since_ns;
	int status;

	if (waitpid(*pid, &status, WNOHANG) == *pid) {
		*pid = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			return true;
		if (was_killed(sh, me, status)) {
			printf("killed from elsewhere, and begun again\n");
			fflush(stdout);
			sh->worker[me].again = sh->worker[me].nr;
			*pid = start(p, sh, me);
			return *pid > 0;
		}
		if (tell)
			report(p, sh, me, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "wrong");
		return false;
	}
	if (since && monotonic_ns() - since > HANG_S * UINT64_C(1000000000)) {
		if (tell)
			report(p, sh, me, "hangs");
		kill(*pid, SIGKILL);
		waitpid(*pid, &status, 0);
		*pid = 0;
		return false;
	}
	return true;
}

bool pool_run(const struct pool *p)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int left = p->jobs;
	pid_t pids[POOL_JOBS_MAX];
	bool good = true;

	if (sh == MAP_FAILED)
		return false;
	fflush(stdout);
	for (int i = 0; i < p->jobs; i++) {
		sh->worker[i].again = NOT_AGAIN;
		pids[i] = start(p, sh, i);
	}
	while (left > 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		for (int i = 0; i < p->jobs; i++) {
			if (pids[i] == 0)
				continue;
			if (!look_after(p, sh, i, &pids[i], good)) {
				good = false;
				atomic_store(&sh->stop, true);
			}
			left -= pids[i] == 0;
		}
	}
	good = good && !sh->wrong;
	munmap(sh, sizeof(*sh));
	return good;
}

bool pool_apart(bool (*run)(void *userdata), void *userdata)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		bool good = run(userdata);

		fflush(stdout);
		_exit(good ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		printf("FAILED: %s\n", strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
