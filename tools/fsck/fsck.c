/*
 * fsck.ckptfs: checks a store and mends it. What it checks and mends is in store/engine/check.h; this talks to people
 * and machines.
 *
 * Exit codes as fsck(8): 0 clean, 1 corrected, 4 left uncorrected, 8 operational error, 16 usage; 130 interrupted.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/check.h"
#include "tools/fsck_json.h"
#include "tools/interrupt.h"
#include "tools/mounts.h"
#include "tools/output.h"
#include "tools/progress.h"

enum {
	FSCK_CLEAN = 0,
	FSCK_CORRECTED = 1,
	FSCK_UNCORRECTED = 4,
	FSCK_OPERATIONAL = 8,
	FSCK_USAGE = 16,
	FSCK_INTERRUPTED = 130
};

#define NR_DETAILS 4u /* lines of the log that are kept for the next finding of their area */

static const struct conf_key keys[] = {
	{ "cache", CONF_SIZE, offsetof(struct check_conf, cache), "256M", NULL, "memory to work with" },
	{ 0 },
};

struct fsck {
	const char *store;
	bool json, verbose;
	struct progress progress;
	struct check_conf conf;
	char cause[512]; /* the last error that was logged */
	struct {
		char line[NR_DETAILS][512];
		unsigned nr;
	} details[CHECK_NR_AREAS];
};

static void help(FILE *to)
{
	fputs("Usage: fsck.ckptfs [-n | -p | -y] [-v] [--read-data] [--rebuild] [--json] [--cache SIZE] STORE\n"
	      "Check a store that is not mounted: superblock, journal, index, packs, names, recipes and fingerprints.\n\n"
	      "  -n             change nothing, not even the time of a file (the default)\n"
	      "  -p, -a         mend what can be mended without losing anything\n"
	      "  -y             mend, and give up what cannot be read any more and is in the way\n"
	      "  --read-data    also compare every byte with its fingerprint\n"
	      "  --rebuild      make the index anew from packs and journal; implies -p\n"
	      "  --json         one JSON document instead of text\n"
	      "  --cache SIZE   memory to work with (default 256M)\n"
	      "  -v             also show what the engine logs\n"
	      "  -h, --help, -V, --version\n\n"
	      "Exit codes: 0 clean, 1 corrected, 4 something is left uncorrected, 8 the check could not be done,\n"
	      "16 usage, 130 interrupted.\n",
	      to);
}

static int usage(const char *why)
{
	fprintf(stderr, "fsck.ckptfs: %s; see fsck.ckptfs --help\n", why);
	return FSCK_USAGE;
}

/* --- what the engine logs: details of what it then calls damaged --- */

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
		fprintf(stderr, "%s\n", line);
	}
	if (level == LOG_LEVEL_ERROR)
		snprintf(f->cause, sizeof(f->cause), "%s", line);
	if (level == LOG_LEVEL_ERROR && area != CHECK_NR_AREAS && f->details[area].nr < NR_DETAILS)
		snprintf(f->details[area].line[f->details[area].nr++], sizeof(f->details[area].line[0]), "%s", line);
}

/* --- findings --- */

/* Names are whatever users made them: no line may pretend to be two, or talk to the terminal. */
static void put_safely(const char *s)
{
	for (; *s; s++)
		putchar((unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s);
}

static void on_finding(void *userdata, const struct check_finding *finding)
{
	struct fsck *f = userdata;

	progress_clear(&f->progress);
	if (f->json) {
		fsck_json_finding(finding);
		return;
	}
	fputs(finding->mended ? "mended: " : "", stdout);
	if (finding->path) {
		put_safely(finding->path);
		fputs(": ", stdout);
	}
	put_safely(finding->text);
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
	printf("%s: %" PRIu64 " inodes, %" PRIu64 " names, %" PRIu64 " packs, %" PRIu64 " chunks, commit %" PRIu64 "%s\n",
	       f->store, r->nr_inodes, r->nr_names, r->nr_packs, r->nr_chunks, r->commit,
	       f->conf.read_data ? ", every byte read" : "");
	if (r->unapplied > 0)
		printf("%s: the last %" PRIu64
		       " commits are in the journal only, as after a crash; the next mount applies them\n",
		       f->store, r->unapplied);
	if (r->rebuilt)
		printf("%s: the index was made anew\n", f->store);
	if (r->nr_lost_files > 0)
		printf("%s: %" PRIu64 " files miss %" PRIu64
		       " bytes; writing their content again, mounted with -o verify, heals them\n",
		       f->store, r->nr_lost_files, r->lost_bytes);
	if (r->nr_left + r->nr_mended == 0)
		printf("%s: clean\n", f->store);
	else
		printf("%s: %" PRIu64 " mended, %" PRIu64 " left%s\n", f->store, r->nr_mended, r->nr_left,
		       f->conf.mend ? "" : "; -p mends what can be");
}

static int exit_code(const struct check_result *r)
{
	if (r->nr_left > 0)
		return FSCK_UNCORRECTED;
	return r->nr_mended > 0 || r->rebuilt ? FSCK_CORRECTED : FSCK_CLEAN;
}

/* Why it could not be. */
static void tell_cause(const struct fsck *f, int r)
{
	struct mounts m;

	fprintf(stderr, "fsck.ckptfs: %s: not checked", f->store);
	if (mounts_find(&m, f->store) > 0)
		fprintf(stderr, ", in use: %s is mounted on %s; umount it and check the store, or run ckptfs-scrub %s\n",
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
		tell_cause(f, r);
	if (fflush(stdout) != 0)
		return FSCK_OPERATIONAL;
	return code;
}

int main(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "read-data", no_argument, NULL, 'd' },
		{ "rebuild", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "cache", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	struct fsck f = { .conf = { .finding = on_finding, .progress = on_progress, .userdata = &f } };
	char mode = 0;
	const char *why;
	int c;

	if (conf_set_defaults(keys, &f.conf) < 0)
		return FSCK_OPERATIONAL;
	while ((c = getopt_long(argc, argv, "apynvhV", options, NULL)) != -1)
		switch (c) {
		case 'a':
		case 'p':
		case 'y':
		case 'n':
			if (mode && mode != (c == 'a' ? 'p' : c))
				return usage("only one of -n, -p and -y");
			mode = (char)(c == 'a' ? 'p' : c);
			break;
		case 'd':
			f.conf.read_data = true;
			break;
		case 'r':
			f.conf.rebuild = true;
			break;
		case 'j':
			f.json = true;
			break;
		case 'v':
			f.verbose = true;
			break;
		case 'c':
			if (conf_set(keys, &f.conf, "cache", optarg, &why) <= 0)
				return usage("--cache needs a size such as 256M");
			break;
		case 'h':
			help(stdout);
			return 0;
		case 'V':
			printf("fsck.ckptfs %s\n", CKPTFS_VERSION);
			return 0;
		default:
			fputs("fsck.ckptfs --help tells the usage\n", stderr);
			return FSCK_USAGE;
		}
	if (optind + 1 != argc)
		return usage("exactly one STORE is needed");
	if (f.conf.rebuild && mode == 'n')
		return usage("--rebuild changes the index, -n nothing");
	f.store = argv[optind];
	f.conf.mend = mode == 'p' || mode == 'y' || f.conf.rebuild;
	f.conf.give_up = mode == 'y';
	return output_finish("fsck.ckptfs", check(&f), FSCK_OPERATIONAL);
}
