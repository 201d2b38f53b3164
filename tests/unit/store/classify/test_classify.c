/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The process that queries a classifier, and what a process may do after it has restricted itself. tests/apps/aware.sh
 * tests the real classifier. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "store/classify/classify.h"
#include "store/classify/sandbox.h"

#define LONG 60000 /* ms */
#define SHORT 200

static char helper[200];
static int file;

static int make_rig(void **state)
{
	const char *dir = getenv("TMPDIR");

	(void)state;
	snprintf(helper, sizeof(helper), "%s/classifier.XXXXXX", dir ? dir : "/tmp");
	file = mkstemp(helper);
	assert_true(file >= 0);
	assert_int_equal(write(file, "bytes", 5), 5);
	return 0;
}

static int release_rig(void **state)
{
	(void)state;
	close(file);
	unlink(helper);
	return 0;
}

/* The helper is a script of this text, and is asked. */
static int ask(const char *script, unsigned limit_ms, char reason[100])
{
	struct classify_conf conf = { .helper = helper, .limit_ms = limit_ms };
	struct typed t;
	FILE *f;
	int r;

	unlink(helper);
	f = fopen(helper, "w");
	fprintf(f, "#!/bin/sh\n%s\n", script);
	fclose(f);
	chmod(helper, 0755);
	r = classify_file(&conf, file, NULL, &t, reason, 100);
	if (r > 0)
		typed_release(&t);
	return r;
}

static void whatever_becomes_of_it_the_file_is_plain(void **state)
{
	static const struct {
		const char *script, *reason;
		unsigned limit_ms;
	} cases[] = {
		{ "exit 0", "sent malformed output", LONG },
		{ "echo nonsense", "sent malformed output", LONG },
		{ "cat", "sent malformed output", LONG }, /* the file is its standard input */
		{ "exit 7", "status 7", LONG },
		{ "kill -SEGV $$", "signal 11", LONG },
		{ "exec sleep 1000", "timed out after 200 ms", SHORT },
		/* has nothing more to say, but stays */
		{ "exec >&-; exec sleep 1000", "timed out after 200 ms", SHORT },
		{ "sleep 3 & exit 0", "timed out after 200 ms", SHORT }, /* is gone, but another has the pipe */
		{ "exec cat /dev/zero", "sent too much output", LONG },
	};
	char reason[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(ask(cases[i].script, cases[i].limit_ms, reason), 0);
		if (!strstr(reason, cases[i].reason))
			fail_msg("%s: %s", cases[i].script, reason);
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static void drop_line(void *userdata, enum log_level level, const char *line)
{
	(void)userdata;
	(void)level;
	(void)line;
}

static void without_a_helper_it_is_an_error(void **state)
{
	struct classify_conf conf = { .helper = "/nowhere/ckptfs-classify", .limit_ms = 1000 };
	char reason[100];
	struct typed t;

	(void)state;
	log_to_function(drop_line, NULL);
	assert_int_equal(classify_file(&conf, file, NULL, &t, reason, sizeof(reason)), -ENOENT);
	log_to_stderr();
}

/* In a child that has restricted itself; the exit status is the number of what it could do nevertheless. */
static int try_all(void)
{
	pid_t parent = getppid(); /* which cannot be asked for later */
	int r = sandbox_enter(GiB(1), 5);

	if (r < 0)
		return 100;
	if (open("/etc/passwd", O_RDONLY) >= 0)
		return 1;
	if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0)
		return 2;
	if (fork() >= 0)
		return 3;
	if (dup(0) >= 0)
		return 4;
	if (unlink(helper) == 0 || ftruncate(file, 0) == 0)
		return 5;
	if (kill(parent, 0) == 0 || syscall(SYS_tgkill, parent, parent, 0) == 0)
		return 6;
	if (execl("/bin/true", "true", (char *)NULL) >= 0)
		return 7;
#ifndef __SANITIZE_ADDRESS__
	if (mmap(NULL, GiB(2), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		return 8;
#endif
	if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 9;
	return 0;
}

static void a_restricted_process_can_only_compute(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(try_all());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whatever_becomes_of_it_the_file_is_plain, make_rig, release_rig),
		cmocka_unit_test_setup_teardown(without_a_helper_it_is_an_error, make_rig, release_rig),
		cmocka_unit_test_setup_teardown(a_restricted_process_can_only_compute, make_rig, release_rig),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
