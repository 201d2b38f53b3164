/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/run/run_mount.h"
#include "tools/run/run_process.h"
#include "tools/run/run_say.h"

#define DONE ((pid_t)0) /* instead of a process group: exit without unmounting */

/* Signals are blocked, as in ckptfs-run; in its own session the guard receives none of the terminal and of process
 * groups. */
static _Noreturn void keep(int words, struct run_mount *m, uint64_t grace_ns)
{
	pid_t program = -1, word;

	setsid();
	while (TEMP_FAILURE_RETRY(read(words, &word, sizeof(word))) == (ssize_t)sizeof(word)) {
		if (word == DONE)
			_exit(0);
		program = word;
	}
	run_complain("was killed; unmounting");
	if (program > 0)
		run_process_end_left(&(struct run_left){ program, m->point }, grace_ns);
	_exit(run_mount_end(m) < 0);
}

int run_guard_start(struct run_guard *k, struct run_mount *m, uint64_t grace_ns)
{
	int words[2];
	pid_t pid;

	if (pipe2(words, O_CLOEXEC) < 0)
		return run_complain_errno(-errno, "pipe");
	pid = fork();
	if (pid == 0) {
		close(words[1]);
		keep(words[0], m, grace_ns);
	}
	close(words[0]);
	if (pid < 0) {
		close(words[1]);
		return run_complain_errno(-errno, "fork");
	}
	*k = (struct run_guard){ pid, words[1] };
	return 0;
}

static void send_word(const struct run_guard *k, pid_t word)
{
	if (k->pid > 0)
		(void)!write(k->words, &word, sizeof(word)); /* fails if the guard was killed */
}

void run_guard_set_program(const struct run_guard *k, pid_t program)
{
	send_word(k, program);
}

void run_guard_end(struct run_guard *k)
{
	int status;

	if (k->pid == 0)
		return;
	send_word(k, DONE);
	close(k->words);
	run_process_wait(k->pid, &status);
	k->pid = 0;
}
