/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hist.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "client/figures.h"
#include "fs/background/autocompact.h"
#include "fs/background/flusher.h"
#include "fs/posix/attr.h"
#include "fs/background/collect.h"
#include "fs/cluster_hooks.h"
#include "fs/control/process_usage.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/mount_options.h"
#include "fs/background/scrubber.h"
#include "store/engine.h"

#define SCHEMA_VERSION 1
#define STATFS_BLOCK 4096
#define STATFS_FRESH_NS 1000000000 /* cached for so long, since some programs poll it */
#define BYTES_PER_INODE 16384 /* for a plausible number of free inodes, as mke2fs assumes */

struct control {
	/* Constant once requests are served. */
	char *store, *mountpoint, *options;
	const char *const *names;
	struct control_paths paths;
	uint64_t started_ns, process_started_ns; /* monotonic; since 1970 */

	struct hist request[CONTROL_REQUESTS];
	atomic_uint nr_threads;
	atomic_uint readahead_kib; /* set shortly after the first request */

	struct mutex lock; /* leaf */
	struct engine_space space GUARDED_BY(lock);
	uint64_t space_ns GUARDED_BY(lock); /* time of the last query; 0: never */
};

int control_new(const struct options *o, struct control **ret)
{
	struct control *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	mutex_init(&c->lock);
	c->started_ns = monotonic_ns();
	c->process_started_ns = process_started_ns();
	c->store = realpath(o->store, NULL);
	c->mountpoint = strdup(o->mountpoint);
	c->options = strndup(o->own.len > 0 ? (const char *)o->own.data : "", o->own.len);
	if (!c->store || !c->mountpoint || !c->options) {
		control_free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void control_free(struct control *c)
{
	if (!c)
		return;
	mutex_release(&c->lock);
	free(c->store);
	free(c->mountpoint);
	free(c->options);
	free(c);
}

void control_name_requests(struct control *c, const char *const *names)
{
	c->names = names;
}

void control_set_paths(struct control *c, const struct control_paths *p)
{
	c->paths = *p;
}

void control_set_readahead(struct control *c, uint32_t kib)
{
	c->readahead_kib = kib;
}

void control_set_threads(struct control *c, unsigned nr)
{
	c->nr_threads = nr;
}

void control_count(struct control *c, unsigned request, uint64_t ns)
{
	if (request < CONTROL_REQUESTS)
		hist_add(&c->request[request], ns);
}

static void add_head(struct json *j, const char *kind)
{
	json_open(j, NULL);
	json_u64(j, "schema_version", SCHEMA_VERSION);
	json_string(j, "kind", kind);
}

static void add_identity(struct json *j, struct fs *fs)
{
	const uint8_t *id = engine_store_id(fs->engine);
	char hex[33];

	for (unsigned i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
	json_string(j, "version", CKPTFS_VERSION);
	json_string(j, "store", fs->control->store);
	json_string(j, "mountpoint", fs->control->mountpoint);
	json_string(j, "store_id", hex);
	json_u64(j, "pid", (uint64_t)getpid());
	json_u64(j, "uptime_ns", monotonic_ns() - fs->control->started_ns);
	json_bool(j, "read_only", fs->read_only);
	json_string(j, "options", fs->control->options);
}

static void add_process(struct json *j, const struct control *c)
{
	struct process_usage u;

	process_usage(&u);
	json_open(j, "process");
	json_u64(j, "cpu_ns", u.cpu_ns);
	json_u64(j, "resident_bytes", u.resident_bytes);
	json_u64(j, "open_fds", u.open_fds);
	json_u64(j, "max_fds", u.max_fds);
	json_u64(j, "started_ns", c->process_started_ns);
	json_close(j);
}

/* In the order of s3qlstat: logical, after deduplication, after compression, on disk. */
static void add_bytes(struct json *j, const struct engine_stats *s)
{
	json_u64(j, "logical_bytes", s->logical);
	json_u64(j, "stored_bytes", s->stored_bytes);
	json_u64(j, "stored_chunks", s->stored_chunks);
	json_u64(j, "compressed_bytes", s->compressed_stored);
	json_u64(j, "pack_disk_bytes", s->pack_disk);
	json_u64(j, "journal_disk_bytes", s->journal_disk);
	json_u64(j, "index_disk_bytes", s->index_disk);
	json_u64(j, "disk_bytes", s->pack_disk + s->journal_disk + s->index_disk);
}

/* A statistics request must not hang with the disk: nothing is asked of it here. */
static void add_disk(struct json *j, struct fs *fs)
{
	struct engine_space space;
	uint64_t age_ns = engine_space_seen(fs->engine, &space);

	json_open(j, "disk");
	json_u64(j, "size_bytes", space.total);
	json_u64(j, "free_bytes", space.free);
	json_u64(j, "available_bytes", space.avail);
	json_u64(j, "age_ns", age_ns);
	json_close(j);
}

static void add_garbage(struct json *j, struct fs *fs)
{
	struct collect_status s;

	collect_status(fs->collect, &s);
	json_open(j, "garbage");
	json_bool(j, "known", s.garbage_ns > 0);
	json_u64(j, "bytes", s.garbage);
	json_u64(j, "age_ns", s.garbage_ns > 0 ? monotonic_ns() - s.garbage_ns : 0);
	json_u64(j, "collections", s.task.run);
	json_bool(j, "collecting", s.task.running);
	json_close(j);
}

static void add_traffic(struct json *j, const struct engine_stats *s)
{
	json_u64(j, "written_bytes", s->written);
	json_u64(j, "read_bytes", s->read);
	json_open(j, "written_by_cause");
	json_u64(j, "zero_bytes", s->zero);
	json_u64(j, "previous_bytes", s->champion);
	json_u64(j, "successor_bytes", s->successor);
	json_u64(j, "memory_bytes", s->memory);
	json_u64(j, "index_bytes", s->indexed);
	json_u64(j, "shifted_bytes", s->shifted);
	json_u64(j, "new_bytes", s->fresh);
	json_close(j);
}

/* Bytes that versions of lineages got from deltas without being written. */
static void add_deltas(struct json *j, struct fs *fs)
{
	json_open(j, "deltas");
	json_u64(j, "versions", atomic_load(&fs->nr_deltas));
	json_u64(j, "bytes", atomic_load(&fs->delta_bytes));
	json_u64(j, "payload_bytes", atomic_load(&fs->delta_payload_bytes));
	json_close(j);
}

/* Of new data, after it was written to packs. */
static void add_compression(struct json *j, const struct engine_stats *s)
{
	json_open(j, "compression");
	json_u64(j, "plain_bytes", s->compressed);
	json_u64(j, "stored_bytes", s->compressed_to);
	json_u64(j, "unshrinkable_bytes", s->unshrinkable);
	json_u64(j, "busy_bytes", s->uncompressed_busy);
	json_close(j);
}

static void add_memory(struct json *j, struct fs *fs, const struct engine_stats *s)
{
	json_open(j, "memory");
	json_u64(j, "cache_limit_bytes", s->cache_limit);
	json_u64(j, "fingerprint_bytes", s->fptable_memory);
	json_u64(j, "fingerprint_limit_bytes", s->fptable_limit);
	json_u64(j, "fingerprint_entries", s->fptable_entries);
	json_u64(j, "filter_bytes", s->filter_memory);
	json_u64(j, "table_bytes", s->table_memory);
	json_u64(j, "segment_bytes", s->segment_memory);
	json_u64(j, "index_bytes", s->index_memory);
	json_u64(j, "dirty_bytes", s->dirty_memory);
	json_u64(j, "dirty_limit_bytes", s->dirty_limit);
	json_u64(j, "inodes", inodes_count(fs->inodes));
	json_close(j);
	json_open(j, "tables");
	json_u64(j, "hits", s->table_hits);
	json_u64(j, "misses", s->table_misses);
	json_close(j);
}

static void add_durability(struct json *j, const struct engine_stats *s)
{
	json_open(j, "durability");
	json_u64(j, "lag_ns", s->unsynced_age_ns);
	json_u64(j, "commits", s->nr_commits);
	json_u64(j, "commit_waiters", s->nr_commit_waiters);
	json_u64(j, "commit_ns_sum", s->commit_ns_sum);
	json_u64(j, "journal_number", s->journal_number);
	json_close(j);
	json_open(j, "health");
	json_u64(j, "damaged", s->nr_damaged);
	json_u64(j, "repaired", s->nr_repaired);
	json_u64(j, "verified_different", s->verified_different);
	json_close(j);
}

/* All zeros in a store without a cluster. */
static void add_cluster(struct json *j, struct fs *fs, const struct engine_stats *s)
{
	struct cluster_figures f = { 0 };
	uint64_t now = now_ns();

	if (fs->hooks)
		fs->hooks->figures(fs, &f);
	json_open(j, "cluster");
	json_bool(j, "member", f.is_member);
	json_bool(j, "agent", f.has_agent);
	json_bool(j, "agent_answers", f.agent_answers);
	json_u64(j, "nodes", f.nr_nodes);
	json_u64(j, "rounds", f.nr_rounds);
	json_u64(j, "rounds_failed", f.nr_failed_rounds);
	json_u64(j, "pending_bytes", s->pending_bytes);
	json_u64(j, "remote_bytes", s->remote_bytes);
	json_u64(j, "pinned_bytes", s->pinned_bytes);
	json_u64(j, "fetched_bytes", f.fetched_bytes);
	json_u64(j, "fetched_chunks", f.nr_fetched);
	json_u64(j, "fetch_failures", f.nr_not_fetched);
	json_u64(j, "served_bytes", f.served_bytes);
	json_u64(j, "served_chunks", f.nr_served);
	json_u64(j, "replicas", f.nr_replicas);
	json_u64(j, "replicas_cached", f.nr_cached_replicas);
	json_u64(j, "replica_bytes", f.kept_bytes);
	json_u64(j, "replica_chunks", f.nr_kept);
	json_u64(j, "replicas_received", f.nr_replicas_taken);
	json_bool(j, "protects", f.protects);
	json_u64(j, "sealed", f.nr_sealed);
	json_u64(j, "sealed_protected", f.nr_protected);
	json_u64(j, "replication_lag_ns", f.unprotected_since_ns > 0 ? now - MIN(now, f.unprotected_since_ns) : 0);
	json_u64(j, "protect_sent_bytes", f.sent_bytes);
	json_u64(j, "protect_sent_chunks", f.nr_sent);
	json_u64(j, "protect_errno", (uint64_t)-f.protect_error);
	json_u64(j, "stripes", f.nr_stripes);
	json_u64(j, "stripe_parity_bytes", f.stripe_parity_bytes);
	json_u64(j, "stripe_covered_bytes", f.stripe_covered_bytes);
	json_close(j);
}

/* Of this node's own directories. */
static void add_seals(struct json *j, struct fs *fs)
{
	uint64_t newest = atomic_load(&fs->newest_seal_ns), now = now_ns();

	json_open(j, "seals");
	json_u64(j, "sealed", atomic_load(&fs->nr_sealed));
	json_bool(j, "known", newest > 0);
	json_u64(j, "last_ns", newest);
	json_u64(j, "age_ns", newest > 0 ? now - MIN(now, newest) : 0);
	json_u64(j, "made", atomic_load(&fs->nr_seals));
	json_u64(j, "made_bytes", atomic_load(&fs->sealed_bytes));
	json_u64(j, "made_new_bytes", atomic_load(&fs->sealed_new_bytes));
	json_close(j);
}

static void add_sums(struct json *j, const struct scrub_sums *s)
{
	json_u64(j, "bytes", s->bytes);
	json_u64(j, "chunks", s->nr_chunks);
	json_u64(j, "damaged", s->nr_damaged);
	json_u64(j, "left", s->nr_left);
}

/* The last complete scrub, and one that is not complete yet. */
static void add_scrub(struct json *j, struct fs *fs)
{
	struct scrubber_status s;
	struct scrub_state st;
	uint64_t now = now_ns(), since;

	scrubber_status(fs->scrubber, &s);
	engine_scrub_state(fs->engine, &st);
	since = st.last_ns > 0 ? st.last_ns : engine_created_ns(fs->engine);
	json_open(j, "scrub");
	json_bool(j, "known", st.last_ns > 0);
	json_u64(j, "last_ns", st.last_ns);
	json_u64(j, "age_ns", st.last_ns > 0 ? now - MIN(now, st.last_ns) : 0);
	json_u64(j, "unscrubbed_ns", now - MIN(now, since)); /* of a new store, its age */
	add_sums(j, &st.last);
	json_u64(j, "scrubs", s.task.run);
	json_bool(j, "running", s.task.running);
	json_bool(j, "unfinished", st.pack > 0 || s.task.running);
	json_open(j, "round");
	json_u64(j, "bytes", s.task.running ? s.report.round_bytes : st.round.bytes);
	json_u64(j, "damaged",
		 s.task.running ? st.round.nr_damaged + s.report.nr_damaged + s.report.nr_tables : st.round.nr_damaged);
	json_close(j);
	json_close(j);
}

/* Automatic recoding (compact=auto). */
static void add_compaction(struct json *j, struct fs *fs)
{
	static const char *const states[] = {
		[AGGREGATOR_IDLE] = "idle",
		[AGGREGATOR_WAITING] = "waiting",
		[AGGREGATOR_RUNNING] = "running",
		[AGGREGATOR_PAUSED] = "paused",
	};
	struct aggregator_status s;

	aggregator_status(fs->aggregator, &s);
	json_open(j, "compaction");
	json_string(j, "state", fs->aggregator ? states[s.state] : "off");
	json_u64(j, "waiting_directories", s.nr_waiting);
	json_u64(j, "done_directories", s.nr_done);
	json_u64(j, "failed_directories", s.nr_failed);
	json_close(j);
}

/* The tier beneath the store (tier=). */
static void add_tier(struct json *j, struct fs *fs)
{
	struct flusher_status s;
	uint64_t now = now_ns();

	flusher_status(fs->flusher, &s);
	json_open(j, "tier");
	json_string(j, "state", fs->flusher ? flusher_state_name(s.state) : "off");
	json_string(j, "where", fs->flusher ? flusher_where(fs->flusher) : "");
	json_u64(j, "stopped", fs->flusher && s.state == FLUSHER_STOPPED);
	json_string(j, "reason", s.reason);
	json_u64(j, "errno", (uint64_t)-s.error);
	json_bool(j, "known", s.is_known);
	json_u64(j, "sealed", s.nr_sealed);
	json_u64(j, "in_tier", s.nr_in_tier);
	json_u64(j, "waiting", s.nr_sealed - s.nr_in_tier);
	json_u64(j, "dropped", s.nr_dropped);
	json_u64(j, "waiting_bytes", s.waiting_bytes);
	json_u64(j, "left_ns", s.left_ns);
	json_u64(j, "lag_ns", s.waiting_since_ns > 0 ? now - MIN(now, s.waiting_since_ns) : 0);
	json_u64(j, "flushed", s.nr_flushed);
	json_u64(j, "failures", s.nr_failures);
	json_u64(j, "sent_bytes", s.sent_bytes);
	json_u64(j, "sent_chunks", s.sent_chunks);
	json_u64(j, "sent_packs", s.nr_packs);
	json_close(j);
}

static void add_paths(struct json *j, struct control *c, const struct engine_stats *s)
{
	json_open(j, "paths");
	json_bool(j, "pack_direct_io", s->direct_io);
	json_bool(j, "pack_parallel_reads", s->parallel_reads);
	json_bool(j, "write_direct_io", !c->paths.writeback);
	json_bool(j, "writeback", c->paths.writeback);
	json_bool(j, "write_without_capability_check", c->paths.killpriv);
	json_bool(j, "parallel_directory_lookups", c->paths.parallel_dirs);
	json_u64(j, "readahead_kib", c->readahead_kib);
	json_u64(j, "threads", c->nr_threads);
	json_close(j);
}

static void add_requests(struct json *j, struct control *c)
{
	json_open(j, "requests");
	for (unsigned i = 0; c->names && i < CONTROL_REQUESTS; i++) {
		const struct hist *h = &c->request[i];

		if (!c->names[i] || h->nr == 0)
			continue;
		json_open(j, c->names[i]);
		json_u64(j, "count", h->nr);
		json_u64(j, "sum_ns", h->sum_ns);
		json_u64(j, "mean_ns", h->sum_ns / h->nr);
		json_u64(j, "p50_ns", hist_quantile_ns(h, 0.5));
		json_u64(j, "p99_ns", hist_quantile_ns(h, 0.99));
		json_u64(j, "max_ns", h->max_ns);
		for (size_t k = 0; k < FIGURES_BOUNDS; k++) {
			char key[FIGURES_NAME_MAX];

			figures_bound_key(k, key);
			json_u64(j, key, hist_nr_below(h, figures_bound_ns(k)));
		}
		json_close(j);
	}
	json_close(j);
}

int control_figures(struct fs *fs, struct buf *ret)
{
	struct json j = json_to(ret);
	struct engine_stats s = { 0 };

	engine_stats(fs->engine, &s);
	add_head(&j, "mount");
	add_identity(&j, fs);
	add_process(&j, fs->control);
	add_bytes(&j, &s);
	add_disk(&j, fs);
	add_garbage(&j, fs);
	add_traffic(&j, &s);
	add_deltas(&j, fs);
	add_compression(&j, &s);
	add_memory(&j, fs, &s);
	add_durability(&j, &s);
	add_seals(&j, fs);
	add_scrub(&j, fs);
	add_compaction(&j, fs);
	add_cluster(&j, fs, &s);
	add_tier(&j, fs);
	add_paths(&j, fs->control, &s);
	add_requests(&j, fs->control);
	json_close(&j);
	return buf_error(ret);
}

static int info_of(struct fs *fs, struct inode *i, struct content_info *ret)
{
	struct content *c;
	int r = inode_content_open(fs->inodes, i, &c);

	if (r < 0)
		return r;
	r = content_info(c, ret);
	inode_content_close(fs->inodes, i);
	return r;
}

static int file_stat(struct fs *fs, struct inode *i, struct buf *ret)
{
	struct json j = json_to(ret);
	struct content_info info = { .durable = true };
	struct ns_content c;
	int r = info_of(fs, i, &info);
	bool is_away = r == -EREMOTE;

	if (is_away) /* it has a size, but no recipe */
		r = content_peek(fs->engine, i->ino, &c);
	if (r < 0)
		return r;
	info.size = is_away ? c.size : info.size;
	add_head(&j, "file");
	json_u64(&j, "inode", i->ino);
	json_u64(&j, "size_bytes", info.size);
	json_u64(&j, "mapped_bytes", info.mapped);
	json_u64(&j, "extents", info.extents);
	json_u64(&j, "frames", info.frames);
	/* Reads needed per MiB: 1 for a file written in one go. */
	json_real(&j, "fragmentation",
		  info.mapped ? (double)info.frames * (double)MiB(1) / (double)round_up(info.mapped, MiB(1)) : 0, 3);
	json_bool(&j, "durable", info.durable);
	json_bool(&j, "dropped", is_away);
	json_string(&j, "fingerprint", is_away ? "" : fp_hex(info.fingerprint).s);
	json_close(&j);
	return buf_error(ret);
}

static int other_stat(struct inode *i, uint32_t mode, struct buf *ret)
{
	struct json j = json_to(ret);

	add_head(&j, S_ISDIR(mode) ? "directory" : "other");
	json_u64(&j, "inode", i->ino);
	json_close(&j);
	return buf_error(ret);
}

static int fingerprint(struct fs *fs, struct inode *i, struct buf *ret)
{
	struct content_info info;
	int r = info_of(fs, i, &info);

	if (r < 0)
		return r;
	buf_add(ret, fp_hex(info.fingerprint).s, 2 * FP_LEN);
	return buf_error(ret);
}

int control_xattr(struct fs *fs, struct inode *i, const char *name, struct buf *ret)
{
	bool stat = strcmp(name, "user.ckptfs.stat") == 0;
	struct ns_inode in = { .mode = S_IFDIR }; /* for synthetic directories */
	int r;

	if (!stat && strcmp(name, "user.ckptfs.fingerprint") != 0)
		return 0;
	r = view_is(i->ino) ? 1 : attr_load(fs, i->ino, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	if (stat && i->ino == NS_ROOT_INO)
		r = control_figures(fs, ret);
	else if (S_ISREG(in.mode))
		r = stat ? file_stat(fs, i, ret) : fingerprint(fs, i, ret);
	else
		r = stat ? other_stat(i, in.mode, ret) : -ENODATA;
	return r < 0 ? r : 1;
}

int control_statfs(struct fs *fs, struct statvfs *ret)
{
	struct control *c = fs->control;
	struct engine_space space;
	uint64_t now = monotonic_ns();
	bool fresh;
	int r;

	mutex_lock(&c->lock);
	fresh = c->space_ns != 0 && now - c->space_ns < STATFS_FRESH_NS;
	space = c->space;
	mutex_unlock(&c->lock);
	if (!fresh) {
		r = engine_space(fs->engine, &space);
		if (r < 0)
			return r;
		mutex_lock(&c->lock);
		c->space = space;
		c->space_ns = now;
		mutex_unlock(&c->lock);
	}
	*ret = (struct statvfs){
		.f_bsize = STATFS_BLOCK,
		.f_frsize = STATFS_BLOCK,
		.f_blocks = space.total / STATFS_BLOCK,
		.f_bfree = space.free / STATFS_BLOCK,
		.f_bavail = space.avail / STATFS_BLOCK,
		.f_files = space.total / BYTES_PER_INODE,
		.f_ffree = space.avail / BYTES_PER_INODE,
		.f_favail = space.avail / BYTES_PER_INODE,
		.f_namemax = NS_NAME_MAX,
	};
	return 0;
}

void control_dump(struct fs *fs)
{
	struct control *c = fs->control;
	struct engine_stats s = { 0 };

	engine_stats(fs->engine, &s);
	log_notice("state: %u threads, %" PRIu64 " inodes referred to", c->nr_threads, inodes_count(fs->inodes));
	log_notice("state: logical %" PRIu64 " stored %" PRIu64 " in %" PRIu64 " chunks; written %" PRIu64
		   " read %" PRIu64,
		   s.logical, s.stored_bytes, s.stored_chunks, s.written, s.read);
	log_notice("state: dirty %" PRIu64 " of %" PRIu64 ", fingerprints %" PRIu64 " of %" PRIu64 ", index %" PRIu64,
		   s.dirty_memory, s.dirty_limit, s.fptable_memory, s.fptable_limit, s.index_memory);
	log_notice("state: commit %" PRIu64 ", oldest change not durable %" PRIu64 " ms old, damaged %" PRIu64
		   ", repaired %" PRIu64,
		   s.journal_number, s.unsynced_age_ns / 1000000, s.nr_damaged, s.nr_repaired);
	for (unsigned i = 0; c->names && i < CONTROL_REQUESTS; i++)
		if (c->names[i] && c->request[i].nr > 0)
			log_notice("state: %s: %" PRIu64 " requests, mean %" PRIu64 " us, p99 %" PRIu64
				   " us, max %" PRIu64 " us",
				   c->names[i], c->request[i].nr, c->request[i].sum_ns / c->request[i].nr / 1000,
				   hist_quantile_ns(&c->request[i], 0.99) / 1000, c->request[i].max_ns / 1000);
}
