/*
 * Options as tables: parsing, default, --help and the man page come from one place.
 *
 *	static const struct conf_key keys[] = {
 *		{ "cache", CONF_SIZE, offsetof(struct conf, cache), "256M", NULL, "memory for look-ups" },
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
	CONF_FLAG,   /* bool: "name" sets it, "noname" clears it */
	CONF_STRING, /* char *, allocated */
	CONF_CHOICE, /* int: index into `choices`, "a|b|c" */
};

struct conf_key {
	const char *name;
	enum conf_type type;
	size_t off;
	const char *fallback;	/* default, parsed like a user's value; NULL: zero */
	const char *choices;	/* CONF_CHOICE only */
	const char *help;	/* one line; NULL: hidden */
};

int conf_set_defaults(const struct conf_key *keys, void *conf);
/* 1: taken, 0: no such key, -EINVAL: known key with a bad value (message in *ret_why, static or conf's). */
int conf_set(const struct conf_key *keys, void *conf, const char *name, const char *value, const char **ret_why);
void conf_release(const struct conf_key *keys, void *conf); /* frees the strings */
void conf_help(const struct conf_key *keys, FILE *to);

int parse_size(const char *s, uint64_t *ret); /* 0 or -EINVAL, -ERANGE */
/* 90, 90s, 1.5m, 2h, 1d to nanoseconds: 0 or -EINVAL; more than 0. */
int parse_time(const char *s, uint64_t *ret_ns);
/* "1.5 GiB": at most 3 significant digits. */
struct human {
	char s[16];
};
struct human human_size(uint64_t bytes);
