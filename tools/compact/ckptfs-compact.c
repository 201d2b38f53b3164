/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-compact: store the variables of files in a mount side by side, coded by type.
 *
 * This program finds the variables with ckptfs-classify, which runs in a sandboxed process. It sends their extents to
 * the daemon, which recodes them while applications use the mount. Files of one step are a set. One plan has as many
 * sets as possible: the daemon reads all recipes once per plan, and steps that are coded against each other must be in
 * the same plan. Compaction can be stopped or killed at any time: the next one does the rest.
 *
 * Exit status: 0 done, 1 usage, 2 failed, or something could not be read, 75 another one is running (--background), 130
 * interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"
#include "tools/common/classifier.h"
#include "tools/compact/compact_background.h"
#include "tools/compact/compact_replicas.h"
#include "tools/compact/compact_daemon.h"
#include "tools/compact/compact_options.h"
#include "tools/compact/compact_planner.h"
#include "tools/compact/compact_report.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"
#include "tools/common/names_file.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"

enum exit_status {
	EXIT_DONE = 0,
	EXIT_USAGE = 1,
	EXIT_FAILED = 2,
	EXIT_BUSY = CKPTFS_COMPACT_EXIT_BUSY,
	EXIT_INTERRUPTED = 130
};

struct request {
	struct compact_planner planner;
	uint64_t rate;
	bool json, quiet, background;
	bool replicas; /* include replicas of other nodes */
	char *beneath; /* a directory; NULL: operands are ordinary paths */
	bool pause, resume; /* background compaction, and do nothing else */
	char helper[PATH_MAX]; /* ckptfs-classify */
	struct names_file names;

	struct files files;
	int mount; /* any descriptor in the mount */
	dev_t dev;
	struct compact_rows rows;
	struct progress progress;
	struct compact_daemon daemon; /* current plan */
};

/* --- a plan --- */

static void show_progress(void *userdata, const void *status)
{
	const struct ckptfs_compact *so_far = status;
	struct request *q = userdata;
	const struct compact_planner *p = &q->planner;

	progress_show(&q->progress, "compacting", p->done + MIN(so_far->plain, p->plan_bytes), q->files.size, true);
}

static int take_results(struct request *q)
{
	const struct compact_planner *p = &q->planner;
	int r = 0;

	for (size_t i = 0; i < p->nr_planned && r == 0; i++) {
		struct ckptfs_compact_result res;

		r = compact_daemon_result(&q->daemon, (uint32_t)i, &res);
		if (r == 0)
			r = compact_rows_add(&q->rows, p->planned[i].key, p->planned[i].type, &res);
	}
	return r;
}

static int report_failure(struct request *q, int r)
{
	progress_clear(&q->progress);
	if (r == -ESTALE)
		fputs("ckptfs-compact: another compaction has started meanwhile\n", stderr);
	else if (r == -E2BIG)
		fputs("ckptfs-compact: the files of one step have more variables or pieces than one plan can have; use --group\n",
		      stderr);
	else if (r == -EROFS)
		refuse("%s: mounted read-only; only --dry-run is possible", q->files.file[0].path);
	else if (r < 0)
		report_refusal("ckptfs-compact", q->files.file[0].path, "a collection or another compaction",
			       "compact", r);
	return r;
}

static int run_plan(void *userdata, const struct compact_planner *p)
{
	struct request *q = userdata;
	struct ckptfs_compact how = {
		.flags = (q->rows.dry_run ? CKPTFS_COMPACT_DRY_RUN : 0) |
			 (p->chain_forced ? CKPTFS_COMPACT_CHAIN_FORCED : 0),
		.order = p->scheme == SCHEME_AUTO					       ? CKPTFS_COMPACT_BEST :
			 p->scheme == SCHEME_AWARE_BLOCK || p->scheme == SCHEME_AGNOSTIC_BLOCK ? CKPTFS_COMPACT_TURNS :
											         CKPTFS_COMPACT_WHOLE,
		.cpu_ms = (uint32_t)(p->budget * 1000),
		.block = p->block,
		.chain = p->chain,
		.rate = q->rate,
	};
	int r;

	r = compact_daemon_run(&q->daemon, &how, show_progress, q);
	if (r == 0)
		r = take_results(q);
	q->rows.complete &= r == 0 && how.complete;
	q->rows.nr_files += p->plan_files;
	q->rows.freed += how.freed;
	q->rows.written += how.written;
	return report_failure(q, r);
}

static int begin_plan(void *userdata)
{
	struct request *q = userdata;

	return compact_daemon_begin(&q->daemon, q->mount);
}

static void end_plan(void *userdata)
{
	struct request *q = userdata;

	compact_daemon_end(&q->daemon);
}

static int plan_file(void *userdata, const struct set_member *m, uint32_t *ret)
{
	struct request *q = userdata;

	return compact_daemon_file(&q->daemon, m->fd, ret);
}

static int plan_variable(void *userdata, const char *key, const struct coding_shape *shape, uint32_t before,
			 bool is_rounded)
{
	struct request *q = userdata;

	return compact_daemon_variable(&q->daemon, key, shape, before, is_rounded);
}

static int plan_extent(void *userdata, uint32_t file, uint64_t off, uint64_t len)
{
	struct request *q = userdata;

	return compact_daemon_extent(&q->daemon, file, off, len);
}

static int report_plan_error(void *userdata, int r)
{
	return report_failure(userdata, r);
}

/* --- sets --- */

/* The daemon can only compact files of its own mount. */
static int check_set(void *userdata, const struct set *set)
{
	const struct request *q = userdata;

	for (size_t i = 0; i < set->nr; i++)
		if (set->member[i].file->dev != q->dev)
			return refuse("%s: not in the same mount as the other files", set->member[i].file->path);
	return 0;
}

static bool report_read(void *userdata, uint64_t bytes)
{
	struct request *q = userdata;

	progress_show(&q->progress, "reading files", bytes, q->files.size, true);
	return !interrupted();
}

static const struct compact_target mount_target = {
	.goes_on = report_read,
	.check = check_set,
	.begin = begin_plan,
	.file = plan_file,
	.variable = plan_variable,
	.extent = plan_extent,
	.run = run_plan,
	.end = end_plan,
	.report_error = report_plan_error,
};

/* --- compaction --- */

static int open_mount(struct request *q, const char *path)
{
	struct stat st;

	q->mount = open_plain_noatime(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (q->mount < 0 && errno == EINVAL)
		return refuse("%s: neither a file nor a directory", path);
	if (q->mount < 0 || fstat(q->mount, &st) < 0)
		return complain(-errno, "%s", path);
	q->dev = st.st_dev;
	return 0;
}

static int compact(struct request *q, char *paths[], int nr)
{
	int r = open_mount(q, q->beneath ? q->beneath : paths[0]), failed = 0;

	q->files.beneath = q->beneath && r == 0 ? q->mount : 0;
	for (int i = 0; i < nr && r == 0; i++) {
		int one;

		if (!q->beneath)
			watchdog_set_path(paths[i]);
		one = (q->replicas ? compact_replicas_add : files_add)(&q->files, paths[i]);

		r = one == -ENOMEM ? one : 0;
		failed = one < 0 ? one : failed;
	}
	if (r == 0)
		r = files_arrange(&q->files);
	if (r < 0)
		return r;
	classifier_find(q->helper);
	q->planner.helper = q->helper;
	q->planner.names = q->names.is_given ? q->names.text : NULL;
	q->planner.target = &mount_target;
	q->planner.userdata = q;
	r = compact_planner_run(&q->planner, &q->files);
	q->rows.aware = q->planner.any_aware;
	q->rows.complete &= !q->planner.stopped;
	return r < 0 ? r : q->planner.incomplete ? -EIO : failed;
}

/* Nothing to compact is not a failure in the background. */
static enum exit_status background_status(const struct request *q, int r)
{
	return interrupted()		   ? EXIT_INTERRUPTED :
	       r == -EBUSY || r == -ESTALE ? EXIT_BUSY :
	       r < 0 || !q->rows.complete  ? EXIT_FAILED :
					     EXIT_DONE;
}

/* --pause and --resume */
static enum exit_status command_mount(const struct request *q, const char *path)
{
	_cleanup_(closep) int fd = open_plain_noatime(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : compact_daemon_pause(fd, q->pause);

	if (fd < 0)
		report_unopened("ckptfs-compact", path, "a mountpoint", r);
	else if (r == -EOPNOTSUPP)
		refuse("%s: not mounted with compact=auto: there is no background compaction", path);
	else if (r < 0)
		report_refusal("ckptfs-compact", path, "", q->pause ? "pause" : "resume", r);
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

static enum exit_status run_request(struct request *q, char *paths[], int nr)
{
	uint64_t from = monotonic_ns();
	int r;

	progress_init(&q->progress);
	q->progress.on &= !q->quiet && !q->json && !q->background;
	q->rows.complete = true;
	r = compact(q, paths, nr);
	progress_clear(&q->progress);
	q->rows.seconds = (double)(monotonic_ns() - from) / 1e9;
	q->rows.complete &= r == 0 && !interrupted();
	if (q->background)
		return background_status(q, r);
	if ((q->rows.nr_files > 0 && r != -EROFS) || (q->json && r == 0))
		(q->json ? compact_rows_json : compact_rows_text)(&q->rows);
	else if (r == 0)
		refuse("no files to compact; give files with data, or directories with such files");
	if (r == -ENOMEM)
		complain(r, "out of memory");
	return interrupted() ? EXIT_INTERRUPTED : r < 0 || q->rows.nr_files == 0 ? EXIT_FAILED : EXIT_DONE;
}

static void request_release(struct request *q)
{
	compact_planner_release(&q->planner);
	files_release(&q->files);
	compact_rows_release(&q->rows);
	closep(&q->mount);
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	COMPACT_OPTIONS(struct request, planner),
	NAMES_FILE_OPTION(struct request, names),
	{ "rate", CONF_SIZE, OF(rate), .help = "limit pack reads and writes to this many bytes per second, such as 50M" },
	{ "replicas", CONF_FLAG, OF(replicas),
	  .help = "also merge the ranks in this node's replicas of the same directories on other nodes" },
	{ "beneath", CONF_STRING, OF(beneath), .value = "DIR",
	  .help = "operands are relative to DIR, a mountpoint; follow no symbolic link and no other mount below it" },
	{ "dry-run", CONF_FLAG, OF(rows.dry_run), .help = "only report the result" },
	{ "background", CONF_FLAG, OF(background),
	  .help = "run at low priority, print only errors, and exit with 75 if another one is running" },
	{ "pause", CONF_FLAG, OF(pause), .help = "suspend background compaction of the mount (compact=auto)" },
	{ "resume", CONF_FLAG, OF(resume), .help = "resume background compaction of the mount" },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "no progress"),
	COMMAND_END,
};

static const char *check(void *request, int nr)
{
	const struct request *q = request;

	if (q->pause && q->resume)
		return "--pause and --resume exclude each other";
	if (q->beneath && q->replicas)
		return "--beneath and --replicas exclude each other";
	return (q->pause || q->resume) && nr != 1 ? "--pause and --resume take one mountpoint" : NULL;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;
	enum exit_status status;

	if (!q->background) /* the daemon starts and ends that */
		watchdog_begin("ckptfs-compact", q->beneath ? q->beneath : operands[0], EXIT_FAILED);
	if (q->pause || q->resume)
		return (int)command_mount(q, operands[0]);
	if (q->background)
		compact_step_back();
	interrupt_catch();
	status = run_request(q, operands, nr);
	request_release(q);
	return (int)status;
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-compact",
		.usage = "ckptfs-compact [--scheme NAME] [--group N] [--block SIZE] [--chain N] [--budget SECONDS]\n"
			 "                      [--names FILE] [--rate SIZE] [--replicas | --beneath DIR] [--dry-run]\n"
			 "                      [--background] [--json | --quiet] FILE|DIRECTORY...\n"
			 "       ckptfs-compact --pause | --resume MOUNTPOINT\n",
		.about = "Store the variables of files in a ckptfs mount together, coded by their type: those of HDF5, netCDF, "
			 "safetensors, torch and numpy files, and the rest as plain bytes. Every file keeps its bytes, and can be "
			 "read and written meanwhile.",
		.options = options,
		.footer = "Exit status: 0 done, 1 usage, 2 failed or something could not be read, 75 with --background: another "
			  "one is running, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = COMMAND_OPERANDS_MAX,
		.operands = "a file or directory",
		.check = check,
		.run = run,
	};
	static struct request q = { .planner = COMPACT_PLANNER_DEFAULT, .mount = -1 };

	return command_main(&command, &q, argc, argv);
}
