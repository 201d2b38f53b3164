#include "tools/stat_show.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/util.h"
#include "tools/json_flat.h"

#define NS_PER_S 1e9

struct duration {
	char s[24];
};

static struct duration duration(uint64_t ns)
{
	struct duration d;
	double v = (double)ns;

	if (v < 1e3)
		snprintf(d.s, sizeof(d.s), "%" PRIu64 " ns", ns);
	else if (v < 1e6)
		snprintf(d.s, sizeof(d.s), "%.1f us", v / 1e3);
	else if (v < 1e9)
		snprintf(d.s, sizeof(d.s), "%.1f ms", v / 1e6);
	else
		snprintf(d.s, sizeof(d.s), "%.1f s", v / 1e9);
	return d;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void line(const char *label, const char *value)
{
	printf("%-24s %12s", label, value);
}

static void size_line(const char *label, uint64_t bytes)
{
	line(label, human_size(bytes).s);
}

static void show_space(const struct json_flat *j)
{
	uint64_t logical = json_flat_u64(j, "logical_bytes"), stored = json_flat_u64(j, "stored_bytes");
	uint64_t compressed = json_flat_u64(j, "compressed_bytes");

	size_line("Logical size:", logical);
	puts("  mapped bytes of all files");
	size_line("After deduplication:", stored);
	printf("  %.2f %% of logical, %s chunks\n", percent(stored, logical), json_flat_get(j, "stored_chunks"));
	size_line("After compression:", compressed);
	printf("  %.2f %% of that\n", percent(compressed, stored));
	size_line("On disk:", json_flat_u64(j, "disk_bytes"));
	printf("  packs %s,", human_size(json_flat_u64(j, "pack_disk_bytes")).s);
	printf(" journal %s,", human_size(json_flat_u64(j, "journal_disk_bytes")).s);
	printf(" index %s\n", human_size(json_flat_u64(j, "index_disk_bytes")).s);
	if (strcmp(json_flat_get(j, "garbage.known"), "true") == 0) {
		size_line("Garbage:", json_flat_u64(j, "garbage.bytes"));
		printf("  when ckptfs-gc last looked, %s ago\n", duration(json_flat_u64(j, "garbage.age_ns")).s);
	}
}

static void show_traffic(const struct json_flat *j)
{
	static const struct {
		const char *path, *label;
	} causes[] = {
		{ "written_by_cause.zero_bytes", "  zeros" },
		{ "written_by_cause.champion_bytes", "  as its champion" },
		{ "written_by_cause.successor_bytes", "  next to a known chunk" },
		{ "written_by_cause.memory_bytes", "  known, in memory" },
		{ "written_by_cause.index_bytes", "  known, in the index" },
		{ "written_by_cause.new_bytes", "  new" },
	};
	uint64_t whole = 0; /* causes are of whole pages, more than was written where pages were filled bit by bit */

	size_line("Written since mount:", json_flat_u64(j, "written_bytes"));
	putchar('\n');
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		whole += json_flat_u64(j, causes[i].path);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
		uint64_t bytes = json_flat_u64(j, causes[i].path);

		size_line(causes[i].label, bytes);
		printf("  %.2f %%\n", percent(bytes, whole));
	}
	size_line("Read since mount:", json_flat_u64(j, "read_bytes"));
	putchar('\n');
}

/* What has become of the new bytes: nobody has to guess why something is not compressed. */
static void show_compression(const struct json_flat *j)
{
	uint64_t plain = json_flat_u64(j, "compression.plain_bytes"), stored = json_flat_u64(j, "compression.stored_bytes");
	uint64_t not_worth = json_flat_u64(j, "compression.unshrinkable_bytes"), busy = json_flat_u64(j, "compression.busy_bytes");

	if (plain + not_worth + busy == 0)
		return;
	size_line("Compressed since mount:", plain);
	printf("  to %s, %.2f %%\n", human_size(stored).s, percent(stored, plain));
	size_line("  left, does not pay", not_worth);
	putchar('\n');
	size_line("  left, writers waited", busy);
	putchar('\n');
}

static void show_memory(const struct json_flat *j)
{
	uint64_t used = json_flat_u64(j, "memory.fingerprint_bytes") + json_flat_u64(j, "memory.filter_bytes") +
			json_flat_u64(j, "memory.table_bytes") + json_flat_u64(j, "memory.segment_bytes") +
			json_flat_u64(j, "memory.index_bytes");
	uint64_t hits = json_flat_u64(j, "tables.hits"), misses = json_flat_u64(j, "tables.misses");

	size_line("Look-up memory:", used);
	printf("  of %s (cache=), %s fingerprints, %s inodes in use\n",
	       human_size(json_flat_u64(j, "memory.cache_limit_bytes")).s,
	       json_flat_get(j, "memory.fingerprint_entries"), json_flat_get(j, "memory.inodes"));
	size_line("Write buffers:", json_flat_u64(j, "memory.dirty_bytes"));
	printf("  made so far, of %s (dirty=)\n", human_size(json_flat_u64(j, "memory.dirty_limit_bytes")).s);
	printf("%-24s %10.1f %%  of %" PRIu64 " look-ups in pack tables\n",
	       "Table cache hits:", percent(hits, hits + misses), hits + misses);
}

static void show_durability(const struct json_flat *j)
{
	uint64_t commits = json_flat_u64(j, "durability.commits");
	uint64_t mean = commits ? json_flat_u64(j, "durability.commit_ns_sum") / commits : 0;

	line("Not yet durable since:", duration(json_flat_u64(j, "durability.lag_ns")).s);
	printf("  %" PRIu64 " commits, %s on average\n", commits, duration(mean).s);
	line("Damaged chunks met:", json_flat_get(j, "health.damaged"));
	printf("  %s healed\n", json_flat_get(j, "health.healed"));
}

static const char *on_off(const struct json_flat *j, const char *path)
{
	return strcmp(json_flat_get(j, path), "true") == 0 ? "on" : "off";
}

static void show_paths(const struct json_flat *j)
{
	printf("Fast paths: direct pack I/O %s, writes around the page cache %s, no capability check per write %s,\n"
	       "            parallel look-ups %s, read-ahead %s KiB, %s threads\n",
	       on_off(j, "paths.pack_direct_io"), on_off(j, "paths.write_direct_io"),
	       on_off(j, "paths.write_without_capability_check"), on_off(j, "paths.parallel_directory_lookups"),
	       json_flat_get(j, "paths.readahead_kib"), json_flat_get(j, "paths.threads"));
}

/* `path` is "requests.NAME.count"? Then NAME. */
static int request_name(const char *path, char name[64])
{
	char rest[16];

	return sscanf(path, "requests.%63[^.].%15s", name, rest) == 2 && strcmp(rest, "count") == 0;
}

static uint64_t request_u64(const struct json_flat *j, const char *name, const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "requests.%s.%s", name, what);
	return json_flat_u64(j, path);
}

static void show_requests(const struct json_flat *j)
{
	char name[64];

	printf("\n%-18s %12s %12s %12s %12s %12s\n", "Request", "count", "mean", "median", "99 %", "longest");
	for (size_t i = 0; i < j->nr; i++) {
		if (!request_name(j->entry[i].path, name))
			continue;
		printf("%-18s %12s %12s", name, j->entry[i].value, duration(request_u64(j, name, "mean_ns")).s);
		printf(" %12s", duration(request_u64(j, name, "p50_ns")).s);
		printf(" %12s", duration(request_u64(j, name, "p99_ns")).s);
		printf(" %12s\n", duration(request_u64(j, name, "max_ns")).s);
	}
}

void stat_show_mount(const struct json_flat *j)
{
	printf("%s on %s (ckptfs %s%s), up %s\n\n", json_flat_get(j, "store"), json_flat_get(j, "mountpoint"),
	       json_flat_get(j, "version"), strcmp(json_flat_get(j, "read_only"), "true") == 0 ? ", read-only" : "",
	       duration(json_flat_u64(j, "uptime_ns")).s);
	show_space(j);
	show_traffic(j);
	show_compression(j);
	show_memory(j);
	show_durability(j);
	show_paths(j);
	show_requests(j);
}

void stat_show_file(const char *path, const struct json_flat *j)
{
	printf("%s\n", path);
	if (strcmp(json_flat_get(j, "kind"), "file") != 0) {
		puts("  neither a file nor a directory: it has no content");
		return;
	}
	size_line("Size:", json_flat_u64(j, "size_bytes"));
	printf("  %s bytes\n", json_flat_get(j, "size_bytes"));
	size_line("Mapped:", json_flat_u64(j, "mapped_bytes"));
	puts("  without holes");
	line("Extents:", json_flat_get(j, "extents"));
	printf("  in %s places, %s per MiB\n", json_flat_get(j, "frames"), json_flat_get(j, "fragmentation"));
	line("Durable:", strcmp(json_flat_get(j, "durable"), "true") == 0 ? "yes" : "not yet");
	printf("\n%-24s %s\n", "Fingerprint:", json_flat_get(j, "fingerprint"));
}

/* As the daemon counts it for a file. */
static double fragmentation(const struct stat_sums *s)
{
	return s->mapped ? (double)s->frames * (double)MiB(1) / (double)round_up(s->mapped, MiB(1)) : 0;
}

void stat_show_sums(const char *path, const struct stat_sums *s)
{
	char number[24];

	printf("%s\n", path);
	snprintf(number, sizeof(number), "%" PRIu64, s->files);
	line("Files:", number);
	printf("  in %" PRIu64 " directories\n", s->directories);
	size_line("Size:", s->size);
	printf("  %" PRIu64 " bytes\n", s->size);
	size_line("Mapped:", s->mapped);
	puts("  without holes");
	snprintf(number, sizeof(number), "%" PRIu64, s->extents);
	line("Extents:", number);
	printf("  in %" PRIu64 " places, %.3f per MiB\n", s->frames, fragmentation(s));
	line("Durable:", s->not_durable == 0 ? "yes" : "not yet");
	printf("  %" PRIu64 " files not yet\n", s->not_durable);
}

static void print_string(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		if ((unsigned char)*s < ' ')
			printf("\\u%04x", (unsigned char)*s);
		else
			printf(*s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
	}
	putchar('"');
}

void stat_print_document(const char *path, const char *json)
{
	fputs("{\"path\":", stdout);
	print_string(path);
	printf(",%s\n", json + 1);
}

void stat_print_sums(const char *path, const struct stat_sums *s)
{
	fputs("{\"path\":", stdout);
	print_string(path);
	printf(",\"schema_version\":1,\"kind\":\"directory\",\"files\":%" PRIu64 ",\"directories\":%" PRIu64
	       ",\"size_bytes\":%" PRIu64 ",\"mapped_bytes\":%" PRIu64 ",\"extents\":%" PRIu64 ",\"frames\":%" PRIu64
	       ",\"fragmentation\":%.3f,\"durable\":%s}\n",
	       s->files, s->directories, s->size, s->mapped, s->extents, s->frames, fragmentation(s),
	       s->not_durable == 0 ? "true" : "false");
}

static const struct {
	const char *path, *name, *type, *help;
	bool ns; /* nanoseconds, shown as seconds */
} metrics[] = {
	{ "logical_bytes", "logical_bytes", "gauge", "mapped bytes of all files", false },
	{ "stored_bytes", "stored_bytes", "gauge", "distinct bytes in packs", false },
	{ "stored_chunks", "stored_chunks", "gauge", "distinct chunks in packs", false },
	{ "compressed_bytes", "compressed_bytes", "gauge", "distinct bytes in packs, as compressed", false },
	{ "pack_disk_bytes", "pack_disk_bytes", "gauge", "disk space of packs", false },
	{ "journal_disk_bytes", "journal_disk_bytes", "gauge", "disk space of the journal", false },
	{ "index_disk_bytes", "index_disk_bytes", "gauge", "disk space of the index", false },
	{ "garbage.bytes", "garbage_bytes", "gauge", "what no file referred to when last looked for", false },
	{ "garbage.collections", "collections_total", "counter", "garbage collections since the mount", false },
	{ "written_bytes", "written_bytes_total", "counter", "bytes written by applications", false },
	{ "read_bytes", "read_bytes_total", "counter", "bytes read by applications", false },
	{ "written_by_cause.zero_bytes", "written_zero_bytes_total", "counter", "written bytes that were zeros", false },
	{ "written_by_cause.champion_bytes", "written_champion_bytes_total", "counter", "written as in the champion",
	  false },
	{ "written_by_cause.successor_bytes", "written_successor_bytes_total", "counter", "found next to a known chunk",
	  false },
	{ "written_by_cause.memory_bytes", "written_memory_bytes_total", "counter", "found in memory", false },
	{ "written_by_cause.index_bytes", "written_index_bytes_total", "counter", "found in the index", false },
	{ "written_by_cause.new_bytes", "written_new_bytes_total", "counter", "written and new", false },
	{ "compression.plain_bytes", "compression_plain_bytes_total", "counter", "new bytes that were compressed", false },
	{ "compression.stored_bytes", "compression_stored_bytes_total", "counter", "what they were compressed to", false },
	{ "compression.unshrinkable_bytes", "compression_unshrinkable_bytes_total", "counter",
	  "new bytes left as they are: compression does not pay", false },
	{ "compression.busy_bytes", "compression_busy_bytes_total", "counter",
	  "new bytes left as they are: writers would have waited", false },
	{ "memory.dirty_bytes", "dirty_bytes", "gauge", "data not yet in packs", false },
	{ "memory.fingerprint_bytes", "fingerprint_memory_bytes", "gauge", "memory for fingerprints", false },
	{ "memory.index_bytes", "index_memory_bytes", "gauge", "memory of the index", false },
	{ "memory.inodes", "inodes", "gauge", "inodes the kernel refers to", false },
	{ "durability.lag_ns", "durability_lag_seconds", "gauge", "age of the oldest change not yet durable", true },
	{ "durability.commits", "commits_total", "counter", "commits", false },
	{ "durability.commit_ns_sum", "commit_seconds_total", "counter", "time spent in commits", true },
	{ "health.damaged", "damaged_chunks_total", "counter", "damaged chunks met", false },
	{ "health.healed", "healed_chunks_total", "counter", "damaged chunks healed", false },
};

static void print_value(uint64_t v, bool ns)
{
	if (ns)
		printf("%.9f\n", (double)v / NS_PER_S);
	else
		printf("%" PRIu64 "\n", v);
}

static void print_labels(const struct json_flat *j, const char *request)
{
	fputs("{mountpoint=", stdout);
	print_string(json_flat_get(j, "mountpoint"));
	if (request)
		printf(",request=\"%s\"", request);
}

static void print_request(const struct json_flat *j, const char *name)
{
	static const struct {
		const char *suffix, *label, *key;
		bool ns;
	} parts[] = {
		{ "", ",quantile=\"0.5\"", "p50_ns", true },
		{ "", ",quantile=\"0.99\"", "p99_ns", true },
		{ "_sum", "", "sum_ns", true },
		{ "_count", "", "count", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		printf("ckptfs_request_seconds%s", parts[i].suffix);
		print_labels(j, name);
		printf("%s} ", parts[i].label);
		print_value(request_u64(j, name, parts[i].key), parts[i].ns);
	}
}

static void print_requests(const struct json_flat *j)
{
	char name[64];

	for (size_t i = 0; i < j->nr; i++)
		if (request_name(j->entry[i].path, name))
			print_request(j, name);
}

void stat_print_metrics(const struct json_flat *mounts, size_t nr)
{
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		printf("# HELP ckptfs_%s %s\n# TYPE ckptfs_%s %s\n", metrics[i].name, metrics[i].help, metrics[i].name,
		       metrics[i].type);
		for (size_t k = 0; k < nr; k++) {
			printf("ckptfs_%s", metrics[i].name);
			print_labels(&mounts[k], NULL);
			fputs("} ", stdout);
			print_value(json_flat_u64(&mounts[k], metrics[i].path), metrics[i].ns);
		}
	}
	puts("# HELP ckptfs_request_seconds time to answer a request of the kernel\n# TYPE ckptfs_request_seconds summary");
	for (size_t k = 0; k < nr; k++)
		print_requests(&mounts[k]);
}
