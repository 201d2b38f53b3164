/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_users.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/stat/stat_ask.h"
#include "tools/stat/stat_exclusive.h"

static const struct {
	uint32_t kind;
	const char *one, *all;
} kinds[] = {
	{ CKPTFS_OWNER_USER, "user", "users" },
	{ CKPTFS_OWNER_GROUP, "group", "groups" },
};

struct owner_name {
	char s[64];
};

/* The local name, or else the number. */
static struct owner_name name_of(uint32_t kind, uint32_t id)
{
	const struct passwd *user = kind == CKPTFS_OWNER_USER ? getpwuid(id) : NULL;
	const struct group *group = kind == CKPTFS_OWNER_GROUP ? getgrgid(id) : NULL;
	const char *name = user ? user->pw_name : group ? group->gr_name : NULL;
	struct owner_name n;

	if (name && strlen(name) < sizeof(n.s))
		strcpy(n.s, name);
	else
		snprintf(n.s, sizeof(n.s), "%" PRIu32, id);
	return n;
}

static void add_owner(struct json *j, const struct ckptfs_owner *o, struct owner_name name,
		      const struct ckptfs_exclusive *x)
{
	json_open(j, NULL);
	json_u64(j, "id", o->id);
	json_string(j, "name", name.s);
	json_u64(j, "files", o->files);
	json_u64(j, "size_bytes", o->file_size);
	json_u64(j, "mapped_bytes", o->mapped);
	json_u64(j, "exclusive_bytes", x->exclusive_bytes);
	json_u64(j, "exclusive_stored_bytes", x->exclusive_stored);
	json_close(j);
}

static void print_text_row(FILE *to, const char *kind, const struct ckptfs_owner *o, struct owner_name name,
			   const struct ckptfs_exclusive *x)
{
	text_printf(to, "%-5s  %-16s %10" PRIu64 "  %10s  %10s  %10s  %10s\n", kind, name.s, o->files,
		human_size(o->file_size).s, human_size(o->mapped).s, human_size(x->exclusive_bytes).s,
		human_size(x->exclusive_stored).s);
}

/* Prints all users or all groups, one answer of the daemon at a time. */
static int print_kind(int fd, size_t kind, struct json *j, FILE *to)
{
	struct ckptfs_owners a = { .size = sizeof(a), .version = CKPTFS_IOC_VERSION, .kind = kinds[kind].kind };
	struct ckptfs_exclusive x;
	int r = 0;

	do {
		if (ioctl(fd, CKPTFS_IOC_OWNERS, &a) < 0)
			return -errno;
		for (uint32_t i = 0; i < MIN(a.nr, ARRAY_SIZE(a.v)) && r == 0; i++) {
			const struct ckptfs_owner *o = &a.v[i];
			struct owner_name name = name_of(a.kind, o->id);

			r = stat_exclusive_owner(fd, a.kind, o->id, &x);
			if (r == 0 && j)
				add_owner(j, o, name, &x);
			else if (r == 0)
				print_text_row(to, kinds[kind].one, o, name, &x);
		}
	} while (r == 0 && a.more && !interrupted());
	return interrupted() ? -EINTR : r;
}

static int print_users(int fd, const char *mountpoint, bool json, FILE *to)
{
	struct json j = json_to_file(to);
	int r = 0;

	if (json) {
		json_open(&j, NULL);
		json_string(&j, "path", mountpoint);
		json_u64(&j, "schema_version", 1);
		json_string(&j, "kind", "users");
	} else {
		text_print(to, mountpoint);
		fprintf(to, "\n%-5s  %-16s %10s  %10s  %10s  %10s  %10s\n", "", "", "FILES", "SIZE", "DATA",
			"EXCLUSIVE", "ON DISK");
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && r == 0; i++) {
		if (json)
			json_open_array(&j, kinds[i].all);
		r = print_kind(fd, i, json ? &j : NULL, to);
		if (json)
			json_close_array(&j);
	}
	if (json)
		json_end(&j);
	return r;
}

int stat_users(const char *mountpoint, bool json, FILE *to)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r = stat_ask(mountpoint, &a); /* before a table is begun */

	if (r < 0) {
		stat_complain(mountpoint, r, 0);
		return r;
	}
	fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : print_users(fd, mountpoint, json, to);
	if (r < 0 && r != -EINTR)
		text_printf(stderr, "ckptfs-stat: %s: cannot get space by user: %s\n", mountpoint, strerror(-r));
	return r == -EINVAL ? -EIO : r;
}
