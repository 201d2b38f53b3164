/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-gc: report unreferenced space, or free it.
 *
 * The daemon collects a mounted store while applications use it; this program starts the collection, shows its
 * progress and stops it when interrupted. A store that is not mounted is opened and collected by this program.
 * Either way a collection can be stopped or killed at any time: the next one continues from there.
 *
 * With a retention policy it removes sealed checkpoints from a directory instead (tools/gc/retain.h), or before. With
 * --tier it does both in a tier (tools/gc/gc_tier.h).
 *
 * Exit status: 0 done, 1 usage, 2 failed or nothing to collect there, 3 time limit reached, 130 interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "client/retention.h"
#include "store/engine.h"
#include "store/tier/tier_open.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"
#include "tools/gc/gc_tier.h"
#include "tools/gc/retain.h"

#define SCHEMA_VERSION 1
#define MOVE_BELOW "25" /* percent. Above, punching holes frees most of the space without copying live data */
#define CACHE MiB(64) /* for a store that is not mounted */

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_TIME_UP = 3, EXIT_INTERRUPTED = 130 };

struct request {
	const char *path;
	bool delete, drop, local, place, json, quiet;
	uint64_t budget_ns, rate, move_below;
	struct keep_policy keep; /* not empty: examine the sealed checkpoints in `path` instead */
	bool policies; /* first remove sealed checkpoints by the policies of their directories */
	bool gc; /* then collect, if `keep` is not empty */
	bool prune; /* called as ckptfs prune: `keep` must not be empty */
	bool verify;
	bool tier; /* `path` is the URL of a tier */
	char *tier_config; /* NULL: none */
	bool forget_missing;

	struct progress progress;
	uint64_t started_ns;
};

/* --- output --- */

static struct ckptfs_gc of_report(const struct gc_report *r)
{
	return (struct ckptfs_gc){
		.complete = r->complete,
		.packs = r->nr_packs,
		.packs_total = r->nr_packs_total,
		.frames = r->nr_frames,
		.recipes = r->nr_recipes,
		.live_bytes = r->live_bytes,
		.live_chunks = r->live_chunks,
		.dead_bytes = r->dead_bytes,
		.dead_chunks = r->dead_chunks,
		.dead_disk = r->dead_disk,
		.freed_bytes = r->freed_bytes,
		.freed_chunks = r->freed_chunks,
		.removed_packs = r->nr_removed,
		.moved_packs = r->nr_moved_packs,
		.moved_bytes = r->moved_bytes,
		.placed_files = r->nr_placed,
		.placed_bytes = r->placed_bytes,
	};
}

static double seconds_since(uint64_t ns)
{
	return (double)(monotonic_ns() - ns) / 1e9;
}

static void show_progress(void *userdata, const void *status)
{
	const struct ckptfs_gc *gc = status;
	struct request *q = userdata;

	if (gc->cluster == CKPTFS_GC_WAITING)
		progress_show(&q->progress, "waiting for the other nodes", 0, 0, false);
	else if (gc->packs == 0)
		progress_show(&q->progress, "reading recipes", gc->recipes, 0, false);
	else
		progress_show(&q->progress, "reading packs", gc->packs, gc->packs_total, false);
}

/* For --json. */
static const char *cluster_word(uint32_t how)
{
	static const char *const words[] = {
		[CKPTFS_GC_LOCAL_ONLY] = "local",	 [CKPTFS_GC_WAITING] = "waiting", [CKPTFS_GC_NO_AGENT] = "no agent",
		[CKPTFS_GC_MISSING] = "missing", [CKPTFS_GC_FAILED] = "failed",	  [CKPTFS_GC_TOGETHER] = "together",
	};

	return how < ARRAY_SIZE(words) ? words[how] : "unknown";
}

/* Each node frees its own unpinned chunks. */
static void show_cluster(const struct ckptfs_gc *gc)
{
	if (gc->cluster == CKPTFS_GC_LOCAL_ONLY)
		return;
	if (gc->cluster == CKPTFS_GC_NO_AGENT)
		printf("Cluster:   no agent: pinned chunks stay\n");
	else if (gc->cluster == CKPTFS_GC_MISSING)
		text_printf(stdout, "Cluster:   node %.64s is not connected: pinned chunks stay\n",
			    gc->cluster_missing);
	else
		printf("Cluster:   %s pinned for other nodes, %s unpinned that no node refers to\n",
		       human_size(gc->cluster_pinned_bytes).s, human_size(gc->cluster_unpinned_bytes).s);
	if (gc->cluster == CKPTFS_GC_FAILED)
		printf("Cluster:   incomplete: %s\n", strerror(gc->cluster_error));
}

static void show_json(const struct request *q, const struct ckptfs_gc *gc)
{
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = {
		{ "packs", gc->packs },		      { "frames", gc->frames },
		{ "recipes", gc->recipes },	      { "live_bytes", gc->live_bytes },
		{ "live_chunks", gc->live_chunks },
		{ "dead_bytes", gc->dead_bytes },     { "dead_chunks", gc->dead_chunks },
		{ "dead_disk_bytes", gc->dead_disk },
		{ "freed_bytes", gc->freed_bytes },   { "freed_chunks", gc->freed_chunks },
		{ "removed_packs", gc->removed_packs }, { "moved_packs", gc->moved_packs },
		{ "moved_bytes", gc->moved_bytes },   { "placed_files", gc->placed_files },
		{ "placed_bytes", gc->placed_bytes },
		{ "cluster_pinned_bytes", gc->cluster_pinned_bytes },
		{ "cluster_pinned_chunks", gc->cluster_pinned_chunks },
		{ "cluster_unpinned_bytes", gc->cluster_unpinned_bytes },
		{ "cluster_unpinned_chunks", gc->cluster_unpinned_chunks },
	};
	char missing[sizeof(gc->cluster_missing) + 1];
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_bool(&j, "deleted", q->delete);
	json_bool(&j, "complete", gc->complete);
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		json_u64(&j, figures[i].name, figures[i].value);
	snprintf(missing, sizeof(missing), "%.64s", gc->cluster_missing);
	json_string(&j, "cluster", cluster_word(gc->cluster));
	json_string(&j, "cluster_missing", missing);
	json_real(&j, "seconds", seconds_since(q->started_ns), 3);
	json_end(&j);
}

static void show_text(const struct request *q, const struct ckptfs_gc *gc)
{
	uint64_t all = gc->live_bytes + gc->dead_bytes;
	double s = seconds_since(q->started_ns);

	printf("In use:    %s in %s\n", human_size(gc->live_bytes).s, human_nr(gc->packs, "pack").s);
	printf("Garbage:   %s in %s, %.1f %% of what is stored; %s on disk\n",
	       human_size(gc->dead_bytes).s, human_nr(gc->dead_chunks, "chunk").s,
	       all > 0 ? 100.0 * (double)gc->dead_bytes / (double)all : 0, human_size(gc->dead_disk).s);
	if (q->delete) {
		printf("Freed:     %s in %s, %s removed\n", human_size(gc->freed_bytes).s,
		       human_nr(gc->freed_chunks, "chunk").s, human_nr(gc->removed_packs, "pack").s);
		if (gc->moved_packs > 0)
			printf("Moved:     %s out of %s with little in use\n", human_size(gc->moved_bytes).s,
			       human_nr(gc->moved_packs, "pack").s);
		if (gc->placed_bytes > 0)
			printf("Placed:    %s of %s that had been scattered\n", human_size(gc->placed_bytes).s,
			       human_nr(gc->placed_files, "file").s);
		show_cluster(gc);
	} else if (gc->dead_bytes > 0) {
		text_printf(stdout, "Nothing was changed. To free it: ckptfs gc --delete %s\n", q->path);
	}
	printf("Examined:  %s and %s in %.1f s: %s/s, %.0f chunks/s\n", human_size(all).s,
	       human_nr(gc->recipes, "recipe").s, s, human_size((uint64_t)((double)all / MAX(s, 1e-3))).s,
	       (double)(gc->live_chunks + gc->dead_chunks) / MAX(s, 1e-3));
}

static enum exit_status show_result(struct request *q, const struct ckptfs_gc *gc)
{
	progress_clear(&q->progress);
	if (q->json)
		show_json(q, gc);
	else
		show_text(q, gc);
	if (interrupted())
		return EXIT_INTERRUPTED;
	if (gc->complete)
		return EXIT_DONE;
	if (!q->json)
		printf("Time limit reached; the next ckptfs gc --delete continues from there.\n");
	return EXIT_TIME_UP;
}

/* --- mounts --- */

static int run_in_daemon(struct request *q, int fd, struct ckptfs_gc *gc)
{
	const struct daemon_task task = {
		.fd = fd,
		.request = CKPTFS_IOC_GC,
		.arg = gc,
		.running = &gc->running,
		.error = &gc->error,
		.start = CKPTFS_GC_START,
		.status = CKPTFS_GC_STATUS,
		.stop = CKPTFS_GC_STOP,
		.show = show_progress,
		.userdata = q,
	};

	*gc = (struct ckptfs_gc){
		.flags = (q->delete ? CKPTFS_GC_DELETE : 0) | (q->place ? CKPTFS_GC_PLACE : 0) |
			 (q->local ? CKPTFS_GC_LOCAL : 0),
		.budget_ns = q->budget_ns,
		.rate = q->rate,
		.move_below = (uint32_t)q->move_below,
	};
	return daemon_run(&task);
}

static enum exit_status collect_mount(struct request *q, int fd)
{
	struct ckptfs_gc gc;
	int r = run_in_daemon(q, fd, &gc);

	if (r == 0)
		return show_result(q, &gc);
	progress_clear(&q->progress);
	if (r == -EROFS)
		text_printf(stderr, "ckptfs-gc: %s: mounted read-only; run it without --delete\n", q->path);
	else
		report_refusal("ckptfs-gc", q->path, "a collection", "collect", r);
	return EXIT_FAILED;
}

/* --- stores --- */

static bool step(void *userdata, const struct gc_report *so_far)
{
	struct ckptfs_gc gc = of_report(so_far);

	show_progress(userdata, &gc);
	return !interrupted();
}

/* The mountpoint of a dead daemon cannot be opened; its store is free. */
static bool refuse_mounted(const struct request *q)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(mounts_close) struct mounts m = { 0 };

	if (mounts_find(&m, q->path) <= 0)
		return false;
	fd = open(m.point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	text_printf(stderr, "ckptfs-gc: %s: mounted on %s: run ckptfs gc %s\n", q->path, m.point, m.point);
	return true;
}

static enum exit_status collect_store(struct request *q)
{
	struct engine_conf conf = { .page = 4096, .cache = CACHE, .dirty = MiB(16), .read_only = !q->delete };
	struct gc_conf gc_conf = {
		.delete = q->delete,
		.place = q->place,
		.move_below = (uint32_t)q->move_below,
		.budget_ns = q->budget_ns,
		.rate = q->rate,
		.step = step,
		.userdata = q,
	};
	struct gc_report report;
	struct ckptfs_gc gc;
	struct engine *e;
	int r, last;

	if (refuse_mounted(q))
		return EXIT_FAILED;
	r = engine_open(q->path, &conf, &e);
	if (r < 0)
		return EXIT_FAILED; /* already logged */
	r = engine_gc(e, &gc_conf, &report);
	last = engine_close(e);
	if (r == 0)
		r = last;
	if (r == 0) {
		gc = of_report(&report);
		return show_result(q, &gc);
	}
	progress_clear(&q->progress);
	text_printf(stderr, "ckptfs-gc: %s: %s\n", q->path, strerror(-r));
	return EXIT_FAILED;
}

/* --- commands --- */

static enum exit_status collect(struct request *q)
{
	_cleanup_(closep) int fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_gc gc = { 0 };
	int r;

	if (fd < 0) {
		report_unopened("ckptfs-gc", q->path, "a mountpoint or a store", -errno);
		return EXIT_FAILED;
	}
	q->started_ns = monotonic_ns();
	progress_init(&q->progress);
	q->progress.on &= !q->quiet && !q->json;
	r = daemon_command(fd, CKPTFS_IOC_GC, &gc, CKPTFS_GC_STATUS);
	if (r == 0)
		return collect_mount(q, fd);
	if (r == -EOPNOTSUPP) {
		report_refusal("ckptfs-gc", q->path, "a collection", "collect", r);
		return EXIT_FAILED;
	}
	if (is_store(q->path))
		return collect_store(q);
	text_printf(stderr, "ckptfs-gc: %s: neither a ckptfs mount nor a store; give one of them\n", q->path);
	return EXIT_FAILED;
}

static struct retain_request retaining(const struct request *q)
{
	return (struct retain_request){
		.tool = "ckptfs-gc",
		.delete = q->delete,
		.drop = q->drop,
		.verify = q->verify,
		.collects = q->policies || q->gc,
		.json = q->json,
		.quiet = q->quiet,
	};
}

static enum exit_status status_of(int r)
{
	return r == 0 ? EXIT_DONE : r == -ECANCELED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

static enum exit_status collect_tier(const struct request *q)
{
	const struct gc_tier_request how = {
		.tool = "ckptfs-gc",
		.url = q->path,
		.config_file = q->tier_config,
		.keep = q->keep,
		.delete = q->delete,
		.forget_missing = q->forget_missing,
		.json = q->json,
		.quiet = q->quiet,
	};
	const char *why = tier_url_refusal(q->path);

	if (why) {
		text_printf(stderr, "ckptfs-gc: %s: %s\n", q->path, why);
		return EXIT_USAGE;
	}
	return status_of(gc_tier(&how));
}

static enum exit_status work(struct request *q)
{
	struct retain_request how = retaining(q);
	enum exit_status retained, collected;

	if (q->tier)
		return collect_tier(q);
	if (tier_url_is(q->path)) {
		text_printf(stderr, "ckptfs-gc: %s: to collect a tier, add --tier\n", q->path);
		return EXIT_USAGE;
	}
	if (keep_is_empty(&q->keep) && !q->policies)
		return collect(q);
	retained = status_of(q->policies ? retain_mount(&how, q->path) : retain_directory(&how, q->path, &q->keep));
	if (retained == EXIT_INTERRUPTED || (!q->policies && !q->gc))
		return retained;
	q->delete |= q->drop; /* --gc */
	collected = collect(q);
	return collected != EXIT_DONE ? collected : retained;
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

/* Unlike elsewhere, a number alone is refused: 3 for 3 days would remove all that is older than 3 s. */
static int parse_within(const struct conf_key *k, void *request, const char *value, const char **ret_why)
{
	*ret_why = "not a time with a unit, such as 90m, 12h or 7d";
	return value[strspn(value, "0123456789.")] ? parse_time(value, conf_field(k, request)) : -EINVAL;
}

static const struct conf_key options[] = {
	{ "delete", CONF_FLAG, OF(delete), .help = "free the garbage; without it, nothing is changed" },
	{ "drop", CONF_FLAG, OF(drop),
	  .help = "erase the bytes of checkpoints in the store instead of removing them, if the tier beneath it has them; reads "
		  "get them from the tier; with a --keep option" },
	{ "budget", CONF_TIME, OF(budget_ns),
	  .help = "stop after 90s, 10m, 2h; the next collection continues from there" },
	{ "rate", CONF_SIZE, OF(rate), .help = "limit pack reads and writes to this many bytes per second, such as 50M" },
	{ "move-below", CONF_NUMBER, OF(move_below), .fallback = MOVE_BELOW, .max = 100, .value = "PERCENT",
	  .must = "not a percentage from 0 to 100",
	  .help = "move live data out of packs with less than this in use; 0: never" },
	{ "place", CONF_FLAG, OF(place),
	  .help = "then store scattered data of the newest files again in reading order, which keeps a restart fast; with "
		  "--delete" },
	{ "local", CONF_FLAG, OF(local), .help = "do not involve other nodes of a cluster: pinned chunks stay" },
	{ "policies", CONF_FLAG, OF(policies),
	  .help = "first remove sealed checkpoints that the policy of their directory (user.ckptfs.keep) does not keep" },
	{ "keep-last", CONF_NUMBER, OF(keep.last), .min = 1, .must = "not a number from 1 on",
	  .help = "keep the N newest sealed checkpoints" },
	{ "keep-every", CONF_NUMBER, OF(keep.every), .min = 1, .must = "not a number from 1 on",
	  .help = "keep those whose number, the last one in their names, is a multiple of N" },
	{ "keep-within", CONF_PARSED, OF(keep.within_ns), .parse = parse_within, .value = "TIME",
	  .help = "keep those sealed less than 90m, 12h, 7d ago" },
	{ "keep-tagged", CONF_FLAG, OF(keep.tagged),
	  .help = "keep those that a symbolic link beside them points to, or that have the attribute user.tag" },
	{ "gc", CONF_FLAG, OF(gc), .help = "then free the garbage of the mount; with --delete or --drop, and a --keep option" },
	{ "prune", CONF_FLAG, OF(prune), .help = NULL }, /* internal: ckptfs prune */
	{ "tier", CONF_FLAG, OF(tier),
	  .help = "collect a tier, s3://BUCKET/PREFIX or dir:/PATH: remove checkpoints that no --keep option keeps, and packs "
		  "that none needs" },
	{ "tier-config", CONF_STRING, OF(tier_config), .value = "FILE",
	  .help = "credentials and endpoint of S3, as mount option tier_config (ckptfs-tier(7))" },
	{ "forget-missing", CONF_FLAG, OF(forget_missing),
	  .help = "drop checkpoints whose manifests are missing in the tier; without it, nothing is deleted then" },
	{ "verify", CONF_FLAG, OF(verify), .help = "verify the newest one by reading all of its data" },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "no progress"),
	COMMAND_END,
};

static const char *check(void *request, int nr)
{
	const struct request *q = request;
	bool keeps = !keep_is_empty(&q->keep);

	(void)nr;
	if (q->tier && (q->drop || q->policies || q->gc || q->verify || q->budget_ns || q->rate || q->local || q->place))
		return "--tier goes with --delete, --tier-config, --forget-missing, --json, --quiet and the --keep options only";
	if (q->tier_config && !q->tier)
		return "--tier-config needs --tier";
	if (q->forget_missing && !q->tier)
		return "--forget-missing needs --tier";
	if (q->prune && !keeps)
		return "what to keep must be given: --keep-last, --keep-every, --keep-within or --keep-tagged";
	if (keeps && q->policies)
		return "--policies and the --keep options exclude each other";
	if (q->drop && q->delete)
		return "--drop and --delete exclude each other";
	if (q->drop && !keeps)
		return "--drop needs a --keep option";
	if (q->gc && (!keeps || !(q->delete || q->drop)))
		return "--gc requires --delete or --drop, and a --keep option";
	if (keeps && !q->gc && (q->budget_ns || q->rate || q->local || q->place))
		return "with --keep options, --budget, --rate, --local and --place require --gc";
	if (q->verify && keep_is_empty(&q->keep) && !q->policies)
		return "--verify needs --policies or a --keep option";
	return q->place && !q->delete ? "--place changes the store, so it needs --delete as well" : NULL;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;

	(void)nr;
	q->path = operands[0];
	watchdog_begin("ckptfs-gc", q->path, EXIT_FAILED);
	log_set_level(LOG_LEVEL_NOTICE);
	interrupt_catch();
	return (int)work(q);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-gc",
		.usage = "ckptfs-gc [--delete] [--budget TIME] [--rate SIZE] [--move-below PERCENT] [--place] [--local]\n"
			 "                 [--policies [--verify]] [--json | --quiet] MOUNTPOINT|STORE\n"
			 "       ckptfs-gc --keep-last N | --keep-every N | --keep-within TIME | --keep-tagged ... [--verify]\n"
			 "                 [--delete [--gc] | --drop [--gc]] [--json | --quiet] DIRECTORY\n"
			 "       ckptfs-gc --tier [--keep-last N] [--keep-every N] [--keep-within TIME] [--keep-tagged]\n"
			 "                 [--tier-config FILE] [--forget-missing] [--delete] [--json | --quiet] URL\n",
		.about = "Report how much space of a store no file refers to; with --delete, free it. A mounted store can be used "
			 "meanwhile. Or list the sealed checkpoints in DIRECTORY that none of the --keep options keeps; with "
			 "--delete, remove them, but never the newest one that verifies; with --drop, keep their names and read them from "
			 "the tier. Or do both in a tier.",
		.options = options,
		.footer = "Exit status: 0 done, 1 usage, 2 failed, 3 stopped by --budget, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one mountpoint, store, directory or URL of a tier",
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
