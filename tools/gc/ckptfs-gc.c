/*
 * ckptfs-gc: what could be freed, and freeing it.
 *
 * Of a mount, the daemon does the work, while everything else goes on; this program starts it, shows how far it is, and
 * stops it when interrupted. Of a store that is not mounted, this program opens the store and does it itself.
 * Either way it can be stopped or killed at any time: the next one goes on from there.
 *
 * Told which epochs to keep it removes the others of a directory instead (tools/retain.h).
 *
 * Exit status: 0 done, 1 usage, 2 nothing there that could be collected or it failed, 3 the time was up before all was
 * looked at, 130 interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "client/keep.h"
#include "store/engine/engine.h"
#include "tools/daemon.h"
#include "tools/interrupt.h"
#include "tools/mounts.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/retain.h"

#define SCHEMA_VERSION 1
#define MOVE_BELOW 25 /* percent. Punching gives back most of what moving would, and moving costs reading and writing */
#define CACHE MiB(64) /* of a store that nobody else has open */
#define ASK_NS (100 * 1000 * 1000)

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_TIME_UP = 3, EXIT_INTERRUPTED = 130 };

struct request {
	const char *path;
	bool delete, local, place, json, quiet;
	uint64_t budget_ns, rate;
	uint32_t move_below;
	struct keep_policy keep; /* not empty: of the epochs in `path`, which are these */
	bool epochs; /* first remove what the policies of directories do not keep */
	bool verify;

	struct progress progress;
	uint64_t started_ns;
};

static void help(FILE *to)
{
	fprintf(to,
		"Usage: ckptfs-gc [--delete] [--budget TIME] [--rate SIZE] [--move-below PERCENT] [--place]\n"
		"                 [--local] [--epochs [--verify]] [--json | --quiet] MOUNT|STORE\n"
		"       ckptfs-gc --keep-last N | --keep-every N | --keep-within TIME | --keep-tagged ... [--verify] [--delete]\n"
		"                 [--json | --quiet] DIRECTORY\n"
		"Tell how much of a store no file refers to any more; with --delete, give it back to the disk.\n"
		"A mounted store goes on being read and written meanwhile.\n"
		"Or tell which epochs (sealed directories) in DIRECTORY none of the --keep options keeps; with --delete, remove them,\n"
		"but never the newest one that proves itself.\n\n"
		"  --delete              free what is found; without it nothing is changed\n"
		"  --budget TIME         stop after 90s, 10m, 2h; the next collection goes on from there\n"
		"  --rate SIZE           read and write no more than this of packs per second, such as 50M\n"
		"  --move-below PERCENT  empty packs of which less is in use (default %d; 0: leave them)\n"
		"  --place               after that, store what is scattered of the newest files once more in the order it is read,\n"
		"                        which keeps a restart fast; with --delete\n"
		"  --local               leave the other nodes of a cluster out of it: what is lent to them stays, though they may have\n"
		"                        no use for it any more\n"
		"  --epochs              first do the same with epochs as user.ckptfs.keep of their directories says\n"
		"  --keep-last N         keep the N newest\n"
		"  --keep-every N        keep those whose number, the last one in their names, is a multiple of N\n"
		"  --keep-within TIME    keep those sealed less than 90m, 12h, 7d ago\n"
		"  --keep-tagged         keep those that a symbolic link beside them points to, or that have the attribute user.tag\n"
		"  --verify              the newest one proves itself by being read, not by its root alone\n"
		"  --json                the result as one JSON document; keys keep their meaning (schema_version)\n"
		"  -q, --quiet           no progress\n"
		"  -h, --help            this text\n"
		"  -V, --version         the version\n\n"
		"Exit status: 0 done, 1 usage, 2 failed, 3 the time was up first, 130 interrupted.\n",
		MOVE_BELOW);
}

/* --- what is shown --- */

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

static void show_progress(struct request *q, const struct ckptfs_gc *gc)
{
	if (gc->cluster == CKPTFS_GC_WAITING)
		progress_show(&q->progress, "waiting for the other nodes", 0, 0, false);
	else if (gc->packs == 0)
		progress_show(&q->progress, "reading recipes", gc->recipes, 0, false);
	else
		progress_show(&q->progress, "looking at packs", gc->packs, gc->packs_total, false);
}

/* As --json has it. */
static const char *cluster_word(uint32_t how)
{
	static const char *const words[] = {
		[CKPTFS_GC_ALONE] = "alone",	 [CKPTFS_GC_WAITING] = "waiting", [CKPTFS_GC_NO_AGENT] = "no agent",
		[CKPTFS_GC_MISSING] = "missing", [CKPTFS_GC_FAILED] = "failed",	  [CKPTFS_GC_TOGETHER] = "together",
	};

	return how < ARRAY_SIZE(words) ? words[how] : "unknown";
}

/* What is not lent any more the nodes free themselves. */
static void show_cluster(const struct ckptfs_gc *gc)
{
	if (gc->cluster == CKPTFS_GC_ALONE)
		return;
	if (gc->cluster == CKPTFS_GC_NO_AGENT)
		printf("Cluster:   no agent is there: nothing that others may refer to is given up\n");
	else if (gc->cluster == CKPTFS_GC_MISSING)
		printf("Cluster:   node %.64s is away: nothing that others may refer to is given up\n",
		       gc->cluster_missing);
	else
		printf("Cluster:   %s kept for other nodes, %s given up that none refers to any more\n",
		       human_size(gc->cluster_kept_bytes).s, human_size(gc->cluster_given_up_bytes).s);
	if (gc->cluster == CKPTFS_GC_FAILED)
		printf("Cluster:   not all was looked at: %s\n", strerror(gc->cluster_error));
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
		{ "freed_bytes", gc->freed_bytes },   { "freed_chunks", gc->freed_chunks },
		{ "removed_packs", gc->removed_packs }, { "moved_packs", gc->moved_packs },
		{ "moved_bytes", gc->moved_bytes },   { "placed_files", gc->placed_files },
		{ "placed_bytes", gc->placed_bytes },
		{ "cluster_kept_bytes", gc->cluster_kept_bytes },
		{ "cluster_kept_chunks", gc->cluster_kept_chunks },
		{ "cluster_given_up_bytes", gc->cluster_given_up_bytes },
		{ "cluster_given_up_chunks", gc->cluster_given_up_chunks },
	};

	printf("{\"schema_version\": %d, \"deleted\": %s, \"complete\": %s", SCHEMA_VERSION,
	       q->delete ? "true" : "false", gc->complete ? "true" : "false");
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		printf(", \"%s\": %" PRIu64, figures[i].name, figures[i].value);
	/* a name has no character that would have to be escaped, but for these */
	printf(", \"cluster\": \"%s\", \"cluster_missing\": \"", cluster_word(gc->cluster));
	for (size_t i = 0; i < sizeof(gc->cluster_missing) && gc->cluster_missing[i]; i++)
		printf(gc->cluster_missing[i] == '"' || gc->cluster_missing[i] == '\\' ? "\\%c" : "%c",
		       gc->cluster_missing[i]);
	printf("\", \"seconds\": %.3f}\n", seconds_since(q->started_ns));
}

static void show_text(const struct request *q, const struct ckptfs_gc *gc)
{
	uint64_t all = gc->live_bytes + gc->dead_bytes;
	double s = seconds_since(q->started_ns);

	printf("In use:    %s in %" PRIu64 " packs\n", human_size(gc->live_bytes).s, gc->packs);
	printf("Garbage:   %s in %" PRIu64 " chunks, %.1f %% of what is stored\n", human_size(gc->dead_bytes).s,
	       gc->dead_chunks, all > 0 ? 100.0 * (double)gc->dead_bytes / (double)all : 0);
	if (q->delete) {
		printf("Freed:     %s in %" PRIu64 " chunks, %" PRIu64 " packs removed\n",
		       human_size(gc->freed_bytes).s, gc->freed_chunks, gc->removed_packs);
		if (gc->moved_packs > 0)
			printf("Moved:     %s out of %" PRIu64 " packs that were nearly empty\n",
			       human_size(gc->moved_bytes).s, gc->moved_packs);
		if (gc->placed_bytes > 0)
			printf("Placed:    %s of %" PRIu64 " files that were scattered\n",
			       human_size(gc->placed_bytes).s, gc->placed_files);
		show_cluster(gc);
	} else if (gc->dead_bytes > 0) {
		printf("Nothing was changed. To free it: ckptfs-gc --delete %s\n", q->path);
	}
	printf("Looked at: %s and %" PRIu64 " recipes in %.1f s: %s/s, %.0f chunks/s\n", human_size(all).s, gc->recipes,
	       s, human_size((uint64_t)((double)all / MAX(s, 1e-3))).s,
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
		printf("The time was up before all was looked at; the next ckptfs-gc --delete goes on from there.\n");
	return EXIT_TIME_UP;
}

/* --- of a mount --- */

static int command(int fd, struct ckptfs_gc *gc, uint32_t what)
{
	gc->size = sizeof(*gc);
	gc->version = CKPTFS_IOC_VERSION;
	gc->command = what;
	return ioctl(fd, CKPTFS_IOC_GC, gc) < 0 ? -errno : 0;
}

static int run_in_daemon(struct request *q, int fd, struct ckptfs_gc *gc)
{
	bool told = false;
	int r;

	*gc = (struct ckptfs_gc){
		.flags = (q->delete ? CKPTFS_GC_DELETE : 0) | (q->place ? CKPTFS_GC_PLACE : 0) |
			 (q->local ? CKPTFS_GC_LOCAL : 0),
		.budget_ns = q->budget_ns,
		.rate = q->rate,
		.move_below = q->move_below,
	};
	r = command(fd, gc, CKPTFS_GC_START);
	while (r == 0 && gc->running) {
		nanosleep(&(struct timespec){ .tv_nsec = ASK_NS }, NULL);
		if (interrupted() && !told) {
			struct ckptfs_gc stop = { 0 };

			command(fd, &stop, CKPTFS_GC_STOP);
			told = true;
		}
		r = command(fd, gc, CKPTFS_GC_STATUS);
		show_progress(q, gc);
	}
	return r < 0 ? r : -gc->error;
}

static enum exit_status collect_mount(struct request *q, int fd)
{
	struct ckptfs_gc gc;
	int r = run_in_daemon(q, fd, &gc);

	if (r == 0)
		return show_result(q, &gc);
	progress_clear(&q->progress);
	if (r == -EROFS)
		fprintf(stderr, "ckptfs-gc: %s: mounted read-only; without --delete it can be looked at\n", q->path);
	else
		tell_refusal("ckptfs-gc", q->path, "a collection", "collect", r);
	return EXIT_FAILED;
}

/* --- of a store --- */

static bool step(void *userdata, const struct gc_report *so_far)
{
	struct ckptfs_gc gc = of_report(so_far);

	show_progress(userdata, &gc);
	return !interrupted();
}

/* By a daemon that lives: one that has died has let go of its store. */
static bool refuse_mounted(const struct request *q)
{
	_cleanup_(closep) int fd = -1;
	struct mounts m;

	if (mounts_find(&m, q->path) <= 0)
		return false;
	fd = open(m.point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return false;
	fprintf(stderr, "ckptfs-gc: %s: mounted on %s: run ckptfs-gc %s\n", q->path, m.point, m.point);
	return true;
}

static enum exit_status collect_store(struct request *q)
{
	struct engine_conf conf = { .page = 4096, .cache = CACHE, .dirty = MiB(16), .read_only = !q->delete };
	struct gc_conf gc_conf = {
		.delete = q->delete,
		.place = q->place,
		.move_below = q->move_below,
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
		return EXIT_FAILED; /* logged in full */
	r = engine_gc(e, &gc_conf, &report);
	last = engine_close(e);
	if (r == 0)
		r = last;
	if (r == 0) {
		gc = of_report(&report);
		return show_result(q, &gc);
	}
	progress_clear(&q->progress);
	fprintf(stderr, "ckptfs-gc: %s: %s\n", q->path, strerror(-r));
	return EXIT_FAILED;
}

/* --- what to do --- */

static enum exit_status collect(struct request *q)
{
	_cleanup_(closep) int fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_gc gc = { 0 };

	if (fd < 0) {
		tell_unopened("ckptfs-gc", q->path, "a mountpoint or a store", -errno);
		return EXIT_FAILED;
	}
	q->started_ns = monotonic_ns();
	progress_init(&q->progress);
	q->progress.on &= !q->quiet && !q->json;
	if (command(fd, &gc, CKPTFS_GC_STATUS) == 0)
		return collect_mount(q, fd);
	if (is_store(q->path))
		return collect_store(q);
	fprintf(stderr, "ckptfs-gc: %s: neither a ckptfs mount nor a store; give one of them\n", q->path);
	return EXIT_FAILED;
}

static struct retain_request retaining(const struct request *q)
{
	return (struct retain_request){ "ckptfs-gc", q->delete, q->verify, q->json, q->quiet };
}

static enum exit_status status_of(int r)
{
	return r == 0 ? EXIT_DONE : r == -ECANCELED ? EXIT_INTERRUPTED : EXIT_FAILED;
}

static enum exit_status work(struct request *q)
{
	struct retain_request how = retaining(q);
	enum exit_status retained, collected;

	if (!keep_is_empty(&q->keep))
		return status_of(retain_directory(&how, q->path, &q->keep));
	if (!q->epochs)
		return collect(q);
	retained = status_of(retain_mount(&how, q->path));
	if (retained == EXIT_INTERRUPTED)
		return retained;
	collected = collect(q);
	return collected != EXIT_DONE ? collected : retained;
}

static int parse_percent(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || n > 100)
		return -EINVAL;
	*ret = (uint32_t)n;
	return 0;
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "delete", no_argument, NULL, 'd' },	{ "budget", required_argument, NULL, 'b' },
		{ "rate", required_argument, NULL, 'r' },
		{ "move-below", required_argument, NULL, 'm' }, { "place", no_argument, NULL, 'P' },
		{ "epochs", no_argument, NULL, 'e' },	{ "keep-last", required_argument, NULL, 'L' },
		{ "keep-every", required_argument, NULL, 'E' }, { "keep-within", required_argument, NULL, 'W' },
		{ "keep-tagged", no_argument, NULL, 'T' }, { "verify", no_argument, NULL, 'v' },
		{ "local", no_argument, NULL, 'l' },	{ "json", no_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },	{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "qhV", options, NULL)) >= 0) {
		int r = 0;

		switch (c) {
		case 'd':
			q->delete = true;
			break;
		case 'b':
			r = parse_time(optarg, &q->budget_ns);
			break;
		case 'r':
			r = parse_size(optarg, &q->rate);
			break;
		case 'm':
			r = parse_percent(optarg, &q->move_below);
			break;
		case 'P':
			q->place = true;
			break;
		case 'l':
			q->local = true;
			break;
		case 'e':
			q->epochs = true;
			break;
		case 'L':
			r = keep_parse_number(optarg, &q->keep.last);
			break;
		case 'E':
			r = keep_parse_number(optarg, &q->keep.every);
			break;
		case 'W':
			r = parse_time(optarg, &q->keep.within_ns);
			break;
		case 'T':
			q->keep.tagged = true;
			break;
		case 'v':
			q->verify = true;
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
			puts("ckptfs-gc " CKPTFS_VERSION);
			return EXIT_DONE + 1;
		default:
			fputs("Try ckptfs-gc --help.\n", stderr);
			return EXIT_USAGE + 1;
		}
		if (r < 0) {
			fprintf(stderr, "ckptfs-gc: %s: not a %s\n", optarg,
				c == 'b' || c == 'W'   ? "time such as 90s, 10m, 2h or 7d" :
				c == 'r'	       ? "size such as 50M" :
				c == 'L' || c == 'E' ? "number from 1 on" : "percentage from 0 to 100");
			return EXIT_USAGE + 1;
		}
	}
	if (argc - optind != 1) {
		fputs("ckptfs-gc: one mount, store or directory must be given; try ckptfs-gc --help\n", stderr);
		return EXIT_USAGE + 1;
	}
	if (!keep_is_empty(&q->keep) && (q->epochs || q->budget_ns || q->rate || q->local || q->place)) {
		fputs("ckptfs-gc: --keep options are of epochs, and go with --verify, --delete, --json and --quiet only\n",
		      stderr);
		return EXIT_USAGE + 1;
	}
	if (q->verify && keep_is_empty(&q->keep) && !q->epochs) {
		fputs("ckptfs-gc: --verify is of epochs; give --epochs or a --keep option\n", stderr);
		return EXIT_USAGE + 1;
	}
	if (q->place && !q->delete) {
		fputs("ckptfs-gc: --place changes the store, so it wants --delete as well\n", stderr);
		return EXIT_USAGE + 1;
	}
	q->path = argv[optind];
	return 0;
}

int main(int argc, char *argv[])
{
	struct request q = { .move_below = MOVE_BELOW };
	int r = parse(argc, argv, &q);

	if (r > 0)
		return r - 1;
	log_set_level(LOG_LEVEL_NOTICE);
	interrupt_catch();
	return output_finish("ckptfs-gc", (int)work(&q), EXIT_FAILED);
}
