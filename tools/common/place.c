/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/place.h"

#include <errno.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

static void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* Decodes, in place, characters that /proc writes as a backslash and three octal digits. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++)
		if (s[0] == '\\' && s[1] <= '3' && is_octal(s[1]) && is_octal(s[2]) && is_octal(s[3])) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = '\0';
}

static int find_mount(int fd, int *ret)
{
	char path[64], line[256];
	_cleanup_(fclosep) FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %d", ret) == 1)
			return 0;
	return -ENOENT;
}

static int set_place(struct place *p, char *root, char *point)
{
	unescape(root);
	unescape(point);
	if (strlen(root) > PATH_MAX || strlen(point) >= PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(p->root, sizeof(p->root), "%s", root + strspn(root, "/"));
	snprintf(p->point, sizeof(p->point), "%s%s", point, strcmp(point, "/") == 0 ? "" : "/");
	return 0;
}

int place_find(int fd, struct place *ret)
{
	_cleanup_(fclosep) FILE *f = NULL;
	_cleanup_(freep) char *line = NULL;
	size_t room = 0;
	int mount, r = find_mount(fd, &mount);

	if (r < 0)
		return r;
	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		return -errno;
	r = -ENOENT;
	while (r == -ENOENT && getline(&line, &room, f) > 0) {
		char *fields[5] = { NULL }, *rest = line; /* mount ID, parent ID, device, root, mountpoint */

		for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
			fields[i] = strsep(&rest, " ");
		if (fields[4] && atoi(fields[0]) == mount)
			r = set_place(ret, fields[3], fields[4]);
	}
	return r;
}

const char *place_inside(const struct place *p, const char *path)
{
	size_t len = strlen(p->root);

	if (len == 0)
		return path;
	if (strncmp(path, p->root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
		return NULL;
	return path + len + (path[len] == '/');
}

int place_open(int dir, const char *path, int flags, bool follows_links)
{
	struct open_how how = {
		.flags = (uint64_t)flags,
		.resolve = RESOLVE_NO_XDEV |
			   (follows_links ? RESOLVE_NO_MAGICLINKS : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS),
	};
	int fd;

	do { /* EAGAIN: a rename raced with ".." */
		fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : fd;
}
