/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/figures.h"
#include "client/ioctl.h"
#include "tools/stat/stat_ask.h"

struct duration {
	char s[24];
};

static struct duration human_duration(uint64_t ns)
{
	struct duration d;
	double v = (double)ns;

	if (ns == 0)
		snprintf(d.s, sizeof(d.s), "0 s");
	else if (v < 1e3)
		snprintf(d.s, sizeof(d.s), "%" PRIu64 " ns", ns);
	else if (v < 1e6)
		snprintf(d.s, sizeof(d.s), "%.1f us", v / 1e3);
	else if (v < 1e9)
		snprintf(d.s, sizeof(d.s), "%.1f ms", v / 1e6);
	else if (v < 120e9)
		snprintf(d.s, sizeof(d.s), "%.1f s", v / 1e9);
	else if (v < 7200e9)
		snprintf(d.s, sizeof(d.s), "%.1f min", v / 60e9);
	else if (v < 48 * 3600e9)
		snprintf(d.s, sizeof(d.s), "%.1f h", v / 3600e9);
	else
		snprintf(d.s, sizeof(d.s), "%.1f days", v / (24 * 3600e9));
	return d;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void text_line(FILE *to, const char *label, const char *value)
{
	text_printf(to, "%-24s %12s", label, value);
}

static void size_line(FILE *to, const char *label, uint64_t bytes)
{
	text_line(to, label, human_size(bytes).s);
}

static void number_line(FILE *to, const char *label, uint64_t number)
{
	fprintf(to, "%-24s %12" PRIu64, label, number);
}

/* "1 chunk", "7 chunks" */
static struct human_nr counted_in(const struct json_flat *j, const char *path, const char *one)
{
	return human_nr(json_flat_u64(j, path), one);
}

static const char *is_are(uint64_t nr)
{
	return nr == 1 ? "is" : "are";
}

static bool is_true(const struct json_flat *j, const char *path)
{
	return strcmp(json_flat_get(j, path), "true") == 0;
}

/* What the last collection found, or at least what is stored and cannot be of a file. Replicas, of other nodes, are stored
 * and of no file here. */
static uint64_t garbage_bytes(const struct json_flat *j)
{
	uint64_t logical = json_flat_u64(j, "logical_bytes"), stored = json_flat_u64(j, "stored_bytes");
	uint64_t known = is_true(j, "garbage.known") ? json_flat_u64(j, "garbage.bytes") : 0;
	uint64_t surplus = stored > logical && !is_true(j, "cluster.member") ? stored - logical : 0;
	uint64_t garbage = MAX(known, surplus);

	return MIN(garbage, stored);
}

/* The ratio of a nearly empty store would say how large its journal is. */
static void show_headline(FILE *to, const struct json_flat *j, size_t nr_sealed)
{
	uint64_t logical = json_flat_u64(j, "logical_bytes"), disk = json_flat_u64(j, "disk_bytes");

	if (logical == 0) {
		fputs("Nothing is stored yet.\n\n", to);
		return;
	}
	fprintf(to, "%s", human_size(logical).s);
	if (nr_sealed > 0)
		fprintf(to, ", with %s,", human_nr(nr_sealed, "sealed checkpoint").s);
	fprintf(to, " kept in %s", human_size(disk).s);
	if (logical > disk)
		fprintf(to, ": %.1f x", (double)logical / (double)disk);
	fputs("\n\n", to);
}

static void show_garbage(FILE *to, const struct json_flat *j, uint64_t garbage)
{
	if (garbage == 0 && !is_true(j, "garbage.known"))
		return;
	size_line(to, "Garbage:", garbage);
	if (is_true(j, "garbage.known") && garbage == json_flat_u64(j, "garbage.bytes"))
		fprintf(to, "  at the last collection, %s ago\n", human_duration(json_flat_u64(j, "garbage.age_ns")).s);
	else
		fputs("  or more; ckptfs gc --delete frees it\n", to);
}

static void show_space(FILE *to, const struct json_flat *j)
{
	uint64_t logical = json_flat_u64(j, "logical_bytes"), stored = json_flat_u64(j, "stored_bytes");
	uint64_t compressed = json_flat_u64(j, "compressed_bytes"), garbage = garbage_bytes(j), used = stored - garbage;

	size_line(to, "Logical size:", logical);
	fputs("  mapped bytes of all files\n", to);
	size_line(to, "After deduplication:", used);
	if (used <= logical)
		fprintf(to, "  %.2f %% of logical\n", percent(used, logical));
	else
		fputs("  with replicas for other nodes\n", to);
	show_garbage(to, j, garbage);
	size_line(to, "After compression:", compressed);
	fprintf(to, "  %.2f %% of that%s, %s\n", percent(compressed, stored), garbage > 0 ? " and the garbage" : "",
		counted_in(j, "stored_chunks", "chunk").s);
	size_line(to, "On disk:", json_flat_u64(j, "disk_bytes"));
	fprintf(to, "  packs %s,", human_size(json_flat_u64(j, "pack_disk_bytes")).s);
	fprintf(to, " journal %s,", human_size(json_flat_u64(j, "journal_disk_bytes")).s);
	fprintf(to, " index %s\n", human_size(json_flat_u64(j, "index_disk_bytes")).s);
}

static void show_traffic(FILE *to, const struct json_flat *j)
{
	static const struct {
		const char *path, *label;
	} causes[] = {
		{ "written_by_cause.zero_bytes", "  zeros" },
		{ "written_by_cause.previous_bytes", "  unchanged" },
		{ "written_by_cause.successor_bytes", "  next to a known chunk" },
		{ "written_by_cause.memory_bytes", "  known, in memory" },
		{ "written_by_cause.index_bytes", "  known, in the index" },
		{ "written_by_cause.shifted_bytes", "  moved" },
		{ "written_by_cause.new_bytes", "  new" },
	};
	uint64_t whole = 0; /* causes count whole chunks: more than was written if chunks were written in parts */

	size_line(to, "Written since mount:", json_flat_u64(j, "written_bytes"));
	fputc('\n', to);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		whole += json_flat_u64(j, causes[i].path);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
		uint64_t bytes = json_flat_u64(j, causes[i].path);

		size_line(to, causes[i].label, bytes);
		fprintf(to, "  %.2f %%\n", percent(bytes, whole));
	}
	size_line(to, "Read since mount:", json_flat_u64(j, "read_bytes"));
	fputc('\n', to);
}

/* Versions of lineages. Their payload is also counted as written. */
static void show_deltas(FILE *to, const struct json_flat *j)
{
	uint64_t nr = json_flat_u64(j, "deltas.versions"), bytes = json_flat_u64(j, "deltas.bytes"),
		 payload = json_flat_u64(j, "deltas.payload_bytes");

	if (nr == 0)
		return;
	size_line(to, "Deltas since mount:", bytes);
	fprintf(to, "  in %s; payload %s, %.2f %%\n", human_nr(nr, "version").s, human_size(payload).s,
		percent(payload, bytes));
}

/* New bytes by result of compression. */
static void show_compression(FILE *to, const struct json_flat *j)
{
	uint64_t plain = json_flat_u64(j, "compression.plain_bytes"),
		 stored = json_flat_u64(j, "compression.stored_bytes");
	uint64_t not_worth = json_flat_u64(j, "compression.unshrinkable_bytes"),
		 busy = json_flat_u64(j, "compression.busy_bytes");

	if (plain + not_worth + busy == 0)
		return;
	size_line(to, "Compressed since mount:", plain);
	fprintf(to, "  to %s, %.2f %%\n", human_size(stored).s, percent(stored, plain));
	size_line(to, "  incompressible", not_worth);
	fputc('\n', to);
	size_line(to, "  skipped, writers waited", busy);
	fputc('\n', to);
}

static void show_memory(FILE *to, const struct json_flat *j)
{
	uint64_t used = json_flat_u64(j, "memory.fingerprint_bytes") + json_flat_u64(j, "memory.filter_bytes") +
			json_flat_u64(j, "memory.table_bytes") + json_flat_u64(j, "memory.segment_bytes") +
			json_flat_u64(j, "memory.index_bytes");
	uint64_t hits = json_flat_u64(j, "tables.hits"), misses = json_flat_u64(j, "tables.misses");

	size_line(to, "Look-up memory:", used);
	fprintf(to, "  of %s (cache=),", human_size(json_flat_u64(j, "memory.cache_limit_bytes")).s);
	fprintf(to, " %s,", counted_in(j, "memory.fingerprint_entries", "fingerprint").s);
	fprintf(to, " %s in use\n", counted_in(j, "memory.inodes", "inode").s);
	size_line(to, "Write buffers:", json_flat_u64(j, "memory.dirty_bytes"));
	fprintf(to, "  allocated, of %s (dirty=)\n", human_size(json_flat_u64(j, "memory.dirty_limit_bytes")).s);
	fprintf(to, "%-24s %10.1f %%  of %s in pack tables\n", "Table cache hits:", percent(hits, hits + misses),
		human_nr(hits + misses, "look-up").s);
}

static void show_durability(FILE *to, const struct json_flat *j)
{
	uint64_t commits = json_flat_u64(j, "durability.commits");
	uint64_t mean = commits ? json_flat_u64(j, "durability.commit_ns_sum") / commits : 0;

	text_line(to, "Not yet durable since:", human_duration(json_flat_u64(j, "durability.lag_ns")).s);
	fprintf(to, "  %s, %s on average\n", human_nr(commits, "commit").s, human_duration(mean).s);
	text_line(to, "Damaged chunks:", json_flat_get(j, "health.damaged"));
	text_printf(to, "  %s repaired\n", json_flat_get(j, "health.repaired"));
}

static void show_scrub(FILE *to, const struct json_flat *j)
{
	if (strcmp(json_flat_get(j, "scrub.known"), "true") == 0) {
		size_line(to, "Last scrub:", json_flat_u64(j, "scrub.bytes"));
		text_printf(to, "  %s ago, %s, %s left\n", human_duration(json_flat_u64(j, "scrub.age_ns")).s,
			    counted_in(j, "scrub.damaged", "damaged place").s, json_flat_get(j, "scrub.left"));
	} else {
		text_line(to, "Last scrub:", "never");
		fputs("  run ckptfs scrub to find damage\n", to);
	}
	if (strcmp(json_flat_get(j, "scrub.unfinished"), "true") == 0) {
		size_line(to,
			  strcmp(json_flat_get(j, "scrub.running"), "true") == 0 ? "Scrub running:" : "Scrub stopped:",
			  json_flat_u64(j, "scrub.round.bytes"));
		fprintf(to, "  so far, %s\n", counted_in(j, "scrub.round.damaged", "damaged place").s);
	}
}

/* Only for a store that belongs to a cluster. */
static void show_cluster(FILE *to, const struct json_flat *j)
{
	const char *agent = strcmp(json_flat_get(j, "cluster.agent"), "true") != 0	   ? "no agent" :
			    strcmp(json_flat_get(j, "cluster.agent_answers"), "true") == 0 ? "with an agent" :
											     "agent not responding";
	uint64_t replicated = json_flat_u64(j, "cluster.sealed_protected"),
		 cached = json_flat_u64(j, "cluster.replicas_cached");

	if (strcmp(json_flat_get(j, "cluster.member"), "true") != 0)
		return;
	number_line(to, "Nodes of the cluster:", json_flat_u64(j, "cluster.nodes"));
	fprintf(to, "  %s, %s,", agent, counted_in(j, "cluster.rounds", "round").s);
	fprintf(to, " %s without one\n", counted_in(j, "cluster.rounds_failed", "commit").s);
	size_line(to, "  only on other nodes", json_flat_u64(j, "cluster.remote_bytes"));
	fprintf(to, "  %s fetched since the mount,", human_size(json_flat_u64(j, "cluster.fetched_bytes")).s);
	fprintf(to, " %s unavailable\n", counted_in(j, "cluster.fetch_failures", "chunk").s);
	size_line(to, "  pinned for other nodes", json_flat_u64(j, "cluster.pinned_bytes"));
	fprintf(to, "  %s served since the mount\n", human_size(json_flat_u64(j, "cluster.served_bytes")).s);
	if (json_flat_u64(j, "cluster.sealed") > 0)
		fprintf(to, "  %" PRIu64 " of %s %s replicated on another node\n", replicated,
			counted_in(j, "cluster.sealed", "sealed directory").s, is_are(replicated));
	if (json_flat_u64(j, "cluster.protect_errno") != 0)
		fprintf(to, "  cannot protect some: %s; retrying\n",
			json_flat_u64(j, "cluster.protect_errno") == EHOSTUNREACH ?
				"no node of the cluster is on another host" :
				strerror((int)json_flat_u64(j, "cluster.protect_errno")));
	if (json_flat_u64(j, "cluster.stripes") > 0) {
		fprintf(to, "  %s of parity here", human_size(json_flat_u64(j, "cluster.stripe_parity_bytes")).s);
		fprintf(to, " cover %s of other nodes\n", human_size(json_flat_u64(j, "cluster.stripe_covered_bytes")).s);
	}
	size_line(to, "  deferred to a round", json_flat_u64(j, "cluster.pending_bytes"));
	fputc('\n', to);
	number_line(to, "  replicas for other nodes", json_flat_u64(j, "cluster.replicas"));
	fprintf(to, "  of their sealed directories; %" PRIu64 " more %s cached for reading\n", cached, is_are(cached));
	fputc('\n', to);
}

/* Only for a mount with tier=. */
static void show_tier(FILE *to, const struct json_flat *j)
{
	uint64_t waiting = json_flat_u64(j, "tier.waiting"), left = json_flat_u64(j, "tier.left_ns");
	uint64_t in_tier = json_flat_u64(j, "tier.in_tier");
	const char *state = json_flat_get(j, "tier.state");

	if (*state == '\0' || strcmp(state, "off") == 0)
		return;
	text_line(to, "Tier:", state);
	text_printf(to, "  %s, %" PRIu64 " of %s %s%s there\n", json_flat_get(j, "tier.where"), in_tier,
		    counted_in(j, "tier.sealed", "sealed checkpoint").s, is_are(in_tier),
		    is_true(j, "tier.known") ? "" : " known to be");
	if (waiting > 0) {
		size_line(to, "  not there yet", json_flat_u64(j, "tier.waiting_bytes"));
		fprintf(to, "  in %" PRIu64 " of them%s%s%s\n", waiting, left > 0 ? ", " : "",
			left > 0 ? human_duration(left).s : "", left > 0 ? " left" : "");
	}
	if (json_flat_get(j, "tier.reason")[0])
		text_printf(to, "  %s\n", json_flat_get(j, "tier.reason"));
	size_line(to, "  sent since mount", json_flat_u64(j, "tier.sent_bytes"));
	fprintf(to, "  in %s,", counted_in(j, "tier.sent_packs", "pack").s);
	fprintf(to, " for %s;", counted_in(j, "tier.flushed", "checkpoint").s);
	fprintf(to, " %s\n", counted_in(j, "tier.failures", "failure").s);
}

static const char *on_off(const struct json_flat *j, const char *path)
{
	return strcmp(json_flat_get(j, path), "true") == 0 ? "on" : "off";
}

static void show_paths(FILE *to, const struct json_flat *j)
{
	fprintf(to, "Fast paths: direct pack I/O %s, writes around the page cache %s, write-back cache %s,\n",
		on_off(j, "paths.pack_direct_io"), on_off(j, "paths.write_direct_io"), on_off(j, "paths.writeback"));
	fprintf(to, "            no capability check per write %s, parallel reads of packs %s,\n",
		on_off(j, "paths.write_without_capability_check"), on_off(j, "paths.pack_parallel_reads"));
	text_printf(to, "            parallel look-ups %s, read-ahead %s KiB, %s\n",
		    on_off(j, "paths.parallel_directory_lookups"), json_flat_get(j, "paths.readahead_kib"),
		    counted_in(j, "paths.threads", "thread").s);
}

static void show_requests(FILE *to, const struct json_flat *j)
{
	char name[64];

	fprintf(to, "\n%-18s %12s %12s %12s %12s %12s\n", "Request", "count", "mean", "median", "99 %", "longest");
	for (size_t i = 0; i < j->nr; i++) {
		if (!figures_request_name(j->entry[i].path, name))
			continue;
		text_printf(to, "%-18s %12s %12s", name, j->entry[i].value,
			    human_duration(figures_request_u64(j, name, "mean_ns")).s);
		fprintf(to, " %12s", human_duration(figures_request_u64(j, name, "p50_ns")).s);
		fprintf(to, " %12s", human_duration(figures_request_u64(j, name, "p99_ns")).s);
		fprintf(to, " %12s\n", human_duration(figures_request_u64(j, name, "max_ns")).s);
	}
}

/* Background compaction, if enabled. */
static void show_compaction(FILE *to, const struct json_flat *j)
{
	const char *state = json_flat_get(j, "compaction.state");

	if (*state == '\0' || strcmp(state, "off") == 0)
		return;
	text_line(to, "Compacting:", state);
	text_printf(to, "  %s waiting, %s done since the mount, %s failed\n",
		    counted_in(j, "compaction.waiting_directories", "sealed directory").s,
		    json_flat_get(j, "compaction.done_directories"), json_flat_get(j, "compaction.failed_directories"));
}

void stat_show_tier(FILE *to, const struct json_flat *j)
{
	text_printf(to, "tier %s (ckptfs %s), read-only\n\n", json_flat_get(j, "store"), json_flat_get(j, "version"));
	text_line(to, "Checkpoints:", json_flat_get(j, "checkpoints"));
	text_printf(to, "  %s, see ckptfs stat --sealed\n", human_size(json_flat_u64(j, "checkpoint_bytes")).s);
	text_line(to, "Requests:", json_flat_get(j, "tier.requests"));
	text_printf(to, "  since the mount, %s received\n", human_size(json_flat_u64(j, "tier.received_bytes")).s);
	size_line(to, "Memory:", json_flat_u64(j, "tier.cache_bytes"));
	text_printf(to, "  of %s for content\n", human_size(json_flat_u64(j, "tier.cache_max_bytes")).s);
	text_line(to, "Damaged chunks:", json_flat_get(j, "tier.damaged_chunks"));
	fputs("  received since the mount\n", to);
}

void stat_show_head(FILE *to, const struct json_flat *j)
{
	text_printf(to, "%s on %s (ckptfs %s%s), up %s\n", json_flat_get(j, "store"), json_flat_get(j, "mountpoint"),
		    json_flat_get(j, "version"), strcmp(json_flat_get(j, "read_only"), "true") == 0 ? ", read-only" : "",
		    human_duration(json_flat_u64(j, "uptime_ns")).s);
	fputc('\n', to);
}

/* Is one off that the mount did not ask to be off? */
static bool has_slow_path(const struct json_flat *j)
{
	return !is_true(j, "paths.pack_direct_io") || !is_true(j, "paths.pack_parallel_reads") ||
	       !is_true(j, "paths.write_without_capability_check") ||
	       !is_true(j, "paths.parallel_directory_lookups") ||
	       (!is_true(j, "paths.write_direct_io") && !is_true(j, "paths.writeback"));
}

void stat_show_mount(FILE *to, const struct json_flat *j, size_t nr_sealed, bool verbose)
{
	show_headline(to, j, nr_sealed);
	show_space(to, j);
	show_traffic(to, j);
	show_deltas(to, j);
	show_compression(to, j);
	if (verbose)
		show_memory(to, j);
	show_durability(to, j);
	show_scrub(to, j);
	show_compaction(to, j);
	show_cluster(to, j);
	show_tier(to, j);
	if (verbose || has_slow_path(j))
		show_paths(to, j);
	if (verbose)
		show_requests(to, j);
}

static void show_exclusive(FILE *to, const struct ckptfs_exclusive *x)
{
	size_line(to, "Exclusive:", x->exclusive_bytes);
	fputs("  freed once it is deleted and ckptfs gc --delete has run\n", to);
	if (x->exclusive_stored != x->exclusive_bytes) {
		size_line(to, "  on disk", x->exclusive_stored);
		fputs("  compressed, in whole blocks\n", to);
	}
	size_line(to, "Shared:", x->bytes - x->exclusive_bytes);
	fputs("  also in other files\n", to);
	if (x->linked_files > 0) {
		number_line(to, "Other hard links:", x->linked_files);
		fputs(x->linked_files == 1 ? "  file has other names and would stay\n" :
					     "  files have other names and would stay\n",
		      to);
	}
	if (x->damaged > 0) {
		number_line(to, "Damaged:", x->damaged);
		fputs(x->damaged == 1 ? "  frame cannot be read and is not counted: run fsck.ckptfs\n" :
					"  frames cannot be read and are not counted: run fsck.ckptfs\n",
		      to);
	}
}

void stat_show_file(FILE *to, const char *path, const struct json_flat *j, const struct ckptfs_exclusive *x)
{
	text_printf(to, "%s\n", path);
	if (strcmp(json_flat_get(j, "kind"), "file") != 0) {
		fputs("  neither a file nor a directory: it has no content\n", to);
		return;
	}
	size_line(to, "Size:", json_flat_u64(j, "size_bytes"));
	fprintf(to, "  %s\n", counted_in(j, "size_bytes", "byte").s);
	size_line(to, "Mapped:", json_flat_u64(j, "mapped_bytes"));
	fputs("  without holes\n", to);
	text_line(to, "Extents:", json_flat_get(j, "extents"));
	text_printf(to, "  in %s, %s per MiB\n", counted_in(j, "frames", "place").s, json_flat_get(j, "fragmentation"));
	text_line(to, "Durable:", strcmp(json_flat_get(j, "durable"), "true") == 0 ? "yes" : "not yet");
	fputc('\n', to);
	if (is_true(j, "dropped"))
		fputs("Dropped: its bytes are in the tier alone\n", to);
	else
		text_printf(to, "%-24s %s\n", "Fingerprint:", json_flat_get(j, "fingerprint"));
	if (x)
		show_exclusive(to, x);
}

/* As the daemon computes it for a file. */
static double fragments_per_mib(const struct stat_sums *s)
{
	return s->mapped ? (double)s->frames * (double)MiB(1) / (double)round_up(s->mapped, MiB(1)) : 0;
}

void stat_show_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x)
{
	text_printf(to, "%s\n", path);
	number_line(to, "Files:", s->files);
	fprintf(to, "  in %s\n", human_nr(s->directories, "directory").s);
	size_line(to, "Size:", s->size);
	fprintf(to, "  %s\n", human_nr(s->size, "byte").s);
	size_line(to, "Mapped:", s->mapped);
	fputs("  without holes\n", to);
	number_line(to, "Extents:", s->extents);
	fprintf(to, "  in %s, %.3f per MiB\n", human_nr(s->frames, "place").s, fragments_per_mib(s));
	text_line(to, "Durable:", s->not_durable == 0 ? "yes" : "not yet");
	if (s->not_durable > 0)
		fprintf(to, "  %s %s not", human_nr(s->not_durable, "file").s, is_are(s->not_durable));
	fputc('\n', to);
	if (x)
		show_exclusive(to, x);
}

void stat_show_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x)
{
	for (size_t i = 0; i < nr; i++)
		text_printf(to, "%s%s", i > 0 ? " " : "If deleted: ", paths[i]);
	fputc('\n', to);
	number_line(to, "Files:", x->files);
	fprintf(to, "  of %s\n", human_size(x->file_size).s);
	show_exclusive(to, x);
}

/* Adds the last members of the document, and ends it. */
static void add_exclusive(struct json *j, const struct ckptfs_exclusive *x)
{
	if (x) {
		json_u64(j, "exclusive_bytes", x->exclusive_bytes);
		json_u64(j, "exclusive_stored_bytes", x->exclusive_stored);
		json_u64(j, "exclusive_chunks", x->exclusive_chunks);
		json_u64(j, "shared_bytes", x->bytes - x->exclusive_bytes);
		json_u64(j, "linked_files", x->linked_files);
		json_u64(j, "damaged_frames", x->damaged);
	}
	json_end(j);
}

void stat_print_document(FILE *to, const char *path, const char *json, const struct ckptfs_exclusive *x)
{
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_string(&j, "path", path);
	json_members(&j, json); /* valid: it has been parsed */
	add_exclusive(&j, x);
}

void stat_print_sums(FILE *to, const char *path, const struct stat_sums *s, const struct ckptfs_exclusive *x)
{
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_string(&j, "path", path);
	json_u64(&j, "schema_version", 1);
	json_string(&j, "kind", "directory");
	json_u64(&j, "files", s->files);
	json_u64(&j, "directories", s->directories);
	json_u64(&j, "size_bytes", s->size);
	json_u64(&j, "mapped_bytes", s->mapped);
	json_u64(&j, "extents", s->extents);
	json_u64(&j, "frames", s->frames);
	json_real(&j, "fragmentation", fragments_per_mib(s), 3);
	json_bool(&j, "durable", s->not_durable == 0);
	add_exclusive(&j, x);
}

void stat_print_set(FILE *to, char *const paths[], size_t nr, const struct ckptfs_exclusive *x)
{
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_open_array(&j, "paths");
	for (size_t i = 0; i < nr; i++)
		json_string(&j, NULL, paths[i]);
	json_close_array(&j);
	json_u64(&j, "schema_version", 1);
	json_string(&j, "kind", "if_deleted");
	json_u64(&j, "files", x->files);
	json_u64(&j, "size_bytes", x->file_size);
	json_u64(&j, "mapped_bytes", x->mapped);
	add_exclusive(&j, x);
}
