/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options as tables: parsing, defaults, limits and help come from one place. Mount options and the options of every
 * command (base/command.h) are such tables.
 *
 *	static const struct conf_key keys[] = {
 *		{ "cache", CONF_SIZE, offsetof(struct conf, cache), .fallback = "256M", .min = MiB(16),
 *		  .help = "memory for look-ups" },
 *		{ 0 },
 *	};
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum conf_type {
	CONF_SIZE,   /* uint64_t: 4096, 64K, 1.5G (binary units, optional i and B) */
	CONF_NUMBER, /* uint64_t */
	CONF_TIME,   /* uint64_t, nanoseconds: 90, 90s, 1.5m, 2h, 1d; more than 0 */
	CONF_FLAG,   /* bool: "name" sets it, "noname" clears it */
	CONF_STRING, /* char *, allocated */
	CONF_CHOICE, /* int: index into `choices`, "a|b|c" */
	CONF_PARSED, /* anything: `parse` sets it */
};

struct conf_key {
	const char *name;	/* "": a command's option that has only a letter */
	enum conf_type type;
	size_t off;
	const char *fallback;	/* default, parsed like a user's value; NULL: zero, and as it is for CONF_PARSED */
	const char *choices;	/* CONF_CHOICE only */
	const char *help;	/* wrapped where it is shown; NULL: hidden */
	uint64_t min, max;	/* of a size, number or time; max 0: no limit */
	const char *must;	/* what a value must be, as in "must be 1 to 9": the reason for refusing another one */
	/* Sets the field of CONF_PARSED; checks any other value. -EINVAL with *ret_why set, or another error. */
	int (*parse)(const struct conf_key *k, void *conf, const char *value, const char **ret_why);
	const char *value;	/* its name in the help; NULL: by type */
	const char *group;	/* heading above this and the following options; NULL: none */
	char letter;		/* of a command's option: -q; 0: none */
	bool may_be_empty;	/* of CONF_PARSED: an empty value is one, too */
	const char *missing;	/* of a command's option: the value if none is given; NULL: one must be given */
};

int conf_set_defaults(const struct conf_key *keys, void *conf);
/* 1: taken, 0: no such key, -EINVAL: known key with a bad value (message in *ret_why, static or the thread's). */
int conf_set(const struct conf_key *keys, void *conf, const char *name, const char *value, const char **ret_why);
/* The same for a known key: 1, or < 0. A flag becomes true. */
int conf_set_key(const struct conf_key *k, void *conf, const char *value, const char **ret_why);
static inline void *conf_field(const struct conf_key *k, void *conf)
{
	return (char *)conf + k->off;
}
void conf_release(const struct conf_key *keys, void *conf); /* frees the strings */
void conf_help(const struct conf_key *keys, FILE *to);

/* Prints the text in lines of at most 100 columns, from column `at` on; `indent` spaces begin every further line. */
void help_wrap(FILE *to, size_t at, size_t indent, const char *text);
/* Prints `head`, then the help and the default of `k` from `column` on. */
void help_entry(FILE *to, const char *head, size_t column, const struct conf_key *k);
const char *conf_value_name(const struct conf_key *k); /* as in SIZE; NULL: it has no value */

int parse_size(const char *s, uint64_t *ret); /* 0 or -EINVAL, -ERANGE */
/* 90, 90s, 1.5m, 2h, 1d to nanoseconds: 0 or -EINVAL; more than 0. */
int parse_time(const char *s, uint64_t *ret_ns);
/* "1.5 GiB": at most 3 significant digits. */
struct human {
	char s[16];
};
struct human human_size(uint64_t bytes);
/* "1 file", "2 files", "3 directories". */
struct human_nr {
	char s[64];
};
struct human_nr human_nr(uint64_t nr, const char *one);
