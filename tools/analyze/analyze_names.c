/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

static const char *const step_words[] = { "step", "steps", "iter", "iteration", "epoch", "cycle", "time", NULL };
static const char *const step_directories[] = { "ckpt", "checkpoint", "chkpt", "dump", "restart", NULL };
static const char *const rank_words[] = { "rank",  "ranks", "proc", "process", "pe", "node", "host", "task", "worker",
					  "shard", "part",  "mp",   "tp",      "pp", "dp",   "gpu",  "of",   NULL };

static size_t base_at(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Start of the extension, or end of the path. */
static size_t extension_at(const char *path)
{
	const char *dot = strrchr(path + base_at(path), '.');

	return dot && isalpha((unsigned char)dot[1]) ? (size_t)(dot - path) : strlen(path);
}

size_t name_numbers(const char *path, struct name_number ret[NAME_NUMBERS_MAX])
{
	size_t end = extension_at(path), nr = 0;

	for (size_t i = 0, len; i < end && nr < NAME_NUMBERS_MAX; i += MAX(len, (size_t)1)) {
		for (len = 0; i + len < end && isdigit((unsigned char)path[i + len]); len++)
			;
		if (len > 0)
			ret[nr++] = (struct name_number){ .at = i, .len = len };
	}
	return nr;
}

/* Whether one of these words precedes the number, with an optional separator in between. */
static bool is_behind(const char *path, struct name_number n, const char *const words[])
{
	size_t end = n.at, begin;

	if (end > 0 && strchr("-_.=", path[end - 1]))
		end--;
	for (begin = end; begin > 0 && isalpha((unsigned char)path[begin - 1]); begin--)
		;
	for (size_t i = 0; words[i]; i++)
		if (strlen(words[i]) == end - begin && strncasecmp(words[i], path + begin, end - begin) == 0)
			return true;
	return false;
}

struct name_number name_step(const char *path, uint32_t varies)
{
	struct name_number all[NAME_NUMBERS_MAX], in_name = { 0 }, in_directory = { 0 };
	size_t nr = name_numbers(path, all), base = base_at(path);

	for (size_t i = nr; i-- > 0;)
		if ((varies >> i & 1) && (is_behind(path, all[i], step_words) ||
					  (all[i].at < base && is_behind(path, all[i], step_directories))))
			return all[i];
	for (size_t i = 0; i < nr; i++) {
		if (is_behind(path, all[i], rank_words))
			continue;
		if (all[i].at >= base)
			in_name = all[i];
		else
			in_directory = all[i];
	}
	return in_name.len > 0 ? in_name : in_directory;
}

static char *replaced(const char *path, const struct name_number *numbers, size_t nr)
{
	char *s = malloc(strlen(path) + 1), *to = s;
	size_t from = 0;

	if (!s)
		return NULL;
	for (size_t i = 0; i < nr; i++) {
		to = mempcpy(to, path + from, numbers[i].at - from);
		*to++ = '#';
		from = numbers[i].at + numbers[i].len;
	}
	strcpy(to, path + from);
	return s;
}

char *name_series(const char *path, struct name_number step)
{
	return replaced(path, &step, step.len > 0);
}

char *name_family(const char *path)
{
	struct name_number all[NAME_NUMBERS_MAX];
	size_t nr = name_numbers(path, all);

	return replaced(path, all, nr);
}

int number_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	for (; a_len > 0 && *a == '0'; a_len--)
		a++;
	for (; b_len > 0 && *b == '0'; b_len--)
		b++;
	if (a_len != b_len)
		return a_len < b_len ? -1 : 1;
	return memcmp(a, b, a_len);
}
