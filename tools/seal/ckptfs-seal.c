/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-seal: makes directories of a mount durable, then immutable, all or nothing. The daemon does the work
 * (fs/seal/seal.c).
 *
 * Exit status: 0 all are sealed, or unsealed, now or before; 1 usage; 2 at least one is not; 3 all are sealed here, and
 * at least one is not in the tier (--wait=tier).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/command.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/daemon.h"
#include "tools/common/watchdog.h"
#include "tools/seal/seal_tier.h"
#include "tools/seal/seals.h"

#define TOOL "ckptfs-seal"

#define WAIT_STEP_NS 50000000

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_LOCAL = 3 };
enum what { SEAL, UNSEAL, LIST, WAIT };

enum wait { WAIT_LOCAL, WAIT_REPLICATED, WAIT_GATHERED, WAIT_TIER };

struct request {
	enum what what;
	enum wait wait;
	uint64_t tier_ns; /* of WAIT_TIER; 0: no limit */
	bool json, quiet, unseal, list, no_seal, force;
};

/* The file or directory that prevents the change. */
static void report_culprit(const char *before, const char *what, const char *behind)
{
	fputs(before, stderr);
	text_print(stderr, what);
	text_printf(stderr, " (relative to the mountpoint)%s\n", behind);
}

static void report_why_not(const char *path, const struct ckptfs_seal *s, int r)
{
	const char *what = s->path;

	text_printf(stderr, TOOL ": %s: ", path);
	if (r == -EBUSY && what[0])
		report_culprit("not sealed: ", what,
			       " is open for writing; close it first (or it has another name in a "
			       "checkpoint that is being erased: try again)");
	else if (r == -EBUSY)
		fputs("not sealed: another process is sealing it\n", stderr);
	else if (r == -EEXIST && what[0])
		report_culprit("not sealed: ", what, " is sealed separately; unseal it first");
	else if (r == -EEXIST)
		fputs("not sealed: it is in a sealed directory\n", stderr);
	else if (r == -EPERM && what[0])
		report_culprit("not sealed: ", what, " belongs to another user; root can seal it");
	else if (r == -EPERM)
		fputs("only its owner and root may seal or unseal it; run this as one of them\n", stderr);
	else if (r == -E2BIG)
		fputs("not sealed: too many files in it; seal directories below it\n", stderr);
	else if (r == -ECANCELED)
		fputs("not sealed: another process unsealed it meanwhile\n", stderr);
	else if (r == -EIO)
		fputs("not sealed: some of its data is damaged; see the daemon's log\n", stderr);
	else if (r == -EREMOTE)
		fputs("not unsealed: its bytes were dropped here and are in the tier; copy it and change the copy\n", stderr);
	else if (r == -ENODATA)
		report_culprit("not unsealed: it is in the sealed directory ", what, "; unseal that");
	else if (r == -ENOTTY)
		fputs("not on a mounted ckptfs; ckptfs stat lists those that are\n", stderr);
	else
		text_printf(stderr, "%s\n", strerror(-r));
}

/* For a directory that another node sealed: s->path is the name of that node. */
static void report_why_kept(const char *path, const struct ckptfs_seal *s, int r)
{
	struct statvfs st;

	text_printf(stderr, TOOL ": %s: ", path);
	if (r == -EROFS) {
		text_printf(stderr, "not unsealed: %s\n",
			statvfs(path, &st) == 0 && st.f_flag & ST_RDONLY ?
				strerror(EROFS) :
				"it belongs to another node, and is not one of its sealed directories");
		return;
	}
	fputs(r == -EBUSY || r == -EHOSTDOWN || r == -ENOLINK ? "was sealed by node " : "not unsealed: node ", stderr);
	text_print(stderr, s->path);
	if (r == -ENOLINK) {
		fputs("; other nodes may have replicas, and no ckptfs-agent runs here: start agents and try again\n", stderr);
	} else if (r == -EBUSY) {
		fputs(", which is connected: unseal it there\n", stderr);
	} else if (r == -EHOSTDOWN) {
		fputs(", which may come back; if it will not, first run on each node:\n"
		      "  ckptfs-agent --mount MOUNTPOINT --forget ",
		      stderr);
		text_print(stderr, s->path);
		fputs("\n", stderr);
	} else {
		text_printf(stderr, " has not confirmed that it dropped its replica%s; try again\n",
			r == -EREMOTEIO ? ", see the daemon's log" : " in time");
	}
}

static bool is_died(int r)
{
	return r == -ENOTCONN || r == -ECONNABORTED;
}

static void report_done(const struct request *q, const char *path, const struct ckptfs_seal *s, int r)
{
	if (q->quiet)
		return;
	if (q->what == UNSEAL && s->path[0]) {
		text_printf(stdout, "%s: dropped all replicas of the directory; it belonged to node ", path);
		text_print(stdout, s->path);
		puts("");
	} else if (q->what == UNSEAL) {
		text_printf(stdout, "%s: %s\n", path, r < 0 ? "was not sealed" : "unsealed");
	} else {
		text_printf(stdout, "%s: %s: %s, %s, %s new, root %s\n", path,
			    r < 0 ? "was sealed already" : "sealed", human_nr(s->files, "file").s, human_size(s->bytes).s,
			    human_size(s->new_bytes).s, sha256_hex(s->root).s);
	}
}

/* The directory is sealed on this node already, whatever the result, except with WAIT. */
static enum exit_status wait_for_tier(const struct request *q, const char *path, int fd)
{
	struct seal_tier_wait how = { .tool = TOOL, .path = path, .timeout_ns = q->tier_ns, .quiet = q->quiet };
	struct ckptfs_tier t;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : 0;

	how.ino = st.st_ino;
	if (r == 0)
		r = seal_tier_wait(fd, &how, &t);
	if (r == 0) {
		if (!q->quiet)
			text_printf(stdout, "%s: in the tier %s\n", path, t.where);
		return EXIT_DONE;
	}
	text_printf(stderr, TOOL ": %s: ", path);
	if (r == -ENODATA) {
		fputs("not sealed, so there is nothing to wait for; seal it first\n", stderr);
		return EXIT_FAILED;
	}
	if (r != -ESHUTDOWN && r != -ETIMEDOUT && r != -EOPNOTSUPP && r != -ESTALE && r != -EFBIG) {
		text_printf(stderr, "cannot get its state in the tier: %s\n", path_error_text(r));
		return EXIT_FAILED;
	}
	fputs("sealed on this node, but not in the tier", stderr);
	if (r == -EOPNOTSUPP)
		fputs(": the mount has none; mount with tier=\n", stderr);
	else if (r == -ESTALE)
		text_printf(stderr, " %s: retention has removed it there, and it is not flushed again\n", t.where);
	else if (r == -EFBIG)
		text_printf(stderr, " %s: its manifest would be too large; seal its subdirectories one by one instead\n",
			    t.where);
	else if (r == -ESHUTDOWN)
		text_printf(stderr, " %s: %s\n", t.where, t.reason);
	else
		text_printf(stderr, " %s in this time: %s of %s flushed%s%s; flushing continues\n", t.where,
			    human_size(t.flushed_bytes).s, human_size(t.bytes).s, t.reason[0] ? "; " : "", t.reason);
	return EXIT_LOCAL;
}

/* Likewise. */
static enum exit_status wait_for_copy(const struct request *q, const char *path, int fd)
{
	struct ckptfs_seal s = {
		.size = sizeof(s),
		.version = CKPTFS_IOC_VERSION,
		.command = q->wait == WAIT_GATHERED ? CKPTFS_SEAL_GATHERED : CKPTFS_SEAL_STATE,
	};
	int r;

	if (q->wait == WAIT_TIER)
		return wait_for_tier(q, path, fd);
	while ((r = ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0) == -EAGAIN)
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_STEP_NS }, NULL);
	if (r == 0) {
		if (!q->quiet)
			text_printf(stdout, "%s: %s\n", path,
				    q->wait == WAIT_GATHERED ? "gathered" : "replicated on another node");
		return EXIT_DONE;
	}
	if (r == -ENODATA && q->what == WAIT) {
		text_printf(stderr, TOOL ": %s: not sealed, so there is nothing to wait for; seal it first\n", path);
		return EXIT_FAILED;
	}
	if (r == -ENOTTY) {
		text_printf(stderr, TOOL ": %s: not on a mounted ckptfs; ckptfs stat lists those that are\n", path);
		return EXIT_FAILED;
	}
	text_printf(stderr, TOOL ": %s: %s%s: ", path, q->what == WAIT ? "" : "sealed, but ",
		q->wait == WAIT_GATHERED	   ? "not gathered" :
		r == -EHOSTDOWN ? "cannot find out whether another node has a replica" :
				  "not replicated on another node");
	if (r == -EOPNOTSUPP && q->wait == WAIT_GATHERED)
		fputs("the mount has no compact_group=; mount it with that\n", stderr);
	else if (r == -EOPNOTSUPP)
		fputs("the mount has neither protect=partner nor protect=xor; mount it with one of them\n", stderr);
	else if (r == -ENOTCONN)
		fputs("no ckptfs-agent runs; it is replicated once one does\n", stderr);
	else if (r == -EHOSTDOWN)
		fputs("the node with its replica is not connected; if it is lost, run ckptfs-agent --repair\n", stderr);
	else if (r == -EHOSTUNREACH)
		fputs("no node of the cluster is on another host; it is replicated once there is one\n", stderr);
	else
		text_printf(stderr, "%s; the mount retries and logs errors\n", strerror(-r));
	return EXIT_FAILED;
}

/* Of a ckptfs, or of a directory of one that is bind-mounted, as in containers. */
static bool is_mountpoint(int fd)
{
	struct ckptfs_seal s = { .size = sizeof(s), .version = CKPTFS_IOC_VERSION, .command = CKPTFS_SEAL_STATE };
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) == 0 &&
	       stx.stx_attributes & STATX_ATTR_MOUNT_ROOT && (ioctl(fd, CKPTFS_IOC_SEAL, &s) == 0 || errno != ENOTTY);
}

static enum exit_status change(const struct request *q, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_seal s = {
		.size = sizeof(s),
		.version = CKPTFS_IOC_VERSION,
		.command = q->what == UNSEAL ? CKPTFS_SEAL_UNSEAL : CKPTFS_SEAL_SEAL,
	};
	int r;

	if (fd < 0) {
		report_unopened(TOOL, path, "a directory on a ckptfs", -errno);
		return EXIT_FAILED;
	}
	if (q->what == WAIT)
		return wait_for_copy(q, path, fd);
	if (q->what == SEAL && !q->force && is_mountpoint(fd)) {
		text_printf(stderr, TOOL ": %s: not sealed: it is a mountpoint, and nothing in it could be changed any more; "
				    "seal a directory below it, or use --force\n", path);
		return EXIT_FAILED;
	}
	while ((r = ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0) == -EAGAIN && q->what == UNSEAL)
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_STEP_NS }, NULL);
	if (r == 0 || (q->what == SEAL && r == -EALREADY) || (q->what == UNSEAL && r == -ENODATA && !s.path[0])) {
		report_done(q, path, &s, r);
		return q->wait != WAIT_LOCAL ? wait_for_copy(q, path, fd) : EXIT_DONE;
	}
	if (is_died(r))
		report_refusal(TOOL, path, "it", "do that", r);
	else if (q->what == UNSEAL && (r == -EROFS || (s.path[0] && r != -ENODATA)))
		report_why_kept(path, &s, r);
	else
		report_why_not(path, &s, r);
	return EXIT_FAILED;
}

static int parse_wait(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	static const char *const levels[] = { "local", "replicated", "gathered", "tier" };
	struct request *q = conf;

	*ret_why = "must be local, replicated, gathered, tier or tier:TIME";
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
		if (strcmp(value, levels[i]) == 0) {
			q->wait = (enum wait)i;
			return 0;
		}
	q->wait = WAIT_TIER;
	return strncmp(value, "tier:", 5) == 0 && parse_time(value + 5, &q->tier_ns) == 0 ? 0 : -EINVAL;
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "wait", CONF_PARSED, OF(wait), .parse = parse_wait, .value = "local|replicated|gathered|tier[:TIME]",
	  .help = "return when it is durable on this node (local), when another node has a replica (protect=partner) or "
		  "parity (protect=xor) too, when the gathering nodes of this node's group have it and this node has released "
		  "it (compact_group=), or when it is in the tier (tier=), but wait for that no longer than TIME (default local)" },
	{ "force", CONF_FLAG, OF(force), .help = "seal even a mountpoint, so that nothing in it can be changed any more" },
	{ "unseal", CONF_FLAG, OF(unseal),
	  .help = "make it writable again, which is needed to delete it; for a directory of a lost and forgotten node "
		  "(.ckptfs/nodes/NAME/...): drop all replicas of it" },
	{ "list", CONF_FLAG, OF(list), .help = "list sealed checkpoints; *: the newest of its owner in its directory" },
	{ "json", CONF_FLAG, OF(json),
	  .help = "print the list as one JSON document for each mount; keys keep their meaning (schema_version)" },
	{ "no-seal", CONF_FLAG, OF(no_seal), .help = "only wait, for directories that are sealed already" },
	COMMAND_QUIET(struct request, quiet, "print errors only"),
	COMMAND_END,
};

static const char *check(void *request, int nr)
{
	struct request *q = request;

	q->what = q->unseal ? UNSEAL : q->list ? LIST : q->no_seal ? WAIT : SEAL;
	if (q->no_seal && (q->unseal || q->list || q->wait == WAIT_LOCAL))
		return "--no-seal requires --wait=replicated, --wait=gathered or --wait=tier";
	if (q->unseal && q->list)
		return "--unseal and --list exclude each other";
	if (q->force && q->what != SEAL)
		return "--force goes with sealing only";
	if (q->wait != WAIT_LOCAL && (q->unseal || q->list))
		return "--wait cannot be used with --unseal or --list";
	if (q->json && !q->list)
		return "--json requires --list";
	if (q->quiet && q->list)
		return "--quiet and --list exclude each other";
	return nr > 0 ? NULL : q->list ? "a mountpoint must be given" : "a directory must be given";
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;
	enum exit_status status = EXIT_DONE, one;

	watchdog_begin(TOOL, operands[0], EXIT_FAILED);
	for (int i = 0; i < nr; i++) {
		watchdog_set_path(operands[i]);
		if (q->what == LIST)
			one = seals_list(TOOL, operands[i], q->json, stdout) < 0 ? EXIT_FAILED : EXIT_DONE;
		else
			one = change(q, operands[i]);
		if (status != EXIT_FAILED && one != EXIT_DONE)
			status = one;
	}
	return (int)status;
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " [--wait=local|replicated|gathered|tier[:TIME]] [--force] [--quiet] DIRECTORY...\n"
			 "       " TOOL " --no-seal --wait=replicated|gathered|tier[:TIME] [--quiet] DIRECTORY...\n"
			 "       " TOOL " --unseal [--quiet] DIRECTORY...\n"
			 "       " TOOL " --list [--json] MOUNTPOINT...\n",
		.about = "Make a directory of a ckptfs, with everything in it, durable and then immutable: a complete checkpoint. "
			 "After a crash either all of it is sealed or nothing is.",
		.options = options,
		.footer = "Exit status: 0 done, now or before, 1 usage, 2 failed, 3 sealed on this node, but not in the tier.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.max_operands = COMMAND_OPERANDS_MAX,
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
