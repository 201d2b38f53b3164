/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What leaks is left to LeakSanitizer, which tells it; what does not leak is not looked for. Each case is a process of
 * its own, this program with the number of the case: cmocka keeps blocks that only its stack leads to.
 */
#include "tests/leaks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

struct block {
	struct block *next;
	char rest[100];
};

static struct block *volatile kept; /* volatile: what nobody reads might else not be there */
static _Thread_local struct block *volatile kept_by_thread;
static volatile uintptr_t hidden; /* the address of a leaked block, in a form that nobody follows */

/* volatile: what is allocated and lost at once might else not be allocated at all. */
static struct block *block_new(struct block *next)
{
	struct block *volatile b = calloc(1, sizeof(*b));

	if (!b)
		abort();
	b->next = next;
	return b;
}

static void hide(struct block *b)
{
	hidden = ~(uintptr_t)b;
}

static void leak_block(void)
{
	hide(block_new(NULL));
}

static void leak_end_of_list(void)
{
	kept = block_new(block_new(NULL));
	hide(kept->next);
	kept->next = NULL;
}

/* Each of the two is pointed to, by the other. */
static void leak_ring(void)
{
	struct block *b = block_new(block_new(NULL));

	b->next->next = b;
	hide(b);
}

/* The size of what is lost is the size of what is kept. */
static void leak_beside_equal(void)
{
	kept = block_new(NULL);
	kept->next = kept;
	hide(block_new(kept));
}

static void *leak_in_thread(void *unused)
{
	leak_block();
	return unused;
}

static void leak_of_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, leak_in_thread, NULL) != 0 || pthread_join(t, NULL) != 0)
		abort();
}

/* Such blocks have an allocator of their own. */
static void leak_much(void)
{
	struct block *volatile b = calloc(1, MiB(4));

	hide(b);
}

static void keep_much(void)
{
	kept = calloc(1, MiB(4));
}

static void keep_ring(void)
{
	kept = block_new(block_new(block_new(NULL)));
	kept->next->next->next = kept;
}

static void keep_by_thread(void)
{
	kept_by_thread = block_new(NULL);
}

static void keep_nothing(void)
{
	free(block_new(NULL));
}

static const struct {
	void (*run)(void);
	bool leaks;
} cases[] = {
	{ leak_block, true },	   { leak_end_of_list, true }, { leak_ring, true },  { leak_beside_equal, true },
	{ leak_of_thread, true },  { leak_much, true },	       { keep_much, false }, { keep_ring, false },
	{ keep_by_thread, false }, { keep_nothing, false },
};

static void only_leaks_are_looked_for(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char command[100];
		int status;

		snprintf(command, sizeof(command), "exec /proc/$PPID/exe ask %zu", i);
		status = system(command);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), cases[i].leaks ? 10 : 11);
	}
}

static void a_leak_is_reported(void **unused)
{
	char line[200];
	bool reported = false;
	FILE *f = popen("exec /proc/$PPID/exe end 0 2>&1", "r");
	int status;

	(void)unused;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		reported = reported || strstr(line, "LeakSanitizer: detected memory leaks");
	status = pclose(f);
	assert_true(reported);
	assert_int_not_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_leaks_are_looked_for),
		cmocka_unit_test(a_leak_is_reported),
	};

	if (argc == 3) {
		cases[atoi(argv[2])].run();
		if (strcmp(argv[1], "ask") == 0)
			_exit(10 + __lsan_is_turned_off());
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
