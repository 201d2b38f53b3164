/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/mounts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buf.h"
#include "base/util.h"

#define ASK_AGAIN_NS UINT64_C(2000000000)
#define NR_NAMED 4 /* mount namespaces that are named; the rest is counted */

static int open_of(struct mounts *m, const char *pid)
{
	char path[NAME_MAX + 32];

	snprintf(path, sizeof(path), "/proc/%s/mountinfo", pid);
	*m = (struct mounts){ .f = fopen(path, "re") };
	return m->f ? 0 : -errno;
}

int mounts_open(struct mounts *m)
{
	return open_of(m, "self");
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The kernel writes blanks, tabs, newlines and backslashes as \ooo. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && is_octal(s[2]) && is_octal(s[3])) {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* A number of a list of options; 0 if it has none. */
static unsigned option_number(const char *options, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = options; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (strncmp(p, name, len) == 0)
			return (unsigned)strtoul(p + len, NULL, 10);
	return 0;
}

/* "36 35 0:52 / /mnt rw,noatime shared:1 - fuse.ckptfs /store rw,user_id=0,group_id=0": any number of fields before
 * the dash. */
int mounts_parse(struct mounts *m)
{
	char *rest = m->line, *field[6], *type, *source, *options;
	unsigned major, minor;

	for (size_t i = 0; i < ARRAY_SIZE(field); i++)
		field[i] = strsep(&rest, " ");
	while (rest && strncmp(rest, "- ", 2) != 0)
		strsep(&rest, " ");
	if (!rest)
		return 0;
	strsep(&rest, " ");
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	options = strsep(&rest, " \n");
	if (!options || strcmp(type, "fuse.ckptfs") != 0 || sscanf(field[2], "%u:%u", &major, &minor) != 2)
		return 0;
	field[5][strcspn(field[5], "\n")] = '\0';
	unescape(field[4]);
	unescape(source);
	m->point = field[4];
	m->store = source;
	m->flags = field[5];
	m->options = options;
	m->dev = makedev(major, minor);
	m->uid = option_number(options, "user_id=");
	m->gid = option_number(options, "group_id=");
	return 1;
}

int mounts_next(struct mounts *m)
{
	while (getline(&m->line, &m->size, m->f) >= 0)
		if (mounts_parse(m) > 0)
			return 1;
	return 0;
}

void mounts_close(struct mounts *m)
{
	if (m->f)
		fclose(m->f);
	free(m->line);
	*m = (struct mounts){ 0 };
}

/* The last mount of this store, on this point; NULL: any. */
static int find_last(struct mounts *m, const char *store, const char *point)
{
	struct mounts found = { 0 };

	if (mounts_open(m) < 0)
		return 0;
	while (mounts_next(m) > 0) {
		if ((store && strcmp(m->store, store) != 0) || (point && strcmp(m->point, point) != 0))
			continue;
		free(found.line);
		found = *m;
		m->line = NULL; /* the next one gets its own */
		m->size = 0;
	}
	found.f = NULL;
	mounts_close(m);
	*m = found;
	return found.line != NULL;
}

int mounts_find(struct mounts *m, const char *path)
{
	_cleanup_(freep) char *real = realpath(path, NULL);

	*m = (struct mounts){ 0 };
	return real && mounts_find_real(m, real) > 0;
}

int mounts_find_real(struct mounts *m, const char *real)
{
	return find_last(m, real, NULL) > 0 || find_last(m, NULL, real) > 0;
}

int mounts_find_point(struct mounts *m, const char *point)
{
	return find_last(m, NULL, point);
}

char *mounts_real_path(const char *path)
{
	char *real = realpath(path, NULL), *result = NULL;
	_cleanup_(freep) char *above = NULL, *copy = NULL, *other = NULL;

	if (real || errno != ENOTCONN)
		return real;
	copy = strdup(path);
	other = strdup(path);
	above = copy && other ? realpath(dirname(copy), NULL) : NULL;
	if (above && asprintf(&result, "%s/%s", strcmp(above, "/") == 0 ? "" : above, basename(other)) < 0)
		result = NULL;
	return result;
}

/* statfs(2): no cache of the kernel answers it. */
static void ask_statfs(const void *point, void *ret)
{
	struct statfs s;

	*(int *)ret = statfs(point, &s) < 0 ? -errno : 0;
}

int mounts_ask(const char *point, uint64_t until_ns, void (*report)(const void *point))
{
	const struct apart a = { .call = ask_statfs, .report = report, .arg = point, .until_ns = until_ns };
	int answer, r = apart_call(&a, &answer, sizeof(answer));

	return r > 0 ? answer : r == 0 ? -ETIMEDOUT : r;
}

bool mounts_answers(struct mounts_patience *p)
{
	uint64_t now = monotonic_ns();
	int r;

	if (now < p->next_ns)
		return true;
	r = mounts_ask(p->point, now + p->wait_ns, p->report);
	p->next_ns = monotonic_ns() + ASK_AGAIN_NS;
	return r != -ETIMEDOUT;
}

bool mounts_has(dev_t dev)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	bool found = mounts_open(&m) < 0;

	while (!found && mounts_next(&m) > 0)
		found = m.dev == dev;
	return found;
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

/* The process that has flock(2)ed the store's superblock; 0: none, or it cannot be seen from here. */
static pid_t find_locker(const char *store)
{
	_cleanup_(freep) char *path = NULL;
	char line[256], kind[16];
	unsigned major, minor;
	uint64_t inode;
	pid_t pid = 0, of;
	struct stat st;
	FILE *f;

	if (asprintf(&path, "%s/superblock", store) < 0) {
		path = NULL;
		return 0;
	}
	f = stat(path, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
	while (f && pid == 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*u: %15s %*s %*s %d %x:%x:%" SCNu64, kind, &of, &major, &minor, &inode) == 5 &&
		    strcmp(kind, "FLOCK") == 0 && inode == st.st_ino && makedev(major, minor) == st.st_dev)
			pid = MAX(of, 0);
	if (f)
		fclose(f);
	return pid;
}

/* Of one process: has its mount namespace a mount of this store? */
static int find_in(const char *pid, const char *store, dev_t dev, struct mounts *m)
{
	int r = open_of(m, pid);

	if (r < 0)
		return r;
	while ((r = mounts_next(m)) > 0)
		if (strcmp(m->store, store) == 0 && (dev == 0 || m->dev == dev))
			break;
	return r;
}

struct namespaces {
	ino_t seen[64];
	size_t nr;
};

/* false: a process of the same mount namespace was there before. */
static bool is_new_namespace(struct namespaces *n, const char *pid)
{
	char path[NAME_MAX + 32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", pid);
	if (stat(path, &st) < 0 || n->nr == ARRAY_SIZE(n->seen))
		return true;
	for (size_t i = 0; i < n->nr; i++)
		if (n->seen[i] == st.st_ino)
			return false;
	n->seen[n->nr++] = st.st_ino;
	return true;
}

static void add_process(struct buf *ret, const char *pid)
{
	char path[NAME_MAX + 32], name[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	for (char *p = name; *p; p++)
		if (!isprint((unsigned char)*p))
			*p = '?';
	add_text(ret, pid);
	add_text(ret, " (");
	add_text(ret, name);
	add_text(ret, ")");
}

void mounts_describe_users(const char *store, dev_t dev, struct buf *ret)
{
	pid_t locker = find_locker(store);
	struct namespaces seen = { .nr = 0 };
	bool hidden = false;
	unsigned nr = 0;
	DIR *d = opendir("/proc");
	char text[96];

	if (locker > 0) {
		snprintf(text, sizeof(text), "%d", (int)locker);
		add_text(ret, "locked by ");
		add_process(ret, text);
	}
	for (struct dirent *e; d && (e = readdir(d));) {
		_cleanup_(mounts_close) struct mounts m = { 0 };
		int r = isdigit((unsigned char)e->d_name[0]) ? find_in(e->d_name, store, dev, &m) : 0;

		hidden |= r == -EACCES || r == -EPERM;
		if (r <= 0 || !is_new_namespace(&seen, e->d_name) || nr++ >= NR_NAMED)
			continue;
		add_text(ret, nr > 1 ? ", " : ret->len > 0 ? "; mounted for " : "mounted for ");
		add_process(ret, e->d_name);
		add_text(ret, " on ");
		add_text(ret, m.point);
	}
	if (d)
		closedir(d);
	if (nr > NR_NAMED) {
		snprintf(text, sizeof(text), " and %u more mount namespaces", nr - NR_NAMED);
		add_text(ret, text);
	}
	if (nr == 0 && hidden)
		add_text(ret, ret->len > 0 ? "; root sees more processes" : "root sees more processes");
}
