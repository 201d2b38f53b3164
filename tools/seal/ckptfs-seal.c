/*
 * ckptfs-seal: makes directories of a mount durable, then immutable; all or nothing. The daemon does it (fs/seal.c).
 *
 * Exit status: 0 all are sealed, or unsealed, or were so before; 1 usage, 2 one is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/conf.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/daemon.h"
#include "tools/output.h"
#include "tools/seals.h"

#define TOOL "ckptfs-seal"

#define WAIT_STEP_NS 50000000

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2 };
enum what { SEAL, UNSEAL, LIST };

struct request {
	enum what what;
	bool json, quiet, replicated, collected;
};

static void help(FILE *to)
{
	fputs("Usage: ckptfs-seal [--wait=local|replicated|collected] [--quiet] DIRECTORY...\n"
	      "       ckptfs-seal --unseal [--quiet] DIRECTORY...\n"
	      "       ckptfs-seal --list [--json] MOUNTPOINT...\n"
	      "Make a directory of a ckptfs, with all that is in it, durable and then immutable: a checkpoint that is\n"
	      "complete. A crash leaves all of it sealed or nothing.\n\n"
	      "  --wait=local     until it is durable on this node, as without this option\n"
	      "  --wait=replicated   until another node has a copy, too, which goes by itself with the mount option protect=partner; or parity, protect=xor\n"
	      "  --wait=collected    until the collectors of this node's group have it, and this node has let it go: mount option compact_group=\n"
	      "  --unseal         let it be changed again; it must be, before it can be deleted. Of a node that was lost and forgotten\n"
	      "                   (.ckptfs/nodes/NAME/...): let all copies of it go\n"
	      "  --list           what is sealed; *: the newest in its directory\n"
	      "  --json           the list as one JSON document for each mount; keys keep their meaning (schema_version)\n"
	      "  -q, --quiet      say nothing but what is wrong\n"
	      "  -h, --help       this text\n"
	      "  -V, --version    the version\n\n"
	      "Exit status: 0 done, or it was so already, 1 usage, 2 failed.\n",
	      to);
}

/* What stands in the way lies in the directory; its path is from the mountpoint. */
static void tell_culprit(const char *before, const char *what, const char *behind)
{
	fputs(before, stderr);
	text_print(stderr, what);
	fprintf(stderr, ", from the mountpoint, %s\n", behind);
}

static void tell_why_not(const char *path, const struct ckptfs_seal *s, int r)
{
	const char *what = s->path;

	fprintf(stderr, TOOL ": %s: ", path);
	if (r == -EBUSY && what[0])
		tell_culprit("not sealed: ", what, "is open for writing; close it first");
	else if (r == -EBUSY)
		fputs("not sealed: somebody else is about to\n", stderr);
	else if (r == -EEXIST && what[0])
		tell_culprit("not sealed: ", what, "is sealed by itself; unseal that first");
	else if (r == -EEXIST)
		fputs("lies in a directory that is sealed\n", stderr);
	else if (r == -EPERM && what[0])
		tell_culprit("not sealed: ", what, "belongs to somebody else; root can seal it");
	else if (r == -EPERM)
		fputs("only its owner and root may do that\n", stderr);
	else if (r == -E2BIG)
		fputs("not sealed: too many files in it; seal directories below it\n", stderr);
	else if (r == -ECANCELED)
		fputs("not sealed: somebody else has unsealed it meanwhile\n", stderr);
	else if (r == -EIO)
		fputs("not sealed: something in it is damaged; the daemon's log says more\n", stderr);
	else if (r == -ENODATA)
		tell_culprit("lies in ", what, "which is sealed; unseal that");
	else if (r == -ENOTTY)
		fputs("not on a ckptfs\n", stderr);
	else
		fprintf(stderr, "%s\n", strerror(-r));
}

/* Of a directory that another node has sealed: s->path is a node's name. */
static void tell_why_kept(const char *path, const struct ckptfs_seal *s, int r)
{
	struct statvfs st;

	fprintf(stderr, TOOL ": %s: ", path);
	if (r == -EROFS) {
		fprintf(stderr, "not unsealed: %s\n",
			statvfs(path, &st) == 0 && st.f_flag & ST_RDONLY ?
				strerror(EROFS) :
				"it is another node's, and not one of the directories that this has sealed");
		return;
	}
	fputs(r == -EBUSY || r == -EHOSTDOWN || r == -ENOLINK ? "was sealed by node " : "not unsealed: node ", stderr);
	text_print(stderr, s->path);
	if (r == -ENOLINK) {
		fputs("; other nodes may have copies, and no ckptfs-agent runs here: start agents, and try again\n", stderr);
	} else if (r == -EBUSY) {
		fputs(", which takes part: unseal it there\n", stderr);
	} else if (r == -EHOSTDOWN) {
		fputs(", which may come back; if it will not, say so first, on each node:\n"
		      "  ckptfs-agent --mount MOUNTPOINT --forget ",
		      stderr);
		text_print(stderr, s->path);
		fputs("\n", stderr);
	} else {
		fprintf(stderr, " has not said that its copy is gone%s; try again\n",
			r == -EREMOTEIO ? ", the daemon's log says why" : " in time");
	}
}

static bool is_died(int r)
{
	return r == -ENOTCONN || r == -ECONNABORTED;
}

static void tell_done(const struct request *q, const char *path, const struct ckptfs_seal *s, int r)
{
	bool has_root = s->facts & CKPTFS_SEAL_HAS_ROOT;

	if (q->quiet)
		return;
	if (q->what == UNSEAL && s->path[0]) {
		printf("%s: gone: all copies of what node ", path);
		text_print(stdout, s->path);
		puts(" had");
	} else if (q->what == UNSEAL) {
		printf("%s: %s\n", path, r < 0 ? "was not sealed" : "unsealed");
	} else {
		printf("%s: %s: %" PRIu64 " files, %s, %s new, root %s\n", path,
		       r < 0 ? "was sealed already" : "sealed", s->files, human_size(s->bytes).s,
		       has_root ? human_size(s->new_bytes).s : "unknown", has_root ? sha256_hex(s->root).s : "unknown");
	}
}

/* Until another node has it, too. It is sealed here, whatever comes of that. */
static enum exit_status wait_for_copy(const struct request *q, const char *path, int fd)
{
	struct ckptfs_seal s = {
		.size = sizeof(s),
		.version = CKPTFS_IOC_VERSION,
		.command = q->collected ? CKPTFS_SEAL_COLLECTED : CKPTFS_SEAL_STATE,
	};
	int r;

	while ((r = ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0) == -EAGAIN)
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_STEP_NS }, NULL);
	if (r == 0) {
		if (!q->quiet)
			printf("%s: %s\n", path, q->collected ? "is with the collectors" : "another node has a copy");
		return EXIT_DONE;
	}
	fprintf(stderr, TOOL ": %s: sealed, but %s: ", path,
		q->collected	   ? "the collectors do not have it" :
		r == -EHOSTDOWN ? "it is not known whether another node has a copy" :
				  "no other node has a copy");
	if (r == -EOPNOTSUPP && q->collected)
		fputs("there are none, without compact_group=\n", stderr);
	else if (r == -EOPNOTSUPP)
		fputs("the mount does not make any, without protect=partner or protect=xor\n", stderr);
	else if (r == -ENOTCONN)
		fputs("there is no ckptfs-agent; it will have one when that runs\n", stderr);
	else if (r == -EHOSTDOWN)
		fputs("who has it does not take part; if that is lost, ckptfs-agent --heal gives it to another one\n", stderr);
	else if (r == -EHOSTUNREACH)
		fputs("no node of the cluster is on another host; it will have one when there is\n", stderr);
	else
		fprintf(stderr, "%s; the mount tries again by itself, and logs what is wrong\n", strerror(-r));
	return EXIT_FAILED;
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
		tell_unopened(TOOL, path, "a directory on a ckptfs", -errno);
		return EXIT_FAILED;
	}
	while ((r = ioctl(fd, CKPTFS_IOC_SEAL, &s) < 0 ? -errno : 0) == -EAGAIN && q->what == UNSEAL)
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_STEP_NS }, NULL);
	if (r == 0 || (q->what == SEAL && r == -EALREADY) || (q->what == UNSEAL && r == -ENODATA && !s.path[0])) {
		tell_done(q, path, &s, r);
		return q->replicated || q->collected ? wait_for_copy(q, path, fd) : EXIT_DONE;
	}
	if (is_died(r))
		tell_refusal(TOOL, path, "it", "do that", r);
	else if (q->what == UNSEAL && (r == -EROFS || (s.path[0] && r != -ENODATA)))
		tell_why_kept(path, &s, r);
	else
		tell_why_not(path, &s, r);
	return EXIT_FAILED;
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "unseal", no_argument, NULL, 'u' },
		{ "list", no_argument, NULL, 'l' },
		{ "wait", required_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	bool unseal = false, list = false, wait = false;
	int c;

	while ((c = getopt_long(argc, argv, "qhV", options, NULL)) >= 0) {
		switch (c) {
		case 'u':
			unseal = true;
			break;
		case 'l':
			list = true;
			break;
		case 'w':
			wait = true;
			q->replicated = strcmp(optarg, "replicated") == 0;
			q->collected = strcmp(optarg, "collected") == 0;
			if (!q->replicated && !q->collected && strcmp(optarg, "local") != 0) {
				fprintf(stderr,
					TOOL ": --wait=%s: local, replicated or collected is meant; try " TOOL
					     " --help\n",
					optarg);
				return EXIT_USAGE + 1;
			}
			break;
		case 'j':
			q->json = true;
			break;
		case 'q':
			q->quiet = true;
			break;
		case 'h':
			help(stdout);
			return EXIT_DONE + 1;
		case 'V':
			puts(TOOL " " CKPTFS_VERSION);
			return EXIT_DONE + 1;
		default:
			fputs("Try " TOOL " --help.\n", stderr);
			return EXIT_USAGE + 1;
		}
	}
	if ((unseal && list) || (wait && (unseal || list)) || (q->json && !list) || (q->quiet && list)) {
		fputs(TOOL ": these options do not go together; try " TOOL " --help\n", stderr);
		return EXIT_USAGE + 1;
	}
	if (optind == argc) {
		fprintf(stderr, TOOL ": %s must be given; try " TOOL " --help\n", list ? "a mountpoint" : "a directory");
		return EXIT_USAGE + 1;
	}
	q->what = unseal ? UNSEAL : list ? LIST : SEAL;
	return 0;
}

int main(int argc, char *argv[])
{
	enum exit_status status = EXIT_DONE, one;
	struct request q = { 0 };
	int r = parse(argc, argv, &q);

	if (r > 0)
		return r - 1;
	for (int i = optind; i < argc; i++) {
		if (q.what == LIST)
			one = seals_list(TOOL, argv[i], q.json, stdout) < 0 ? EXIT_FAILED : EXIT_DONE;
		else
			one = change(&q, argv[i]);
		status = one != EXIT_DONE ? one : status;
	}
	return output_finish(TOOL, (int)status, EXIT_FAILED);
}
