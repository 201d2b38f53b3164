/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/conf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define HELP_COLUMN 26 /* where descriptions of options begin */
#define HELP_WIDTH 100

static _Thread_local char why_not_chosen[160]; /* a reason that names the choices */

/* Index of `value` in "a|b|c", or -1. */
static int choice_find(const char *choices, const char *value)
{
	size_t len = strlen(value);

	for (int i = 0;; i++) {
		size_t n = strcspn(choices, "|");

		if (n == len && memcmp(choices, value, n) == 0)
			return i;
		if (choices[n] == '\0')
			return -1;
		choices += n + 1;
	}
}

static int parse_number(const char *s, uint64_t *ret)
{
	uint64_t n;
	bool is_negative = *s == '-';
	char *end;

	s += is_negative;
	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	n = strtoull(s, &end, 10);
	if (*end != '\0')
		return -EINVAL;
	if (is_negative)
		return -EDOM;
	if (errno != 0)
		return -errno;
	*ret = n;
	return 0;
}

static int set_string(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static int set_choice(int *field, const struct conf_key *k, const char *value, const char **ret_why)
{
	int i = choice_find(k->choices, value);

	if (i < 0) {
		snprintf(why_not_chosen, sizeof(why_not_chosen), "must be one of %s", k->choices);
		*ret_why = why_not_chosen;
		return -EINVAL;
	}
	*field = i;
	return 0;
}

static int set_integer(uint64_t *field, const struct conf_key *k, const char *value, const char **ret_why)
{
	static const char *const wrong[] = {
		[CONF_SIZE] = "not a size such as 4096, 64K or 1.5G",
		[CONF_NUMBER] = "not a whole number",
		[CONF_TIME] = "not a time such as 90s, 10m, 2h or 7d",
	};
	uint64_t n = 0;
	int r = k->type == CONF_SIZE ? parse_size(value, &n) :
		k->type == CONF_TIME ? parse_time(value, &n) :
				       parse_number(value, &n);

	if (r == -ERANGE)
		*ret_why = "too large";
	else if (r == -EDOM)
		*ret_why = k->must ? k->must : "must not be negative";
	else if (r < 0)
		*ret_why = wrong[k->type];
	else if (n < k->min || (k->max > 0 && n > k->max))
		*ret_why = k->must ? k->must : "out of range";
	else
		*field = n;
	return *ret_why ? -EINVAL : 0;
}

/* Flags apart, which have no value. */
static int set_value(const struct conf_key *k, void *conf, const char *value, const char **ret_why)
{
	void *field = conf_field(k, conf);
	int r;

	*ret_why = NULL;
	switch (k->type) {
	case CONF_STRING:
		r = k->parse ? k->parse(k, conf, value, ret_why) : 0;
		return r < 0 ? r : set_string(field, value);
	case CONF_CHOICE:
		return set_choice(field, k, value, ret_why);
	case CONF_PARSED:
		return k->parse(k, conf, value, ret_why);
	default:
		r = set_integer(field, k, value, ret_why);
		return r < 0 || !k->parse ? r : k->parse(k, conf, value, ret_why);
	}
}

static void set_zero(const struct conf_key *k, void *conf)
{
	void *field = conf_field(k, conf);

	switch (k->type) {
	case CONF_SIZE:
	case CONF_NUMBER:
	case CONF_TIME:
		*(uint64_t *)field = 0;
		break;
	case CONF_FLAG:
		*(bool *)field = false;
		break;
	case CONF_STRING:
		*(char **)field = NULL;
		break;
	case CONF_CHOICE:
		*(int *)field = 0;
		break;
	case CONF_PARSED:
		break;
	}
}

static int set_default(const struct conf_key *k, void *conf)
{
	const char *why;
	int i;

	if (!k->fallback)
		return 0;
	if (k->type != CONF_FLAG)
		return set_value(k, conf, k->fallback, &why);
	i = choice_find("no|yes", k->fallback);
	if (i < 0)
		return -EINVAL;
	*(bool *)conf_field(k, conf) = i;
	return 0;
}

int conf_set_defaults(const struct conf_key *keys, void *conf)
{
	int r;

	/* All of them first: whatever happens next, conf_release() must find pointers. */
	for (const struct conf_key *k = keys; k->name; k++)
		set_zero(k, conf);
	for (const struct conf_key *k = keys; k->name; k++) {
		r = set_default(k, conf);
		if (r < 0)
			return r;
	}
	return 0;
}

static const struct conf_key *key_find(const struct conf_key *keys, const char *name)
{
	for (; keys->name; keys++)
		if (strcmp(keys->name, name) == 0)
			return keys;
	return NULL;
}

static int set_flag(const struct conf_key *k, void *conf, bool on, const char *value, const char **ret_why)
{
	if (value) {
		*ret_why = "takes no value";
		return -EINVAL;
	}
	*(bool *)conf_field(k, conf) = on;
	return 1;
}

int conf_set_key(const struct conf_key *k, void *conf, const char *value, const char **ret_why)
{
	int r;

	if (k->type == CONF_FLAG)
		return set_flag(k, conf, true, value, ret_why);
	if (!value || (*value == '\0' && !k->may_be_empty)) {
		*ret_why = "needs a value";
		return -EINVAL;
	}
	r = set_value(k, conf, value, ret_why);
	return r < 0 ? r : 1;
}

int conf_set(const struct conf_key *keys, void *conf, const char *name, const char *value, const char **ret_why)
{
	const struct conf_key *k = key_find(keys, name);

	if (!k && strncmp(name, "no", 2) == 0) {
		k = key_find(keys, name + 2);
		return k && k->type == CONF_FLAG ? set_flag(k, conf, false, value, ret_why) : 0;
	}
	return k ? conf_set_key(k, conf, value, ret_why) : 0;
}

void conf_release(const struct conf_key *keys, void *conf)
{
	for (const struct conf_key *k = keys; k->name; k++)
		if (k->type == CONF_STRING) {
			char **field = conf_field(k, conf);

			free(TAKE(*field));
		}
}

const char *conf_value_name(const struct conf_key *k)
{
	static const char *const names[] = {
		[CONF_SIZE] = "SIZE",	  [CONF_NUMBER] = "N",	  [CONF_TIME] = "TIME",
		[CONF_STRING] = "STRING", [CONF_PARSED] = "VALUE", [CONF_FLAG] = NULL,
	};

	return k->value ? k->value : k->type == CONF_CHOICE ? k->choices : names[k->type];
}

void help_wrap(FILE *to, size_t at, size_t indent, const char *text)
{
	bool is_first = true; /* of its line */

	while (*text) {
		size_t len = strcspn(text, " ");

		if (!is_first && at + 1 + len > HELP_WIDTH) {
			fprintf(to, "\n%*s", (int)indent, "");
			at = indent;
		} else if (!is_first) {
			fputc(' ', to);
			at++;
		}
		fwrite(text, 1, len, to);
		is_first = false;
		at += len;
		text += len + strspn(text + len, " ");
	}
	fputc('\n', to);
}

void help_entry(FILE *to, const char *head, size_t column, const struct conf_key *k)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s%s%s%s", k->help, k->fallback ? " (default " : "",
		 k->fallback ? k->fallback : "", k->fallback ? ")" : "");
	if (strlen(head) + 4 > column)
		fprintf(to, "  %s\n%*s", head, (int)column, "");
	else
		fprintf(to, "  %-*s", (int)column - 2, head);
	help_wrap(to, column, column, text);
}

void conf_help(const struct conf_key *keys, FILE *to)
{
	for (const struct conf_key *k = keys; k->name; k++) {
		const char *value = conf_value_name(k);
		char head[128];

		if (k->group)
			fprintf(to, "%s%s:\n", k == keys ? "" : "\n", k->group);
		if (!k->help)
			continue;
		snprintf(head, sizeof(head), "%s%s%s", k->name, value ? "=" : "", value ? value : "");
		help_entry(to, head, HELP_COLUMN, k);
	}
}

/* The exponent of two behind a unit: "K", "Ki", "KiB" ... or "B" or nothing. */
static int parse_unit(const char *s, unsigned *ret)
{
	static const char letters[] = "KMGTPE";
	const char *letter = *s ? strchr(letters, toupper((unsigned char)*s)) : NULL;
	unsigned shift = 0;

	if (letter) {
		shift = 10 * (unsigned)(letter - letters + 1);
		s++;
		if (*s == 'i')
			s++;
	}
	if (*s == 'B')
		s++;
	if (*s != '\0')
		return -EINVAL;
	*ret = shift;
	return 0;
}

int parse_size(const char *s, uint64_t *ret)
{
	uint64_t whole = 0, part = 0, scale = 1;
	unsigned __int128 bytes;
	unsigned shift;
	char *end;
	int r;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	whole = strtoull(s, &end, 10);
	if (errno != 0)
		return -errno;
	if (*end == '.') {
		if (!isdigit((unsigned char)*++end))
			return -EINVAL;
		for (; isdigit((unsigned char)*end); end++)
			if (scale < 1000000000000000000) { /* further digits are less than a byte even of E */
				part = part * 10 + (uint64_t)(*end - '0');
				scale *= 10;
			}
	}
	r = parse_unit(end, &shift);
	if (r < 0)
		return r;
	if (shift == 0 && scale > 1)
		return -EINVAL; /* "1.5" bytes */
	bytes = ((unsigned __int128)whole << shift) + ((unsigned __int128)part << shift) / scale;
	if (bytes > UINT64_MAX)
		return -ERANGE;
	*ret = (uint64_t)bytes;
	return 0;
}

int parse_time(const char *s, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		uint64_t s;
	} units[] = { { "", 1 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
	char *end;
	double n;

	errno = 0;
	n = strtod(s, &end);
	if (end == s || errno || !(n > 0))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strcmp(end, units[i].unit) == 0 && n * (double)units[i].s >= 1e-9 && n * (double)units[i].s < 1e10) {
			*ret_ns = MAX((uint64_t)(n * (double)units[i].s * 1e9), UINT64_C(1));
			return 0;
		}
	return -EINVAL;
}

struct human_nr human_nr(uint64_t nr, const char *one)
{
	size_t len = strlen(one);
	bool is_y = len > 0 && one[len - 1] == 'y';
	struct human_nr h;

	if (nr == 1)
		snprintf(h.s, sizeof(h.s), "1 %s", one);
	else
		snprintf(h.s, sizeof(h.s), "%" PRIu64 " %.*s%s", nr, (int)(len - is_y), one, is_y ? "ies" : "s");
	return h;
}

struct human human_size(uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	struct human h;
	char number[8];
	size_t unit = 0;

	/* 1000 to 1023 would take a fourth digit. */
	for (; v >= 999.5; v /= 1024)
		unit++;
	snprintf(number, sizeof(number), "%.*f", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v);
	if (strchr(number, '.')) {
		char *end = number + strlen(number);

		while (end[-1] == '0')
			end--;
		if (end[-1] == '.')
			end--;
		*end = '\0';
	}
	snprintf(h.s, sizeof(h.s), "%s %s", number, units[unit]);
	return h;
}
