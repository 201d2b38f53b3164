#include "tools/seals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/daemon.h"

#define SCHEMA_VERSION 1

struct seals {
	struct ckptfs_seal *v;
	size_t nr, room;
};

static void seals_release(struct seals *s)
{
	free(s->v);
}

static int add(struct seals *s, const struct ckptfs_seal *one)
{
	if (s->nr == s->room) {
		size_t room = MAX(2 * s->room, (size_t)16);
		struct ckptfs_seal *more = reallocarray(s->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->v = more;
		s->room = room;
	}
	s->v[s->nr++] = *one;
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	const struct ckptfs_seal *x = a, *y = b;

	if (x->sealed_ns != y->sealed_ns)
		return x->sealed_ns < y->sealed_ns ? -1 : 1;
	return (x->inode > y->inode) - (x->inode < y->inode);
}

static int ask_all(int fd, struct seals *ret)
{
	struct ckptfs_seal one = { .size = sizeof(one), .version = CKPTFS_IOC_VERSION, .command = CKPTFS_SEAL_NEXT };
	int r = 0;

	while (r == 0 && ioctl(fd, CKPTFS_IOC_SEAL, &one) == 0)
		r = add(ret, &one);
	if (r == 0 && errno != ENOENT)
		r = -errno;
	if (r == 0 && ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), compare_times);
	return r;
}

/* Upwards, as long as it is the same filesystem; with a slash at its end. */
static void find_mountpoint(const char *path, char ret[PATH_MAX + 1])
{
	char up[PATH_MAX + 4];
	struct stat st, above;

	if (!realpath(path, ret))
		snprintf(ret, PATH_MAX, "%s", path);
	while (strcmp(ret, "/") != 0 && stat(ret, &st) == 0) {
		snprintf(up, sizeof(up), "%s/..", ret);
		if (stat(up, &above) < 0 || above.st_dev != st.st_dev)
			break;
		*strrchr(ret, '/') = '\0';
		if (ret[0] == '\0')
			memcpy(ret, "/", 2);
	}
	if (strcmp(ret, "/") != 0)
		memcpy(ret + strlen(ret), "/", 2);
}

static void print_path(FILE *to, bool json, const char *mountpoint, const char *path)
{
	char whole[PATH_MAX + sizeof(((struct ckptfs_seal *)0)->path)];
	size_t len = (size_t)snprintf(whole, sizeof(whole), "%s%s", mountpoint, path);

	if (len > 1 && whole[len - 1] == '/')
		whole[len - 1] = '\0';
	if (json)
		json_print_string(to, whole);
	else
		fputs(whole, to);
}

static void print_json(FILE *to, const char *mountpoint, const struct seals *s)
{
	fprintf(to, "{\"schema_version\": %d, \"mountpoint\": ", SCHEMA_VERSION);
	print_path(to, true, mountpoint, "");
	fputs(", \"epochs\": [", to);
	for (size_t i = 0; i < s->nr; i++) {
		const struct ckptfs_seal *e = &s->v[i];

		fprintf(to, "%s{\"path\": ", i > 0 ? ", " : "");
		print_path(to, true, mountpoint, e->path);
		fprintf(to,
			", \"inode\": %" PRIu64 ", \"uid\": %" PRIu32 ", \"sealed_ns\": %" PRId64
			", \"files\": %" PRIu64 ", \"directories\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
			e->inode, e->uid, e->sealed_ns, e->files, e->directories, e->bytes);
	}
	fputs("]}\n", to);
}

static void print_text(FILE *to, const char *mountpoint, const struct seals *s)
{
	if (s->nr > 0)
		fprintf(to, "%-19s %9s %10s  %s\n", "SEALED", "FILES", "SIZE", "EPOCH");
	for (size_t i = 0; i < s->nr; i++) {
		time_t at = (time_t)(s->v[i].sealed_ns / 1000000000);
		char when[32] = "?";
		struct tm tm;

		if (localtime_r(&at, &tm))
			strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
		fprintf(to, "%-19s %9" PRIu64 " %10s  ", when, s->v[i].files, human_size(s->v[i].bytes).s);
		print_path(to, false, mountpoint, s->v[i].path);
		fputc('\n', to);
	}
}

int seals_list(const char *tool, const char *path, bool json, FILE *to)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(seals_release) struct seals s = { 0 };
	char mountpoint[PATH_MAX + 1];
	int r;

	if (fd < 0) {
		r = -errno;
		tell_unopened(tool, path, "a mountpoint, or a directory below it", r);
		return r;
	}
	r = ask_all(fd, &s);
	if (r == -ENOTTY) {
		fprintf(stderr, "%s: %s: not on a ckptfs; give a mountpoint\n", tool, path);
		return r;
	}
	if (r < 0) {
		tell_refusal(tool, path, "it", "list what is sealed", r);
		return r;
	}
	find_mountpoint(path, mountpoint);
	if (json)
		print_json(to, mountpoint, &s);
	else
		print_text(to, mountpoint, &s);
	return 0;
}
