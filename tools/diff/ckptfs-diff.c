/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-diff: which files of two directories differ, and in which bytes. On one ckptfs mount, data that both files
 * share is not read (tools/diff/diff_files.h).
 *
 * Exit status, as of diff(1): 0 the same, 1 they differ, 2 trouble; 130 interrupted.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/command.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/diff/diff_files.h"
#include "tools/diff/diff_parts.h"
#include "tools/common/daemon.h"
#include "tools/common/interrupt.h"
#include "tools/common/watchdog.h"

#define TOOL "ckptfs-diff"
#define SCHEMA_VERSION 1
#define UNIT "4096" /* a page: where a checkpoint differs, most of a page usually does */
#define DEPTH_MAX 2048u

enum exit_status { EXIT_SAME = 0, EXIT_DIFFER = 1, EXIT_TROUBLE = 2, EXIT_INTERRUPTED = 130 };

struct request {
	const char *a, *b;
	uint64_t unit;
	bool json, summary, quiet, by_parts;

	/* Results. */
	uint64_t nr_files, nr_differ, nr_only_a, nr_only_b, nr_kinds, bytes, read_bytes, file_bytes;
	bool failed, said_read;
	struct json out;
	bool has_head; /* the header lines are printed */

	const char *name; /* of the file being compared, relative to a and b; "": a and b are files */
	bool has_range; /* that file differs */
	const char *path_b;
	int parts_known; /* result of diff_parts_open() at the first range; before that -EAGAIN */
	struct diff_parts parts;
};

/* --- output --- */

static const char *shown_name(const struct request *q)
{
	return q->name[0] ? q->name : q->a;
}

/* Prints the header lines once. */
static void show_head(struct request *q)
{
	if (q->has_head)
		return;
	q->has_head = true;
	fputs("# first: ", stdout);
	text_print(stdout, q->a);
	fputs("\n# second: ", stdout);
	text_print(stdout, q->b);
	puts(q->summary ? "\n# path: size of the differences" : "\n# path: offset +length of each difference, in bytes");
}

static void show_name(struct request *q)
{
	show_head(q);
	text_print(stdout, shown_name(q));
}

static void open_record(struct request *q, const char *state)
{
	json_open(&q->out, NULL);
	json_string(&q->out, "path", q->name);
	json_string(&q->out, "state", state);
}

static void show_range(void *userdata, uint64_t off, uint64_t len)
{
	struct request *q = userdata;

	if (q->by_parts && q->parts_known == -EAGAIN)
		q->parts_known = diff_parts_open(&q->parts, q->path_b);
	if (q->by_parts && q->parts_known > 0)
		diff_parts_add(&q->parts, off, len);
	if (q->quiet || (q->summary && !q->json))
		return;
	if (q->json) {
		if (!q->has_range) {
			open_record(q, "differs");
			if (!q->summary)
				json_open_array(&q->out, "ranges");
		}
		if (!q->summary) {
			json_open_array(&q->out, NULL);
			json_u64(&q->out, NULL, off);
			json_u64(&q->out, NULL, len);
			json_close_array(&q->out);
		}
		q->has_range = true;
		return;
	}
	show_name(q);
	printf(": %" PRIu64 " +%" PRIu64 "\n", off, len);
}

/* Prints the parts that differ; sizes are those in the second file. */
static void show_parts(struct request *q)
{
	if (q->json)
		json_open_array(&q->out, "parts");
	for (size_t i = 0; i < q->parts.nr; i++) {
		const struct diff_part *p = &q->parts.part[i];

		if (p->bytes == 0)
			continue;
		if (q->json) {
			json_open(&q->out, NULL);
			json_string(&q->out, "key", p->key);
			json_u64(&q->out, "size_bytes", p->size);
			json_u64(&q->out, "bytes", p->bytes);
			json_close(&q->out);
			continue;
		}
		show_name(q);
		fputs(", ", stdout);
		text_print(stdout, p->key[0] ? p->key : "the rest");
		printf(": %s of %s\n", human_size(p->bytes).s, human_size(p->size).s);
	}
	if (q->json)
		json_close_array(&q->out);
}

static void show_file(struct request *q, const struct diff_result *d)
{
	if (q->quiet || d->nr_ranges == 0)
		return;
	if (q->json) {
		if (!q->summary)
			json_close_array(&q->out);
		json_u64(&q->out, "size_a", d->size_a);
		json_u64(&q->out, "size_b", d->size_b);
		json_u64(&q->out, "nr_ranges", d->nr_ranges);
		json_u64(&q->out, "bytes", d->bytes);
		if (q->by_parts && q->parts_known > 0)
			show_parts(q);
		json_close(&q->out);
		return;
	}
	if (q->by_parts && q->parts_known > 0)
		show_parts(q);
	if (q->summary) {
		show_name(q);
		printf(": %s of %s in %s\n", human_size(d->bytes).s, human_size(MAX(d->size_a, d->size_b)).s,
		       human_nr(d->nr_ranges, "place").s);
	}
}

/* Prints a difference other than in bytes. */
static void show_other(struct request *q, const char *state, const char *text)
{
	if (q->quiet)
		return;
	if (q->json) {
		open_record(q, state);
		json_close(&q->out);
		return;
	}
	show_name(q);
	printf(": %s\n", text);
}

static int trouble(struct request *q, const char *path, int r)
{
	if (r == -ECANCELED || interrupted())
		return -ECANCELED;
	fputs(TOOL ": ", stderr);
	text_print(stderr, path);
	text_printf(stderr, ": %s\n", path_error_text(r));
	q->failed = true;
	return 0;
}

/* --- comparing --- */

static int compare_files(struct request *q, const char *a, const char *b)
{
	struct diff_sink sink = { show_range, q };
	const char *culprit = a;
	struct diff_result d;
	int r;

	q->has_range = false;
	q->path_b = b;
	q->parts_known = -EAGAIN;
	r = diff_files(a, b, q->unit, &sink, &d, &culprit);
	if (r < 0) {
		if (q->has_range) { /* end the open record */
			if (!q->summary)
				json_close_array(&q->out);
			json_bool(&q->out, "failed", true);
			json_close(&q->out);
		}
		diff_parts_release(&q->parts);
		return trouble(q, culprit, r);
	}
	if (!d.by_extents && !q->said_read && !q->quiet) {
		fputs(TOOL ": not on the same ckptfs mount: reading all bytes\n", stderr);
		q->said_read = true;
	}
	show_file(q, &d);
	diff_parts_release(&q->parts);
	if (q->parts_known < 0 && q->parts_known != -EAGAIN)
		return trouble(q, b, q->parts_known);
	q->nr_files++;
	q->nr_differ += d.nr_ranges > 0;
	q->bytes += d.bytes;
	q->read_bytes += d.read_bytes;
	q->file_bytes += MAX(d.size_a, d.size_b);
	return 0;
}

static int compare_links(struct request *q, const char *a, const char *b)
{
	char x[PATH_MAX], y[PATH_MAX];
	ssize_t len_x = readlink(a, x, sizeof(x)), len_y;

	if (len_x < 0)
		return trouble(q, a, -errno);
	len_y = readlink(b, y, sizeof(y));
	if (len_y < 0)
		return trouble(q, b, -errno);
	q->nr_files++;
	if (len_x != len_y || memcmp(x, y, (size_t)len_x) != 0) {
		q->nr_differ++;
		show_other(q, "target", "symbolic links with different targets");
	}
	return 0;
}

static int compare_directories(struct request *q, const char *a, const char *b, const char *name, unsigned depth);

static int compare(struct request *q, const char *a, const struct stat *in_a, const char *b, const struct stat *in_b,
		   const char *name, unsigned depth)
{
	q->name = name;
	if (in_a->st_dev == in_b->st_dev && in_a->st_ino == in_b->st_ino) { /* the same inode */
		q->nr_files += !S_ISDIR(in_a->st_mode);
		return 0;
	}
	if ((in_a->st_mode & S_IFMT) != (in_b->st_mode & S_IFMT)) {
		q->nr_kinds++;
		show_other(q, "kind", "different file types");
		return 0;
	}
	if (S_ISDIR(in_a->st_mode))
		return compare_directories(q, a, b, name, depth + 1);
	if (S_ISREG(in_a->st_mode))
		return compare_files(q, a, b);
	if (S_ISLNK(in_a->st_mode))
		return compare_links(q, a, b);
	q->nr_files++;
	if (in_a->st_rdev != in_b->st_rdev) {
		q->nr_differ++;
		show_other(q, "device", "different devices");
	}
	return 0;
}

static int compare_names(struct request *q, const char *dir_a, const char *dir_b, const char *above, const char *last,
			 unsigned depth)
{
	_cleanup_(freep) char *a = NULL, *b = NULL, *name = NULL;
	struct stat in_a, in_b;

	if (asprintf(&a, "%s/%s", dir_a, last) < 0 || asprintf(&b, "%s/%s", dir_b, last) < 0 ||
	    asprintf(&name, "%s%s%s", above, above[0] ? "/" : "", last) < 0)
		return -ENOMEM;
	if (lstat(a, &in_a) < 0)
		return trouble(q, a, -errno);
	if (lstat(b, &in_b) < 0)
		return trouble(q, b, -errno);
	return compare(q, a, &in_a, b, &in_b, name, depth);
}

static int show_only(struct request *q, const char *above, const char *last, bool in_a)
{
	_cleanup_(freep) char *name = NULL;

	if (asprintf(&name, "%s%s%s", above, above[0] ? "/" : "", last) < 0)
		return -ENOMEM;
	q->name = name;
	*(in_a ? &q->nr_only_a : &q->nr_only_b) += 1;
	show_other(q, in_a ? "only_a" : "only_b", in_a ? "only in the first" : "only in the second");
	return 0;
}

static int is_no_dot(const struct dirent *d)
{
	return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

struct listing {
	struct dirent **v;
	int nr;
};

static void listing_release(struct listing *l)
{
	for (int i = 0; i < l->nr; i++)
		free(l->v[i]);
	free(l->v);
}

static int compare_directories(struct request *q, const char *a, const char *b, const char *name, unsigned depth)
{
	_cleanup_(listing_release) struct listing x = { 0 }, y = { 0 };
	int i = 0, k = 0, r = 0;

	if (depth > DEPTH_MAX)
		return trouble(q, a, -ELOOP);
	x.nr = scandir(a, &x.v, is_no_dot, by_bytes);
	if (x.nr < 0)
		return trouble(q, a, -errno);
	y.nr = scandir(b, &y.v, is_no_dot, by_bytes);
	if (y.nr < 0)
		return trouble(q, b, -errno);
	while ((i < x.nr || k < y.nr) && r == 0) {
		int order = i == x.nr ? 1 : k == y.nr ? -1 : strcmp(x.v[i]->d_name, y.v[k]->d_name);

		if (order == 0)
			r = compare_names(q, a, b, name, x.v[i]->d_name, depth);
		else
			r = show_only(q, name, order < 0 ? x.v[i]->d_name : y.v[k]->d_name, order < 0);
		i += order <= 0;
		k += order >= 0;
		if (interrupted())
			r = -ECANCELED;
	}
	return r;
}

/* Follows symbolic links given as arguments. */
static int compare_all(struct request *q)
{
	_cleanup_(freep) char *a = realpath(q->a, NULL), *b = NULL;
	struct stat in_a, in_b;

	if (!a || lstat(a, &in_a) < 0)
		return trouble(q, q->a, -errno);
	b = realpath(q->b, NULL);
	if (!b || lstat(b, &in_b) < 0)
		return trouble(q, q->b, -errno);
	return compare(q, a, &in_a, b, &in_b, "", 0);
}

static void add_totals(struct request *q, bool same)
{
	struct json *j = &q->out;

	json_close_array(j);
	json_bool(j, "same", same);
	json_bool(j, "complete", !q->failed);
	json_u64(j, "files", q->nr_files);
	json_u64(j, "differing_files", q->nr_differ);
	json_u64(j, "only_a", q->nr_only_a);
	json_u64(j, "only_b", q->nr_only_b);
	json_u64(j, "other_kinds", q->nr_kinds);
	json_u64(j, "bytes", q->bytes);
	json_u64(j, "file_bytes", q->file_bytes);
	json_u64(j, "read_bytes", q->read_bytes);
	json_end(j);
}

static void show_totals(struct request *q, bool same)
{
	if (q->json)
		add_totals(q, same);
	else if (q->summary && !q->quiet)
		printf("%s of %s in %" PRIu64 " of %s; %" PRIu64 " only in the first, %" PRIu64
		       " only in the second; %s read of each\n",
		       human_size(q->bytes).s, human_size(q->file_bytes).s, q->nr_differ, human_nr(q->nr_files, "file").s,
		       q->nr_only_a, q->nr_only_b, human_size(q->read_bytes).s);
}

static enum exit_status diff(struct request *q)
{
	bool same;
	int r;

	if (q->json) {
		q->out = json_to_file(stdout);
		json_open(&q->out, NULL);
		json_u64(&q->out, "schema_version", SCHEMA_VERSION);
		json_string(&q->out, "a", q->a);
		json_string(&q->out, "b", q->b);
		json_open_array(&q->out, "differences");
	}
	r = compare_all(q);
	if (r == -ENOMEM)
		trouble(q, q->a, r);
	same = q->nr_differ + q->nr_only_a + q->nr_only_b + q->nr_kinds == 0;
	show_totals(q, same && !q->failed && r == 0);
	if (r == -ECANCELED)
		return EXIT_INTERRUPTED;
	return q->failed ? EXIT_TROUBLE : same ? EXIT_SAME : EXIT_DIFFER;
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)
#define UNIT_LIMITS "not a power of two from 1 to 1M"

static int check_unit(const struct conf_key *k, void *request, const char *value _unused_, const char **ret_why)
{
	const uint64_t *unit = conf_field(k, request);

	*ret_why = UNIT_LIMITS;
	return *unit & (*unit - 1) ? -EINVAL : 0;
}

static const struct conf_key options[] = {
	{ "summary", CONF_FLAG, OF(summary), .help = "only how much differs, in each file and in total" },
	{ "parts", CONF_FLAG, OF(by_parts),
	  .help = "also how much differs by variable, or in a process image by kind of memory" },
	{ "unit", CONF_SIZE, OF(unit), .fallback = UNIT, .min = 1, .max = DIFF_UNIT_MAX, .must = UNIT_LIMITS,
	  .parse = check_unit, .help = "report differences in whole units of this size, a power of two from 1 to 1M" },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "print nothing: only the exit status reports the result"),
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	const struct request *q = request;

	return q->json && q->quiet ? "--json and --quiet exclude each other" : NULL;
}

static int run(void *request, char *operands[], int nr _unused_)
{
	struct request *q = request;

	q->a = operands[0];
	q->b = operands[1];
	watchdog_begin(TOOL, q->a, EXIT_TROUBLE);
	interrupt_catch();
	return (int)diff(q);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " [--summary] [--parts] [--unit SIZE] [--json | --quiet] A B\n",
		.about = "Report which bytes of two files differ, or which files of two directories and which of their bytes. On one "
			 "ckptfs mount, data that both files share is not read. Elsewhere all data is read, which is reported.",
		.options = options,
		.footer = "Header lines begin with #. Each other line is PATH: OFFSET +LENGTH, both in bytes. Symbolic links are "
			  "compared, not followed; owners, permissions and times are not compared.\n"
			  "Exit status: 0 the same, 1 they differ, 2 trouble, 130 interrupted.",
		.exit_usage = EXIT_TROUBLE,
		.exit_failed = EXIT_TROUBLE,
		.min_operands = 2,
		.max_operands = 2,
		.operands = "two files or two directories",
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
