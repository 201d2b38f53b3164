/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-restart-path: prints the checkpoint from which a restarted job continues: the newest sealed directory below a
 * given one that verifies (tools/seal/verify.h). Skipped directories are reported on standard error, with the reason.
 *
 * Exit status: 0 the path was printed, 1 usage, 2 the directory does not exist or is not on a ckptfs, the daemon has
 * died, or other nodes cannot be reached, 3 no sealed directory verifies, 130 interrupted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"
#include "tools/seal/seals.h"
#include "tools/seal/verify.h"

#define TOOL "ckptfs-restart-path"

enum exit_status { EXIT_FOUND = 0, EXIT_USAGE = 1, EXIT_PATH = 2, EXIT_NONE = 3, EXIT_INTERRUPTED = 130 };

struct request {
	bool quick, no_verify; /* neither: read every byte */
	bool null, quiet;
};

static void report_passed(const struct request *q, const char *path, const char *why)
{
	if (q->quiet)
		return;
	fputs(TOOL ": ", stderr);
	text_print(stderr, path);
	fprintf(stderr, ": skipped: %s\n", why);
}

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0' || strcmp(top, "/") == 0);
}

/* For a directory that is not in the caller's list of seals. One of another user may be sealed: if it is readable, its
 * immutable flag shows that. */
static const char *why_unknown(int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int flags = 0;

	if (fd < 0)
		return errno == EACCES ? "cannot be read" : "not sealed";
	return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_IMMUTABLE_FL ?
		       "sealed, but only its owner and root can verify it" :
		       "not sealed";
}

/* Reports directories in `top` that are not sealed and newer than the checkpoint found: they may be incomplete. */
static void report_unsealed(const struct request *q, const struct seals *s, const char *top, int64_t since_ns)
{
	DIR *dir = opendir(top);
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		_cleanup_(freep) char *path = NULL;
		bool is_seal = false;
		struct stat st;

		if (d->d_name[0] == '.' || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode))
			continue;
		if (asprintf(&path, "%s/%s", strcmp(top, "/") == 0 ? "" : top, d->d_name) < 0) {
			path = NULL;
			break;
		}
		for (size_t i = 0; i < s->nr && !is_seal; i++) {
			_cleanup_(freep) char *sealed = seals_path(s, &s->v[i]);

			is_seal = sealed && is_below(sealed, path);
		}
		if (!is_seal && (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec > since_ns)
			report_passed(q, path, why_unknown(dirfd(dir), d->d_name));
	}
	if (dir)
		closedir(dir);
}

/* 1: valid; 0: not valid; <0: cannot be determined */
static int prove(const struct request *q, const char *path, struct progress *p)
{
	struct verify_result v;
	int r;

	if (q->no_verify)
		return 1;
	r = verify_seal(path, !q->quick, p, &v);
	if (r == 1 || r == -ECANCELED)
		return r;
	if (verify_is_no_answer(r)) {
		fputs(TOOL ": ", stderr);
		text_print(stderr, path);
		fprintf(stderr, ": %s; cannot determine whether a valid one exists\n", v.why);
		return r;
	}
	report_passed(q, path, v.why);
	return 0;
}

static enum exit_status print_newest(const struct request *q, const char *top)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	_cleanup_(freep) char *real = NULL;
	struct progress p;

	if (seals_get_shown(TOOL, top, &s) < 0)
		return EXIT_PATH;
	real = realpath(top, NULL);
	if (!real) {
		text_printf(stderr, TOOL ": %s: %s\n", top, strerror(errno));
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
			report_unsealed(q, &s, real, s.v[i].sealed_ns);
			if (isatty(STDOUT_FILENO) && !q->null)
				text_print(stdout, path);
			else
				fputs(path, stdout); /* programs need the exact bytes */
			putchar(q->null ? '\0' : '\n');
			return EXIT_FOUND;
		}
	}
	report_unsealed(q, &s, real, 0);
	text_printf(stderr, TOOL ": %s: no sealed directory in it%s\n", top,
		q->no_verify ? "" : " is valid; start from the beginning");
	return EXIT_NONE;
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "quick", CONF_FLAG, OF(quick), .help = "compare names, attributes and fingerprints only, and read no bytes" },
	{ "no-verify", CONF_FLAG, OF(no_verify), .help = "print the newest one without verifying it" },
	{ "null", CONF_FLAG, OF(null), .letter = 'z', .help = "end the path with a NUL instead of a newline" },
	COMMAND_QUIET(struct request, quiet, "do not report what is skipped"),
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	const struct request *q = request;

	return q->quick && q->no_verify ? "--quick and --no-verify exclude each other" : NULL;
}

static int run(void *request, char *operands[], int nr _unused_)
{
	watchdog_begin(TOOL, operands[0], EXIT_PATH);
	interrupt_catch();
	return (int)print_newest(request, operands[0]);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " [--quick | --no-verify] [--null] [--quiet] DIRECTORY\n",
		.about = "Print the newest sealed checkpoint (ckptfs-seal) in DIRECTORY, or below it, that verifies: every byte is "
			 "read and compared. Damaged ones, and newer directories that are not sealed, are skipped, and reported on "
			 "standard error.",
		.options = options,
		.footer = "Exit status: 0 printed, 1 usage, 2 not there, not on ckptfs, its daemon has died, or no agent reaches "
			  "other nodes, 3 there is none, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_PATH,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one directory",
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
