/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The index past memory: millions of fingerprints without their data, a small cache.
 *
 * Inserts them in bulk as the engine does when packs are sealed, closes, opens again with the tables
 * dropped from the page cache, and looks up batches of 256 (a 1 MiB segment of pages): scattered ones that
 * are there, ones that are not, and runs that were written one after the other. Every answer is checked.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/fp.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"

#define LOOKUP_BATCH 256
#define SETTLED_NS UINT64_C(4000000000)
#define PACK_ENTRIES 65536 /* pages of a 256 MiB pack */

struct bench {
	const char *dir, *json;
	uint64_t nr, batch, nr_lookups, cache;
	struct db *db;
	FILE *json_file;
	bool json_started;
};

/* One line of the report, and one field of the JSON object. */
static void report(struct bench *b, const char *field, double value, const char *unit, const char *what)
{
	printf("%-44s %14.*f %s\n", what, value < 100 ? 2 : 0, value, unit);
	fflush(stdout);
	if (!b->json_file)
		return;
	fprintf(b->json_file, "%s\n  \"%s\": %.3f", b->json_started ? "," : "{", field, value);
	b->json_started = true;
}

static uint64_t mix(uint64_t n) /* splitmix64: distinct for distinct n */
{
	n += 0x9e3779b97f4a7c15;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

static struct fp fp_nr(uint64_t n)
{
	return (struct fp){ .lo = mix(n), .hi = mix(~n) >> 8 };
}

static struct addr addr_nr(uint64_t n)
{
	return (struct addr){
		.pack = 1 + (uint32_t)(n / PACK_ENTRIES),
		.off = (1 + (uint32_t)(n % PACK_ENTRIES)) * 4096,
	};
}

static uint64_t status_kib(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	uint64_t kib = 0;
	char line[200];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, field, strlen(field)) == 0)
			kib = strtoull(line + strlen(field) + 1, NULL, 10);
	fclose(f);
	return kib;
}

/* The table files, those that are being written too. */
struct tables {
	uint64_t nr, bytes;
};

static struct tables tables_of(struct bench *b, bool drop_from_page_cache)
{
	struct tables t = { 0 };
	struct dirent *de;
	struct stat st;
	DIR *d;
	int fd;

	d = opendir(b->dir);
	if (!d)
		return t;
	while ((de = readdir(d))) {
		if (!strstr(de->d_name, ".sst"))
			continue;
		fd = openat(dirfd(d), de->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (drop_from_page_cache) {
			fdatasync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		}
		if (fstat(fd, &st) == 0) {
			t.nr++;
			t.bytes += (uint64_t)st.st_size;
		}
		close(fd);
	}
	closedir(d);
	return t;
}

static int open_db(struct bench *b)
{
	struct db_conf conf = { .cache = b->cache, .create = true };

	return db_open(b->dir, &conf, &b->db);
}

static int insert(struct bench *b)
{
	_cleanup_(freep) struct fingerprint_entry *e = malloc(b->batch * sizeof(*e));
	uint64_t start, ns = 0, worst_ns = 0, wall = monotonic_ns();
	struct db_stats st;
	int r;

	if (!e)
		return -ENOMEM;
	for (uint64_t done = 0; done < b->nr; done += b->batch) {
		uint64_t n = MIN(b->batch, b->nr - done);

		for (uint64_t i = 0; i < n; i++) {
			struct addr a = addr_nr(done + i);

			e[i] = (struct fingerprint_entry){ fp_nr(done + i), a.pack, a.off / 4096 };
		}
		start = monotonic_ns();
		r = fingerprints_ingest(b->db, e, n);
		if (r < 0)
			return r;
		ns += monotonic_ns() - start;
		worst_ns = MAX(worst_ns, monotonic_ns() - start);
	}
	wall = monotonic_ns() - wall;
	report(b, "insert_per_s", (double)b->nr * 1e9 / (double)ns, "/s", "bulk insert");
	report(b, "insert_batch_worst_s", (double)worst_ns / 1e9, "s", "slowest batch");
	report(b, "insert_wall_s", (double)wall / 1e9, "s", "all batches, generating included");
	report(b, "insert_rss_peak_mib", (double)status_kib("VmHWM:") / 1024, "MiB",
	       "resident at most (2 batches in it)");
	report(b, "tables", (double)tables_of(b, false).nr, "", "tables after the last batch");
	db_stats(b->db, &st);
	report(b, "bytes_per_entry", (double)st.fingerprints_disk / (double)b->nr, "bytes", "on disk per entry");
	return 0;
}

/* Wait until compactions in the background have come to rest: nothing was written for a while. */
static void settle(struct bench *b)
{
	uint64_t start = monotonic_ns(), changed = start;
	struct tables last = { 0 }, now;

	while (monotonic_ns() - changed < SETTLED_NS) {
		now = tables_of(b, false);
		if (now.bytes != last.bytes || now.nr != last.nr)
			changed = monotonic_ns();
		last = now;
		usleep(200000);
	}
	report(b, "settle_s", (double)(changed - start) / 1e9, "s", "until compaction came to rest");
	report(b, "tables_settled", (double)last.nr, "", "tables then");
	report(b, "bytes_per_entry_settled", (double)last.bytes / (double)b->nr, "bytes", "on disk per entry then");
}

static int restart(struct bench *b)
{
	uint64_t start = monotonic_ns();
	struct fp fp = fp_nr(0);
	struct addr a;
	int r;

	db_close(b->db);
	b->db = NULL;
	report(b, "close_ms", (double)(monotonic_ns() - start) / 1e6, "ms", "close");
	tables_of(b, true);
	start = monotonic_ns();
	r = open_db(b);
	if (r < 0)
		return r;
	report(b, "open_ms", (double)(monotonic_ns() - start) / 1e6, "ms", "open");
	r = fingerprints_find(b->db, &fp, 1, &a);
	if (r < 0)
		return r;
	report(b, "first_lookup_ms", (double)(monotonic_ns() - start) / 1e6, "ms", "open and first answer, cold");
	return 0;
}

enum kind { PRESENT, ABSENT, NEIGHBOURS };

static int look_up(struct bench *b, enum kind kind, uint64_t seed, const char *field, const char *what)
{
	uint64_t ns = 0, start, nr_wrong = 0, nr_batches = MAX(b->nr_lookups / LOOKUP_BATCH, UINT64_C(1));
	uint64_t n[LOOKUP_BATCH];
	struct fp fps[LOOKUP_BATCH];
	struct addr a[LOOKUP_BATCH];
	int r;

	for (uint64_t i = 0; i < nr_batches; i++) {
		uint64_t first = mix(seed + i) % b->nr;

		for (uint64_t j = 0; j < LOOKUP_BATCH; j++) {
			if (kind == NEIGHBOURS)
				n[j] = (first + j) % b->nr;
			else
				n[j] = mix(seed + i * LOOKUP_BATCH + j) % b->nr + (kind == ABSENT ? b->nr : 0);
			fps[j] = fp_nr(n[j]);
		}
		start = monotonic_ns();
		r = fingerprints_find(b->db, fps, LOOKUP_BATCH, a);
		if (r < 0)
			return r;
		ns += monotonic_ns() - start;
		for (uint64_t j = 0; j < LOOKUP_BATCH; j++)
			nr_wrong += !addr_equal(a[j], kind == ABSENT ? ADDR_NONE : addr_nr(n[j]));
	}
	report(b, field, (double)(nr_batches * LOOKUP_BATCH) * 1e9 / (double)ns, "/s", what);
	if (nr_wrong > 0)
		return log_errno(-EBADMSG, "%s: %" PRIu64 " wrong answers", what, nr_wrong);
	return 0;
}

static int look_up_all(struct bench *b)
{
	static const struct {
		enum kind kind;
		uint64_t seed;
		const char *field, *what;
	} runs[] = {
		{ NEIGHBOURS, 1, "lookup_cold_neighbours_per_s", "look-up, neighbours, cold" },
		{ PRESENT, 2, "lookup_present_per_s", "look-up, present" },
		{ ABSENT, 3, "lookup_absent_per_s", "look-up, absent" },
		{ NEIGHBOURS, 4, "lookup_neighbours_per_s", "look-up, neighbours" },
	};
	struct db_stats st;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		r = look_up(b, runs[i].kind, runs[i].seed << 32, runs[i].field, runs[i].what);
		if (r < 0)
			return r;
	}
	db_stats(b->db, &st);
	report(b, "memory_mib", (double)st.memory / (double)MiB(1), "MiB", "memory that the index counts");
	report(b, "rss_mib", (double)status_kib("VmRSS:") / 1024, "MiB", "resident");
	return 0;
}

static int run(struct bench *b)
{
	struct db_stats st;
	int r;

	r = open_db(b);
	if (r < 0)
		return r;
	db_stats(b->db, &st);
	if (st.fingerprints_nr == 0) {
		r = insert(b);
		if (r < 0)
			return r;
		settle(b);
	}
	r = restart(b);
	if (r < 0)
		return r;
	return look_up_all(b);
}

static void usage(void)
{
	printf("bench_index [OPTION]... DIR\n"
	       "Inserts synthetic fingerprints into a new index at DIR (one that is there is only looked up in).\n"
	       "  --entries N    fingerprints (50M)\n"
	       "  --batch N      of them per bulk insert (2M)\n"
	       "  --lookups N    per kind (1M)\n"
	       "  --cache SIZE   memory of the index (64M)\n"
	       "  --json FILE    write the figures there too\n");
}

/* Counts are written like sizes, but 2M is two million. */
static int parse_count(const char *s, uint64_t *ret)
{
	char *end;
	double n = strtod(s, &end);

	if (*end == 'K')
		n *= 1e3, end++;
	else if (*end == 'M')
		n *= 1e6, end++;
	else if (*end == 'G')
		n *= 1e9, end++;
	if (*end != '\0' || n < 1 || n > 1e12)
		return -EINVAL;
	*ret = (uint64_t)n;
	return 0;
}

static int parse_args(struct bench *b, int argc, char **argv)
{
	static const struct option options[] = {
		{ "entries", required_argument, NULL, 'n' }, { "batch", required_argument, NULL, 'b' },
		{ "lookups", required_argument, NULL, 'l' }, { "cache", required_argument, NULL, 'c' },
		{ "json", required_argument, NULL, 'j' },    { "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 'n':
			r = parse_count(optarg, &b->nr);
			break;
		case 'b':
			r = parse_count(optarg, &b->batch);
			break;
		case 'l':
			r = parse_count(optarg, &b->nr_lookups);
			break;
		case 'c':
			r = parse_size(optarg, &b->cache);
			break;
		case 'j':
			b->json = optarg;
			break;
		case 'h':
			usage();
			exit(EXIT_SUCCESS);
		default:
			return -EINVAL;
		}
	}
	if (r < 0 || optind + 1 != argc)
		return -EINVAL;
	b->dir = argv[optind];
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = { .nr = 50000000, .batch = 2000000, .nr_lookups = 1000000, .cache = MiB(64) };
	int r;

	if (parse_args(&b, argc, argv) < 0) {
		usage();
		return EXIT_FAILURE;
	}
	if (b.json) {
		b.json_file = fopen(b.json, "w");
		if (!b.json_file) {
			log_errno(-errno, "%s: cannot write", b.json);
			return EXIT_FAILURE;
		}
	}
	report(&b, "entries", (double)b.nr, "", "fingerprints");
	report(&b, "cache_mib", (double)b.cache / (double)MiB(1), "MiB", "cache");
	r = run(&b);
	db_close(b.db);
	if (b.json_file) {
		fprintf(b.json_file, "\n}\n");
		if (fclose(b.json_file) != 0)
			r = log_errno(-errno, "%s: cannot write", b.json);
	}
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
