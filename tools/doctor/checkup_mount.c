/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks a mount, by the figures of its daemon, and the disk under its store. Both may hang at any time, and a request
 * to them cannot be interrupted. So child processes make the requests (base/apart.h), and none follows one that was not
 * answered in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/medium.h"
#include "base/mounts.h"
#include "base/util.h"
#include "tools/common/age.h"
#include "tools/common/daemon.h"
#include "tools/doctor/checkup.h"
#include "tools/stat/stat_ask.h"

#define NS_PER_S UINT64_C(1000000000)
#define DAY_NS (86400 * NS_PER_S)
#define ANSWER_NS (10 * NS_PER_S)
#define SCRUB_DAYS 35
#define GARBAGE_PERCENT 25
#define COMMIT_S 5 /* the default of commit= */
#define LATE_NS (60 * NS_PER_S)
#define UNPROTECTED_NS (3600 * NS_PER_S) /* as in docs/alerts.yml: replicas and flushes take their time */

static bool is_true(const struct json_flat *j, const char *path)
{
	return strcmp(json_flat_get(j, path), "true") == 0;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* --- accesses that only a child process makes --- */

/* Filled in by the child process, in shared memory. */
struct sight {
	char path[PATH_MAX]; /* in: the path to examine; out, of look_at_path(): without links */
	int error; /* of the path, or of the superblock */
	bool is_store, in_use;
	int medium_error;
	struct medium medium; /* with pointers to constants, which this process has too */
};

static void look_at_path(const void *arg, void *ret)
{
	struct sight *s = *(struct sight *const *)arg;
	char *real = mounts_real_path(s->path); /* freed with the process */

	s->error = real ? 0 : -errno;
	s->is_store = is_store(s->path);
	if (real)
		snprintf(s->path, sizeof(s->path), "%s", real);
	*(bool *)ret = true;
}

static void look_at_disk(const void *arg, void *ret)
{
	struct sight *s = *(struct sight *const *)arg;

	s->medium_error = medium_of(s->path, &s->medium);
	*(bool *)ret = true;
}

static void look_at_store(const void *arg, void *ret)
{
	struct sight *s = *(struct sight *const *)arg;
	char superblock[PATH_MAX + 16];
	int fd;

	snprintf(superblock, sizeof(superblock), "%s/superblock", s->path);
	fd = open(superblock, O_RDONLY | O_CLOEXEC);
	s->error = fd < 0 ? -errno : 0;
	s->in_use = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	closep(&fd); /* and unlock it: a mount waits for a moment only */
	look_at_disk(arg, ret);
}

/* -ETIMEDOUT: there was no answer in time. Otherwise the caller unmaps *ret. */
static int look(void (*at)(const void *arg, void *ret), const char *path, struct sight **ret)
{
	struct sight *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct apart a = { .call = at, .arg = &s, .until_ns = monotonic_ns() + ANSWER_NS };
	bool has_answered = false;
	int r;

	if (s == MAP_FAILED)
		return -errno;
	r = snprintf(s->path, sizeof(s->path), "%s", path) < PATH_MAX ? 0 : -ENAMETOOLONG;
	if (r == 0)
		r = apart_call(&a, &has_answered, sizeof(has_answered));
	r = r > 0 ? 0 : r == 0 ? -ETIMEDOUT : r;
	if (r == 0)
		*ret = s;
	else
		munmap(s, sizeof(*s));
	return r;
}

static void forget(struct sight **s)
{
	if (*s)
		munmap(*s, sizeof(**s));
}

/* Of look(). */
static void report_unseen(struct checkup *c, const char *subject, int r)
{
	if (r == -ETIMEDOUT)
		checkup_found(c, HEALTH_CRITICAL, subject,
			      "see the kernel's log, the server of a network filesystem, and the daemon of a mount",
			      "does not answer within %" PRIu64 " s", (uint64_t)(ANSWER_NS / NS_PER_S));
	else
		checkup_found(c, HEALTH_CRITICAL, subject, NULL, "%s", strerror(-r));
}

/* --- the disk --- */

void checkup_space(struct checkup *c, uint64_t available, uint64_t size, const char *freed_by)
{
	if (available < MAX(size / 100, MiB(64)))
		checkup_found(c, HEALTH_CRITICAL, "space", freed_by, "%s of %s available: writes will fail soon",
			      human_size(available).s, human_size(size).s);
	else if (available < size / 20)
		checkup_found(c, HEALTH_WARNING, "space", freed_by, "%s of %s available", human_size(available).s,
			      human_size(size).s);
	else
		checkup_found(c, HEALTHY, "space", NULL, "%s of %s available", human_size(available).s,
			      human_size(size).s);
}

/* `freed_by`: what frees space. */
static void check_seen_disk(struct checkup *c, const struct sight *s, const char *freed_by)
{
	const struct medium *m = &s->medium;

	if (s->medium_error < 0) {
		checkup_found(c, HEALTHY, "disk", NULL, "cannot be examined: %s: %s", s->path,
			      strerror(-s->medium_error));
		return;
	}
	if (medium_caution(m->kind))
		checkup_found(c, HEALTH_WARNING, "disk", NULL, "the store lies on %s, %s", m->type,
			      medium_caution(m->kind));
	else
		checkup_found(c, HEALTHY, "disk", NULL, "%s", m->type[0] ? m->type : "a local filesystem");
	checkup_space(c, m->available, m->size, freed_by);
}

static void check_disk(struct checkup *c, const char *store, const char *freed_by)
{
	_cleanup_(forget) struct sight *s = NULL;
	int r = look(look_at_disk, store, &s);

	if (r < 0)
		report_unseen(c, "disk", r);
	else
		check_seen_disk(c, s, freed_by);
}

/* --- the daemon --- */

static void check_version(struct checkup *c, const struct json_flat *j)
{
	const char *version = json_flat_get(j, "version");

	if (strcmp(version, CKPTFS_VERSION) != 0)
		checkup_found(c, HEALTH_WARNING, "daemon", "unmount and mount again when no job uses it",
			      "runs ckptfs %s, the tools are %s", version, CKPTFS_VERSION);
	else
		checkup_found(c, HEALTHY, "daemon", NULL, "answers, ckptfs %s, process %s", version,
			      json_flat_get(j, "pid"));
}

static void check_damage(struct checkup *c, const struct json_flat *j)
{
	uint64_t damaged = json_flat_u64(j, "health.damaged"), repaired = json_flat_u64(j, "health.repaired");
	uint64_t left = damaged > repaired ? damaged - repaired : 0;

	left = MAX(left, json_flat_u64(j, "scrub.left"));
	if (left > 0)
		checkup_found(
			c, HEALTH_CRITICAL, "damage",
			"the daemon's log names the files; replace the disk, then ckptfs scrub, or write their content again",
			"%" PRIu64 " chunk%s damaged", left, left == 1 ? " is" : "s are");
	else
		checkup_found(c, HEALTHY, "damage", NULL, "none known");
}

static void check_scrub(struct checkup *c, const struct json_flat *j, const char *point)
{
	uint64_t days = json_flat_u64(j, "scrub.age_ns") / DAY_NS;
	char action[PATH_MAX + 64];

	snprintf(action, sizeof(action), "ckptfs scrub %s, or enable the timer ckptfs-scrub@.timer", point);
	if (!is_true(j, "scrub.known") && json_flat_u64(j, "stored_chunks") == 0)
		checkup_found(c, HEALTHY, "scrub", NULL, "nothing is stored yet");
	else if (!is_true(j, "scrub.known"))
		checkup_found(c, HEALTH_WARNING, "scrub", action, "the store has never been searched for damage");
	else if (days > SCRUB_DAYS)
		checkup_found(c, HEALTH_WARNING, "scrub", action, "the last one was %" PRIu64 " days ago", days);
	else
		checkup_found(c, HEALTHY, "scrub", NULL, "the last one was %" PRIu64 " day%s ago", days, plural(days));
}

static void check_garbage(struct checkup *c, const struct json_flat *j, const char *gc)
{
	uint64_t garbage = json_flat_u64(j, "garbage.bytes"), disk = json_flat_u64(j, "disk_bytes");

	if (is_true(j, "garbage.known") && disk > 0 && garbage > disk / 100 * GARBAGE_PERCENT)
		checkup_found(c, HEALTH_WARNING, "garbage", gc, "no file refers to %s of the %s on disk",
			      human_size(garbage).s, human_size(disk).s);
}

/* commit= of the mount. */
static uint64_t commit_ns(const struct json_flat *j)
{
	const char *options = json_flat_get(j, "options");
	const char *at = strncmp(options, "commit=", 7) == 0 ? options : strstr(options, ",commit=");
	uint64_t s = at ? strtoull(strchr(at, '=') + 1, NULL, 10) : COMMIT_S;

	return s * NS_PER_S;
}

static void check_durability(struct checkup *c, const struct json_flat *j)
{
	uint64_t lag = json_flat_u64(j, "durability.lag_ns");

	if (lag > commit_ns(j) * 2 + LATE_NS)
		checkup_found(c, HEALTH_CRITICAL, "durability", "see the daemon's log; the disk may be full or failing",
			      "changes of the last %" PRIu64 " s are not durable", lag / NS_PER_S);
	else
		checkup_found(c, HEALTHY, "durability", NULL, "commits are in time");
}

static void check_paths(struct checkup *c, const struct json_flat *j)
{
	if (!is_true(j, "paths.pack_direct_io"))
		checkup_found(c, HEALTH_WARNING, "direct I/O", "put the store on a filesystem that has O_DIRECT",
			      "the filesystem of the store does not have it: large writes are slower");
	if (json_flat_u64(j, "compaction.failed_directories") > 0)
		checkup_found(c, HEALTH_WARNING, "compaction", "the daemon's log says why",
			      "%s sealed directories could not be recoded",
			      json_flat_get(j, "compaction.failed_directories"));
}

static void check_cluster(struct checkup *c, const struct json_flat *j, const char *point)
{
	uint64_t sealed = json_flat_u64(j, "cluster.sealed"), safe = json_flat_u64(j, "cluster.sealed_protected");
	uint64_t error = json_flat_u64(j, "cluster.protect_errno"), fetches = json_flat_u64(j, "cluster.fetch_failures");
	uint64_t lag = json_flat_u64(j, "cluster.replication_lag_ns");
	char action[PATH_MAX + 64];

	if (!is_true(j, "cluster.member"))
		return;
	snprintf(action, sizeof(action), "start one on each node: mpirun --map-by node ckptfs-agent --mount %s", point);
	if (!is_true(j, "cluster.agent")) {
		checkup_found(c, HEALTH_WARNING, "agent", action,
			      "no ckptfs-agent is connected: data of other nodes cannot be read%s",
			      is_true(j, "cluster.protects") ? ", and nothing is replicated" : "");
		return; /* replicas are counted with an agent only */
	}
	if (!is_true(j, "cluster.agent_answers"))
		checkup_found(c, HEALTH_CRITICAL, "agent", "end the agents of all nodes and start them again",
			      "ckptfs-agent is connected and does not answer");
	else
		checkup_found(c, HEALTHY, "agent", NULL, "connected, %" PRIu64 " node%s",
			      json_flat_u64(j, "cluster.nodes"), plural(json_flat_u64(j, "cluster.nodes")));
	if (is_true(j, "cluster.protects") && safe < sealed && lag > UNPROTECTED_NS)
		checkup_found(c, HEALTH_WARNING, "replicas",
			      "ckptfs wait DIRECTORY waits for one; the daemon's log has errors",
			      "%" PRIu64 " of %s on this node only, the first one for %s%s%s", sealed - safe,
			      human_nr(sealed, "sealed checkpoint").s, human_age(lag).s, error ? ": " : "",
			      error ? strerror((int)error) : "");
	else if (is_true(j, "cluster.protects"))
		checkup_found(c, HEALTHY, "replicas", NULL, "%" PRIu64 " of %s replicated%s%s", MIN(safe, sealed),
			      human_nr(sealed, "sealed checkpoint").s, lag > 0 ? ", lag " : "",
			      lag > 0 ? human_age(lag).s : "");
	if (fetches > 0)
		checkup_found(c, HEALTH_WARNING, "other nodes", "see that agents run on all nodes",
			      "%" PRIu64 " read%s of data on other nodes failed", fetches, plural(fetches));
}

/* Only for a mount with tier=. */
static void check_tier(struct checkup *c, const struct json_flat *j)
{
	uint64_t waiting = json_flat_u64(j, "tier.waiting"), sealed = json_flat_u64(j, "tier.sealed");
	const char *state = json_flat_get(j, "tier.state"), *reason = json_flat_get(j, "tier.reason");
	uint64_t lag = json_flat_u64(j, "tier.lag_ns");

	if (*state == '\0' || strcmp(state, "off") == 0)
		return;
	if (strcmp(state, "stopped") == 0)
		checkup_found(c, HEALTH_CRITICAL, "tier", "unmount, remove the cause, and mount again",
			      "flushing to %s has stopped, %" PRIu64 " of %s not known to be there: %s",
			      json_flat_get(j, "tier.where"), waiting, human_nr(sealed, "sealed checkpoint").s, reason);
	else if (*reason)
		checkup_found(c, HEALTH_WARNING, "tier",
			      "flushing is retried every minute; see the errors in the daemon's log",
			      "%s: %s; %" PRIu64 " of %s not known to be there", json_flat_get(j, "tier.where"), reason,
			      waiting, human_nr(sealed, "sealed checkpoint").s);
	else if (lag > UNPROTECTED_NS)
		checkup_found(c, HEALTH_WARNING, "tier",
			      "compare tier_rate= and the tier's bandwidth with what is sealed",
			      "%s: %s; %" PRIu64 " of %s not there, the first one for %s", json_flat_get(j, "tier.where"),
			      state, waiting, human_nr(sealed, "sealed checkpoint").s, human_age(lag).s);
	else
		checkup_found(c, HEALTHY, "tier", NULL, "%s: %s, %" PRIu64 " of %s there%s%s",
			      json_flat_get(j, "tier.where"), state, sealed - waiting,
			      human_nr(sealed, "sealed checkpoint").s, lag > 0 ? ", lag " : "",
			      lag > 0 ? human_age(lag).s : "");
}

void checkup_integrity(struct checkup *c, const struct json_flat *j, const char *point)
{
	check_damage(c, j);
	check_scrub(c, j, point);
	check_durability(c, j);
	check_cluster(c, j, point);
	check_tier(c, j);
}

void checkup_upkeep(struct checkup *c, const struct json_flat *j, const char *freed_by)
{
	check_garbage(c, j, freed_by);
	check_paths(c, j);
}

/* A finding is made of it, if it takes too long. */
static void ignore_wait(const void *point _unused_)
{
}

static void check_mount(struct checkup *c, const struct mounts *m)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	char about[2 * PATH_MAX + 8], gc[PATH_MAX + 64];
	int r = mounts_ask(m->point, monotonic_ns() + ANSWER_NS, ignore_wait);

	snprintf(about, sizeof(about), "%s on %s", m->store, m->point);
	checkup_about(c, about);
	snprintf(gc, sizeof(gc), "ckptfs gc --delete %s", m->point);
	if (r == 0)
		r = stat_ask_until(m->point, monotonic_ns() + ANSWER_NS, &a);
	if (r == -ENOTCONN || r == -ECONNABORTED)
		checkup_found(c, HEALTH_CRITICAL, "daemon", "ckptfs umount, then mount again: synced data is there",
			      "has died");
	else if (r == -ETIMEDOUT)
		checkup_found(c, HEALTH_CRITICAL, "daemon",
			      "see its log and the kernel's; ckptfs umount -l detaches the mount",
			      "does not answer within %" PRIu64 " s", (uint64_t)(ANSWER_NS / NS_PER_S));
	else if (r == -EACCES)
		checkup_found(c, HEALTH_WARNING, "daemon", "run ckptfs doctor as the mounting user",
			      "only the mounting user has access");
	else if (r < 0)
		checkup_found(c, HEALTH_CRITICAL, "daemon", "see its log", "%s", strerror(-r));
	else
		check_version(c, &a.j);
	check_disk(c, m->store, gc);
	if (r == 0) {
		checkup_integrity(c, &a.j, m->point);
		checkup_upkeep(c, &a.j, gc);
	}
	c->about = NULL;
}

/* --- stores that are not mounted --- */

static void check_store(struct checkup *c, const char *path)
{
	_cleanup_(forget) struct sight *s = NULL;
	char fsck[PATH_MAX + 32];
	int r = look(look_at_store, path, &s);

	checkup_about(c, path);
	if (r < 0) {
		report_unseen(c, "disk", r);
		return;
	}
	snprintf(fsck, sizeof(fsck), "ckptfs fsck -n %s reads and checks it", path);
	if (s->error < 0)
		checkup_found(c, HEALTH_CRITICAL, "store", "run ckptfs doctor as its owner", "cannot be opened: %s",
			      strerror(-s->error));
	else if (s->in_use)
		checkup_found(c, HEALTHY, "store", NULL, "in use, but not mounted in this mount namespace");
	else
		checkup_found(c, HEALTHY, "store", fsck, "not mounted");
	check_seen_disk(c, s,
			"delete files of other programs on that disk, or mount the store and ckptfs gc --delete it");
}

void checkup_path(struct checkup *c, const char *path)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	_cleanup_(forget) struct sight *s = NULL;
	int r = look(look_at_path, path, &s);

	if (r == 0 && s->error == 0 && (mounts_find_point(&m, s->path) > 0 || mounts_find_real(&m, s->path) > 0)) {
		check_mount(c, &m);
	} else if (r == 0 && s->is_store) {
		check_store(c, path);
	} else {
		checkup_about(c, path);
		if (r < 0)
			report_unseen(c, "path", r);
		else
			checkup_found(c, HEALTH_CRITICAL, "path", "give a mountpoint or a store", "%s",
				      s->error < 0 ? strerror(-s->error) :
						     "nothing is mounted there, and it is not a store");
	}
}

void checkup_mounts(struct checkup *c)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };

	if (mounts_open(&m) == 0)
		while (mounts_next(&m) > 0)
			check_mount(c, &m);
}
