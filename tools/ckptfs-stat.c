/*
 * ckptfs-stat: what a mount, a file or a directory of ckptfs costs and saves.
 *
 * The daemon makes the figures, as JSON in the extended attribute user.ckptfs.stat; this program asks for them and
 * shows them for people, as they are, or for Prometheus. A directory's figures are the sums over the files below it.
 *
 * Exit status: 0 shown, 1 usage, 2 a path that is not there, not readable or not on ckptfs; 130 interrupted.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/json_flat.h"
#include "tools/mounts.h"
#include "tools/stat_show.h"

#define STAT_XATTR "user.ckptfs.stat"
#define STAT_MAX 65536
#define NR_OPEN_DIRS 32
#define MOUNTS_MAX 64

enum exit_status { EXIT_SHOWN = 0, EXIT_USAGE = 1, EXIT_PATH = 2, EXIT_INTERRUPTED = 130 };
enum format { FORMAT_HUMAN, FORMAT_JSON, FORMAT_PROMETHEUS };

struct request {
	enum format format;
	unsigned watch_s; /* 0: once */

	struct json_flat mounts[MOUNTS_MAX]; /* kept for FORMAT_PROMETHEUS */
	size_t nr_mounts;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(_unused_ int signal)
{
	interrupted = 1;
}

static void help(FILE *to)
{
	fputs("Usage: ckptfs-stat [--json | --prometheus] [--watch[=SECONDS]] [PATH...]\n"
	      "Show what ckptfs stores and saves: of a whole mount (PATH is the mountpoint; no PATH: all mounts),\n"
	      "of a file, or of all files below a directory.\n\n"
	      "  --json             exact figures, one JSON document a line; keys keep their meaning (schema_version)\n"
	      "  --prometheus       text exposition format, mounts only\n"
	      "  --watch[=SECONDS]  again and again, every second or as told\n"
	      "  -h, --help         this text\n"
	      "  -V, --version      the version\n\n"
	      "Exit status: 0 shown, 1 usage, 2 not there, not readable or not on ckptfs, 130 interrupted.\n",
	      to);
}

/* The daemon's JSON of one path, NUL-terminated. */
static int ask(const char *path, char text[STAT_MAX + 1], size_t *ret_len)
{
	ssize_t n = lgetxattr(path, STAT_XATTR, text, STAT_MAX);

	if (n >= 0) {
		text[n] = '\0';
		*ret_len = (size_t)n;
		return 0;
	}
	if (errno == ENODATA || errno == EOPNOTSUPP || errno == EPERM)
		fprintf(stderr,
			"ckptfs-stat: %s: not on a ckptfs; give a mountpoint, or a file or directory below one\n", path);
	else if (errno == ENOTCONN)
		fprintf(stderr, "ckptfs-stat: %s: the daemon of this mount has died; umount it and mount it again\n",
			path);
	else
		fprintf(stderr, "ckptfs-stat: %s: %s\n", path, strerror(errno));
	return -errno;
}

/* Sums over a directory: nftw() takes no argument, so they are here. */
static struct stat_sums sums;
static int sums_error;

static int add_file(const char *path)
{
	static char text[STAT_MAX + 1];
	struct json_flat j;
	size_t len = 0;
	int r = ask(path, text, &len);

	if (r == 0)
		r = json_flat_parse(text, len, &j);
	if (r < 0)
		return r;
	sums.files++;
	sums.size += json_flat_u64(&j, "size_bytes");
	sums.mapped += json_flat_u64(&j, "mapped_bytes");
	sums.extents += json_flat_u64(&j, "extents");
	sums.frames += json_flat_u64(&j, "frames");
	sums.not_durable += strcmp(json_flat_get(&j, "durable"), "true") != 0;
	json_flat_release(&j);
	return 0;
}

static int visit(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	int r = 0;

	if (interrupted)
		return 1;
	if (type == FTW_D)
		sums.directories++;
	else if (type == FTW_F && S_ISREG(st->st_mode))
		r = add_file(path);
	else if (type == FTW_DNR || type == FTW_NS) {
		fprintf(stderr, "ckptfs-stat: %s: cannot be read\n", path);
		r = -EACCES;
	}
	if (r < 0 && r != -ENOENT) /* what vanishes meanwhile is not missed */
		sums_error = r;
	return 0;
}

static int sum_directory(const char *path)
{
	sums = (struct stat_sums){ 0 };
	sums_error = 0;
	if (nftw(path, visit, NR_OPEN_DIRS, FTW_PHYS | FTW_MOUNT) < 0) {
		fprintf(stderr, "ckptfs-stat: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	return sums_error;
}

static int show_directory(const struct request *req, const char *path)
{
	int r = sum_directory(path);

	if (req->format == FORMAT_JSON)
		stat_print_sums(path, &sums);
	else
		stat_show_sums(path, &sums);
	return r;
}

/* Prometheus wants all mounts together: *j is kept, and left empty here. */
static int keep_mount(struct request *req, const char *path, struct json_flat *j)
{
	if (strcmp(json_flat_get(j, "kind"), "mount") != 0) {
		fprintf(stderr, "ckptfs-stat: %s: --prometheus is for mounts; give the mountpoint\n", path);
		return -EINVAL;
	}
	if (req->nr_mounts == MOUNTS_MAX) {
		fprintf(stderr, "ckptfs-stat: %s: more than %d mounts at once\n", path, MOUNTS_MAX);
		return -EINVAL;
	}
	req->mounts[req->nr_mounts++] = *j;
	*j = (struct json_flat){ 0 };
	return 0;
}

static int show_parsed(struct request *req, const char *path, const char *text, struct json_flat *j)
{
	const char *kind = json_flat_get(j, "kind");

	if (req->format == FORMAT_PROMETHEUS)
		return keep_mount(req, path, j);
	if (strcmp(kind, "directory") == 0)
		return show_directory(req, path);
	if (req->format == FORMAT_JSON)
		stat_print_document(path, text);
	else if (strcmp(kind, "mount") == 0)
		stat_show_mount(j);
	else
		stat_show_file(path, j);
	return 0;
}

static int show(struct request *req, const char *path)
{
	static char text[STAT_MAX + 1];
	_cleanup_(json_flat_release) struct json_flat j = { 0 };
	size_t len = 0;
	int r;

	r = ask(path, text, &len);
	if (r < 0)
		return r;
	r = json_flat_parse(text, len, &j);
	if (r < 0) {
		fprintf(stderr, "ckptfs-stat: %s: the daemon's answer cannot be understood\n", path);
		return r;
	}
	return show_parsed(req, path, text, &j);
}

/* Paths one after the other, an empty line between them. */
static int show_next(struct request *req, const char *path, bool first)
{
	if (!first && req->format == FORMAT_HUMAN)
		putchar('\n');
	return show(req, path);
}

/* All mounts, for want of a path. */
static int show_mounts(struct request *req)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	bool first = true;
	int r = 0, one;

	if (mounts_open(&m) == 0)
		while (mounts_next(&m) > 0) {
			one = show_next(req, m.point, first);
			r = one < 0 ? one : r;
			first = false;
		}
	if (first)
		fputs("ckptfs-stat: no ckptfs is mounted; mount.ckptfs STORE MOUNTPOINT mounts one\n", stderr);
	return first ? -ENOENT : r;
}

static int show_all(struct request *req, int nr, char *paths[])
{
	int r = 0, one;

	if (nr == 0)
		r = show_mounts(req);
	for (int i = 0; i < nr && !interrupted; i++) {
		one = show_next(req, paths[i], i == 0);
		r = one < 0 ? one : r;
	}
	if (req->nr_mounts > 0)
		stat_print_metrics(req->mounts, req->nr_mounts);
	while (req->nr_mounts > 0)
		json_flat_release(&req->mounts[--req->nr_mounts]);
	return r;
}

static int watch(struct request *req, int nr, char *paths[])
{
	int r;

	do {
		if (req->format == FORMAT_HUMAN && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		r = show_all(req, nr, paths);
		fflush(stdout);
		if (r == 0 && !interrupted)
			sleep(req->watch_s);
	} while (r == 0 && !interrupted);
	return r;
}

/* 0: go on, 1: done. */
static int parse(int argc, char *argv[], struct request *ret)
{
	static const struct option longs[] = {
		{ "json", no_argument, NULL, 'j' },	   { "prometheus", no_argument, NULL, 'p' },
		{ "watch", optional_argument, NULL, 'w' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	   { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			ret->format = FORMAT_JSON;
			break;
		case 'p':
			ret->format = FORMAT_PROMETHEUS;
			break;
		case 'w':
			ret->watch_s = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 1;
			if (ret->watch_s == 0) {
				fprintf(stderr, "ckptfs-stat: --watch=%s: not a number of seconds\n", optarg);
				return -EINVAL;
			}
			break;
		case 'h':
			help(stdout);
			return 1;
		case 'V':
			puts("ckptfs-stat " CKPTFS_VERSION);
			return 1;
		default:
			fputs("ckptfs-stat --help tells the usage\n", stderr);
			return -EINVAL;
		}
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct sigaction action = { .sa_handler = on_interrupt };
	struct request req = { 0 };
	int r = parse(argc, argv, &req);

	if (r != 0)
		return r < 0 ? EXIT_USAGE : EXIT_SHOWN;
	sigaction(SIGINT, &action, NULL);
	if (req.watch_s > 0)
		r = watch(&req, argc - optind, argv + optind);
	else
		r = show_all(&req, argc - optind, argv + optind);
	if (interrupted)
		return EXIT_INTERRUPTED;
	return r == -EINVAL ? EXIT_USAGE : r < 0 ? EXIT_PATH : EXIT_SHOWN;
}
