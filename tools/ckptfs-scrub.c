/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-scrub: checks the data of a mounted store, and reports damaged files.
 *
 * The daemon does the work while the mount stays in use; this program starts it, shows progress, and stops it when
 * interrupted. It can be stopped or killed at any time: the next run continues from there. A store that is not mounted
 * is checked by fsck.ckptfs.
 *
 * Exit status: 0 no damage in what was read, 1 usage, 2 failed or not mounted, 3 stopped by --budget before the end, 4
 * some files are damaged, 130 interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/command.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"

#define SCHEMA_VERSION 1

enum exit_status {
	EXIT_SOUND = 0,
	EXIT_USAGE = 1,
	EXIT_FAILED = 2,
	EXIT_TIME_UP = 3,
	EXIT_DAMAGE = 4,
	EXIT_INTERRUPTED = 130
};

struct request {
	const char *path;
	bool restart, json, quiet;
	uint64_t budget_ns, rate;

	int fd; /* of path */
	struct progress progress;
	uint64_t started_ns;
};

/* --- requests to the daemon --- */

/* 1: *ret is set, 0: no more, <0 */
static int ask_hit(const struct request *q, const struct ckptfs_scrub *s, uint64_t number, struct ckptfs_scrub_hit *ret)
{
	*ret = (struct ckptfs_scrub_hit){
		.size = sizeof(*ret), .version = CKPTFS_IOC_VERSION, .run = s->run, .number = number
	};
	if (number >= s->hits)
		return 0;
	if (ioctl(q->fd, CKPTFS_IOC_SCRUB_HIT, ret) < 0)
		return errno == ENOENT ? 0 : -errno;
	return 1;
}

static void show_progress(void *userdata, const void *status)
{
	const struct ckptfs_scrub *s = status;
	struct request *q = userdata;
	bool is_comparing = strcmp(s->doing, "comparing data") == 0;

	progress_show(&q->progress, s->doing, s->round_bytes, is_comparing ? s->total_bytes : 0, true);
}

static int run_in_daemon(struct request *q, struct ckptfs_scrub *s)
{
	const struct daemon_task task = {
		.fd = q->fd,
		.request = CKPTFS_IOC_SCRUB,
		.arg = s,
		.running = &s->running,
		.error = &s->error,
		.start = CKPTFS_SCRUB_START,
		.status = CKPTFS_SCRUB_STATUS,
		.stop = CKPTFS_SCRUB_STOP,
		.show = show_progress,
		.userdata = q,
	};

	*s = (struct ckptfs_scrub){
		.flags = q->restart ? CKPTFS_SCRUB_RESTART : 0,
		.budget_ns = q->budget_ns,
		.rate = q->rate,
	};
	return daemon_run(&task);
}

/* --- output --- */

static double seconds_since(uint64_t ns)
{
	return (double)(monotonic_ns() - ns) / 1e9;
}

static void add_hits(struct json *j, const struct request *q, const struct ckptfs_scrub *s)
{
	struct ckptfs_scrub_hit hit;

	json_open_array(j, "hits");
	for (uint64_t i = 0; ask_hit(q, s, i, &hit) > 0; i++) {
		json_open(j, NULL);
		json_string(j, "path", hit.path[0] ? hit.path : NULL);
		json_u64(j, "inode", hit.inode);
		json_u64(j, "offset", hit.off);
		json_u64(j, "length", hit.len);
		json_close(j);
	}
	json_close_array(j);
}

static void show_json(const struct request *q, const struct ckptfs_scrub *s)
{
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = {
		{ "frames", s->frames },	   { "chunks", s->chunks },	  { "bytes", s->bytes },
		{ "read_bytes", s->read_bytes },   { "round_bytes", s->round_bytes },
		{ "damaged_chunks", s->damaged },  { "damaged_tables", s->tables }, { "repaired", s->repaired },
		{ "unused", s->unused },	   { "left", s->left },		  { "files", s->files },
		{ "lost_bytes", s->lost_bytes },
	};
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_bool(&j, "complete", s->complete);
	json_bool(&j, "named", s->named);
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		json_u64(&j, figures[i].name, figures[i].value);
	add_hits(&j, q, s);
	json_real(&j, "seconds", seconds_since(q->started_ns), 3);
	json_end(&j);
}

static void show_hits(const struct request *q, const struct ckptfs_scrub *s)
{
	struct ckptfs_scrub_hit hit;
	uint64_t i;

	for (i = 0; ask_hit(q, s, i, &hit) > 0; i++) {
		if (hit.path[0])
			text_printf(stdout, "%s: ", hit.path);
		else
			printf("inode %" PRIu64 " (unlinked): ", hit.inode);
		printf("bytes %" PRIu64 " to %" PRIu64 " cannot be read\n", hit.off, hit.off + hit.len - 1);
	}
	if (s->left > 0 && !s->named)
		puts("Stopped before the damaged files were determined; the next ckptfs scrub lists them.");
	else if (s->files > 0)
		printf("%s %s missing %s. Writing their content again repairs them and all files that share it.\n",
		       human_nr(s->files, "file").s, s->files == 1 ? "is" : "are", human_size(s->lost_bytes).s);
}

static void show_text(const struct request *q, const struct ckptfs_scrub *s)
{
	uint64_t found = s->damaged + s->tables;
	double seconds = seconds_since(q->started_ns);

	show_hits(q, s);
	if (q->quiet && found == 0)
		return;
	printf("Compared:  %s in %s, %s read in %.1f s: %s/s\n", human_size(s->bytes).s, human_nr(s->chunks, "chunk").s,
	       human_size(s->read_bytes).s, seconds,
	       human_size((uint64_t)((double)s->read_bytes / MAX(seconds, 1e-3))).s);
	if (found == 0)
		puts("Damaged:   nothing");
	else
		printf("Damaged:   %s, %s or header%s; %" PRIu64 " repaired, %" PRIu64 " unreferenced, %" PRIu64
		       " left\n",
		       human_nr(s->damaged, "chunk").s, human_nr(s->tables, "table").s, s->tables == 1 ? "" : "s",
		       s->repaired, s->unused, s->left);
	if (s->tables > 0 && s->left > 0)
		puts("Unmount the store and run fsck.ckptfs -p --read-data: it may repair more.");
}

static enum exit_status show_result(struct request *q, const struct ckptfs_scrub *s)
{
	progress_clear(&q->progress);
	if (q->json)
		show_json(q, s);
	else
		show_text(q, s);
	if (!q->json && !q->quiet && !s->complete && !interrupted())
		puts("Stopped early; the next ckptfs scrub continues from there.");
	if (interrupted())
		return EXIT_INTERRUPTED;
	return s->left > 0 ? EXIT_DAMAGE : s->complete ? EXIT_SOUND : EXIT_TIME_UP;
}

/* --- running --- */

static enum exit_status refuse(const struct request *q, int r)
{
	if (r == -ENOTTY && is_store(q->path))
		text_printf(stderr,
			"ckptfs-scrub: %s: a store; give its mountpoint, or run fsck.ckptfs --read-data if it is not mounted\n",
			q->path);
	else if (r == -ENOTTY)
		text_printf(stderr, "ckptfs-scrub: %s: not on a ckptfs; give a mountpoint\n", q->path);
	else
		report_refusal("ckptfs-scrub", q->path, "a scrub", "scrub", r);
	return EXIT_FAILED;
}

static enum exit_status scrub(struct request *q)
{
	_cleanup_(closep) int fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_scrub s;
	int r;

	if (fd < 0) {
		report_unopened("ckptfs-scrub", q->path, "a mountpoint", -errno);
		return EXIT_FAILED;
	}
	q->fd = fd;
	q->started_ns = monotonic_ns();
	progress_init(&q->progress);
	q->progress.on &= !q->quiet && !q->json;
	r = run_in_daemon(q, &s);
	if (r == 0)
		return show_result(q, &s);
	progress_clear(&q->progress);
	return refuse(q, r);
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "rate", CONF_SIZE, OF(rate), .help = "limit pack reads to this many bytes per second, such as 50M" },
	{ "budget", CONF_TIME, OF(budget_ns), .help = "stop after 90s, 10m, 2h; the next scrub continues from there" },
	{ "restart", CONF_FLAG, OF(restart), .help = "start from the beginning, wherever the last scrub stopped" },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "no progress, and no output unless damage is found"),
	COMMAND_END,
};

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;

	(void)nr;
	q->path = operands[0];
	watchdog_begin("ckptfs-scrub", q->path, EXIT_FAILED);
	interrupt_catch();
	return (int)scrub(q);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-scrub",
		.usage = "ckptfs-scrub [--rate SIZE] [--budget TIME] [--restart] [--json | --quiet] MOUNTPOINT\n",
		.about = "Read all data of a mounted store, compare it with its fingerprints, and report damaged files. The mount "
			 "can be used meanwhile.",
		.options = options,
		.footer = "Exit status: 0 sound, 1 usage, 2 failed, 3 stopped by --budget, 4 files are damaged, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one mountpoint",
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
