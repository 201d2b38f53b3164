/*
 * ckptfs-compact: variables of files in a mount stored side by side, coded by what they are.
 *
 * What is in the files is found out here, by ckptfs-classify in a process that can do nothing else; the daemon is told
 * where variables lie, and moves them while everything goes on. Files of one step are one set; sets are given to the
 * daemon together until they are much, since each time it looks at all recipes once, and what is coded one against the
 * other must be given at once. It can be stopped or killed at any time: the next one does the rest.
 *
 * Exit status: 0 done, 1 usage, 2 failed, or something could not be read, 75 another one is running (--background), 130
 * interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/util.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_variables.h"
#include "tools/classifier.h"
#include "tools/compact_background.h"
#include "tools/compact_copies.h"
#include "tools/compact_daemon.h"
#include "tools/compact_report.h"
#include "tools/compact_sets.h"
#include "tools/daemon.h"
#include "tools/interrupt.h"
#include "tools/names_file.h"
#include "tools/output.h"
#include "tools/progress.h"

#define CLASSIFY_MS 120000u
#define PLAN_BYTES GiB(4) /* of files in one plan: as many chunks as the daemon moves between two passes over all recipes */
#define PLAN_FILES 10000u
#define PLAN_EXTENTS 500000u
#define BLOCK_MIN KiB(4) /* what takes turns are whole chunks */
#define GROUP_MAX 65536u
#define BUDGET 10.0 /* CPU seconds for each GB */
#define CHAIN 4u
#define CHAIN_MAX 15u

enum exit_status {
	EXIT_DONE = 0,
	EXIT_USAGE = 1,
	EXIT_FAILED = 2,
	EXIT_BUSY = CKPTFS_COMPACT_EXIT_BUSY,
	EXIT_INTERRUPTED = 130
};

/* A variable of the plan. */
struct planned {
	char *key;
	struct code_type type;
};

struct request {
	enum scheme scheme;
	bool is_aware; /* of the set that is looked at */
	unsigned group; /* ranks; 0: all */
	unsigned chain; /* steps that are coded one against the other, */
	bool chain_forced; /* whatever reading them takes */
	uint64_t block, rate;
	double budget;
	bool json, quiet, background;
	bool copies; /* of other nodes, too */
	const char *tell; /* "pause" or "resume": nothing else is done */
	char helper[PATH_MAX]; /* ckptfs-classify */
	bool has_names;
	char names[NAMES_TEXT_MAX + 1]; /* rules */

	struct files files;
	int mount; /* any descriptor of it */
	dev_t dev;
	struct compact_rows rows;
	struct progress progress;
	uint64_t done; /* bytes of files whose plans have been run */
	bool incomplete; /* something could not be read */

	/* The plan that is being filled. */
	struct compact_daemon daemon;
	bool has_plan;
	struct planned *planned;
	size_t nr_planned, room_planned;
	/* the variables of the set that was added last, without those that were rounded from them, */
	size_t last_set, last_end;
	unsigned nr_steps; /* which is step so many of those that follow one another in the plan */
	uint64_t plan_bytes, plan_files, plan_extents;
};

static void help(FILE *to)
{
	fputs("Usage: ckptfs-compact [--scheme NAME] [--group N] [--block SIZE] [--chain N] [--budget SECONDS]\n"
	      "                      [--names FILE] [--rate SIZE] [--copies] [--dry-run] [--background] [--json | --quiet]\n"
	      "                      FILE|DIRECTORY...\n"
	      "       ckptfs-compact --pause | --resume MOUNTPOINT\n"
	      "Store the variables of files in a ckptfs mount side by side, coded by what they are: HDF5, netCDF, safetensors, torch and\n"
	      "numpy files, and the rest as plain bytes. Every file keeps its bytes, and can be read and written meanwhile.\n\n"
	      "  --scheme NAME  how ranks are merged: agnostic, agnostic-block, aware, aware-block, auto (default)\n"
	      "  --group N      ranks that are merged (default: all of a step)\n"
	      "  --block SIZE   what takes turns in the -block schemes (default 64K)\n"
	      "  --chain N      steps that are coded one against the other, 0 to 15 (default: up to 4, as long as reading\n"
	      "                 one takes no more than its plain bytes)\n"
	      "  --budget S     CPU seconds per GB that coding may take (default 10)\n"
	      "  --names FILE   rules that say what variables are called instead: an expression and a new name a line\n"
	      "  --rate SIZE    read and write no more than this of packs per second, such as 50M\n"
	      "  --copies       also what this node has of the same directories of other nodes: their ranks are merged with its own\n"
	      "  --dry-run      only tell what would become of them\n"
	      "  --background   at a low priority; nothing is shown but what failed, and status 75 is: another one is running\n"
	      "  --pause        the mount stops compacting by itself (compact=auto), until\n"
	      "  --resume       it goes on\n"
	      "  --json         the result as one JSON document; keys keep their meaning (schema_version)\n"
	      "  -q, --quiet    no progress\n"
	      "  -h, --help     this text\n"
	      "  -V, --version  the version\n\n"
	      "Exit status: 0 done, 1 usage, 2 failed or something could not be read, 75 with --background: another one is running,\n"
	      "130 interrupted.\n",
	      to);
}

/* Are variables looked at? What is found of the first step holds for those that follow it. */
static int choose_aware(struct request *q, const struct set *set, bool follows)
{
	struct variables_conf conf = { .scheme = q->scheme, .block = q->block, .budget = q->budget };
	bool whole;
	int r;

	if (q->scheme != SCHEME_AUTO)
		q->is_aware = q->scheme != SCHEME_AGNOSTIC && q->scheme != SCHEME_AGNOSTIC_BLOCK;
	if (q->scheme != SCHEME_AUTO || follows)
		return 0;
	r = variables_choose_whole(&conf, set, &whole);
	if (r == 0)
		q->is_aware = !whole;
	return r;
}

/* --- a plan --- */

static bool step(void *userdata, const struct ckptfs_compact *so_far)
{
	struct request *q = userdata;

	progress_show(&q->progress, "compacting", q->done + MIN(so_far->plain, q->plan_bytes), q->files.size, true);
	return !interrupted();
}

static int take_results(struct request *q)
{
	int r = 0;

	for (size_t i = 0; i < q->nr_planned && r == 0; i++) {
		struct ckptfs_compact_result res;

		r = compact_daemon_result(&q->daemon, (uint32_t)i, &res);
		if (r == 0)
			r = compact_rows_add(&q->rows, q->planned[i].key, q->planned[i].type, &res);
	}
	return r;
}

static void forget_plan(struct request *q)
{
	while (q->nr_planned > 0)
		free(q->planned[--q->nr_planned].key);
	compact_daemon_end(&q->daemon);
	q->has_plan = false;
	q->nr_steps = 0;
	q->done += q->plan_bytes;
	q->plan_bytes = q->plan_files = q->plan_extents = 0;
}

static int tell(struct request *q, int r)
{
	progress_clear(&q->progress);
	if (r == -ESTALE)
		fputs("ckptfs-compact: another one has begun meanwhile\n", stderr);
	else if (r == -E2BIG)
		fputs("ckptfs-compact: the files of one step have more variables or pieces than one plan can have; use --group\n",
		      stderr);
	else if (r == -EROFS)
		fputs("ckptfs-compact: mounted read-only; --dry-run can be used\n", stderr);
	else if (r < 0)
		tell_refusal("ckptfs-compact", q->files.file[0].path, "a collection or another compaction", "compact", r);
	return r;
}

static int run_plan(struct request *q)
{
	struct ckptfs_compact how = {
		.flags = (q->rows.dry_run ? CKPTFS_COMPACT_DRY_RUN : 0) |
			 (q->chain_forced ? CKPTFS_COMPACT_CHAIN_FORCED : 0),
		.order = q->scheme == SCHEME_AUTO					       ? CKPTFS_COMPACT_BEST :
			 q->scheme == SCHEME_AWARE_BLOCK || q->scheme == SCHEME_AGNOSTIC_BLOCK ? CKPTFS_COMPACT_TURNS :
											         CKPTFS_COMPACT_WHOLE,
		.cpu_ms = (uint32_t)(q->budget * 1000),
		.block = q->block,
		.chain = q->chain,
		.rate = q->rate,
	};
	int r;

	if (!q->has_plan)
		return 0;
	r = compact_daemon_run(&q->daemon, &how, step, q);
	if (r == 0)
		r = take_results(q);
	q->rows.complete &= r == 0 && how.complete;
	q->rows.nr_files += q->plan_files;
	forget_plan(q);
	return tell(q, r);
}

static int note_variable(struct request *q, const struct compact_piece *p, uint32_t before, bool is_rounded)
{
	struct planned *more;

	if (q->nr_planned == q->room_planned) {
		size_t room = MAX(2 * q->room_planned, (size_t)256);

		more = reallocarray(q->planned, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		q->planned = more;
		q->room_planned = room;
	}
	more = &q->planned[q->nr_planned];
	*more = (struct planned){ strdup(p->key), p->shape->type };
	if (!more->key)
		return -ENOMEM;
	q->nr_planned++;
	return compact_daemon_variable(&q->daemon, p->key, p->shape, before, is_rounded);
}

/* The variable of this key among planned ones in order, from *at to `end`: 1 more than its number; 0: there is none. */
static uint32_t find_planned(const struct request *q, const char *key, size_t *at, size_t end)
{
	while (*at < end && strcmp(q->planned[*at].key, key) < 0)
		(*at)++;
	return *at < end && strcmp(q->planned[*at].key, key) == 0 ? (uint32_t)*at + 1 : 0;
}

/* Those that were rounded from others of the set, or all but these. `from`, `end`: what the set before has, or this
 * one. */
static int add_some(struct request *q, const struct compact_pieces *p, const uint32_t *file, bool rounded, size_t from,
		    size_t end)
{
	int r = 0;

	for (size_t i = 0; i < p->nr && r == 0; i++) {
		const struct compact_piece *x = &p->piece[i];
		size_t at = from;

		if ((x->wide != NULL) != rounded)
			continue;
		if (i == 0 || strcmp(x->key, x[-1].key) != 0)
			r = note_variable(q, x, find_planned(q, rounded ? x->wide : x->key, &at, end), rounded);
		if (!rounded)
			from = at;
		for (size_t k = 0; k < x->nr_extents && r == 0; k++)
			r = compact_daemon_extent(&q->daemon, file[x->member], x->extent[k].off, x->extent[k].len);
	}
	return r;
}

/* What was rounded comes last: it names what is there. */
static int add_pieces(struct request *q, const struct compact_pieces *p, const uint32_t *file)
{
	size_t first = q->nr_planned;
	int r = add_some(q, p, file, false, q->nr_steps > 0 ? q->last_set : first, q->nr_steps > 0 ? q->last_end : first);

	q->last_set = first;
	q->last_end = q->nr_planned;
	q->nr_steps++;
	return r == 0 ? add_some(q, p, file, true, q->last_set, q->last_end) : r;
}

static int add_set(struct request *q, const struct set *set, const struct compact_pieces *p)
{
	_cleanup_(freep) uint32_t *file = calloc(set->nr, sizeof(*file));
	int r = file ? 0 : -ENOMEM;

	if (r == 0 && !q->has_plan) {
		r = compact_daemon_begin(&q->daemon, q->mount);
		q->has_plan = r == 0;
	}
	for (size_t i = 0; i < set->nr && r == 0; i++) {
		r = compact_daemon_file(&q->daemon, set->member[i].fd, &file[i]);
		q->plan_bytes += set->member[i].typed.size;
	}
	if (r == 0)
		r = add_pieces(q, p, file);
	q->plan_files += set->nr;
	q->plan_extents += p->nr_extents;
	return r < 0 ? tell(q, r) : 0;
}

/* --- sets --- */

/* Of what lies on another filesystem the daemon knows nothing. */
static int check_files(const struct request *q, const struct set *set)
{
	for (size_t i = 0; i < set->nr; i++)
		if (set->member[i].file->dev != q->dev)
			return refuse("%s: not in the same mount as the others", set->member[i].file->path);
	return 0;
}

/* Steps that are coded together are of one plan, as long as there is room for them at all. */
static bool is_full(const struct request *q, const struct set *set, const struct compact_pieces *p)
{
	bool goes_on = q->nr_steps % (q->chain + 1) != 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < set->nr; i++)
		bytes += set->member[i].typed.size;
	return q->has_plan && ((q->plan_bytes + bytes > PLAN_BYTES && !goes_on) ||
			       q->plan_files + set->nr > PLAN_FILES || q->plan_extents + p->nr_extents > PLAN_EXTENTS);
}

static int compact_set(void *userdata, struct file **file, size_t nr, bool follows)
{
	struct request *q = userdata;
	struct classify_conf conf = { .helper = q->helper,
				      .limit_ms = CLASSIFY_MS,
				      .names = q->has_names ? q->names : NULL };
	struct compact_pieces p = { 0 };
	struct set set = { 0 };
	int r;

	if (interrupted()) {
		q->rows.complete = false;
		return 0;
	}
	progress_show(&q->progress, "looking at files", q->done + q->plan_bytes, q->files.size, true);
	r = set_open(&set, &conf, file, nr);
	q->incomplete |= set.nr < nr;
	if (!follows)
		q->nr_steps = 0;
	if (r == 0)
		r = check_files(q, &set);
	if (r == 0)
		r = choose_aware(q, &set, follows);
	q->rows.aware |= q->is_aware;
	if (r == 0)
		r = compact_pieces_init(&p, &set, q->is_aware);
	if (r == 0 && is_full(q, &set, &p))
		r = run_plan(q);
	if (r == 0 && set.nr > 0)
		r = add_set(q, &set, &p);
	compact_pieces_release(&p);
	set_close(&set);
	return r;
}

/* --- all of it --- */

static int open_mount(struct request *q, const char *path)
{
	struct stat st;

	q->mount = open(path, O_RDONLY | O_CLOEXEC);
	if (q->mount < 0 || fstat(q->mount, &st) < 0)
		return complain(-errno, "%s", path);
	q->dev = st.st_dev;
	return 0;
}

static int compact(struct request *q, char *paths[], int nr)
{
	int r = open_mount(q, paths[0]), failed = 0;

	for (int i = 0; i < nr && r == 0; i++) {
		int one = (q->copies ? compact_copies_add : files_add)(&q->files, paths[i]);

		r = one == -ENOMEM ? one : 0;
		failed = one < 0 ? one : failed;
	}
	if (r == 0)
		r = files_arrange(&q->files);
	if (r < 0)
		return r;
	classifier_find(q->helper);
	r = compact_sets_each(&q->files, q->group, compact_set, q);
	if (r == 0)
		r = run_plan(q);
	return r < 0 ? r : q->incomplete ? -EIO : failed;
}

/* That there is nothing to compact is no failure where nobody has asked. */
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
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : compact_daemon_pause(fd, strcmp(q->tell, "pause") == 0);

	if (fd < 0)
		tell_unopened("ckptfs-compact", path, "a mountpoint", r);
	else if (r == -EOPNOTSUPP)
		refuse("%s: not mounted with compact=auto: nothing is compacted by itself", path);
	else if (r < 0)
		tell_refusal("ckptfs-compact", path, "", q->tell, r);
	return r < 0 ? EXIT_FAILED : EXIT_DONE;
}

static enum exit_status work(struct request *q, char *paths[], int nr)
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
	if (q->rows.nr_files > 0 || (q->json && r == 0))
		(q->json ? compact_rows_json : compact_rows_text)(&q->rows);
	else if (r == 0)
		refuse("there are no files to compact");
	if (r == -ENOMEM)
		complain(r, "too little memory");
	return interrupted() ? EXIT_INTERRUPTED : r < 0 || q->rows.nr_files == 0 ? EXIT_FAILED : EXIT_DONE;
}

static void request_release(struct request *q)
{
	forget_plan(q);
	free(q->planned);
	files_release(&q->files);
	compact_rows_release(&q->rows);
	closep(&q->mount);
}

static int set_scheme(struct request *q, const char *text)
{
	for (enum scheme s = 0; s < NR_SCHEMES; s++)
		if (strcmp(text, scheme_names[s]) == 0) {
			q->scheme = s;
			return 0;
		}
	return refuse("--scheme %s: must be agnostic, agnostic-block, aware, aware-block or auto", text);
}

static int set_number(struct request *q, int option, const char *text)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end)
		n = -1;
	if (option == 'C') {
		q->chain = n >= 0 && n <= CHAIN_MAX ? (unsigned)n : 0;
		q->chain_forced = true;
		return q->chain == n ? 0 : refuse("--chain %s: must be a number, 0 to %u", text, CHAIN_MAX);
	}
	if (option == 'U') {
		q->budget = n;
		return n > 0 && n <= 1e6 ? 0 : refuse("--budget %s: must be CPU seconds per GB, more than 0", text);
	}
	q->group = n >= 1 && n <= GROUP_MAX ? (unsigned)n : 0;
	return q->group == n ? 0 : refuse("--group %s: must be a number, 1 to %u", text, GROUP_MAX);
}

static int set_size(struct request *q, int option, const char *text)
{
	uint64_t size;

	if (parse_size(text, &size) < 0)
		return refuse("%s: not a size such as 64K or 50M", text);
	*(option == 'r' ? &q->rate : &q->block) = size;
	return option == 'r' || size >= BLOCK_MIN ? 0 : refuse("--block %s: must be at least 4K", text);
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "scheme", required_argument, NULL, 'S' }, { "group", required_argument, NULL, 'G' },
		{ "block", required_argument, NULL, 'B' },  { "budget", required_argument, NULL, 'U' },
		{ "rate", required_argument, NULL, 'r' },   { "dry-run", no_argument, NULL, 'n' },
		{ "background", no_argument, NULL, 'b' },   { "pause", no_argument, NULL, 'P' },
		{ "resume", no_argument, NULL, 'R' },
		{ "json", no_argument, NULL, 'j' },	    { "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },	    { "version", no_argument, NULL, 'V' },
		{ "chain", required_argument, NULL, 'C' },  { "copies", no_argument, NULL, 'c' },
		{ "names", required_argument, NULL, 'N' },
		{ 0 },
	};
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "qhV", options, NULL)) >= 0)
		switch (c) {
		case 'S':
			r = set_scheme(q, optarg);
			break;
		case 'C':
		case 'G':
		case 'U':
			r = set_number(q, c, optarg);
			break;
		case 'B':
		case 'r':
			r = set_size(q, c, optarg);
			break;
		case 'N':
			r = names_file_read(optarg, q->names);
			q->has_names = true;
			break;
		case 'n':
			q->rows.dry_run = true;
			break;
		case 'b':
			q->background = true;
			break;
		case 'c':
			q->copies = true;
			break;
		case 'P':
		case 'R':
			q->tell = c == 'P' ? "pause" : "resume";
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
			puts("ckptfs-compact " CKPTFS_VERSION);
			return EXIT_DONE + 1;
		default:
			fputs("Try ckptfs-compact --help.\n", stderr);
			return EXIT_USAGE + 1;
		}
	if (r == 0 && optind == argc)
		r = refuse("a file or directory must be given; try ckptfs-compact --help");
	if (r == 0 && q->tell && argc - optind > 1)
		r = refuse("--%s is of one mountpoint", q->tell);
	return r < 0 ? EXIT_USAGE + 1 : 0;
}

int main(int argc, char *argv[])
{
	_cleanup_(request_release) struct request q = {
		.scheme = SCHEME_AUTO, .chain = CHAIN, .block = KiB(64), .budget = BUDGET, .mount = -1
	};
	int r = parse(argc, argv, &q);

	if (r > 0)
		return r - 1;
	if (q.tell)
		return (int)command_mount(&q, argv[optind]);
	if (q.background)
		compact_step_back();
	interrupt_catch();
	return output_finish("ckptfs-compact", (int)work(&q, argv + optind, argc - optind), EXIT_FAILED);
}
