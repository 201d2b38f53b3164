/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A mount, as its daemon describes itself, and the disk under its store. A daemon may hang at any time, and a request to
 * it cannot be interrupted: child processes ask it (base/apart.h), and nothing more once it has not answered in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/medium.h"
#include "base/mounts.h"
#include "base/util.h"
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

static bool is_true(const struct json_flat *j, const char *path)
{
	return strcmp(json_flat_get(j, path), "true") == 0;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
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
static void check_disk(struct checkup *c, const char *store, const char *freed_by)
{
	struct medium m;
	char why[512];
	int r = medium_of(store, &m);

	if (r < 0) {
		checkup_found(c, HEALTHY, "disk", NULL, "cannot be examined: %s: %s", store, strerror(-r));
		return;
	}
	if (medium_caution(m.kind)) {
		snprintf(why, sizeof(why), "%s", medium_caution(m.kind));
		checkup_found(c, HEALTH_WARNING, "disk", NULL, "the store lies on %s, %s", m.type, why);
	} else {
		checkup_found(c, HEALTHY, "disk", NULL, "%s", m.type[0] ? m.type : "a local filesystem");
	}
	checkup_space(c, m.available, m.size, freed_by);
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
	if (is_true(j, "cluster.protects") && safe < sealed)
		checkup_found(c, HEALTH_WARNING, "replicas",
			      "ckptfs wait DIRECTORY waits for one; the daemon's log has errors",
			      "%" PRIu64 " of %s on this node only%s%s", sealed - safe,
			      human_nr(sealed, "sealed checkpoint").s, error ? ": " : "",
			      error ? strerror((int)error) : "");
	else if (is_true(j, "cluster.protects"))
		checkup_found(c, HEALTHY, "replicas", NULL, "%" PRIu64 " of %s replicated", sealed,
			      human_nr(sealed, "sealed checkpoint").s);
	if (fetches > 0)
		checkup_found(c, HEALTH_WARNING, "other nodes", "see that agents run on all nodes",
			      "%" PRIu64 " read%s of data on other nodes failed", fetches, plural(fetches));
}

/* Only for a mount with tier=. */
static void check_tier(struct checkup *c, const struct json_flat *j)
{
	uint64_t waiting = json_flat_u64(j, "tier.waiting"), sealed = json_flat_u64(j, "tier.sealed");
	const char *state = json_flat_get(j, "tier.state"), *reason = json_flat_get(j, "tier.reason");

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
	else
		checkup_found(c, HEALTHY, "tier", NULL, "%s: %s, %" PRIu64 " of %s there", json_flat_get(j, "tier.where"), state,
			      sealed - waiting, human_nr(sealed, "sealed checkpoint").s);
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
	_cleanup_(closep) int fd = -1;
	char superblock[PATH_MAX + 16], fsck[PATH_MAX + 32];

	checkup_about(c, path);
	snprintf(superblock, sizeof(superblock), "%s/superblock", path);
	snprintf(fsck, sizeof(fsck), "ckptfs fsck -n %s reads and checks it", path);
	fd = open(superblock, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		checkup_found(c, HEALTH_CRITICAL, "store", "run ckptfs doctor as its owner", "cannot be opened: %s",
			      strerror(errno));
	else if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		checkup_found(c, HEALTHY, "store", NULL, "in use, but not mounted in this mount namespace");
	else
		checkup_found(c, HEALTHY, "store", fsck, "not mounted");
	check_disk(c, path, "delete files of other programs on that disk, or mount the store and ckptfs gc --delete it");
}

void checkup_path(struct checkup *c, const char *path)
{
	_cleanup_(freep) char *real = mounts_real_path(path);
	_cleanup_(mounts_close) struct mounts m = { 0 };
	int error = errno;

	if (real && (mounts_find_point(&m, real) > 0 || mounts_find(&m, real) > 0)) {
		check_mount(c, &m);
	} else if (is_store(path)) {
		check_store(c, path);
	} else {
		checkup_about(c, path);
		checkup_found(c, HEALTH_CRITICAL, "path", "give a mountpoint or a store", "%s",
			      real ? "nothing is mounted there, and it is not a store" : strerror(error));
	}
}

void checkup_mounts(struct checkup *c)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };

	if (mounts_open(&m) == 0)
		while (mounts_next(&m) > 0)
			check_mount(c, &m);
}
