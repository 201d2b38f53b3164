/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs: one command for all. `ckptfs COMMAND ARGUMENT...` becomes the program that does it, which lies in the same
 * installation (tools/dispatch/subcommands.h).
 *
 * Exit status: the command's; 1 usage; 127 its program cannot be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/command.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/dispatch/built_with.h"
#include "tools/dispatch/subcommands.h"

#define TOOL "ckptfs"
#define NAME_COLUMN 12

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_NO_PROGRAM = 127 };

struct request {
	bool unused;
};

/* Beside this program, or in sbin: fsck.ckptfs. In a build tree all are beside it. */
static int find_program(const char *name, char ret[PATH_MAX])
{
	static const char *const folders[] = { "", "../sbin/" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	slash[1] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (snprintf(ret, PATH_MAX, "%s%s%s", self, folders[i], name) < PATH_MAX && access(ret, X_OK) == 0)
			return 0;
	return -ENOENT;
}

/* Becomes the program of the command. Returns only on failure. */
static enum exit_status execute(const struct subcommand *c, char *arguments[], int nr)
{
	char path[PATH_MAX], name[NAME_MAX];
	char **argv = calloc((size_t)nr + SUBCOMMAND_ARGUMENTS_MAX + 2, sizeof(*argv));
	int r = argv ? find_program(c->program, path) : -ENOMEM;
	size_t n = 0;

	if (r == 0) {
		snprintf(name, sizeof(name), "%s", c->program);
		argv[n++] = name;
		for (size_t i = 0; c->arguments[i]; i++)
			argv[n++] = (char *)c->arguments[i];
		memcpy(argv + n, arguments, (size_t)nr * sizeof(*argv));
		execv(path, argv);
		r = -errno;
	}
	if (r == -ENOENT)
		text_printf(stderr, TOOL ": %s: %s is missing beside this program; install ckptfs again\n", c->name,
			    c->program);
	else
		text_printf(stderr, TOOL ": %s: cannot run %s: %s\n", c->name, c->program, strerror(-r));
	free(argv);
	return EXIT_NO_PROGRAM;
}

static enum exit_status refuse_unknown(const char *name)
{
	const struct subcommand *c = subcommand_nearest(name);

	if (!*name)
		text_printf(stderr, TOOL ": a command must be given; " TOOL " help lists all\n");
	else if (c)
		text_printf(stderr, TOOL ": %s: no such command; did you mean " TOOL " %s? " TOOL " help lists all\n",
			    name, c->name);
	else
		text_printf(stderr, TOOL ": %s: no such command; " TOOL " help lists all\n", name);
	return EXIT_USAGE;
}

/* --- help and version --- */

static void list_commands(FILE *to)
{
	for (const struct subcommand *c = subcommands; c->name; c++) {
		if (c->group)
			fprintf(to, "%s%s:\n", c == subcommands ? "" : "\n", c->group);
		fprintf(to, "  %-*s%s\n", NAME_COLUMN - 2, c->name, c->help);
	}
}

/* For completion in shells: name, the command line that it stands for, help, separated by tabs. */
static void list_for_shells(void)
{
	for (const struct subcommand *c = subcommands; c->name; c++) {
		printf("%s\t%s", c->name, c->program ? c->program : "");
		for (size_t i = 0; c->arguments[i]; i++)
			printf(" %s", c->arguments[i]);
		printf("\t%s\n", c->help);
	}
}

/* 0: man(1) has shown the page. It is not there in a build tree, and in many containers. */
static int show_page(const char *section, const char *page)
{
	const char *argv[] = { "man", section, page, NULL };
	int status, null;
	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0) {
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		if (null >= 0)
			dup2(null, STDERR_FILENO); /* --help comes instead of its complaint */
		execvp(argv[0], (char *const *)argv);
		_exit(EXIT_NO_PROGRAM);
	}
	if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOENT;
}

/* The program's help is of all that it does. */
static void show_meaning(const struct subcommand *c)
{
	printf(TOOL " %s: %s\nIt stands for %s", c->name, c->help, c->program);
	for (size_t i = 0; c->arguments[i]; i++)
		printf(" %s", c->arguments[i]);
	puts(".\n");
	fflush(stdout);
}

static bool asks_for_help(const char *argument)
{
	return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static enum exit_status show_commands(void)
{
	puts("Usage: " TOOL " COMMAND [ARGUMENT...]\n");
	list_commands(stdout);
	puts("\n" TOOL " help COMMAND opens the manual page of a command.");
	return EXIT_DONE;
}

int subcommand_help(int argc, char *argv[])
{
	char *const only_help[] = { (char *)"--help" };
	const struct subcommand *c;

	if (argc > 2) {
		fputs(TOOL ": help takes one command\n", stderr);
		return EXIT_USAGE;
	}
	if (argc == 2 && strcmp(argv[1], "--commands") == 0) {
		list_for_shells();
		return EXIT_DONE;
	}
	if (argc == 1 || asks_for_help(argv[1]))
		return (int)show_commands();
	c = subcommand_find(argv[1]);
	if (!c)
		return (int)refuse_unknown(argv[1]);
	if (show_page(c->program ? c->section : "7", c->program ? c->program : TOOL) == 0)
		return EXIT_DONE;
	if (c->arguments[0])
		show_meaning(c);
	if (c->program)
		return (int)execute(c, (char **)only_help, 1);
	printf("Usage: " TOOL " %s\n%s\n", c->name, c->help);
	return EXIT_DONE;
}

int subcommand_version(int argc, char *argv[] _unused_)
{
	if (argc == 2 && asks_for_help(argv[1]))
		return (int)show_commands();
	if (argc > 1) {
		fputs(TOOL ": version takes no arguments\n", stderr);
		return EXIT_USAGE;
	}
	puts(TOOL " " CKPTFS_VERSION);
	for (const struct built_with *b = built_with; b->name; b++)
		printf("  %-16s%s\n", b->name, b->version);
	return EXIT_DONE;
}

/* --- the command line --- */

static int run(void *request _unused_, char *operands[], int nr)
{
	const struct subcommand *c = subcommand_find(operands[0]);

	if (!c)
		return (int)refuse_unknown(operands[0]);
	if (c->program && c->arguments[0] && nr == 2 && asks_for_help(operands[1]))
		show_meaning(c);
	return c->program ? (int)execute(c, operands + 1, nr - 1) : c->run(nr, operands);
}

int main(int argc, char *argv[])
{
	static const struct conf_key options[] = { COMMAND_END };
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " COMMAND [ARGUMENT...]\n"
			      "       " TOOL " help [COMMAND]\n",
		.about = "A deduplicating filesystem for checkpoints, which are ordinary files.",
		.options = options,
		.more = list_commands,
		.footer = "Exit status: the command's; 1 usage, 127 its program cannot be run.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = COMMAND_OPERANDS_MAX,
		.operands = "a command",
		.is_prefix = true,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
