/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fsck.ckptfs: checks and repairs a store. The checks are in store/check/check.h; here are the options, the report and
 * the exit codes.
 *
 * Exit codes as fsck(8): 0 clean, 1 corrected, 4 left uncorrected, 8 operational error, 16 usage; 130 interrupted.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/command.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/text.h"
#include "base/util.h"
#include "store/check/check.h"
#include "tools/fsck/fsck_json.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"

enum {
	FSCK_CLEAN = 0,
	FSCK_CORRECTED = 1,
	FSCK_UNCORRECTED = 4,
	FSCK_OPERATIONAL = 8,
	FSCK_USAGE = 16,
	FSCK_INTERRUPTED = 130
};

#define NR_DETAILS 4u /* log lines kept for the next finding in their area */

struct fsck {
	const char *store;
	bool json, verbose, no, preen, yes;
	struct progress progress;
	struct check_conf conf;
	char cause[512]; /* the last logged error */
	struct {
		char line[NR_DETAILS][512];
		unsigned nr;
	} details[CHECK_NR_AREAS];
};

/* --- log lines of the engine: details of the finding that follows --- */

static enum check_area area_of(const char *line)
{
	if (strncmp(line, "journal", 7) == 0)
		return CHECK_JOURNAL;
	return strncmp(line, "index", 5) == 0 ? CHECK_INDEX : CHECK_NR_AREAS;
}

static void on_log(void *userdata, enum log_level level, const char *line)
{
	enum check_area area = area_of(line);
	struct fsck *f = userdata;

	if (f->verbose) {
		progress_clear(&f->progress);
		fprintf(stderr, "%s\n", line); /* log lines are escaped already */
	}
	if (level == LOG_LEVEL_ERROR)
		snprintf(f->cause, sizeof(f->cause), "%s", line);
	if (level == LOG_LEVEL_ERROR && area != CHECK_NR_AREAS && f->details[area].nr < NR_DETAILS)
		snprintf(f->details[area].line[f->details[area].nr++], sizeof(f->details[area].line[0]), "%s", line);
}

/* --- findings --- */

static void on_finding(void *userdata, const struct check_finding *finding)
{
	struct fsck *f = userdata;

	progress_clear(&f->progress);
	if (f->json) {
		fsck_json_finding(finding);
		return;
	}
	fputs(finding->repaired ? "repaired: " : "", stdout);
	if (finding->path) {
		text_print(stdout, finding->path);
		fputs(": ", stdout);
	}
	text_print(stdout, finding->text);
	putchar('\n');
	for (unsigned i = 0; i < f->details[finding->area].nr && !f->verbose; i++)
		printf("    %s\n", f->details[finding->area].line[i]);
	f->details[finding->area].nr = 0;
	fflush(stdout);
}

static bool on_progress(void *userdata, const char *what, uint64_t done, uint64_t all, bool bytes)
{
	struct fsck *f = userdata;

	progress_show(&f->progress, what, done, all, bytes);
	return !interrupted();
}

static void summary(const struct fsck *f, const struct check_result *r)
{
	text_printf(stdout,
		    "%s: %s, %s, %s, %s, commit %" PRIu64 "%s\n", f->store, human_nr(r->nr_inodes, "inode").s,
		    human_nr(r->nr_names, "name").s, human_nr(r->nr_packs, "pack").s, human_nr(r->nr_chunks, "chunk").s, r->commit,
		    f->conf.read_data ? ", every byte read" : "");
	if (r->unapplied > 0)
		text_printf(stdout,
			    "%s: the last %s %s in the journal only, as after a crash; the next mount applies %s\n",
			    f->store, r->unapplied == 1 ? "commit" : human_nr(r->unapplied, "commit").s,
			    r->unapplied == 1 ? "is" : "are", r->unapplied == 1 ? "it" : "them");
	if (r->rebuilt)
		text_printf(stdout, "%s: the index was rebuilt\n", f->store);
	if (r->nr_lost_files > 0)
		text_printf(stdout,
			    "%s: %s %s missing %s; writing their content again, mounted with -o verify, repairs them\n",
			    f->store, human_nr(r->nr_lost_files, "file").s, r->nr_lost_files == 1 ? "is" : "are",
			    human_nr(r->lost_bytes, "byte").s);
	if (r->nr_left + r->nr_repaired == 0)
		text_printf(stdout, "%s: clean\n", f->store);
	else
		text_printf(stdout, "%s: %" PRIu64 " repaired, %" PRIu64 " left%s\n", f->store, r->nr_repaired,
			    r->nr_left,
			    f->conf.repair ? "" : "; -p repairs what can be repaired");
}

static int exit_code(const struct check_result *r)
{
	if (r->nr_left > 0)
		return FSCK_UNCORRECTED;
	return r->nr_repaired > 0 || r->rebuilt ? FSCK_CORRECTED : FSCK_CLEAN;
}

/* Reports why the check failed. */
static void report_cause(const struct fsck *f, int r)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };

	text_printf(stderr, "fsck.ckptfs: %s: not checked", f->store);
	if (mounts_find(&m, f->store) > 0)
		text_printf(stderr, ", in use: %s is mounted on %s; umount it and check the store, or run ckptfs scrub %s\n",
			m.store, m.point, m.point);
	else
		fprintf(stderr, ": %s\n", f->cause[0] ? f->cause : strerror(-r));
}

static int check(struct fsck *f)
{
	struct check_result result = { 0 };
	int r, code;

	interrupt_catch();
	progress_init(&f->progress);
	log_to_function(on_log, f);
	if (f->json)
		fsck_json_begin(f->store);
	r = check_store(f->store, &f->conf, &result);
	progress_clear(&f->progress);
	code = r == 0 ? exit_code(&result) : interrupted() ? FSCK_INTERRUPTED : FSCK_OPERATIONAL;
	if (f->json)
		fsck_json_end(&result, code);
	else if (r == 0)
		summary(f, &result);
	if (r < 0 && !interrupted())
		report_cause(f, r);
	return code;
}

/* --- the command line --- */

#define OF(field) offsetof(struct fsck, field)

static const struct conf_key options[] = {
	{ "", CONF_FLAG, OF(no), .letter = 'n', .help = "change nothing, not even the time of a file (the default)" },
	{ "", CONF_FLAG, OF(preen), .letter = 'p', .help = "repair what can be repaired without losing anything" },
	{ "", CONF_FLAG, OF(preen), .letter = 'a', .help = "the same as -p" },
	{ "", CONF_FLAG, OF(yes), .letter = 'y', .help = "repair, and drop unreadable data that is in the way" },
	{ "read-data", CONF_FLAG, OF(conf.read_data), .help = "also compare every byte with its fingerprint" },
	{ "rebuild", CONF_FLAG, OF(conf.rebuild), .help = "rebuild the index from packs and journal; implies -p" },
	{ "cache", CONF_SIZE, OF(conf.cache), .fallback = "256M", .help = "memory to work with" },
	COMMAND_JSON(struct fsck, json),
	{ "", CONF_FLAG, OF(verbose), .letter = 'v', .help = "also show what the engine logs" },
	COMMAND_END,
};

static const char *check_options(void *request, int nr _unused_)
{
	struct fsck *f = request;

	if (f->no + f->preen + f->yes > 1)
		return "-n, -p and -y exclude each other";
	if (f->conf.rebuild && f->no)
		return "--rebuild and -n exclude each other";
	f->conf.repair = f->preen || f->yes || f->conf.rebuild;
	f->conf.discard_commits = f->yes;
	return NULL;
}

static int run(void *request, char *operands[], int nr _unused_)
{
	struct fsck *f = request;

	f->store = operands[0];
	return check(f);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "fsck.ckptfs",
		.usage = "fsck.ckptfs [-n | -p | -y] [-v] [--read-data] [--rebuild] [--json] [--cache SIZE] STORE\n",
		.about = "Check a store that is not mounted: superblock, journal, index, packs, names, recipes and fingerprints.",
		.options = options,
		.footer = "Exit status: 0 clean, 1 corrected, 4 errors left uncorrected, 8 the check could not be done, 16 "
			  "usage, 130 interrupted.",
		.exit_usage = FSCK_USAGE,
		.exit_failed = FSCK_OPERATIONAL,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one store",
		.check = check_options,
		.run = run,
	};
	struct fsck f = { .conf = { .finding = on_finding, .progress = on_progress, .userdata = &f } };

	return command_main(&command, &f, argc, argv);
}
