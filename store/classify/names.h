/*
 * Names of variables that are to mean the same: programs put ranks, levels or steps into names, and what is told apart
 * by name alone is never merged. Rules, one a line, say which names become which; the first that matches a whole name
 * holds:
 *
 *	# comment
 *	rank_(\d+)/density	density
 *	level_\d+/(.*)		\1
 *
 * An expression is an extended one of POSIX, and \d besides, without blanks in it; \1 to \9 stand for what its groups
 * have matched.
 *
 * Rules are an administrator's, names are users'. Expressions are kept such that they compile in bounded time and
 * memory. Matching may take long for some of them: it is done where time is limited, in ckptfs-classify. Belongs to one
 * thread.
 */
#pragma once

#include <stddef.h>

#define NAMES_TEXT_MAX 65536u /* bytes of all rules */
#define NAMES_RULES_MAX 64u
#define NAMES_EXPRESSION_MAX 512u
#define NAMES_NAME_MAX 1024u /* bytes of a name that is mapped */
/* Parts, with repetitions written out: regcomp() goes as deep as there are, and takes 100 bytes of stack for each. */
#define NAMES_COMPILED_MAX 4096u

struct names;

/* -EINVAL: ret_why says where and why, as "line 3: ..."; -ENOMEM. */
int names_parse(const char *text, struct names **ret, char *ret_why, size_t why_room);
void names_free(struct names *n); /* NULL is fine */
/* 1: `ret` has the new name, and *ret_len its length; 0: no rule matches, or it has a zero byte; -E2BIG: it has no
 * room, or is too long itself; -ENOMEM. */
int names_map(const struct names *n, const char *name, size_t len, char *ret, size_t room, size_t *ret_len);
