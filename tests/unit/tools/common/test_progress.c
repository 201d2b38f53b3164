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
#include "tools/common/progress.h"

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

static void draw(void *of)
{
	struct progress *p = of;

	progress_show(p, "\033[2J\n\xe2\x80\xae", 0, 4, true);
	p->start_ns -= UINT64_C(10000000000); /* as if it had begun then */
	p->last_ns = p->start_ns;
	progress_show(p, "\033[2J\n\xe2\x80\xae", 2, 4, true);
}

static void a_name_is_escaped(void **state _unused_)
{
	static const char begin[] = "\r\033[K\\033[2J\\012\\342\\200\\256 [############............]  50 % 2 B, 0 B/s, ";
	struct progress p = { .on = true };

	assert_memory_equal(said(draw, &p), begin, strlen(begin));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
