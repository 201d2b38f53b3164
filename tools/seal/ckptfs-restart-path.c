/*
 * ckptfs-restart-path: where a job that starts again finds its last checkpoint: the newest sealed directory below
 * another one that proves itself (tools/verify.h). What is passed over is told on standard error, with the reason.
 *
 * Exit status: 0 its path has been printed, 1 usage, 2 the directory is not there or not on a ckptfs, the mount has
 * died, or other nodes cannot be reached, 3 none proves itself, 130 interrupted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/text.h"
#include "base/util.h"
#include "tools/interrupt.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/seals.h"
#include "tools/verify.h"

#define TOOL "ckptfs-restart-path"

enum exit_status { EXIT_FOUND = 0, EXIT_USAGE = 1, EXIT_PATH = 2, EXIT_NONE = 3, EXIT_INTERRUPTED = 130 };
enum proof { PROOF_READ, PROOF_QUICK, PROOF_NONE };

struct request {
	enum proof proof;
	bool null, quiet;
};

static void help(FILE *to)
{
	fputs("Usage: ckptfs-restart-path [--quick | --no-verify] [--null] [--quiet] DIRECTORY\n"
	      "Print the newest sealed directory (ckptfs-seal) in DIRECTORY, or below it, that proves itself: every byte is read\n"
	      "and compared. Damaged ones, and newer directories that are not sealed, are passed over, and told on standard error.\n\n"
	      "  --quick           compare names, attributes and fingerprints only, and read no bytes\n"
	      "  --no-verify       the newest one, as it is\n"
	      "  -z, --null        end the path with a NUL instead of a newline\n"
	      "  -q, --quiet       say nothing about what is passed over\n"
	      "  -h, --help        this text\n"
	      "  -V, --version     the version\n\n"
	      "Exit status: 0 printed, 1 usage, 2 not there, not on ckptfs, it has died, or no agent runs that reaches others,\n"
	      "3 there is none, 130 interrupted.\n",
	      to);
}

static void tell_passed(const struct request *q, const char *path, const char *why)
{
	if (q->quiet)
		return;
	fputs(TOOL ": ", stderr);
	text_print(stderr, path);
	fprintf(stderr, ": passed over: %s\n", why);
}

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0' || strcmp(top, "/") == 0);
}

/* Of a directory that is none of the epochs that one may know of: another user's is one, and whoever can read it sees
 * that. */
static const char *why_unknown(int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int flags = 0;

	if (fd < 0)
		return errno == EACCES ? "cannot be read" : "not sealed";
	return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_IMMUTABLE_FL ?
		       "sealed, but only its owner and root can prove it" :
		       "not sealed";
}

/* Directories in `top` that are no epochs, and newer than the one that was found: half a checkpoint, perhaps. */
static void tell_unsealed(const struct request *q, const struct seals *s, const char *top, int64_t since_ns)
{
	DIR *dir = opendir(top);
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		_cleanup_(freep) char *path = NULL;
		bool is_epoch = false;
		struct stat st;

		if (d->d_name[0] == '.' || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode))
			continue;
		if (asprintf(&path, "%s/%s", strcmp(top, "/") == 0 ? "" : top, d->d_name) < 0) {
			path = NULL;
			break;
		}
		for (size_t i = 0; i < s->nr && !is_epoch; i++) {
			_cleanup_(freep) char *epoch = seals_path(s, &s->v[i]);

			is_epoch = epoch && is_below(epoch, path);
		}
		if (!is_epoch && (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec > since_ns)
			tell_passed(q, path, why_unknown(dirfd(dir), d->d_name));
	}
	if (dir)
		closedir(dir);
}

/* 1: this one; 0: not; <0 */
static int prove(const struct request *q, const char *path, struct progress *p)
{
	struct verify_result v;
	int r;

	if (q->proof == PROOF_NONE)
		return 1;
	r = verify_epoch(path, q->proof == PROOF_READ, p, &v);
	if (r == 1 || r == -ECANCELED)
		return r;
	if (verify_is_no_answer(r)) {
		fputs(TOOL ": ", stderr);
		text_print(stderr, path);
		fprintf(stderr, ": %s; whether there is one that proves itself is not known\n", v.why);
		return r;
	}
	tell_passed(q, path, v.why);
	return 0;
}

static enum exit_status find(const struct request *q, const char *top)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	_cleanup_(freep) char *real = NULL;
	struct progress p;

	if (seals_get_shown(TOOL, top, &s) < 0)
		return EXIT_PATH;
	real = realpath(top, NULL);
	if (!real) {
		fprintf(stderr, TOOL ": %s: %s\n", top, strerror(errno));
		return EXIT_PATH;
	}
	progress_init(&p);
	p.on &= !q->quiet;
	for (size_t i = s.nr; i-- > 0;) {
		_cleanup_(freep) char *path = seals_path(&s, &s.v[i]);
		int r = path && is_below(path, real) ? prove(q, path, &p) : 0;

		if (r == -ECANCELED || interrupted())
			return EXIT_INTERRUPTED;
		if (r < 0)
			return EXIT_PATH;
		if (r > 0) {
			tell_unsealed(q, &s, real, s.v[i].sealed_ns);
			printf("%s%c", path, q->null ? '\0' : '\n');
			return EXIT_FOUND;
		}
	}
	tell_unsealed(q, &s, real, 0);
	fprintf(stderr, TOOL ": %s: no sealed directory in it%s\n", top,
		q->proof == PROOF_NONE ? "" : " proves itself; start from the beginning");
	return EXIT_NONE;
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'Q' },	{ "no-verify", no_argument, NULL, 'n' },
		{ "null", no_argument, NULL, 'z' },	{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },	{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	bool quick = false, none = false;
	int c;

	while ((c = getopt_long(argc, argv, "zqhV", options, NULL)) >= 0) {
		switch (c) {
		case 'Q':
			quick = true;
			break;
		case 'n':
			none = true;
			break;
		case 'z':
			q->null = true;
			break;
		case 'q':
			q->quiet = true;
			break;
		case 'h':
			help(stdout);
			return EXIT_FOUND + 1;
		case 'V':
			puts(TOOL " " CKPTFS_VERSION);
			return EXIT_FOUND + 1;
		default:
			fputs("Try " TOOL " --help.\n", stderr);
			return EXIT_USAGE + 1;
		}
	}
	if ((quick && none) || argc - optind != 1) {
		fputs(quick && none ? TOOL ": --quick and --no-verify do not go together\n" :
				      TOOL ": one directory must be given; try " TOOL " --help\n",
		      stderr);
		return EXIT_USAGE + 1;
	}
	q->proof = none ? PROOF_NONE : quick ? PROOF_QUICK : PROOF_READ;
	return 0;
}

int main(int argc, char *argv[])
{
	struct request q = { 0 };
	int r = parse(argc, argv, &q);

	if (r > 0)
		return r - 1;
	interrupt_catch();
	return output_finish(TOOL, (int)find(&q, argv[optind]), EXIT_PATH);
}
