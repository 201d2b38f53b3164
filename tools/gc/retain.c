/* SPDX-License-Identifier: GPL-3.0-or-later */
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
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/seal/seals.h"
#include "tools/seal/verify.h"

#define SCHEMA_VERSION 1
#define TAG_XATTR "user.tag"

struct directory {
	const struct retain_request *q;
	const struct seals *seals; /* of the mount */
	int mount; /* the mountpoint; borrowed */
	char *path; /* canonical */
	int fd;
	uint32_t uid; /* the owner */
	uint32_t only; /* remove checkpoints of this user; 0: of all users */
	uint32_t removes_for; /* the user that must own them and the directory; 0: the caller's permissions decide */
	char not_owned[64]; /* why a checkpoint with files of other users is kept */
	struct retain_seal *v; /* by owner, then oldest first; names borrowed from `seals` */
	size_t nr;
	uint64_t nr_removed, removed_bytes, new_bytes; /* removed or dropped */
	uint64_t nr_refused;
	struct json out; /* for --json */
};

static void directory_release(struct directory *d)
{
	closep(&d->fd);
	free(d->path);
	free(d->v);
}

/* `name` is in the directory; NULL: the error concerns the directory. */
static int complain(const struct directory *d, const char *name, int r)
{
	if (r == -ECANCELED)
		return r;
	text_printf(stderr, "%s: %s%s%s: %s\n", d->q->tool, d->path ? d->path : "", name ? "/" : "", name ? name : "",
		    r == -EINVAL ? "the daemon runs an earlier version of ckptfs; remount the store" : strerror(-r));
	return r;
}

/* --- listing --- */

static int open_seal(const struct directory *d, const struct retain_seal *e)
{
	int fd = place_open(d->fd, e->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_ino != e->seal.inode) { /* replaced meanwhile */
		close(fd);
		return -ESTALE;
	}
	return fd;
}

/* lstat() of a name in the directory, ignoring mounts on it. */
static int stat_name(const struct directory *d, const char *name, struct stat *ret)
{
	_cleanup_(closep) int fd = place_open(d->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, false);

	return fd < 0 ? fd : fstat(fd, ret) < 0 ? -errno : 0;
}

static int compare_owners(const void *a, const void *b)
{
	const struct retain_seal *x = a, *y = b;

	if (x->uid != y->uid)
		return x->uid < y->uid ? -1 : 1;
	return (x->seal.sealed_ns > y->seal.sealed_ns) - (x->seal.sealed_ns < y->seal.sealed_ns);
}

/* Lists checkpoints that are still in the directory and have nothing mounted on them. */
static int find_seals(struct directory *d, struct sealed *const *v, size_t nr)
{
	struct stat st;

	d->v = calloc(MAX(nr, (size_t)1), sizeof(*d->v));
	if (!d->v)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const char *slash = strrchr(v[i]->path, '/'), *name = slash ? slash + 1 : v[i]->path;

		if (name[0] != '\0' && stat_name(d, name, &st) == 0 && st.st_ino == v[i]->inode)
			d->v[d->nr++] = (struct retain_seal){ .name = name, .seal = *v[i], .uid = st.st_uid };
	}
	qsort(d->v, d->nr, sizeof(*d->v), compare_owners);
	return 0;
}

static int compare_inodes(const void *a, const void *b)
{
	const struct retain_seal *x = *(struct retain_seal *const *)a, *y = *(struct retain_seal *const *)b;

	return (x->seal.inode > y->seal.inode) - (x->seal.inode < y->seal.inode);
}

/* basename(3), in place. */
static const char *last_name(char *path)
{
	size_t len = strlen(path);
	char *slash;

	while (len > 0 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/*
 * stat() of the target of a symbolic link. Users own these links, so they are followed on this mount only. A link that
 * leaves the mount may reenter it by another path: it keeps the checkpoint with the last name of its target.
 */
static int stat_target(const struct directory *d, const char *link, struct stat *ret)
{
	const char *point = d->seals->place.point;
	_cleanup_(closep) int fd = place_open(d->fd, link, O_PATH | O_CLOEXEC, true);
	char target[PATH_MAX], *inside = target + strlen(point);
	ssize_t len;

	if (fd == -EXDEV) {
		len = readlinkat(d->fd, link, target, sizeof(target) - 1);
		if (len < 0)
			return -errno;
		target[len] = '\0';
		if (strncmp(target, point, strlen(point)) == 0)
			fd = place_open(d->mount, inside + strspn(inside, "/"), O_PATH | O_CLOEXEC, true);
		if (fd == -EXDEV)
			return stat_name(d, last_name(target), ret);
	}
	return fd < 0 ? fd : fstat(fd, ret) < 0 ? -errno : 0;
}

static int find_links(struct directory *d, DIR *dir, struct retain_seal **by_inode)
{
	struct dirent *entry;
	struct stat st;

	while ((errno = 0, entry = readdir(dir))) {
		struct retain_seal key, *wanted = &key, **found;

		if (entry->d_type != DT_LNK || stat_target(d, entry->d_name, &st) < 0)
			continue;
		key.seal.inode = st.st_ino;
		found = bsearch(&wanted, by_inode, d->nr, sizeof(wanted), compare_inodes);
		if (found)
			(*found)->is_tagged = true;
	}
	return -errno;
}

static int find_tags(struct directory *d)
{
	_cleanup_(freep) struct retain_seal **by_inode = calloc(MAX(d->nr, (size_t)1), sizeof(struct retain_seal *));
	int copy = by_inode ? openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	int r = by_inode ? -errno : -ENOMEM;

	if (!dir) {
		closep(&copy);
		return r;
	}
	for (size_t i = 0; i < d->nr; i++) {
		_cleanup_(closep) int fd = open_seal(d, &d->v[i]);

		by_inode[i] = &d->v[i];
		d->v[i].is_tagged = fd >= 0 && fgetxattr(fd, TAG_XATTR, NULL, 0) >= 0;
	}
	qsort(by_inode, d->nr, sizeof(struct retain_seal *), compare_inodes);
	r = find_links(d, dir, by_inode);
	closedir(dir);
	return r;
}

/* The newest valid checkpoint of one owner. nr: none. */
static int find_proven(struct directory *d, const struct retain_seal *v, size_t nr, size_t *ret)
{
	struct verify_result result;
	struct progress p;
	int r = 0;

	progress_init(&p);
	p.on &= !d->q->quiet;
	for (size_t i = nr; i-- > 0;) {
		_cleanup_(closep) int fd = open_seal(d, &v[i]);
		_cleanup_(freep) char *path = NULL;

		if (asprintf(&path, "%s/%s", d->path, v[i].name) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		r = verify_opened(fd, path, d->q->verify, &p, &result);
		if (r == -ECANCELED)
			return r;
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

/* Removes a checkpoint that still has the examined seal. 0: removed, kept because of its owner, or removed or unsealed
 * by another process meanwhile. */
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

/* --- dropping --- */

static const char *why_not_dropped(int r)
{
	return r == -EAGAIN	? "not in the tier yet" :
	       r == -EOPNOTSUPP ? "the mount has no tier (tier=), or belongs to a cluster" :
	       r == -EIO	? "the tier cannot be read; see the daemon's log" :
	       r == -EBUSY	? "the newest one in the directory, or being unsealed" :
	       r == -EPERM	? "sealed by another user" :
				  strerror(-r);
}

/* Drops a checkpoint that still has the examined seal. Those that cannot be dropped stay, and are reported. */
static int drop_seal(struct directory *d, struct retain_seal *e)
{
	struct ckptfs_seal s = {
		.size = sizeof(s),
		.version = CKPTFS_IOC_VERSION,
		.command = CKPTFS_SEAL_DROP,
		.sealed_ns = e->seal.sealed_ns,
	};
	_cleanup_(closep) int fd = open_seal(d, e);
	int r = fd < 0 ? fd : ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0;

	if (r == 0) {
		d->nr_removed++;
		d->removed_bytes += e->seal.bytes;
		d->new_bytes += e->seal.new_bytes;
	} else if (r == -ENOENT || r == -ESTALE || r == -ENODATA) {
		e->is_gone = true;
	} else if (r == -EALREADY) {
		e->why = "dropped before";
	} else {
		e->refused = r;
		d->nr_refused++;
		return r == -EINVAL ? r : r == -EINTR && interrupted() ? -ECANCELED : 0;
	}
	return 0;
}

/* --- output --- */

static const char *verb(const struct directory *d, const struct retain_seal *e)
{
	if (e->why || e->refused < 0)
		return "keep";
	return d->q->drop ? "dropped" : d->q->delete ? "removed" : "remove";
}

static void show(struct directory *d, const struct retain_seal *e)
{
	const char *why = e->why ? e->why : e->refused < 0 ? why_not_dropped(e->refused) : NULL;

	if (!d->q->json) {
		if (d->q->quiet)
			return;
		printf("%-7s ", verb(d, e));
		text_print(stdout, d->path);
		putchar('/');
		text_print(stdout, e->name);
		printf("  %s, of which %s new when sealed%s%s\n", human_size(e->seal.bytes).s,
		       human_size(e->seal.new_bytes).s, why ? ": " : "", why ? why : "");
		return;
	}
	json_open(&d->out, NULL);
	json_string(&d->out, "name", e->name);
	json_bool(&d->out, "keep", why);
	json_string(&d->out, "why", why ? why : "");
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
		json_u64(&d->out, "removed", d->q->drop ? 0 : d->nr_removed);
		json_u64(&d->out, "removed_bytes", d->q->drop ? 0 : d->removed_bytes);
		json_u64(&d->out, "dropped", d->q->drop ? d->nr_removed : 0);
		json_u64(&d->out, "dropped_bytes", d->q->drop ? d->removed_bytes : 0);
		json_end(&d->out);
	} else if (!d->q->quiet && d->nr == 0)
		puts("No sealed checkpoints found.");
	else if (!d->q->quiet && d->q->drop && d->nr_removed > 0)
		printf("%s dropped: read from the tier from now on.%s\n", human_nr(d->nr_removed, "sealed checkpoint").s,
		       d->q->collects ? "" : " To free the space, run ckptfs gc --delete on the mountpoint.");
	else if (!d->q->quiet && nr_unwanted > 0 && !d->q->delete && !d->q->drop)
		printf("Nothing was changed. --delete would remove %s.\n", human_nr(nr_unwanted, "sealed checkpoint").s);
	else if (!d->q->quiet && d->nr_removed > 0)
		printf("%s removed.%s\n", human_nr(d->nr_removed, "sealed checkpoint").s,
		       d->q->collects ? "" : " To free the space, run ckptfs gc --delete on the mountpoint.");
}

/* --- retention --- */

/* A policy counts checkpoints per owner, so that other users cannot displace them. */
static int choose_of_owner(struct directory *d, const struct keep_policy *policy, struct retain_seal *v, size_t nr)
{
	size_t proven = nr;
	int r;

	if (d->only != 0 && v->uid != d->only) {
		for (size_t i = 0; i < nr; i++)
			v[i].why = "owned by another user";
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

	r = policy->tagged ? find_tags(d) : 0;
	if (r < 0)
		return complain(d, NULL, r);
	r = choose_all(d, policy);
	if (r == -ECANCELED)
		return r;
	show_begin(d);
	for (size_t i = 0; i < d->nr && r != -ECANCELED; i++) {
		struct retain_seal *e = &d->v[i];

		nr_unwanted += e->why == NULL;
		one = e->why || !(d->q->delete || d->q->drop) ? 0 :
		      interrupted()			       ? -ECANCELED :
		      d->q->drop			       ? drop_seal(d, e) :
								 remove_seal(d, e);
		if (one < 0)
			r = complain(d, e->name, one);
		else if (!e->is_gone)
			show(d, e);
	}
	show_end(d, nr_unwanted, r);
	return r == 0 && d->nr_refused > 0 ? -EAGAIN : r;
}

static void warn_policy(const struct directory *d, const char *text)
{
	text_printf(stderr, "%s: %s: " KEEP_XATTR " %s\n", d->q->tool, d->path, text);
}

/* 1: the policy is in effect, set by the owner of the directory or by root; 0: removed meanwhile, or ignored with a
 * warning. */
static int check_author(const struct directory *d)
{
	char text[16] = "", message[128];
	ssize_t len = fgetxattr(d->fd, KEEP_AUTHOR_XATTR, text, sizeof(text) - 1);
	uint32_t uid;

	if (len < 0)
		return errno == ENODATA ? 0 : -errno; /* removed meanwhile */
	uid = (uint32_t)strtoul(text, NULL, 10);
	if (uid == 0 || uid == d->uid)
		return 1;
	snprintf(message, sizeof(message),
		 "was set by user %" PRIu32 ", not the owner of the directory; its owner or root may set it again", uid);
	warn_policy(d, message);
	return 0;
}

/* 1; 0: no policy is in effect. */
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

/* Sets the user whose checkpoints are removed. `is_rule`: by the directory's policy, not by options of the caller.
 * Root acts for the owner of the directory in both cases. */
static void set_owner(struct directory *d, bool is_rule)
{
	uint32_t caller = geteuid();

	d->removes_for = is_rule || caller == 0 ? d->uid : 0;
	d->only = d->removes_for != 0 ? d->removes_for : caller;
	snprintf(d->not_owned, sizeof(d->not_owned), "not entirely owned by user %" PRIu32, d->only);
}

static int read_owner(struct directory *d)
{
	struct stat st;

	if (fstat(d->fd, &st) < 0)
		return -errno;
	d->uid = st.st_uid;
	return 0;
}

static int open_named(struct directory *d, const char *path)
{
	char link[32];
	int r;

	d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->fd);
	if (d->fd >= 0)
		d->path = realpath(link, NULL); /* correct even if the directory was renamed */
	r = d->path ? read_owner(d) : -errno;
	if (r < 0)
		text_printf(stderr, "%s: %s: %s\n", d->q->tool, path, strerror(-r));
	return r;
}

/* Sealed checkpoints directly in the directory. */
static int find_seals_by_path(struct directory *d)
{
	const struct seals *s = d->seals;
	size_t nr;

	for (size_t i = 0; i < s->nr; i += nr) {
		_cleanup_(freep) char *path = seals_directory(s, s->by_directory[i]);

		if (!path)
			return -ENOMEM;
		nr = seals_in_directory(s, i);
		if (strcmp(path, d->path) == 0)
			return find_seals(d, &s->by_directory[i], nr);
	}
	return find_seals(d, NULL, 0);
}

static int open_mountpoint(const struct retain_request *q, const struct seals *s)
{
	int fd = open(s->place.point, O_PATH | O_DIRECTORY | O_CLOEXEC), r = -errno;

	if (fd >= 0)
		return fd;
	text_printf(stderr, "%s: %s: %s\n", q->tool, s->place.point, strerror(-r));
	return r;
}

static int get_seals(const struct retain_request *q, const char *path, struct seals *ret)
{
	int r = seals_get(q->tool, path, ret);

	if (r < 0 || ret->nr == 0 || !(ret->v[0].facts & CKPTFS_SEAL_OF_TIER))
		return r;
	text_printf(stderr, "%s: %s: a mounted tier is read-only; use ckptfs gc --tier and the URL of the tier\n", q->tool,
		    path);
	return -EROFS;
}

int retain_directory(const struct retain_request *q, const char *path, const struct keep_policy *policy)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	_cleanup_(closep) int mount = -1;
	_cleanup_(directory_release) struct directory d = { .q = q, .seals = &s, .fd = -1 };
	int r = get_seals(q, path, &s);

	if (r == 0)
		r = d.mount = mount = open_mountpoint(q, &s);
	if (r >= 0)
		r = open_named(&d, path);
	if (r < 0)
		return r;
	r = find_seals_by_path(&d);
	if (r < 0)
		return complain(&d, NULL, r);
	set_owner(&d, false);
	return apply(&d, policy);
}

/* Users may rename or remove a directory, or mount on it, at any time. */
static bool was_replaced(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* Applies the policy of the directory of these checkpoints. Reads the policy first: most directories have none. */
static int retain_group(const struct retain_request *q, const struct seals *s, int mount, struct sealed *const *v,
			size_t nr)
{
	_cleanup_(directory_release) struct directory d = { .q = q, .seals = s, .mount = mount, .fd = -1 };
	_cleanup_(freep) char *inside = strdup(v[0]->path);
	struct keep_policy policy;
	char *slash = inside ? strrchr(inside, '/') : NULL;
	int r;

	d.path = seals_directory(s, v[0]);
	if (!d.path || !inside)
		return complain(&d, NULL, -ENOMEM);
	if (slash)
		*slash = '\0';
	d.fd = place_open(mount, slash ? inside : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, false);
	if (was_replaced(d.fd))
		return 0;
	if (d.fd == -EXDEV) {
		text_printf(stderr, "%s: %s: skipped: another filesystem is mounted on it or above\n", q->tool, d.path);
		return 0;
	}
	r = d.fd < 0 ? d.fd : read_owner(&d);
	if (r < 0)
		return complain(&d, NULL, r);
	r = read_policy(&d, &policy);
	if (r <= 0)
		return r;
	r = find_seals(&d, v, nr);
	if (r < 0)
		return complain(&d, NULL, r);
	if (d.nr == 0)
		return 0;
	set_owner(&d, true);
	return apply(&d, &policy);
}

int retain_mount(const struct retain_request *q, const char *path)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	_cleanup_(closep) int mount = -1;
	int r = get_seals(q, path, &s), one;
	size_t nr;

	if (r == 0)
		r = mount = open_mountpoint(q, &s);
	if (r < 0)
		return r;
	r = 0;
	for (size_t i = 0; r != -ECANCELED && i < s.nr; i += nr) {
		nr = seals_in_directory(&s, i);
		one = retain_group(q, &s, mount, &s.by_directory[i], nr);
		r = one < 0 ? one : r;
	}
	return r;
}
