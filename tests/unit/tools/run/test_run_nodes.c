/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/run/run_nodes.h"

/* What `f` writes to standard error. */
static const char *said(void (*f)(void *), void *of)
{
	static char text[1024];
	int fd = memfd_create("said", 0), saved = dup(STDERR_FILENO);
	ssize_t n;

	fflush(stderr);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	f(of);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fd, text, sizeof(text) - 1, 0);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void look(void *of)
{
	assert_false(run_nodes_look(of));
}

static void what_else_nodes_print_is_escaped(void **state _unused_)
{
	static const char printed[] = "plain\n\033[2J\xe2\x80\xae\r\nckptfs-run: failed\nlast";
	struct run_nodes n = RUN_NODES_NONE;
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(write(p[1], printed, strlen(printed)), strlen(printed));
	close(p[1]);
	n.output = p[0];
	assert_string_equal(said(look, &n), "plain\n\\033[2J\\342\\200\\256\\015\n");
	assert_true(n.failed && n.output_ended);
	close(p[0]);
}

/* The program is supervised meanwhile. */
static void an_incomplete_line_is_not_waited_for(void **state _unused_)
{
	struct run_nodes n = RUN_NODES_NONE;
	int p[2];

	assert_int_equal(pipe(p), 0);
	n.output = p[0];
	assert_int_equal(write(p[1], "first\nckptfs-run: da", 20), 20);
	assert_string_equal(said(look, &n), "first\n");
	assert_int_equal(write(p[1], "emon died\n", 10), 10);
	assert_true(run_nodes_look(&n));
	assert_false(n.output_ended);
	close(p[1]);
	assert_false(run_nodes_look(&n));
	assert_true(n.output_ended);
	close(p[0]);
}

/* A node that prints without end. */
static void one_look_ends(void **state _unused_)
{
	enum { LINES = 1000 };
	struct run_nodes n = RUN_NODES_NONE;
	size_t shown = 0;
	int p[2];

	assert_int_equal(pipe(p), 0);
	n.output = p[0];
	for (int i = 0; i < LINES; i++)
		assert_int_equal(write(p[1], "x\n", 2), 2);
	shown = strlen(said(look, &n)) / 2;
	assert_in_range(shown, 1, LINES / 2);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_else_nodes_print_is_escaped),
		cmocka_unit_test(an_incomplete_line_is_not_waited_for),
		cmocka_unit_test(one_look_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
