/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The table of commands that ckptfs has: its help, dispatch and completion come from it. */
#pragma once

#include <stddef.h>

#define SUBCOMMAND_ARGUMENTS_MAX 2

struct subcommand {
	const char *name;
	const char *help; /* one line */
	const char *group; /* heading above this and the following commands; NULL: none */
	const char *program; /* file name of the program that does it; NULL: `run` does */
	const char *arguments[SUBCOMMAND_ARGUMENTS_MAX + 1]; /* for the program, before those of the user */
	const char *section; /* of the program's manual page */
	const char *aliases; /* words for the same thing in other programs, with spaces between; for suggestions only */
	int (*run)(int argc, char *argv[]); /* argv[0] is the name; the exit status */
};

int subcommand_help(int argc, char *argv[]);
int subcommand_version(int argc, char *argv[]);

extern const struct subcommand subcommands[]; /* ends with a name that is NULL */

const struct subcommand *subcommand_find(const char *name); /* NULL: no such command */
/* The command that `word` probably stands for: mistyped by at most two letters, begun, or an alias. NULL: none. */
const struct subcommand *subcommand_nearest(const char *word);
