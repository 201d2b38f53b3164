/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rules that map names of variables to common names. Programs put ranks, levels or steps into names, and variables with
 * different names are never merged. There is one rule per line; the first one that matches a whole name is applied:
 *
 *	# comment
 *	rank_(\d+)/density	density
 *	level_\d+/(.*)		\1
 *
 * An expression is a POSIX extended regular expression without blanks, with \d in addition; \1 to \9 stand for the text
 * matched by its groups.
 *
 * Rules come from an administrator, names from users. Expressions are restricted so that they compile in bounded time
 * and memory. Matching may take long for some of them: it is done where time is limited, in ckptfs-classify. Belongs to
 * one thread.
 */
#pragma once

#include <stddef.h>

#define NAMES_TEXT_MAX 65536u /* bytes of all rules */
#define NAMES_RULES_MAX 64u
#define NAMES_EXPRESSION_MAX 512u
#define NAMES_NAME_MAX 1024u /* bytes of a name to map */
/* Parts of an expression with repetitions expanded: the recursion depth of regcomp(), at 100 bytes of stack each. */
#define NAMES_COMPILED_MAX 4096u

struct names;

/* -EINVAL: ret_why says where and why, as "line 3: ..."; -ENOMEM. */
int names_parse(const char *text, struct names **ret, char *ret_why, size_t why_room);
void names_free(struct names *n); /* NULL is fine */
/* 1: `ret` has the new name, and *ret_len its length; 0: no rule matches, or the name has a zero byte; -E2BIG: the name
 * or the new name is too long; -ENOMEM. */
int names_map(const struct names *n, const char *name, size_t len, char *ret, size_t room, size_t *ret_len);
