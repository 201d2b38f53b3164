/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The command line and main() of every program: a table of options (base/conf.h), texts and two functions. --help,
 * --version, messages about wrong options and operands, and a check that the output was written are made here.
 *
 *	static const struct conf_key options[] = {
 *		{ "rate", CONF_SIZE, offsetof(struct request, rate), .help = "bytes per second" },
 *		COMMAND_QUIET(struct request, quiet, "no progress"),
 *		COMMAND_END,
 *	};
 *	static const struct command command = { .name = "ckptfs-x", .options = options, .run = run, ... };
 *
 *	int main(int argc, char *argv[])
 *	{
 *		struct request q = { 0 };
 *
 *		return command_main(&command, &q, argc, argv);
 *	}
 */
#pragma once

#include <limits.h>

#include "base/conf.h"

struct command {
	const char *name;
	const char *usage;	/* its forms, one a line, without "Usage: " and with a final newline */
	const char *about;	/* what it does: a line or more, wrapped */
	const struct conf_key *options; /* flags have no "no" form here */
	void (*more)(FILE *to);	/* prints more below the options; NULL: nothing */
	const char *footer;	/* at the end, each line wrapped by itself: exit statuses */
	int exit_usage;		/* status after a wrong command line */
	int exit_failed;	/* ... and when standard output cannot be written or memory is short */
	int min_operands, max_operands; /* arguments behind the options */
	const char *operands;	/* what must be given, as in "one mountpoint" */
	bool is_prefix;		/* options end at the first operand: those behind it belong to another program */
	/* Which options exclude each other: the reason to refuse the request, or NULL. May complete it. */
	const char *(*check)(void *request, int nr_operands);
	int (*run)(void *request, char *operands[], int nr); /* the exit status */
};

#define COMMAND_OPERANDS_MAX INT_MAX
#define COMMAND_QUIET(type, field, text) \
	{ "quiet", CONF_FLAG, offsetof(type, field), .letter = 'q', .help = text }
#define COMMAND_JSON(type, field) \
	{ "json", CONF_FLAG, offsetof(type, field), \
	  .help = "print the result as one JSON document; keys keep their meaning (schema_version)" }
#define COMMAND_END { .name = NULL }

/* Returns the exit status. Options start with their defaults; strings among them are freed at the end. */
int command_main(const struct command *c, void *request, int argc, char *argv[]);
/* The first half: 0, and argv[optind] is the first operand; 1 after --help or --version; <0 after a message. Unless 0,
 * *ret_status is the exit status. */
int command_parse(const struct command *c, void *request, int argc, char *argv[], int *ret_status);
/* The second half: `status`, or c->exit_failed if that is higher and standard output could not be written: a status of 1
 * may be a result, such as a difference, that was not printed. */
int command_finish(const struct command *c, int status);

#define COMMAND_REFUSAL_MAX 512
/* After '?' or ':' from getopt_long(): which option, and why. Its own message would have the argument's bytes as they
 * are, so opterr is 0, and `letters` begins with a colon, behind a plus if there is one. */
void command_refusal(int value, const char *letters, char *const argv[], char ret[COMMAND_REFUSAL_MAX]);

/*
 * The name that a mistyped word probably stands for: one that the word begins, or from which it differs by two letters at
 * most.
 *
 *	struct nearest n = { .word = word };
 *
 *	for (...)
 *		nearest_offer(&n, name);
 *	if (n.name)
 *		...
 */
struct nearest {
	const char *word;
	const char *name; /* the nearest of those offered; of equally near ones the first; NULL: none is near */
	size_t distance; /* of `name` */
};

void nearest_offer(struct nearest *n, const char *name); /* `name` must outlive `n` */
