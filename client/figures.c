/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/figures.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_flat.h"
#include "base/text.h"
#include "base/util.h"

#define NS_PER_S 1e9

bool figures_request_name(const char *path, char name[FIGURES_NAME_MAX])
{
	char rest[16];

	return sscanf(path, "requests.%63[^.].%15s", name, rest) == 2 && strcmp(rest, "count") == 0;
}

uint64_t figures_request_u64(const struct json_flat *j, const char *name, const char *what)
{
	char path[128];

	snprintf(path, sizeof(path), "requests.%s.%s", name, what);
	return json_flat_u64(j, path);
}

#define WRITTEN_CAUSE \
	"written bytes: zeros, as in the previous version there or shifted, behind the last known chunk (successor), " \
	"found by fingerprint in memory or in the index, or new"

/* Rows of one name are adjacent. Metrics of the process have the names that every program gives them. */
#define PROCESS "process_"
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
	{ "disk.size_bytes", "disk_size_bytes", "gauge", "size of the disk under the store", false },
	{ "disk.available_bytes", "disk_available_bytes", "gauge",
	  "bytes that can still be written to the disk under the store; its reserve is not counted", false },
	{ "disk.age_ns", "disk_age_seconds", "gauge",
	  "age of these figures of the disk; grows while it does not answer", true },
	{ "garbage.bytes", "garbage_bytes", "gauge", "unreferenced bytes as of the last collection", false },
	{ "garbage.collections", "collections_total", "counter", "garbage collections since the mount", false },
	{ "written_bytes", "written_bytes_total", "counter", "bytes written by applications", false },
	{ "read_bytes", "read_bytes_total", "counter", "bytes read by applications", false },
	{ "written_by_cause.zero_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.previous_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.successor_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.memory_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.index_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.shifted_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "written_by_cause.new_bytes", "written_cause_bytes_total", "counter", WRITTEN_CAUSE, false },
	{ "deltas.versions", "delta_versions_total", "counter", "lineage versions created from deltas", false },
	{ "deltas.bytes", "delta_bytes_total", "counter", "bytes of versions created from deltas", false },
	{ "deltas.payload_bytes", "delta_payload_bytes_total", "counter", "payload bytes of deltas", false },
	{ "compression.plain_bytes", "compression_plain_bytes_total", "counter", "new bytes that were compressed", false },
	{ "compression.stored_bytes", "compression_stored_bytes_total", "counter", "compressed size of new bytes", false },
	{ "compression.unshrinkable_bytes", "compression_unshrinkable_bytes_total", "counter",
	  "new bytes stored uncompressed because they do not shrink", false },
	{ "compression.busy_bytes", "compression_busy_bytes_total", "counter",
	  "new bytes stored uncompressed because writers would have waited", false },
	{ "memory.dirty_bytes", "dirty_bytes", "gauge", "data not yet in packs", false },
	{ "memory.fingerprint_bytes", "fingerprint_memory_bytes", "gauge", "memory for fingerprints", false },
	{ "memory.index_bytes", "index_memory_bytes", "gauge", "memory of the index", false },
	{ "memory.inodes", "inodes", "gauge", "inodes the kernel refers to", false },
	{ "durability.lag_ns", "durability_lag_seconds", "gauge", "age of the oldest change not yet durable", true },
	{ "durability.commits", "commits_total", "counter", "commits", false },
	{ "durability.commit_ns_sum", "commit_seconds_total", "counter", "time spent in commits", true },
	{ "health.damaged", "damaged_chunks", "gauge", "damaged chunks found and not repaired", false },
	{ "health.repaired", "repaired_chunks_total", "counter", "damaged chunks repaired", false },
	{ "seals.sealed", "sealed_checkpoints", "gauge", "sealed checkpoints of this store, without replicas", false },
	{ "seals.last_ns", "seal_last_timestamp_seconds", "gauge",
	  "time of the newest seal, since 1970; 0: none, or all removed before the mount", true },
	{ "seals.made", "seals_total", "counter", "checkpoints sealed since the mount", false },
	{ "seals.made_bytes", "sealed_bytes_total", "counter", "bytes of files in checkpoints sealed since the mount",
	  false },
	{ "seals.made_new_bytes", "sealed_new_bytes_total", "counter",
	  "stored bytes that nothing else referred to when a checkpoint was sealed", false },
	{ "cluster.nodes", "cluster_nodes", "gauge", "nodes in rounds; 0: no agent", false },
	{ "cluster.rounds", "cluster_rounds_total", "counter", "cluster rounds", false },
	{ "cluster.rounds_failed", "cluster_rounds_failed_total", "counter", "commits without a round after it failed",
	  false },
	{ "cluster.pending_bytes", "cluster_pending_bytes", "gauge", "data deferred until a round", false },
	{ "cluster.remote_bytes", "cluster_remote_bytes", "gauge", "bytes of remote chunks", false },
	{ "cluster.pinned_bytes", "cluster_pinned_bytes", "gauge", "bytes of chunks pinned by other nodes", false },
	{ "cluster.fetched_bytes", "cluster_fetched_bytes_total", "counter", "bytes fetched from other nodes", false },
	{ "cluster.fetch_failures", "cluster_fetch_failures_total", "counter", "chunks that no node could deliver",
	  false },
	{ "cluster.served_bytes", "cluster_served_bytes_total", "counter", "bytes sent to other nodes", false },
	{ "cluster.replica_bytes", "cluster_replica_bytes_total", "counter", "replica bytes received from other nodes",
	  false },
	{ "cluster.sealed", "cluster_sealed", "gauge", "sealed directories", false },
	{ "cluster.sealed_protected", "cluster_sealed_protected", "gauge",
	  "sealed directories with a replica on another node", false },
	{ "cluster.replication_lag_ns", "cluster_replication_lag_seconds", "gauge",
	  "age of the oldest seal of a directory that should have a replica and has none; 0: none", true },
	{ "tier.in_tier", "tier_checkpoints", "gauge", "sealed checkpoints in the tier", false },
	{ "tier.dropped", "tier_dropped_checkpoints", "gauge", "sealed checkpoints whose bytes are in the tier alone",
	  false },
	{ "tier.waiting", "tier_waiting_checkpoints", "gauge", "sealed checkpoints not in the tier yet", false },
	{ "tier.waiting_bytes", "tier_waiting_bytes", "gauge", "bytes of waiting checkpoints not flushed yet", false },
	{ "tier.lag_ns", "tier_lag_seconds", "gauge", "age of the oldest seal that is not in the tier; 0: none", true },
	{ "tier.stopped", "tier_stopped", "gauge", "1: flushing to the tier has stopped until the next mount", false },
	{ "tier.flushed", "tier_flushed_total", "counter", "checkpoints flushed to the tier since the mount", false },
	{ "tier.failures", "tier_failures_total", "counter", "failed attempts to flush or to connect to the tier", false },
	{ "tier.sent_bytes", "tier_sent_bytes_total", "counter", "bytes sent to the tier, with tables and manifests",
	  false },
	{ "tier.sent_packs", "tier_sent_packs_total", "counter", "packs sent to the tier", false },
	{ "compaction.waiting_directories", "compaction_waiting_directories", "gauge",
	  "sealed directories waiting for background compaction", false },
	{ "compaction.done_directories", "compaction_done_directories_total", "counter",
	  "sealed directories compacted in the background since the mount", false },
	{ "compaction.failed_directories", "compaction_failed_directories_total", "counter",
	  "sealed directories where background compaction failed", false },
	{ "scrub.scrubs", "scrubs_total", "counter", "scrubs since the mount", false },
	{ "scrub.last_ns", "scrub_last_timestamp_seconds", "gauge",
	  "end of the last complete scrub, since 1970; 0: never", true },
	{ "scrub.unscrubbed_ns", "scrub_age_seconds", "gauge",
	  "time since the last complete scrub or, if there was none, since the store was made", true },
	{ "scrub.bytes", "scrub_last_bytes", "gauge", "bytes checked by the last complete scrub", false },
	{ "scrub.damaged", "scrub_last_damaged", "gauge", "damaged places found by the last complete scrub", false },
	{ "scrub.left", "scrub_last_left", "gauge",
	  "damaged places in use that the last complete scrub could not repair", false },
	{ "process.cpu_ns", PROCESS "cpu_seconds_total", "counter", "user and system time of the daemon", true },
	{ "process.resident_bytes", PROCESS "resident_memory_bytes", "gauge", "resident memory of the daemon", false },
	{ "process.open_fds", PROCESS "open_fds", "gauge", "open file descriptors of the daemon", false },
	{ "process.max_fds", PROCESS "max_fds", "gauge", "limit of open file descriptors", false },
	{ "process.started_ns", PROCESS "start_time_seconds", "gauge", "start of the daemon, since 1970", true },
};

static const char *prefix_of(const char *name)
{
	return strncmp(name, PROCESS, strlen(PROCESS)) == 0 ? "" : "ckptfs_";
}

static void print_value(FILE *to, uint64_t v, bool ns)
{
	if (ns)
		fprintf(to, "%.9f\n", (double)v / NS_PER_S);
	else
		fprintf(to, "%" PRIu64 "\n", v);
}

/* Escapes control characters and invalid UTF-8. The format can escape only quotes, backslashes and newlines. */
static void print_label_value(FILE *to, const char *s)
{
	char c[TEXT_CHAR_MAX];

	fputc('"', to);
	while (*s) {
		s += text_char(s, c);
		for (const char *p = c; *p; p++) {
			if (*p == '"' || *p == '\\')
				fputc('\\', to);
			fputc(*p, to);
		}
	}
	fputc('"', to);
}

static void print_labels(FILE *to, const struct json_flat *j, const char *label, const char *value)
{
	fputs("{mountpoint=", to);
	print_label_value(to, json_flat_get(j, "mountpoint"));
	if (label) {
		fprintf(to, ",%s=", label);
		print_label_value(to, value);
	}
}

void figures_bound_key(size_t i, char ret[FIGURES_NAME_MAX])
{
	snprintf(ret, FIGURES_NAME_MAX, "below_%" PRIu64 "_ns", figures_bound_ns(i));
}

static void print_part(FILE *to, const struct json_flat *j, const char *name, const char *suffix, const char *label)
{
	fprintf(to, "ckptfs_request_seconds%s", suffix);
	print_labels(to, j, "request", name);
	fprintf(to, "%s} ", label);
}

/* Requests end while the figures are collected: the count must not be less than a bucket. */
static void print_request(FILE *to, const struct json_flat *j, const char *name)
{
	uint64_t below = 0, count = figures_request_u64(j, name, "count");
	char key[FIGURES_NAME_MAX], label[64];

	for (size_t i = 0; i < FIGURES_BOUNDS; i++) {
		figures_bound_key(i, key);
		below = MAX(below, figures_request_u64(j, name, key));
		snprintf(label, sizeof(label), ",le=\"%.9f\"", (double)figures_bound_ns(i) / NS_PER_S);
		print_part(to, j, name, "_bucket", label);
		print_value(to, below, false);
	}
	count = MAX(count, below);
	print_part(to, j, name, "_bucket", ",le=\"+Inf\"");
	print_value(to, count, false);
	print_part(to, j, name, "_sum", "");
	print_value(to, figures_request_u64(j, name, "sum_ns"), true);
	print_part(to, j, name, "_count", "");
	print_value(to, count, false);
}

static void print_requests(FILE *to, const struct json_flat *j)
{
	char name[FIGURES_NAME_MAX];

	for (size_t i = 0; i < j->nr; i++)
		if (figures_request_name(j->entry[i].path, name))
			print_request(to, j, name);
}

void figures_print_metrics(FILE *to, const struct json_flat *mounts, size_t nr)
{
	fputs("# HELP ckptfs_build_info version of the daemon; always 1\n# TYPE ckptfs_build_info gauge\n", to);
	for (size_t k = 0; k < nr; k++) {
		fputs("ckptfs_build_info", to);
		print_labels(to, &mounts[k], "version", json_flat_get(&mounts[k], "version"));
		fputs("} 1\n", to);
	}
	for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
		char cause[16] = "";
		const char *prefix = prefix_of(metrics[i].name);
		bool has_cause = sscanf(metrics[i].path, "written_by_cause.%15[^_]", cause) == 1;

		if (i == 0 || strcmp(metrics[i].name, metrics[i - 1].name) != 0)
			fprintf(to, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, metrics[i].name, metrics[i].help, prefix,
				metrics[i].name, metrics[i].type);
		for (size_t k = 0; k < nr; k++) {
			fprintf(to, "%s%s", prefix, metrics[i].name);
			print_labels(to, &mounts[k], has_cause ? "cause" : NULL, cause);
			fputs("} ", to);
			print_value(to, json_flat_u64(&mounts[k], metrics[i].path), metrics[i].ns);
		}
	}
	fputs("# HELP ckptfs_request_seconds time to answer a kernel request\n"
	      "# TYPE ckptfs_request_seconds histogram\n",
	      to);
	for (size_t k = 0; k < nr; k++)
		print_requests(to, &mounts[k]);
}
