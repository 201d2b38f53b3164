/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/agent/status.h"

/* The agent that answers is of another user, if root asks. */
static void an_answer_is_printed_escaped(void **state _unused_)
{
	static const char answer[] = "Node:     n1\n  \033[2J\xe2\x80\xae\r, host 2\n";
	static char path[] = "/socket";
	struct socket_path at = { .path = path, .dev = (dev_t)getpid(), .ino = 7 };
	int out = memfd_create("out", 0), fd = status_listen(&at), status;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[256];
	ssize_t n;
	pid_t child;

	assert_true(fd >= 0);
	fflush(stdout);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		dup2(out, STDOUT_FILENO);
		status = status_ask(&at) == 0 ? 0 : 1;
		fflush(stdout);
		_exit(status);
	}
	assert_int_equal(poll(&p, 1, -1), 1);
	status_answer(fd, answer, strlen(answer));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	n = pread(out, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	assert_string_equal(text, "Node:     n1\n  \\033[2J\\342\\200\\256\\015, host 2\n");
	close(fd);
	close(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_printed_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
