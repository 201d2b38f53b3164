/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening and closing a store.
 *
 * Opening order: superblock and lock, journal, index, replay of the journal into the view, truncation of the packs at
 * the last commit, fingerprints that RocksDB has not absorbed, then the threads. Packs and journal, the authoritative
 * data, are not modified until the whole journal could be read. Closing commits and flushes the view. A store that was
 * killed instead takes a little longer to open.
 */
#include "store/engine.h"

#include <dirent.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/classify/image_cuts.h"
#include "store/engine_state.h"
#include "index/freed.h"
#include "store/check/repair.h"
#include "store/check/scrub.h"
#include "store/dedup/absorb.h"
#include "store/dedup/buffers.h"
#include "store/dedup/compress.h"
#include "store/dedup/dedup_tables.h"
#include "store/dedup/shifted.h"
#include "store/dedup/write_jobs.h"
#include "store/file/away.h"
#include "store/file/file_table.h"
#include "store/file/stage.h"
#include "store/gc/backrefs.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/gc/moves.h"
#include "store/housekeeping.h"
#include "store/journal/journal.h"
#include "store/log/commit.h"
#include "store/log/recover.h"
#include "store/log/txlog.h"
#include "store/log/view.h"
#include "store/recode/variables.h"
#include "store/remote_hooks.h"
#include "store/space.h"

static void engine_free(struct engine *e);

static struct engine *engine_alloc(const char *path, const struct engine_conf *conf)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->conf = *conf;
	e->cuts = &image_cuts;
	e->read_only = conf->read_only;
	e->dirs = STORE_DIRS_NONE;
	cdc_init(&e->cdc, conf->cdc.max > 0 ? &conf->cdc : &CDC_PARAMS_DEFAULT);
	epoch_init(&e->users);
	e->log = txlog_new();
	e->view = log_view_new();
	e->backrefs = backref_state_new();
	e->files = file_table_new();
	e->gc = collector_new();
	e->dedup = dedup_new(engine_processors(e));
	e->space = space_new();
	e->buffers = buffers_new(conf->dirty);
	e->queue = job_queue_new();
	e->searches = searches_new();
	e->pacer = pacer_new();
	e->repairs = repairs_new();
	e->scrub = scrub_record_new();
	e->variables = variables_new();
	e->path = strdup(path);
	if (!e->log || !e->view || !e->backrefs || !e->files || !e->gc || !e->dedup || !e->space || !e->buffers ||
	    !e->queue || !e->searches || !e->pacer || !e->repairs || !e->scrub || !e->variables || !e->path) {
		engine_free(e);
		return NULL;
	}
	files_set_limit(e, conf->cache / 8);
	return e;
}

static void abandon_frames(struct engine *e)
{
	if (e->dedup)
		dedup_abandon_frames(e);
	if (e->remote)
		e->remote->abandon_frames(e);
}

/* Without committing. Half-built is fine. */
static void engine_free(struct engine *e)
{
	uint64_t at_rest = reserve_at_rest(e); /* queries the index, so before it is closed */

	contents_release(e);
	abandon_frames(e);
	db_close(e->db); /* queries the packs, so before they are closed */
	packs_close(e->packs);
	journal_close(e->journal);
	space_close(e);
	if (e->remote)
		e->remote->free(e);
	if (e->is_unwanted)
		store_remove_new(e->dirs.root, e->path, e->dirs.made);
	else if (e->dirs.root >= 0 && !e->dirs.frozen)
		reserve_rest(e, at_rest);
	store_dirs_release(&e->dirs);
	io_rate_free(e->read_rate);
	io_rate_free(e->write_rate);
	dedup_free(e->dedup);
	job_queue_free(e->queue);
	searches_free(e->searches);
	buffers_free(e->buffers);
	space_free(e->space);
	variables_free(e->variables);
	scrub_record_free(e->scrub);
	pacer_free(e->pacer);
	repairs_free(e->repairs);
	collector_free(e->gc);
	epoch_release(&e->users);
	backref_state_free(e->backrefs);
	log_view_free(e->view);
	txlog_free(e->log);
	file_table_free(e->files);
	free(e->path);
	free(e);
}

static int check_conf(const struct engine_conf *conf)
{
	if (conf->page < PACK_BLOCK || conf->page > PACK_FRAME_BYTES || (conf->page & (conf->page - 1)))
		return log_cause(-EINVAL, "page=%" PRIu64 ": must be a power of two from 4K to 1M", conf->page);
	if (conf->cdc.max > PACK_VARIED_LEN_MAX)
		return log_cause(-EINVAL, "chunks of %" PRIu32 " bytes: must be at most 64K", conf->cdc.max);
	return conf->cdc.max == 0 ? 0 : cdc_params_check(&conf->cdc);
}

static int open_journal(struct engine *e)
{
	struct journal_conf jc = { .segment_bytes = e->conf.journal_segment,
				   .read_only = e->dirs.frozen,
				   .spare_by_caller = true };

	memcpy(jc.store_id, e->dirs.sb.store_id, sizeof(jc.store_id));
	return journal_open(e->dirs.journal, &jc, &e->journal);
}

/* The index is created with the store. Later it must exist: a new one would show an empty filesystem. */
static int open_index(struct engine *e, bool rebuild)
{
	_cleanup_(freep) char *dir = NULL;
	bool empty = journal_last(e->journal) == 0 && journal_snapshot_number(e->journal) == 0;
	struct db_conf dc = { .cache = e->conf.cache / 4, .create = empty || rebuild, .read_only = e->dirs.frozen };
	int r;

	if (asprintf(&dir, "%s/index", e->path) < 0)
		return -ENOMEM;
	r = db_open(dir, &dc, &e->db);
	if (r == -ENOENT || r == -EBADMSG)
		return log_cause(-ENODATA, "store %s: its index is %s; no data is lost: run fsck.ckptfs --rebuild %s",
				 e->path, r == -ENOENT ? "missing" : "damaged", e->path);
	return r;
}

static int open_packs(struct engine *e, const struct pack_marks *marks)
{
	_cleanup_(freep) uint32_t *removed = NULL;
	struct packs_conf pc = {
		.nr_spare = e->remote ? e->remote->nr_spare(e) : 0,
		.read_only = e->dirs.frozen,
		.key = &e->key,
		.pack_bytes = e->conf.pack_bytes,
		.table_memory = e->conf.cache / 8,
		.nr_bulk = MAX(engine_processors(e) / 2, 1u),
		.held_memory = e->conf.cache / 3,
		.read_rate = e->read_rate,
		.write_rate = e->write_rate,
		.compression = compress_for_pack(e->conf.compress),
		.time_for = compress_time_for,
		.is_disturbed = compress_is_disturbed,
		.fate = freed_fate,
		.fetch = e->remote ? e->remote->fetch : NULL,
		.userdata = e,
	};
	int r = freed_load(e, &removed, &pc.nr_removed);

	if (r < 0)
		return r;
	pc.removed = removed;
	memcpy(pc.store_id, e->dirs.sb.store_id, sizeof(pc.store_id));
	r = packs_open(e->dirs.packs, &pc, marks, &e->packs);
	if (r == 0) {
		db_set_stale(e->db, DB_FINGERPRINTS, freed_is_stale, e);
		db_set_stale(e->db, DB_VIEW, backrefs_is_stale, e);
	}
	return r;
}

static int engine_load(struct engine *e, bool rebuild)
{
	struct pack_marks marks;
	int r;

	r = store_dirs_open(e->path, &e->conf, &e->dirs);
	if (r < 0)
		return r;
	fp_key_init(&e->key, e->dirs.sb.hash, e->dirs.sb.secret);
	if (fp_key_is_slow(&e->key))
		log_warning("store %s: no PMULL/PCLMULQDQ: fingerprints are about 20 times slower", e->path);
	r = io_rate_new(e->conf.read_rate, &e->read_rate);
	if (r < 0)
		return r;
	r = io_rate_new(e->conf.write_rate, &e->write_rate);
	if (r < 0)
		return r;
	r = e->dirs.frozen ? 0 : reserve_for_opening(e);
	if (r < 0)
		return r;
	r = open_journal(e);
	if (r < 0)
		return r;
	r = open_index(e, rebuild);
	if (!e->dirs.frozen && reserve_helps_opening(e, r))
		r = open_index(e, rebuild);
	if (r < 0)
		return r;
	r = recover_view(e, &marks);
	if (r < 0)
		return r;
	r = remote_open(e, &marks);
	if (r < 0)
		return r;
	r = open_packs(e, &marks);
	if (r < 0)
		return r;
	commit_open(e, &marks);
	r = moving_load(e);
	if (r == 0)
		r = scrub_load(e);
	if (r == 0)
		r = variables_load(e);
	return r < 0 ? r : absorb_load(e);
}

int engine_open(const char *path, const struct engine_conf *conf, struct engine **ret)
{
	struct engine *e;
	int r;

	r = check_conf(conf);
	if (r < 0)
		return r;
	e = engine_alloc(path, conf);
	if (!e)
		return -ENOMEM;
	r = engine_load(e, false);
	if (r < 0) {
		engine_free(e);
		return r;
	}
	if (!e->dirs.frozen) {
		reserve_make(e);
		reserve_restore(e);
	}
	r = jobs_start(e);
	if (r == 0 && !conf->read_only) {
		gc_wait_lock(e);
		moving_finish(e);
		gc_unlock(e);
	}
	space_look(e);
	if (r == 0)
		r = housekeeping_start(e);
	if (r == 0)
		r = away_find(e);
	if (r < 0) {
		housekeeping_stop(e);
		jobs_stop(e);
		engine_free(e);
		return r;
	}
	*ret = e;
	return 0;
}

void engine_set_read_only(struct engine *e, bool read_only)
{
	assert(!e->conf.read_only);
	e->read_only = read_only;
}

void engine_discard_new(struct engine *e)
{
	e->is_unwanted = e->dirs.created;
}

int engine_close(struct engine *e)
{
	int r;

	if (!e)
		return 0;
	stages_flush_all(e);
	housekeeping_stop(e);
	jobs_stop(e); /* runs all queued jobs first */
	if (e->dirs.frozen) {
		engine_free(e);
		return 0;
	}
	repair_tend(e); /* on failure, these files stay damaged */
	r = engine_sync_patiently(e);
	if (absorb_at_close(e) < 0)
		log_warning("store %s: fingerprints stay in the packs until the next mount", e->path);
	/* logs its failure; the next mount replays the journal, which has everything */
	view_flush(e, view_wants_snapshot(e));
	engine_free(e);
	return r;
}

/* --- rebuilding --- */

static int remove_index(const char *path)
{
	_cleanup_(freep) char *dir = NULL;
	struct dirent *de;
	int r = 0;
	DIR *d;

	if (asprintf(&dir, "%s/index", path) < 0)
		return -ENOMEM;
	d = opendir(dir);
	if (!d)
		return errno == ENOENT ? 0 : log_errno(-errno, "%s: cannot list", dir);
	while (r == 0 && (de = readdir(d)))
		if (de->d_type != DT_DIR && io_unlink(dirfd(d), de->d_name) < 0)
			r = log_errno(-errno, "%s/%s: cannot remove", dir, de->d_name);
	closedir(d);
	return r;
}

int engine_rebuild(const char *path, const struct engine_conf *conf)
{
	_cleanup_(store_dirs_release) struct store_dirs lock = STORE_DIRS_NONE;
	struct engine_conf c = *conf;
	struct engine *e;
	int r;

	c.read_only = true; /* never create a store here */
	r = store_dirs_open(path, &c, &lock);
	if (r == 0)
		r = remote_check_repair(path, &lock.sb);
	if (r < 0)
		return r;
	r = remove_index(path);
	store_dirs_release(&lock);
	if (r < 0)
		return r;
	e = engine_alloc(path, &c);
	if (!e)
		return -ENOMEM;
	r = engine_load(e, true);
	if (r == 0)
		r = absorb_loaded(e);
	if (r == 0)
		r = view_flush(e, false);
	if (r == 0)
		log_notice("store %s: index rebuilt up to commit %" PRIu64, path, journal_last(e->journal));
	engine_free(e);
	return r;
}

/* --- accessors and statistics --- */

struct db *engine_db(struct engine *e)
{
	return e->db;
}

const struct fp_key *engine_key(const struct engine *e)
{
	return &e->key;
}

const uint8_t *engine_secret(const struct engine *e)
{
	return e->dirs.sb.secret;
}

int engine_root(const struct engine *e)
{
	return e->dirs.root;
}

const uint8_t *engine_store_id(const struct engine *e)
{
	return e->dirs.sb.store_id;
}

uint64_t engine_created_ns(const struct engine *e)
{
	return e->dirs.sb.created_ns;
}

bool engine_is_in_cluster(const struct engine *e)
{
	return e->remote;
}

static uint64_t compressed_part(uint64_t bytes, const struct pack_stats *ps)
{
	if (bytes == ps->chunk_bytes)
		return ps->stored_bytes;
	return ps->chunk_bytes == 0 ? 0 : (uint64_t)((double)bytes * (double)ps->stored_bytes / (double)ps->chunk_bytes);
}

void engine_stats(struct engine *e, struct engine_stats *ret)
{
	struct engine_counters *k = &e->count;
	struct engine_stats s = {
		.written = k->written,
		.zero = k->zero,
		.champion = k->champion,
		.successor = k->successor,
		.memory = k->memory,
		.indexed = k->indexed,
		.shifted = k->shifted,
		.fresh = k->fresh,
		.verified_different = k->verified_different,
		.read = k->read,
		.logical = files_logical(e),
		.segment_memory = files_memory(e),
		.nr_commits = k->nr_commits,
		.nr_commit_waiters = k->nr_commit_waiters,
		.commit_ns_sum = k->commit_ns_sum,
		.dirty_limit = e->conf.dirty,
		.cache_limit = e->conf.cache,
	};
	struct journal_stats js;
	struct freed_totals gone;
	struct pack_stats ps;
	struct db_stats ds;

	packs_stats(e->packs, &ps);
	journal_stats(e->journal, &js);
	db_stats(e->db, &ds);
	freed_so_far(e, &gone);
	s.stored_chunks = ps.nr_chunks - MIN(ps.nr_chunks, gone.nr_chunks);
	s.stored_bytes = ps.chunk_bytes - MIN(ps.chunk_bytes, gone.bytes);
	if (e->remote)
		e->remote->stats(e, &s);
	s.stored_bytes -= MIN(s.stored_bytes, s.remote_bytes);
	s.compressed_stored = compressed_part(s.stored_bytes, &ps);
	s.compressed = ps.compressed_bytes;
	s.compressed_to = ps.compressed_to;
	s.unshrinkable = ps.unshrinkable_bytes;
	s.uncompressed_busy = ps.busy_bytes;
	s.pack_disk = ps.disk_bytes;
	s.table_memory = ps.table_memory;
	s.table_hits = ps.table_hits;
	s.table_misses = ps.table_misses;
	s.nr_damaged = ps.nr_damaged;
	s.nr_repaired = ps.nr_repaired;
	s.direct_io = ps.direct_io;
	s.parallel_reads = ps.parallel_reads;
	s.journal_disk = js.disk_bytes;
	s.index_disk = ds.view_disk + ds.fingerprints_disk;
	s.index_memory = ds.memory;
	dedup_stats(e, &s);
	s.fptable_limit = e->conf.cache / 2;
	s.dirty_memory = buffers_memory(e->buffers);
	log_stats(e, &s);
	*ret = s;
}
