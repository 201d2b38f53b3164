/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The kernel and the daemon change one after the other. To read-only: first the kernel, which refuses it while files
 * are open for writing, and sends its cached writes to the daemon; then the daemon, which makes them durable. To
 * writable: in the other order. If the second step fails, the first is undone.
 */
#include "fs/remount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/json/json_flat.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/mount_options.h"

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256 /* glibc before 2.36 */
#endif

#define FIGURES_MAX 65536
#define ANSWER_NS UINT64_C(30000000000)
#define TRIES 20 /* background recoding stops soon after it was asked to */
#define TRY_AGAIN_NS 100000000

static const struct {
	const char *name;
	unsigned long clear, set;
} changes[] = {
	{ "ro", 0, MS_RDONLY },
	{ "rw", MS_RDONLY, 0 },
	{ "nosuid", 0, MS_NOSUID },
	{ "suid", MS_NOSUID, 0 },
	{ "nodev", 0, MS_NODEV },
	{ "dev", MS_NODEV, 0 },
	{ "noexec", 0, MS_NOEXEC },
	{ "exec", MS_NOEXEC, 0 },
	{ "noatime", MS_RELATIME | MS_STRICTATIME, MS_NOATIME },
	{ "relatime", MS_NOATIME | MS_STRICTATIME, MS_RELATIME },
	{ "atime", MS_NOATIME, 0 },
	{ "symfollow", MS_NOSYMFOLLOW, 0 },
	{ "nosymfollow", 0, MS_NOSYMFOLLOW },
	/* Never changed, but the kernel clears what it is not given again. */
	{ "sync", 0, MS_SYNCHRONOUS },
	{ "dirsync", 0, MS_DIRSYNC },
};

/* Determined by the daemon or the kernel at the first mount. */
static const char *const fixed[] = { "sync", "dirsync", "allow_other" };

/* Split the next word off the front of a list without a final NUL. */
static bool next_word(const char **list, size_t *left, const char **ret, size_t *ret_len)
{
	const char *comma;

	if (*left == 0)
		return false;
	comma = memchr(*list, ',', *left);
	*ret = *list;
	*ret_len = comma ? (size_t)(comma - *list) : *left;
	*left -= *ret_len + (comma ? 1 : 0);
	*list += *ret_len + (comma ? 1 : 0);
	return true;
}

static bool has_word(const char *list, const char *word, size_t len)
{
	size_t left = strlen(list), n;
	const char *p;

	while (next_word(&list, &left, &p, &n))
		if (n == len && memcmp(p, word, n) == 0)
			return true;
	return false;
}

static int refuse_change(const char *word, size_t len)
{
	log_error("option %.*s: cannot be changed while mounted; umount, and mount with it", (int)len, word);
	return -EINVAL;
}

/* Options of ckptfs must be equal to those of the first mount. */
static int check_own(const struct options *o, const struct mounts *m)
{
	_cleanup_(json_flat_release) struct json_flat figures = { 0 };
	_cleanup_(freep) char *text = malloc(FIGURES_MAX);
	const char *list = (const char *)o->own.data, *word;
	size_t left = o->own.len, len;
	ssize_t n;

	if (!text)
		return -ENOMEM;
	if (left == 0)
		return 0;
	n = lgetxattr(m->point, "user.ckptfs.stat", text, FIGURES_MAX);
	if (n < 0 || json_flat_parse(text, (size_t)n, &figures) < 0)
		return log_errno(n < 0 ? -errno : -EBADMSG, "mountpoint %s: cannot read its options", m->point);
	while (next_word(&list, &left, &word, &len))
		if (!has_word(json_flat_get(&figures, "options"), word, len))
			return refuse_change(word, len);
	return 0;
}

static unsigned long apply_word(unsigned long flags, const char *word, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
		if (strlen(changes[i].name) == len && memcmp(changes[i].name, word, len) == 0)
			return (flags & ~changes[i].clear) | changes[i].set;
	return flags;
}

static unsigned long apply_list(unsigned long flags, const char *list, size_t left)
{
	const char *word;
	size_t len;

	while (next_word(&list, &left, &word, &len))
		flags = apply_word(flags, word, len);
	return flags;
}

static int check_fixed(const struct options *o, const struct mounts *m)
{
	const char *list = (const char *)o->flags.data, *word;
	size_t left = o->flags.len, len;

	while (next_word(&list, &left, &word, &len)) {
		if (len == 5 && memcmp(word, "async", len) == 0 && has_word(m->options, "sync", 4))
			return refuse_change(word, len);
		for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
			if (strlen(fixed[i]) == len && memcmp(fixed[i], word, len) == 0 &&
			    !has_word(m->options, word, len) && !has_word(m->flags, word, len))
				return refuse_change(word, len);
	}
	return 0;
}

static int change_kernel(const struct mounts *m, unsigned long flags)
{
	if (mount(m->store, m->point, "fuse.ckptfs", MS_REMOUNT | flags, NULL) == 0)
		return 0;
	if (errno == EBUSY)
		log_error("mountpoint %s: files are open for writing; fuser -vm %s lists the processes", m->point, m->point);
	else
		log_errno(-errno, "mountpoint %s: the kernel refused the remount", m->point);
	return errno == EBUSY ? -EBUSY : -ENXIO;
}

static int ask_daemon(int fd, unsigned long flags)
{
	struct ckptfs_mount arg = {
		.size = sizeof(arg),
		.version = CKPTFS_IOC_VERSION,
		.command = CKPTFS_MOUNT_FLAGS,
		.flags = (flags & MS_RDONLY ? CKPTFS_MOUNT_READ_ONLY : 0) |
			 (flags & MS_NOATIME ? CKPTFS_MOUNT_NOATIME : 0),
	};

	return ioctl(fd, CKPTFS_IOC_MOUNT, &arg) < 0 ? -errno : 0;
}

static int change_daemon(const struct mounts *m, int fd, unsigned long flags)
{
	int r;

	for (int i = 0; (r = ask_daemon(fd, flags)) == -EBUSY && i < TRIES; i++)
		nanosleep(&(struct timespec){ .tv_nsec = TRY_AGAIN_NS }, NULL);
	if (r == 0)
		return 0;
	if (r == -EROFS)
		log_error("store %s: was mounted read-only; umount it, and mount it for writing", m->store);
	else if (r == -EBUSY)
		log_error("store %s: a collection or compaction is running; wait for it to end", m->store);
	else
		log_errno(r, "store %s: the daemon refused the remount", m->store);
	return r == -EROFS || r == -EBUSY ? r : -ENXIO;
}

static int change_both(const struct mounts *m, unsigned long old, unsigned long flags)
{
	_cleanup_(closep) int fd = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0) {
		log_errno(-errno, "mountpoint %s: cannot reach its daemon", m->point);
		return -ENXIO;
	}
	if (!(flags & MS_RDONLY)) {
		r = change_daemon(m, fd, flags);
		if (r == 0) {
			r = change_kernel(m, flags);
			if (r < 0)
				ask_daemon(fd, old);
		}
		return r;
	}
	r = change_kernel(m, flags);
	if (r == 0) {
		r = change_daemon(m, fd, flags);
		if (r < 0)
			change_kernel(m, old);
	}
	return r;
}

struct change {
	const struct options *o;
	const struct mounts *m;
	struct mounts_patience *patience;
};

static void report_wait(const void *point)
{
	log_notice("mountpoint %s: waiting up to 30 s for its daemon to answer", (const char *)point);
}

static bool may_wait(const void *arg)
{
	const struct change *c = arg;

	return mounts_answers(c->patience);
}

static int change(const struct options *o, const struct mounts *m)
{
	unsigned long old, flags;
	int r = check_own(o, m);

	if (r == 0)
		r = check_fixed(o, m);
	if (r < 0 || o->fake)
		return r;
	old = apply_list(apply_list(0, m->flags, strlen(m->flags)), m->options, strlen(m->options));
	if (has_word(m->flags, "ro", 2))
		old |= MS_RDONLY;
	flags = apply_list(old, (const char *)o->flags.data, o->flags.len);
	return change_both(m, old, flags);
}

static void change_apart(const void *arg, void *ret)
{
	const struct change *c = arg;

	*(int *)ret = change(c->o, c->m);
}

/* The daemon may hang, before the change or while it makes everything durable. */
static int change_while_it_answers(const struct options *o, const struct mounts *m)
{
	struct mounts_patience patience = { .point = m->point, .wait_ns = ANSWER_NS, .report = report_wait };
	const struct change c = { o, m, &patience };
	const struct apart a = { .call = change_apart, .arg = &c, .go_on = may_wait };
	int result, r = mounts_answers(&patience) ? apart_call(&a, &result, sizeof(result)) : 0;

	if (r > 0)
		return result;
	if (r < 0)
		return log_errno(r, "mountpoint %s: cannot remount", m->point);
	log_error("mountpoint %s: not remounted: the daemon of %s does not answer; kill it and mount again, or umount.ckptfs -l",
		  m->point, m->store);
	return -ENXIO;
}

int remount_run(const struct options *o)
{
	_cleanup_(freep) char *point = mounts_real_path(o->mountpoint);
	_cleanup_(freep) char *store = realpath(o->store, NULL);
	_cleanup_(mounts_close) struct mounts m = { 0 };
	int r;

	if (!point || mounts_find_point(&m, point) <= 0) {
		log_error("option remount: %s is not mounted on %s; mount it without remount", o->store, o->mountpoint);
		return -ENXIO;
	}
	/* The name in the list of mounts remains valid if the store has been renamed since. */
	if (strcmp(o->store, m.store) != 0 && !(store && strcmp(store, m.store) == 0)) {
		log_error("option remount: %s is mounted on %s, not %s; name the store that is mounted", m.store, m.point,
			  o->store);
		return -ENXIO;
	}
	if (geteuid() != 0) {
		log_error("option remount: only root may remount; umount, and mount with the new options");
		return -EPERM;
	}
	r = change_while_it_answers(o, &m);
	if (r == 0 && o->verbose && !o->fake)
		log_info("mountpoint %s: flags changed", m.point);
	return r;
}
