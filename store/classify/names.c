/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/names.h"

#include <ctype.h>
#include <errno.h>
#include <regex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define NR_GROUPS 10 /* the whole match, and \1 to \9 */
#define DIGIT "[0-9]"
#define BLANKS " \t\r"

struct rule {
	regex_t expression;
	char *replacement;
};

struct names {
	struct rule rule[NAMES_RULES_MAX];
	size_t nr;
};

static void names_freep(struct names **n)
{
	names_free(*n);
}

/* The line that is being parsed. */
struct line {
	unsigned number;
	char *why;
	size_t room;
};

static int refuse(const struct line *l, const char *fmt, ...) _printf_(2, 3);

static int refuse(const struct line *l, const char *fmt, ...)
{
	int n = snprintf(l->why, l->room, "line %u: ", l->number);
	va_list args;

	va_start(args, fmt);
	if (n > 0 && (size_t)n < l->room)
		vsnprintf(l->why + n, l->room - (size_t)n, fmt, args);
	va_end(args);
	return -EINVAL;
}

/* The end of [...] that begins at p, or NULL. Only ] is special in it, and not as the first character. */
static const char *bracket_end(const char *p)
{
	p += p[1] == '^' ? 2 : 1;
	for (p += *p == ']'; *p && *p != ']'; p++)
		if (*p == '[' && p[1] && strchr(".:=", p[1])) {
			const char end[] = { p[1], ']', 0 };

			p = strstr(p + 2, end);
			if (!p)
				return NULL;
			p++;
		}
	return *p ? p : NULL;
}

/* Number of parts of an expression with repetitions expanded as regcomp() does. */
struct parts {
	uint64_t all, last; /* last: of the part that a repetition applies to */
	uint64_t before[NAMES_EXPRESSION_MAX]; /* open groups: number of parts before each */
	unsigned nr_open;
};

/* {2} or {2,5}: the larger number. */
static unsigned long repeats_of(const char *p)
{
	unsigned long most = 0;

	for (p++; *p && *p != '}';)
		if (isdigit((unsigned char)*p)) {
			char *end;

			most = MAX(most, strtoul(p, &end, 10));
			p = end;
		} else {
			p++;
		}
	most = MAX(most, 1ul);
	return MIN(most, (unsigned long)NAMES_COMPILED_MAX + 1);
}

/* Count the part that begins at p. Malformed expressions are left to regcomp(). */
static void count_part(struct parts *n, const char *p)
{
	uint64_t more;

	switch (*p) {
	case '(':
		n->before[n->nr_open++] = n->all++;
		break;
	case ')':
		n->last = n->nr_open > 0 ? n->all - n->before[--n->nr_open] : 1;
		break;
	case '*':
	case '?':
		n->all++;
		n->last++;
		break;
	case '+': /* once, then any number of times */
	case '{': /* so many times and, if unbounded, any number of times */
		more = *p == '+' ? n->last : n->last * repeats_of(p);
		n->all += more;
		n->last += more;
		break;
	default:
		n->last = 1;
		n->all++;
	}
}

/* Translate to POSIX syntax in `ret`, which has room even if every \d is expanded. */
static int translate(const struct line *l, const char *p, char *ret)
{
	struct parts parts = { 0 };

	while (*p) {
		const char *end = p;

		count_part(&parts, p);
		if (parts.all > NAMES_COMPILED_MAX)
			return refuse(l, "with all repetitions written out it has more than %u parts",
				      NAMES_COMPILED_MAX);
		if (*p == '\\') {
			if (isdigit((unsigned char)p[1]))
				return refuse(l, "\\%c in an expression would take unbounded time", p[1]);
			if (p[1] == 'd') {
				ret = stpcpy(ret, DIGIT);
				p += 2;
				continue;
			}
			end += p[1] ? 1 : 0;
		} else if (*p == '[') {
			end = bracket_end(p);
			if (!end)
				return refuse(l, "[ without ]");
		} else if (*p == '{') {
			end += strcspn(p, "}");
			end -= !*end; /* none: regcomp() reports it */
		}
		ret = mempcpy(ret, p, (size_t)(end + 1 - p));
		p = end + 1;
	}
	*ret = 0;
	return 0;
}

/* Check that the groups used by the replacement exist in the expression. */
static int check_replacement(const struct line *l, const struct rule *rule)
{
	for (const char *p = rule->replacement; *p; p++)
		if (*p == '\\') {
			p++;
			if (*p != '\\' && (*p < '1' || *p > '9'))
				return refuse(l, "in the new name \\ is followed by 1 to 9 or by another one");
			if (*p != '\\' && (size_t)(*p - '0') > rule->expression.re_nsub)
				return refuse(l, "the new name has \\%c, and the expression %zu groups", *p,
					      rule->expression.re_nsub);
		}
	return 0;
}

static int add_rule(struct names *n, const struct line *l, const char *expression, const char *replacement)
{
	char posix[NAMES_EXPRESSION_MAX * sizeof(DIGIT)];
	struct rule *rule = &n->rule[n->nr];
	char error[100];
	int r;

	if (n->nr == NAMES_RULES_MAX)
		return refuse(l, "there are more than %u rules", NAMES_RULES_MAX);
	if (strlen(expression) > NAMES_EXPRESSION_MAX)
		return refuse(l, "the expression is longer than %u bytes", NAMES_EXPRESSION_MAX);
	r = translate(l, expression, posix);
	if (r < 0)
		return r;
	r = regcomp(&rule->expression, posix, REG_EXTENDED);
	if (r == REG_ESPACE)
		return -ENOMEM;
	if (r) {
		regerror(r, &rule->expression, error, sizeof(error));
		return refuse(l, "%s: %s", expression, error);
	}
	n->nr++; /* names_free() releases it from here on */
	rule->replacement = strdup(replacement);
	return rule->replacement ? check_replacement(l, rule) : -ENOMEM;
}

static int parse_line(struct names *n, const struct line *l, char *text)
{
	char *rest, *expression = strtok_r(text, BLANKS, &rest), *replacement;

	if (!expression || *expression == '#')
		return 0;
	replacement = strtok_r(NULL, BLANKS, &rest);
	if (!replacement)
		return refuse(l, "an expression, blanks and a new name are wanted");
	if (strtok_r(NULL, BLANKS, &rest))
		return refuse(l, "there is more than an expression and a new name");
	return add_rule(n, l, expression, replacement);
}

int names_parse(const char *text, struct names **ret, char *ret_why, size_t why_room)
{
	struct line l = { .number = 1, .why = ret_why, .room = why_room };
	_cleanup_(names_freep) struct names *n = NULL;
	_cleanup_(freep) char *copy = NULL;
	char *at;
	int r;

	if (strnlen(text, NAMES_TEXT_MAX + 1) > NAMES_TEXT_MAX) {
		snprintf(ret_why, why_room, "there are more than %u bytes of rules", NAMES_TEXT_MAX);
		return -EINVAL;
	}
	n = calloc(1, sizeof(*n));
	copy = strdup(text);
	if (!n || !copy)
		return -ENOMEM;
	at = copy;
	for (char *line; (line = strsep(&at, "\n")) != NULL; l.number++) {
		r = parse_line(n, &l, line);
		if (r < 0)
			return r;
	}
	*ret = TAKE(n);
	return 0;
}

void names_free(struct names *n)
{
	for (size_t i = 0; n && i < n->nr; i++) {
		regfree(&n->rule[i].expression);
		free(n->rule[i].replacement);
	}
	free(n);
}

/* `group`: matches in `name`. */
static int expand_rule(const struct rule *rule, const char *name, const regmatch_t group[NR_GROUPS], char *ret,
		       size_t room, size_t *ret_len)
{
	size_t len = 0;

	for (const char *p = rule->replacement; *p; p++) {
		const char *from = p;
		size_t n = 1;

		if (*p == '\\' && *++p != '\\') {
			const regmatch_t *g = &group[*p - '0'];

			/* a group in an alternative that did not match is empty */
			from = g->rm_so >= 0 ? name + g->rm_so : name;
			n = g->rm_so >= 0 ? (size_t)(g->rm_eo - g->rm_so) : 0;
		}
		if (n > room - len)
			return -E2BIG;
		memcpy(ret + len, from, n);
		len += n;
	}
	*ret_len = len;
	return 1;
}

int names_map(const struct names *n, const char *name, size_t len, char *ret, size_t room, size_t *ret_len)
{
	char text[NAMES_NAME_MAX + 1]; /* zero-terminated */

	if (len > NAMES_NAME_MAX)
		return -E2BIG;
	memcpy(text, name, len);
	text[len] = 0;
	for (size_t i = 0; i < n->nr; i++) {
		regmatch_t group[NR_GROUPS];
		int r = regexec(&n->rule[i].expression, text, NR_GROUPS, group, 0);

		if (r == REG_ESPACE)
			return -ENOMEM;
		/* regexec() returns the leftmost match, and the longest one that begins there: the whole name, if that
		 * matches. */
		if (r == 0 && group[0].rm_so == 0 && (size_t)group[0].rm_eo == len)
			return expand_rule(&n->rule[i], text, group, ret, room, ret_len);
	}
	return 0;
}
