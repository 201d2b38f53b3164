#include "tools/gc/retain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/seal/seals.h"
#include "tools/seal/verify.h"

#define SCHEMA_VERSION 1
#define TAG_XATTR "user.tag"

struct directory {
	const struct retain_request *q;
	char *path; /* real */
	int fd;
	uint32_t uid; /* the owner */
	uint32_t only; /* checkpoints of this user are removed; 0: of all */
	uint32_t removes_for; /* the user that must own them and the directory; 0: the caller's permissions decide */
	char not_owned[64]; /* the reason for keeping one that contains files of other users */
	struct retain_seal *v; /* by owner, then the oldest first; names borrowed from `seals` */
	size_t nr;
	struct seals seals;
	uint64_t nr_removed, removed_bytes, new_bytes;
	struct json out; /* of --json */
};

static void directory_release(struct directory *d)
{
	closep(&d->fd);
	free(d->path);
	free(d->v);
	seals_release(&d->seals);
}

static int complain(const struct directory *d, const char *name, int r)
{
	if (r == -ECANCELED)
		return r;
	text_printf(stderr, "%s: %s/%s: %s\n", d->q->tool, d->path, name,
		    r == -EINVAL ? "the daemon is of an earlier version of ckptfs; mount the store again" : strerror(-r));
	return r;
}

/* --- what is there --- */

static int open_seal(const struct directory *d, const struct retain_seal *e)
{
	int fd = openat(d->fd, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_ino != e->seal.inode) { /* replaced meanwhile */
		close(fd);
		return -ESTALE;
	}
	return fd;
}

static int compare_owners(const void *a, const void *b)
{
	const struct retain_seal *x = a, *y = b;

	if (x->uid != y->uid)
		return x->uid < y->uid ? -1 : 1;
	return (x->seal.sealed_ns > y->seal.sealed_ns) - (x->seal.sealed_ns < y->seal.sealed_ns);
}

/* Skips one that was removed since it was listed. */
static void add_seal(struct directory *d, const char *name, const struct ckptfs_seal *seal)
{
	struct stat st;

	if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == seal->inode)
		d->v[d->nr++] = (struct retain_seal){ .name = name, .seal = *seal, .uid = st.st_uid };
}

/* Its epochs are those that lie in it, not deeper. */
static int find_seals(struct directory *d)
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
			add_seal(d, s->path + strlen(s->path) - strlen(slash + 1), s);
	}
	qsort(d->v, d->nr, sizeof(*d->v), compare_owners);
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
		_cleanup_(closep) int fd = open_seal(d, &d->v[i]);

		d->v[i].is_tagged |= fd >= 0 && fgetxattr(fd, TAG_XATTR, NULL, 0) >= 0;
	}
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
}

/* The newest of one owner's checkpoints that verifies. nr: none. */
static int find_proven(struct directory *d, const struct retain_seal *v, size_t nr, size_t *ret)
{
	struct verify_result result;
	struct progress p;
	int r = 0;

	progress_init(&p);
	p.on &= !d->q->quiet;
	for (size_t i = nr; i-- > 0;) {
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/%s", d->path, v[i].name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		r = verify_seal(path, d->q->verify, &p, &result);
		if (r == -ECANCELED)
			return r;
		if (r > 0 && result.seal.inode != v[i].seal.inode) {
			snprintf(result.why, sizeof(result.why), "another directory has this path now");
			r = 0;
		}
		if (r > 0) {
			*ret = i;
			return 0;
		}
		fprintf(stderr, "%s: ", d->q->tool);
		text_print(stderr, path);
		fprintf(stderr, ": not valid: %s\n", result.why);
		if (verify_is_no_answer(r))
			return r;
	}
	*ret = nr;
	return 0;
}

/* --- removing --- */

/* Removes the chosen inode if it still has the seal that was examined. 0: removed, kept because of its owner, or
 * removed or unsealed by another process meanwhile. */
static int remove_seal(struct directory *d, struct retain_seal *e)
{
	struct ckptfs_seal s = {
		.size = sizeof(s),
		.version = CKPTFS_IOC_VERSION,
		.command = CKPTFS_SEAL_REMOVE,
		.sealed_ns = e->seal.sealed_ns,
		.uid = d->removes_for,
	};
	_cleanup_(closep) int fd = open_seal(d, e);
	int r = fd < 0 ? fd : ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0;

	if (r == 0) {
		d->nr_removed++;
		d->removed_bytes += e->seal.bytes;
		d->new_bytes += e->seal.new_bytes;
	} else if (r == -EPERM && d->only != 0) {
		e->why = d->not_owned;
		r = 0;
	} else if (r == -ENOENT || r == -ESTALE || r == -ENODATA) {
		e->is_gone = true;
		r = 0;
	}
	return r;
}

/* --- telling --- */

static void show(struct directory *d, const struct retain_seal *e)
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
	json_open(&d->out, NULL);
	json_string(&d->out, "name", e->name);
	json_bool(&d->out, "keep", e->why);
	json_string(&d->out, "why", e->why ? e->why : "");
	json_u64(&d->out, "bytes", e->seal.bytes);
	json_u64(&d->out, "new_bytes", e->seal.new_bytes);
	json_close(&d->out);
}

static void show_begin(struct directory *d)
{
	if (!d->q->json)
		return;
	d->out = json_to_file(stdout);
	json_open(&d->out, NULL);
	json_u64(&d->out, "schema_version", SCHEMA_VERSION);
	json_string(&d->out, "directory", d->path);
	json_open_array(&d->out, "sealed");
}

static void show_end(struct directory *d, uint64_t nr_unwanted, int r)
{
	if (d->q->json) {
		json_close_array(&d->out);
		json_bool(&d->out, "deleted", d->q->delete);
		json_bool(&d->out, "complete", r == 0);
		json_u64(&d->out, "removed", d->nr_removed);
		json_u64(&d->out, "removed_bytes", d->removed_bytes);
		json_end(&d->out);
	} else if (!d->q->quiet && d->nr == 0)
		puts("No directory in it is sealed.");
	else if (!d->q->quiet && nr_unwanted > 0 && !d->q->delete)
		printf("Nothing was changed. With --delete %" PRIu64 " sealed checkpoints are removed.\n", nr_unwanted);
	else if (!d->q->quiet && d->nr_removed > 0)
		printf("%" PRIu64 " sealed checkpoints removed. To free their space, run ckptfs-gc --delete on the mountpoint.\n",
		       d->nr_removed);
}

/* --- the whole --- */

/* Policies count the checkpoints of one owner: those of other users must not push them out. */
static int choose_of_owner(struct directory *d, const struct keep_policy *policy, struct retain_seal *v, size_t nr)
{
	size_t proven = nr;
	int r;

	if (d->only != 0 && v->uid != d->only) {
		for (size_t i = 0; i < nr; i++)
			v[i].why = "of another owner";
		return 0;
	}
	r = find_proven(d, v, nr, &proven);
	if (r < 0) {
		for (size_t i = 0; i < nr; i++)
			v[i].why = "not verified";
		return r;
	}
	retain_choose(policy, (int64_t)now_ns(), v, nr, proven);
	return 0;
}

static int choose_all(struct directory *d, const struct keep_policy *policy)
{
	size_t nr;
	int r = 0, one;

	for (size_t i = 0; i < d->nr && r != -ECANCELED; i += nr) {
		for (nr = 1; i + nr < d->nr && d->v[i + nr].uid == d->v[i].uid;)
			nr++;
		one = choose_of_owner(d, policy, &d->v[i], nr);
		r = one < 0 ? one : r;
	}
	return r;
}

static int apply(struct directory *d, const struct keep_policy *policy)
{
	uint64_t nr_unwanted = 0;
	int r, one;

	find_tags(d);
	r = choose_all(d, policy);
	if (r == -ECANCELED)
		return r;
	show_begin(d);
	for (size_t i = 0; i < d->nr && r != -ECANCELED; i++) {
		struct retain_seal *e = &d->v[i];

		nr_unwanted += e->why == NULL;
		one = e->why || !d->q->delete ? 0 : interrupted() ? -ECANCELED : remove_seal(d, e);
		if (one < 0)
			r = complain(d, e->name, one);
		else if (!e->is_gone)
			show(d, e);
	}
	show_end(d, nr_unwanted, r);
	return r;
}

static void warn_policy(const struct directory *d, const char *text)
{
	text_printf(stderr, "%s: %s: " KEEP_XATTR " %s\n", d->q->tool, d->path, text);
}

/* 1: the owner of the directory or root set the policy; 0: it is ignored, which was reported, or was removed. */
static int check_author(const struct directory *d)
{
	char text[16] = "", message[128];
	ssize_t len = fgetxattr(d->fd, KEEP_AUTHOR_XATTR, text, sizeof(text) - 1);
	uint32_t uid;

	if (len < 0)
		return errno == ENODATA ? 0 : -errno; /* removed since it was read */
	uid = (uint32_t)strtoul(text, NULL, 10);
	if (uid == 0 || uid == d->uid)
		return 1;
	snprintf(message, sizeof(message),
		 "was set by user %" PRIu32 ", who does not own the directory; its owner or root may set it again", uid);
	warn_policy(d, message);
	return 0;
}

/* 1; 0: none that is in effect */
static int read_policy(const struct directory *d, struct keep_policy *ret)
{
	char text[KEEP_LEN_MAX];
	ssize_t len = fgetxattr(d->fd, KEEP_XATTR, text, sizeof(text));
	int r = len < 0 ? -errno : keep_parse(text, (size_t)len, ret);

	if (r == -ENODATA)
		return 0;
	if (r < 0) {
		warn_policy(d, "is not a valid policy");
		return r;
	}
	return check_author(d);
}

/* Sets the user whose checkpoints are removed. `is_rule`: by the policy of the directory, else by options of the
 * caller. Root acts for the owner of the directory in both cases. */
static void set_owner(struct directory *d, bool is_rule)
{
	uint32_t caller = geteuid();

	d->removes_for = is_rule || caller == 0 ? d->uid : 0;
	d->only = d->removes_for != 0 ? d->removes_for : caller;
	snprintf(d->not_owned, sizeof(d->not_owned), "not all of it belongs to user %" PRIu32, d->only);
}

static int open_directory(struct directory *d, const char *path)
{
	char link[32];
	struct stat st;
	int r = seals_get(d->q->tool, path, &d->seals);

	if (r < 0)
		return r;
	d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->fd);
	if (d->fd >= 0)
		d->path = realpath(link, NULL); /* of the open directory, even if it was renamed */
	if (!d->path || fstat(d->fd, &st) < 0) {
		r = -errno;
		text_printf(stderr, "%s: %s: %s\n", d->q->tool, path, strerror(-r));
		return r;
	}
	d->uid = st.st_uid;
	return find_seals(d);
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
	set_owner(&d, !policy);
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

		if (!slash || s.v[i].path[0] == '\0' || strlen(epoch) >= PATH_MAX) /* too deep for any path */
			continue;
		slash[slash == epoch] = '\0';
		one = retain_directory(q, epoch, NULL);
		r = one < 0 ? one : r;
	}
	return r;
}
