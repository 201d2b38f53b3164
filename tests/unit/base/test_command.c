/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A table of options becomes a command line: values, help, messages, exit statuses. */
#include <errno.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/command.h"
#include "base/util.h"

struct request {
	bool quiet, json, both;
	uint64_t rate, watch_ns;
	char *to;
	int kind, nr;
	char first[16];
};

static int parse_watch(const struct conf_key *k _unused_, void *request, const char *value, const char **ret_why)
{
	struct request *q = request;

	*ret_why = "not a number of seconds";
	q->watch_ns = strtoull(value, NULL, 10);
	return q->watch_ns > 0 ? 0 : -EINVAL;
}

static const char *check(void *request, int nr)
{
	struct request *q = request;

	(void)nr;
	return q->json && q->quiet ? "--json and --quiet exclude each other" : NULL;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;

	q->nr = nr;
	snprintf(q->first, sizeof(q->first), "%s", nr > 0 ? operands[0] : "");
	printf("ran\n");
	return q->kind == 1 ? 7 : 0;
}

static const struct conf_key options[] = {
	{ "rate", CONF_SIZE, offsetof(struct request, rate), .fallback = "1M", .help = "bytes per second" },
	{ "kind", CONF_CHOICE, offsetof(struct request, kind), .choices = "a|b", .letter = 'k', .help = "what it does" },
	{ "to", CONF_STRING, offsetof(struct request, to), .value = "FILE", .help = "where" },
	{ "watch", CONF_PARSED, .parse = parse_watch, .missing = "1", .value = "SECONDS", .help = "again and again" },
	{ "", CONF_FLAG, offsetof(struct request, both), .letter = 'y', .help = "both" },
	{ "secret", CONF_FLAG, offsetof(struct request, both), .help = NULL },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "no progress"),
	COMMAND_END,
};

static struct command command = {
	.name = "tool",
	.usage = "tool [OPTION...] FILE\n",
	.about = "Does it.",
	.options = options,
	.footer = "Exit status: 0 done, 1 usage.\nMore.",
	.exit_usage = 1,
	.exit_failed = 2,
	.min_operands = 1,
	.max_operands = 2,
	.operands = "a file or two",
	.check = check,
	.run = run,
};

static char out[4096], err[4096];

static void read_back(int fd, int saved, int fileno, char *ret, size_t size)
{
	ssize_t n;

	dup2(saved, fileno);
	close(saved);
	n = pread(fd, ret, size - 1, 0);
	ret[n > 0 ? n : 0] = '\0';
	close(fd);
}

/* Words separated by one space each. Returns the exit status. */
static int command_line(struct request *q, const char *line)
{
	int fd[2] = { memfd_create("out", 0), memfd_create("err", 0) }, saved[2] = { dup(1), dup(2) }, argc = 0, status;
	char copy[256], *argv[20], *rest = copy;

	snprintf(copy, sizeof(copy), "%s", line);
	while ((argv[argc] = strsep(&rest, " ")))
		argc++;
	fflush(stdout);
	assert_true(dup2(fd[0], 1) == 1 && dup2(fd[1], 2) == 2);
	optind = 0; /* GNU: begin again */
	status = command_main(&command, q, argc, argv);
	fflush(stdout);
	read_back(fd[0], saved[0], 1, out, sizeof(out));
	read_back(fd[1], saved[1], 2, err, sizeof(err));
	return status;
}

static void values_are_set(void **state _unused_)
{
	struct request q = { 0 };

	assert_int_equal(command_line(&q, "tool --rate 64K --kind=b a --quiet -y b"), 7);
	assert_int_equal(q.rate, KiB(64));
	assert_int_equal(q.kind, 1);
	assert_true(q.quiet && q.both && !q.json);
	assert_int_equal(q.nr, 2);
	assert_string_equal(q.first, "a");
	assert_string_equal(out, "ran\n");
	assert_string_equal(err, "");

	assert_int_equal(command_line(&q, "tool -kb --qui -- --rate"), 7); /* abbreviated */
	assert_int_equal(q.rate, MiB(1));
	assert_true(q.quiet && !q.both);
	assert_string_equal(q.first, "--rate");

	assert_int_equal(command_line(&q, "tool --to x --to y a"), 0);
	assert_null(q.to); /* freed */
}

static void an_optional_value_may_stand_apart(void **state _unused_)
{
	static const struct {
		const char *line;
		uint64_t ns;
		int nr;
	} t[] = {
		{ "tool --watch a", 1, 1 },
		{ "tool --watch 2 a", 2, 1 },
		{ "tool --watch=3 4", 3, 1 },
		{ "tool a --watch", 1, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct request q = { 0 };

		assert_int_equal(command_line(&q, t[i].line), 0);
		assert_int_equal(q.watch_ns, t[i].ns);
		assert_int_equal(q.nr, t[i].nr);
	}
}

static void a_wrong_command_line_is_refused_with_a_reason(void **state _unused_)
{
	static const struct {
		const char *line, *why;
	} t[] = {
		{ "tool", "tool: a file or two must be given; try tool --help\n" },
		{ "tool a b c", "tool: a file or two must be given; try tool --help\n" },
		{ "tool --rate much a", "tool: --rate much: not a size such as 4096, 64K or 1.5G\n" },
		{ "tool -k c a", "tool: --kind c: must be one of a|b\n" },
		{ "tool --watch=0 a", "tool: --watch 0: not a number of seconds\n" },
		{ "tool --to= a", "tool: --to : needs a value\n" },
		{ "tool --json -q a", "tool: --json and --quiet exclude each other; try tool --help\n" },
		{ "tool --loud a", "tool: --loud: no such option, or ambiguous; try tool --help\n" },
		{ "tool --noquiet a", "tool: --noquiet: no such option, or ambiguous; try tool --help\n" },
		{ "tool --\x1b[31m\n a", "tool: --\\033[31m\\012: no such option, or ambiguous; try tool --help\n" },
		{ "tool -\x1b[31m a", "tool: -\\033: no such option; try tool --help\n" },
		{ "tool --json -qx a", "tool: -x: no such option; try tool --help\n" },
		{ "tool --json -q\xff\x65 a", "tool: -\\377: no such option; try tool --help\n" },
		{ "tool --json -q: a", "tool: -:: no such option; try tool --help\n" },
		{ "tool --quiet=\x9b a", "tool: --quiet=\\233: takes no value; try tool --help\n" },
		{ "tool --help=1 a", "tool: --help=1: takes no value; try tool --help\n" },
		{ "tool --json=1 a", "tool: --json=1: takes no value; try tool --help\n" },
		{ "tool a --rate", "tool: --rate: needs a value; try tool --help\n" },
		{ "tool a -yk", "tool: -k: needs a value; try tool --help\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct request q = { 0 };

		assert_int_equal(command_line(&q, t[i].line), 1);
		assert_string_equal(err, t[i].why);
		assert_string_equal(out, "");
	}
}

static void options_end_at_the_program_of_a_prefix_command(void **state _unused_)
{
	struct request q = { 0 };

	command.is_prefix = true;
	assert_int_equal(command_line(&q, "tool -q program --json"), 0);
	command.is_prefix = false;
	assert_true(q.quiet && !q.json);
	assert_int_equal(q.nr, 2);
	assert_string_equal(q.first, "program");
}

static void help_and_version_are_printed(void **state _unused_)
{
	struct request q = { 0 };

	assert_int_equal(command_line(&q, "tool --help"), 0);
	assert_string_equal(out, "Usage: tool [OPTION...] FILE\n"
				 "Does it.\n"
				 "\n"
				 "  --rate SIZE        bytes per second (default 1M)\n"
				 "  -k, --kind a|b     what it does\n"
				 "  --to FILE          where\n"
				 "  --watch [SECONDS]  again and again\n"
				 "  -y                 both\n"
				 "  --json             print the result as one JSON document; keys keep their meaning "
				 "(schema_version)\n"
				 "  -q, --quiet        no progress\n"
				 "  -h, --help         print this text and exit\n"
				 "  -V, --version      print the version and exit\n"
				 "\n"
				 "Exit status: 0 done, 1 usage.\n"
				 "More.\n");
	assert_int_equal(command_line(&q, "tool a -V"), 0);
	assert_string_equal(out, "tool " CKPTFS_VERSION "\n");
}

static const char *nearest_of(const char *word, const char *const names[], size_t nr)
{
	struct nearest n = { .word = word };

	for (size_t i = 0; i < nr; i++)
		nearest_offer(&n, names[i]);
	return n.name;
}

static void the_nearest_name_is_found(void **state _unused_)
{
	static const char *const names[] = { "cache", "tier_cache", "tier_cathe", "commit", "noatime",
					     "a_name_that_is_longer_than_any_word" };
	static const struct {
		const char *word, *nearest;
	} t[] = {
		{ "cache", "cache" },
		{ "cach", "cache" },
		{ "cahce", "cache" },
		{ "notime", "noatime" },
		{ "tier_", "tier_cache" }, /* the first of two that it begins */
		{ "tier_cathee", "tier_cathe" }, /* the nearer one, although a later one */
		{ "comit", "commit" },
		{ "com", "commit" },
		{ "xyzzy", NULL },
		{ "c", NULL },
		{ "", NULL },
		{ "a_name_that_is_longer_than_any_wor", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		const char *found = nearest_of(t[i].word, names, ARRAY_SIZE(names));

		if (t[i].nearest)
			assert_string_equal(found ? found : "", t[i].nearest);
		else
			assert_null(found);
	}
	assert_null(nearest_of("cache", names, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_nearest_name_is_found),
		cmocka_unit_test(values_are_set),
		cmocka_unit_test(an_optional_value_may_stand_apart),
		cmocka_unit_test(a_wrong_command_line_is_refused_with_a_reason),
		cmocka_unit_test(options_end_at_the_program_of_a_prefix_command),
		cmocka_unit_test(help_and_version_are_printed),
	};

	return cmocka_run_group_tests_name("command", tests, NULL, NULL);
}
