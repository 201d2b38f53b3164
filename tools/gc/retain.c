#include "tools/retain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/remove_tree.h"
#include "tools/seals.h"
#include "tools/verify.h"

#define SCHEMA_VERSION 1
#define REST_PREFIX ".ckptfs-gc."
#define TAG_XATTR "user.tag"

struct directory {
	const struct retain_request *q;
	char *path; /* real */
	int fd;
	uint32_t uid;
	struct retain_epoch *v; /* the oldest first; names borrowed from `seals` */
	size_t nr;
	struct seals seals;
	uint64_t nr_removed, removed_bytes, new_bytes;
};

static void directory_release(struct directory *d)
{
	closep(&d->fd); /* and unlocks it */
	free(d->path);
	free(d->v);
	seals_release(&d->seals);
}

static int complain(const struct directory *d, const char *name, int r)
{
	if (r == -ECANCELED)
		return r;
	fprintf(stderr, "%s: ", d->q->tool);
	text_print(stderr, d->path);
	fputc('/', stderr);
	text_print(stderr, name);
	if (r == -EPERM)
		fputs(": belongs to somebody else, or something in it does\n", stderr);
	else
		fprintf(stderr, ": %s\n", strerror(-r));
	return r;
}

/* --- what is there --- */

static int open_epoch(const struct directory *d, const struct retain_epoch *e)
{
	int fd = openat(d->fd, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_ino != e->seal.inode) { /* somebody has put something else there */
		close(fd);
		return -ESTALE;
	}
	return fd;
}

/* Its epochs are those that lie in it, not deeper. */
static int find_epochs(struct directory *d)
{
	size_t len = strlen(d->path);

	d->v = calloc(MAX(d->seals.nr, (size_t)1), sizeof(*d->v));
	if (!d->v)
		return -ENOMEM;
	for (size_t i = 0; i < d->seals.nr; i++) {
		struct ckptfs_seal *s = &d->seals.v[i];
		_cleanup_(freep) char *path = seals_path(&d->seals, s);
		const char *slash = path ? strrchr(path, '/') : NULL;

		if (!path)
			return -ENOMEM;
		if (slash && (size_t)(slash - path) == (len > 1 ? len : 0) && strncmp(path, d->path, len) == 0 && slash[1])
			d->v[d->nr++] = (struct retain_epoch){ .name = s->path + strlen(s->path) - strlen(slash + 1),
							       .seal = *s };
	}
	return 0;
}

static void find_tags(struct directory *d)
{
	int copy = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	struct stat link, st;

	while (dir && (entry = readdir(dir))) {
		if (fstatat(d->fd, entry->d_name, &link, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(link.st_mode) ||
		    fstatat(d->fd, entry->d_name, &st, 0) < 0 || st.st_dev != link.st_dev)
			continue;
		for (size_t i = 0; i < d->nr; i++)
			d->v[i].is_tagged |= d->v[i].seal.inode == st.st_ino;
	}
	for (size_t i = 0; i < d->nr; i++) {
		_cleanup_(closep) int fd = open_epoch(d, &d->v[i]);

		d->v[i].is_tagged |= fd >= 0 && fgetxattr(fd, TAG_XATTR, NULL, 0) >= 0;
	}
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
}

/* nr: none. */
static int find_proven(struct directory *d, size_t *ret)
{
	struct verify_result v;
	struct progress p;
	int r = 0;

	progress_init(&p);
	p.on &= !d->q->quiet;
	for (size_t i = d->nr; i-- > 0;) {
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/%s", d->path, d->v[i].name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		r = verify_epoch(path, d->q->verify, &p, &v);
		if (r == -ECANCELED)
			return r;
		if (r > 0) {
			*ret = i;
			return 0;
		}
		fprintf(stderr, "%s: ", d->q->tool);
		text_print(stderr, path);
		fprintf(stderr, ": does not prove itself: %s\n", v.why);
		if (verify_is_no_answer(r))
			return r;
	}
	*ret = d->nr;
	return 0;
}

/* --- removing --- */

struct rest_name {
	char s[sizeof(REST_PREFIX) + 20];
};

static struct rest_name rest_name(uint64_t inode)
{
	struct rest_name n;

	snprintf(n.s, sizeof(n.s), REST_PREFIX "%" PRIu64, inode);
	return n;
}

static int unseal(int fd)
{
	struct ckptfs_seal s = { .size = sizeof(s), .version = CKPTFS_IOC_VERSION, .command = CKPTFS_SEAL_UNSEAL };

	if (ioctl(fd, CKPTFS_IOC_SEAL, &s) == 0 || (errno == ENODATA && !s.path[0]))
		return 0;
	return -errno;
}

static int remove_epoch(struct directory *d, struct retain_epoch *e)
{
	_cleanup_(closep) int fd = open_epoch(d, e);
	struct rest_name rest = rest_name(e->seal.inode);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (d->uid != 0 && (fstat(fd, &st) < 0 || st.st_uid != d->uid)) { /* who could not have done it himself */
		e->why = "of another owner than the directory";
		return 0;
	}
	if (mkdirat(d->fd, rest.s, 0700) < 0 && errno != EEXIST)
		return -errno;
	r = unseal(fd);
	if (r < 0) {
		unlinkat(d->fd, rest.s, AT_REMOVEDIR);
		return r;
	}
	if (renameat(d->fd, e->name, d->fd, rest.s) < 0)
		return -errno;
	r = remove_tree(d->fd, rest.s, 0); /* it was sealed as a whole, by its owner or root */
	if (r == 0) {
		d->nr_removed++;
		d->removed_bytes += e->seal.bytes;
		d->new_bytes += e->seal.new_bytes;
	}
	return r;
}

/* The name that an inode has in the directory, if it is one. 1/0 */
static int find_name(const struct directory *d, uint64_t inode, char ret[NAME_MAX + 1])
{
	int copy = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = 0;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	while (dir && !found && (entry = readdir(dir)))
		if (entry->d_ino == inode && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, ".") != 0) {
			snprintf(ret, NAME_MAX + 1, "%s", entry->d_name);
			found = 1;
		}
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
	return found;
}

/* One that an earlier removal has left: of what is still sealed it was no more than an intention. But anybody can make
 * such a name: nothing goes that the owner of the directory could not have removed. */
static int finish_rest(const struct directory *d, const char *rest)
{
	uint64_t inode = strtoull(rest + strlen(REST_PREFIX), NULL, 10);
	char name[NAME_MAX + 1];
	struct stat st;

	if (strcmp(rest_name(inode).s, rest) != 0)
		return 0;
	for (size_t i = 0; i < d->nr; i++)
		if (d->v[i].seal.inode == inode)
			return unlinkat(d->fd, rest, AT_REMOVEDIR) < 0 ? -errno : 0;
	if (find_name(d, inode, name) && strcmp(name, rest) != 0) {
		if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (d->uid != 0 && st.st_uid != d->uid)
			return -EPERM;
		if (renameat(d->fd, name, d->fd, rest) < 0)
			return -errno;
	}
	/* an empty one of root's is an intention, too, of what has gone otherwise */
	return unlinkat(d->fd, rest, AT_REMOVEDIR) == 0 ? 0 : remove_tree(d->fd, rest, d->uid);
}

static int is_rest(const struct dirent *e)
{
	return strncmp(e->d_name, REST_PREFIX, strlen(REST_PREFIX)) == 0;
}

static int finish_rests(const struct directory *d)
{
	struct dirent **v = NULL;
	int nr = scandirat(d->fd, ".", &v, is_rest, NULL), r = nr < 0 ? -errno : 0;

	for (int i = 0; i < nr; i++) {
		if (r == 0) {
			r = finish_rest(d, v[i]->d_name);
			if (r < 0)
				complain(d, v[i]->d_name, r);
		}
		free(v[i]);
	}
	free(v);
	return r;
}

/* --- telling --- */

static void show(const struct directory *d, const struct retain_epoch *e, bool is_first)
{
	if (!d->q->json) {
		if (d->q->quiet)
			return;
		printf("%-7s ", e->why ? "keep" : d->q->delete ? "removed" : "remove");
		text_print(stdout, d->path);
		putchar('/');
		text_print(stdout, e->name);
		printf("  %s, %s of its own when sealed%s%s\n", human_size(e->seal.bytes).s,
		       human_size(e->seal.new_bytes).s, e->why ? ": " : "", e->why ? e->why : "");
		return;
	}
	printf("%s{\"name\": ", is_first ? "" : ", ");
	json_print_string(stdout, e->name);
	printf(", \"keep\": %s, \"why\": \"%s\", \"bytes\": %" PRIu64 ", \"new_bytes\": %" PRIu64 "}",
	       e->why ? "true" : "false", e->why ? e->why : "", e->seal.bytes, e->seal.new_bytes);
}

static void show_begin(const struct directory *d)
{
	if (!d->q->json)
		return;
	printf("{\"schema_version\": %d, \"directory\": ", SCHEMA_VERSION);
	json_print_string(stdout, d->path);
	fputs(", \"epochs\": [", stdout);
}

static void show_end(const struct directory *d, uint64_t nr_unwanted, int r)
{
	if (d->q->json)
		printf("], \"deleted\": %s, \"complete\": %s, \"removed\": %" PRIu64 ", \"removed_bytes\": %" PRIu64
		       "}\n",
		       d->q->delete ? "true" : "false", r == 0 ? "true" : "false", d->nr_removed, d->removed_bytes);
	else if (!d->q->quiet && d->nr == 0)
		puts("No directory in it is sealed: there is nothing to choose from.");
	else if (!d->q->quiet && nr_unwanted > 0 && !d->q->delete)
		printf("Nothing was changed. With --delete %" PRIu64 " epochs are removed.\n", nr_unwanted);
	else if (!d->q->quiet && d->nr_removed > 0)
		printf("%" PRIu64 " epochs removed. ckptfs-gc --delete, given the mountpoint, gives their space back.\n",
		       d->nr_removed);
}

/* --- the whole --- */

static int apply(struct directory *d, const struct keep_policy *policy)
{
	uint64_t nr_unwanted = 0;
	size_t proven = d->nr, nr_shown = 0;
	int r = d->q->delete ? finish_rests(d) : 0, one;

	find_tags(d);
	if (r == 0)
		r = find_proven(d, &proven);
	if (r < 0)
		return r;
	retain_choose(policy, (int64_t)now_ns(), d->v, d->nr, proven);
	show_begin(d);
	for (size_t i = 0; i < d->nr && r != -ECANCELED; i++) {
		nr_unwanted += d->v[i].why == NULL;
		one = d->v[i].why || !d->q->delete ? 0 : remove_epoch(d, &d->v[i]);
		if (one < 0)
			r = complain(d, d->v[i].name, one);
		else
			show(d, &d->v[i], nr_shown++ == 0);
	}
	show_end(d, nr_unwanted, r);
	return r;
}

/* 1; 0: it has none */
static int read_policy(const struct directory *d, struct keep_policy *ret)
{
	char text[KEEP_LEN_MAX];
	ssize_t len = fgetxattr(d->fd, KEEP_XATTR, text, sizeof(text));
	int r = len < 0 ? -errno : keep_parse(text, (size_t)len, ret);

	if (r == -ENODATA)
		return 0;
	if (r < 0) {
		fprintf(stderr, "%s: ", d->q->tool);
		text_print(stderr, d->path);
		fprintf(stderr, ": " KEEP_XATTR " cannot be understood\n");
		return r;
	}
	return 1;
}

static int open_directory(struct directory *d, const char *path)
{
	struct stat st;
	int r = seals_get(d->q->tool, path, &d->seals);

	if (r < 0)
		return r;
	d->path = realpath(path, NULL);
	d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = !d->path || d->fd < 0 || fstat(d->fd, &st) < 0 ? -errno : 0;
	if (r == 0 && d->q->delete && flock(d->fd, LOCK_EX | LOCK_NB) < 0)
		r = -errno;
	if (r < 0) {
		fprintf(stderr, "%s: %s: %s\n", d->q->tool, path,
			r == -EWOULDBLOCK ? "somebody else removes epochs there" : strerror(-r));
		return r;
	}
	d->uid = st.st_uid;
	if (d->q->delete) { /* who had it until now may have removed some */
		seals_release(&d->seals);
		d->seals = (struct seals){ 0 };
		r = seals_get(d->q->tool, path, &d->seals);
	}
	return r < 0 ? r : find_epochs(d);
}

int retain_directory(const struct retain_request *q, const char *path, const struct keep_policy *policy)
{
	_cleanup_(directory_release) struct directory d = { .q = q, .fd = -1 };
	struct keep_policy stored;
	int r = open_directory(&d, path);

	if (r == 0 && !policy) {
		r = read_policy(&d, &stored);
		if (r <= 0)
			return r;
		r = 0;
	}
	return r < 0 ? r : apply(&d, policy ? policy : &stored);
}

int retain_mount(const struct retain_request *q, const char *path)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	int r = seals_get(q->tool, path, &s), one;

	/* Of each directory the newest stands for all. */
	for (size_t i = 0; r != -ECANCELED && i < s.nr; i++) {
		_cleanup_(freep) char *epoch = seals_is_newest(&s, &s.v[i]) ? seals_path(&s, &s.v[i]) : NULL;
		char *slash = epoch ? strrchr(epoch, '/') : NULL;

		if (!slash || s.v[i].path[0] == '\0')
			continue;
		slash[slash == epoch] = '\0';
		one = retain_directory(q, epoch, NULL);
		r = one < 0 ? one : r;
	}
	return r;
}
