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
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
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

/* As it is known here, or its number. */
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

static void print_json_row(FILE *to, const struct ckptfs_owner *o, struct owner_name name,
			   const struct ckptfs_exclusive *x, bool first)
{
	fprintf(to, "%s{\"id\":%" PRIu32 ",\"name\":", first ? "" : ",", o->id);
	json_print_string(to, name.s);
	fprintf(to,
		",\"files\":%" PRIu64 ",\"size_bytes\":%" PRIu64 ",\"mapped_bytes\":%" PRIu64 ",\"exclusive_bytes\":%" PRIu64
		",\"exclusive_stored_bytes\":%" PRIu64 "}",
		o->files, o->file_size, o->mapped, x->exclusive_bytes, x->exclusive_stored);
}

static void print_text_row(FILE *to, const char *kind, const struct ckptfs_owner *o, struct owner_name name,
			   const struct ckptfs_exclusive *x)
{
	text_printf(to, "%-5s  %-16s %10" PRIu64 "  %10s  %10s  %10s  %10s\n", kind, name.s, o->files,
		human_size(o->file_size).s, human_size(o->mapped).s, human_size(x->exclusive_bytes).s,
		human_size(x->exclusive_stored).s);
}

/* All of a kind, as many at a time as an answer holds. */
static int print_kind(int fd, size_t kind, bool json, FILE *to)
{
	struct ckptfs_owners a = { .size = sizeof(a), .version = CKPTFS_IOC_VERSION, .kind = kinds[kind].kind };
	struct ckptfs_exclusive x;
	bool first = true;
	int r = 0;

	do {
		if (ioctl(fd, CKPTFS_IOC_OWNERS, &a) < 0)
			return -errno;
		for (uint32_t i = 0; i < a.nr && r == 0; i++) {
			const struct ckptfs_owner *o = &a.v[i];
			struct owner_name name = name_of(a.kind, o->id);

			r = stat_exclusive_owner(fd, a.kind, o->id, &x);
			if (r == 0 && json)
				print_json_row(to, o, name, &x, first);
			else if (r == 0)
				print_text_row(to, kinds[kind].one, o, name, &x);
			first = false;
		}
	} while (r == 0 && a.more && !interrupted());
	return interrupted() ? -EINTR : r;
}

static int print_users(int fd, const char *mountpoint, bool json, FILE *to)
{
	int r = 0;

	if (json) {
		fputs("{\"path\":", to);
		json_print_string(to, mountpoint);
		fputs(",\"schema_version\":1,\"kind\":\"users\"", to);
	} else {
		text_print(to, mountpoint);
		fprintf(to, "\n%-5s  %-16s %10s  %10s  %10s  %10s  %10s\n", "", "", "FILES", "SIZE", "DATA",
			"EXCLUSIVE", "ON DISK");
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && r == 0; i++) {
		if (json)
			fprintf(to, ",\"%s\":[", kinds[i].all);
		r = print_kind(fd, i, json, to);
		if (json)
			fputs("]", to);
	}
	if (json)
		fputs("}\n", to);
	return r;
}

int stat_users(const char *mountpoint, bool json, FILE *to)
{
	_cleanup_(closep) int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -errno : print_users(fd, mountpoint, json, to);

	if (r == -ENOTTY)
		text_printf(stderr, "ckptfs-stat: %s: not on a ckptfs that can tell who has how much\n", mountpoint);
	else if (r < 0 && r != -EINTR)
		text_printf(stderr, "ckptfs-stat: %s: who has how much cannot be told: %s\n", mountpoint, strerror(-r));
	return r == -EINVAL ? -EIO : r;
}
