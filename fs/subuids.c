/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/subuids.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"

#define RANGES_MAX 65536u /* 3 MiB; more lines than that are ignored */
#define NAME_SIZE 33 /* of a user, with the NUL; longer ones are compared by their beginning */

struct range {
	char owner[NAME_SIZE]; /* while the file is read */
	uint32_t first, last, user;
};

struct subuids {
	struct mutex lock; /* leaf */
	struct range *v GUARDED_BY(lock); /* by `first` */
	size_t nr, room GUARDED_BY(lock);
	struct stat file GUARDED_BY(lock); /* as it was read; all zero: there was none */
};

static struct subuids subuids = { .lock = MUTEX_INIT };
static const char *subuid_file = "/etc/subuid", *passwd_file = "/etc/passwd";

void subuids_read_from(const char *subuid, const char *passwd)
{
	subuid_file = subuid ? subuid : "/etc/subuid";
	passwd_file = passwd ? passwd : "/etc/passwd";
}

static int by_owner(const void *a, const void *b)
{
	return strcmp(((const struct range *)a)->owner, ((const struct range *)b)->owner);
}

static int by_first(const void *a, const void *b)
{
	uint32_t x = ((const struct range *)a)->first, y = ((const struct range *)b)->first;

	return x < y ? -1 : x > y;
}

/* "alice:100000:65536", with a name or a number. Other lines are ignored, as newuidmap(1) does. */
static bool parse_line(char *line, struct range *ret)
{
	char *owner = strsep(&line, ":"), *first = strsep(&line, ":"), *end;
	unsigned long long from, nr;

	if (!line || *owner == '\0')
		return false;
	from = strtoull(first, &end, 10);
	if (end == first || *end != '\0')
		return false;
	nr = strtoull(line, &end, 10);
	if (end == line || (*end != '\n' && *end != '\0') || nr == 0 || from >= UINT32_MAX || nr > UINT32_MAX - from)
		return false;
	*ret = (struct range){ .first = (uint32_t)from, .last = (uint32_t)(from + nr - 1) };
	snprintf(ret->owner, sizeof(ret->owner), "%s", owner);
	return true;
}

static int read_ranges(FILE *f, struct subuids *t)
{
	char *line = NULL;
	size_t size = 0;
	int r = 0;

	while (r == 0 && t->nr < RANGES_MAX && getline(&line, &size, f) > 0) {
		struct range range;

		if (!parse_line(line, &range))
			continue;
		r = list_grow(&t->v, t->nr, &t->room, sizeof(*t->v));
		if (r == 0)
			t->v[t->nr++] = range;
	}
	free(line);
	return r;
}

/* Without the file of users: the same one for all ranges of an owner. */
static void choose_users(struct subuids *t)
{
	for (size_t i = 0; i < t->nr; i++) {
		struct range *range = &t->v[i];
		char *end;
		unsigned long number = strtoul(range->owner, &end, 10);

		if (i > 0 && strcmp(range->owner, range[-1].owner) == 0)
			range->user = range[-1].user;
		else
			range->user = *end == '\0' && number < UINT32_MAX ? (uint32_t)number : range->first;
	}
}

static void read_users(struct subuids *t)
{
	FILE *f = t->nr > 0 ? fopen(passwd_file, "re") : NULL;

	for (struct passwd *p; f && (p = fgetpwent(f));) {
		struct range key, *found;

		snprintf(key.owner, sizeof(key.owner), "%s", p->pw_name);
		found = bsearch(&key, t->v, t->nr, sizeof(*t->v), by_owner);
		for (struct range *at = found; at && at >= t->v && by_owner(at, &key) == 0; at--)
			at->user = p->pw_uid;
		for (struct range *at = found; at && at < t->v + t->nr && by_owner(at, &key) == 0; at++)
			at->user = p->pw_uid;
	}
	if (f)
		fclose(f);
}

/* On failure the IDs count by themselves, as without the file. */
static void read_table(struct subuids *t) REQUIRES(t->lock)
{
	FILE *f = fopen(subuid_file, "re");
	int r = f ? read_ranges(f, t) : errno == ENOENT ? 0 : -errno;

	if (f)
		fclose(f);
	if (r < 0) {
		log_errno(r, "%s: cannot read; its user IDs count as users of their own", subuid_file);
		t->nr = 0;
	}
	if (t->nr == 0)
		return;
	qsort(t->v, t->nr, sizeof(*t->v), by_owner);
	choose_users(t);
	read_users(t);
	qsort(t->v, t->nr, sizeof(*t->v), by_first);
}

static bool is_current(const struct stat *now) REQUIRES(subuids.lock)
{
	const struct stat *then = &subuids.file;

	return now->st_ino == then->st_ino && now->st_size == then->st_size &&
	       now->st_mtim.tv_sec == then->st_mtim.tv_sec && now->st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

static uint32_t user_of(uint32_t uid) REQUIRES(subuids.lock)
{
	size_t low = 0, high = subuids.nr;

	while (low < high) { /* the last range that begins at or before uid */
		size_t middle = low + (high - low) / 2;

		if (subuids.v[middle].first <= uid)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && uid <= subuids.v[low - 1].last ? subuids.v[low - 1].user : uid;
}

uint32_t subuids_user(uint32_t uid)
{
	struct stat now = { 0 };
	uint32_t user;

	if (uid == 0)
		return uid;
	(void)stat(subuid_file, &now);
	mutex_lock(&subuids.lock);
	if (!is_current(&now)) {
		subuids.nr = 0;
		subuids.file = now;
		read_table(&subuids);
	}
	user = user_of(uid);
	mutex_unlock(&subuids.lock);
	return user;
}
