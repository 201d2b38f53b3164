/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order of the check:
 *
 *   1. superblock: without its key nothing can be read
 *   2. open the index, and read the commit that it represents
 *   3. journal: find the last commit and the end of the packs. A damaged journal is rebuilt from the index, if the view
 *      is sound (6), and checked again: later commits that it has kept count in all that follows
 *   4. headers of packs: a mount cannot continue without them
 *   5. an index that is missing, unusable, or older than the start of the journal is rebuilt; commits missing from it
 *      are applied, as a mount does
 *   6. the view; if it is wrong the index is rebuilt, once, and checked again
 *   7. packs: tables, data, hints; recipes against them; damaged chunks are repaired
 *
 * Nothing is changed before its source has been checked, and each change is as crash-safe as those of a mount: an
 * interrupted check leaves a store that is no worse.
 * While the journal is damaged the end of the packs is unknown, so packs are not written until it is repaired.
 */
#include "store/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "index/db.h"
#include "store/check/check_internal.h"
#include "store/engine.h"
#include "store/pack/pack.h"
#include "store/remote_hooks.h"

#define DIRTY_BYTES MiB(64) /* for the engine, where it is used for repairs */

const char *check_area_name(enum check_area area)
{
	static const char *const names[CHECK_NR_AREAS] = {
		"superblock", "journal", "index", "packs", "names", "contents", "fingerprints", "data",
	};

	return names[area];
}

void check_report(struct check *k, const struct check_finding *f)
{
	*(f->repaired ? &k->res.nr_repaired : &k->res.nr_left) += 1;
	if (k->conf->finding)
		k->conf->finding(k->conf->userdata, f);
}

void check_found(struct check *k, enum check_area area, bool repaired, const char *fmt, ...)
{
	struct check_finding f = { .area = area, .repaired = repaired };
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f.text = text;
	k->nr_view += area == CHECK_INDEX || area == CHECK_NAMES || area == CHECK_CONTENTS;
	check_report(k, &f);
}

int check_step(struct check *k, const char *what, uint64_t done, uint64_t all, bool bytes)
{
	return k->conf->progress && !k->conf->progress(k->conf->userdata, what, done, all, bytes) ? -EINTR : 0;
}

bool check_will_rebuild(const struct check *k)
{
	return k->conf->repair && !k->rebuild_tried && !k->journal_bad;
}

/* --- superblock --- */

static int open_dirs(struct check *k)
{
	struct engine_conf conf = { .read_only = true }; /* creates nothing */
	int r = store_dirs_open(k->path, &conf, &k->dirs);

	if (r == 0 && k->conf->repair)
		r = remote_check_repair(k->path, &k->dirs.sb);
	if (r == 0)
		fp_key_init(&k->key, k->dirs.sb.hash, k->dirs.sb.secret);
	return r;
}

static int write_copy(struct check *k, const void *good, unsigned i)
{
	_cleanup_(closep) int fd = io_open(k->dirs.root, "superblock", O_WRONLY, 0);
	int r;

	if (fd < 0)
		return fd;
	r = io_pwrite(fd, good, SUPERBLOCK_SIZE, (uint64_t)i * SUPERBLOCK_SIZE);
	return r < 0 ? r : io_sync(fd);
}

/* One of them is intact: store_dirs_open() has read it. */
static int check_copies(struct check *k)
{
	uint8_t copies[2][SUPERBLOCK_SIZE] = { 0 };
	ssize_t n = io_pread(k->dirs.lock, copies, sizeof(copies), 0);
	struct superblock sb;
	bool good[2];
	int r;

	if (n < 0)
		return log_errno((int)n, "store %s: cannot read its superblock", k->path);
	for (unsigned i = 0; i < 2; i++)
		good[i] = superblock_decode(copies[i], SUPERBLOCK_SIZE, &sb) == 0;
	for (unsigned i = 0; i < 2; i++) {
		if (good[i])
			continue;
		r = k->conf->repair ? write_copy(k, copies[!i], i) : -EROFS;
		check_found(k, CHECK_SUPERBLOCK, r == 0, "superblock: the %s copy is damaged%s%s",
			    i == 0 ? "first" : "second",
			    r == 0	    ? "; rewritten from the other" :
			    k->conf->repair ? "; cannot be written: " :
					      "; the other is used",
			    r < 0 && k->conf->repair ? strerror(-r) : "");
	}
	if (good[0] && good[1] && memcmp(copies[0], copies[1], SUPERBLOCK_SIZE) != 0)
		check_found(k, CHECK_SUPERBLOCK, false,
			    "superblock: both copies are intact, but not the same; the first is used");
	return 0;
}

/* 1: continue; 0: reported, and nothing more can be checked. */
static int check_superblock(struct check *k)
{
	int r = open_dirs(k);

	if (r == -EBADMSG) {
		check_found(
			k, CHECK_SUPERBLOCK, false,
			"superblock: both copies are damaged, and the key of all fingerprints is lost with them");
		return 0;
	}
	if (r < 0)
		return r;
	r = check_copies(k);
	return r < 0 ? r : 1;
}

/* --- packs --- */

int check_remote_of(struct check *k, uint32_t pack, uint32_t frame, uint64_t remote[PACK_GONE_WORDS],
		    bool *ret_settled)
{
	return remote_check ? remote_check->of_frame(k->notes, k->db, pack, frame, remote, ret_settled) : 0;
}

static int fate(void *check, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	struct check *k = check;
	const struct tail_frame *t = check_tail_of(k, pack, frame);
	struct freed_frame f = { 0 };
	uint64_t remote[PACK_GONE_WORDS];
	bool settled = true;
	int r = 1;

	if (t)
		f = t->freed;
	else
		r = k->db ? freed_get(k->db, pack, frame, &f) : 0;
	if (r < 0)
		return r;
	memcpy(ret->gone, f.gone, sizeof(ret->gone));
	r = check_remote_of(k, pack, frame, remote, &settled);
	for (unsigned i = 0; r > 0 && i < PACK_GONE_WORDS; i++)
		*(settled ? &ret->remote[i] : &ret->gone[i]) |= remote[i];
	return r < 0 ? r : PACK_GONE | PACK_REMOTE;
}

static int open_packs(struct check *k, bool read_only)
{
	struct packs_conf conf = {
		.key = &k->key,
		.table_memory = k->conf->cache / 8,
		.read_only = read_only,
		.fate = fate,
		.userdata = k,
		.removed = k->removed,
		.nr_removed = k->nr_removed,
	};

	memcpy(conf.store_id, k->dirs.sb.store_id, sizeof(conf.store_id));
	packs_close(TAKE(k->packs));
	return packs_open(k->dirs.packs, &conf, &k->marks, &k->packs);
}

static int check_headers_first(struct check *k)
{
	int r = open_packs(k, true);

	if (r == 0)
		r = check_headers(k);
	packs_close(TAKE(k->packs)); /* drops cached headers, which have been repaired since */
	return r;
}

/* --- repairs by the engine --- */

static struct engine_conf engine_conf_of(const struct check *k)
{
	return (struct engine_conf){ .page = PACK_BLOCK, .cache = k->conf->cache, .dirty = DIRTY_BYTES };
}

static void close_all(struct check *k)
{
	packs_close(TAKE(k->packs));
	check_journal_close(k);
	db_close(TAKE(k->db));
	store_dirs_release(&k->dirs);
}

/* After other code has worked on the store. */
static int open_again(struct check *k)
{
	int r = open_dirs(k);

	if (r == 0)
		r = check_index_open(k);
	k->res.nr_groups = 0;
	return r < 0 ? r : check_journal(k);
}

static bool is_new(const struct check *k)
{
	return !k->journal_bad && k->last == 0;
}

static int rebuild(struct check *k)
{
	struct engine_conf conf = engine_conf_of(k);
	int r, q;

	r = check_step(k, "rebuilding the index", 0, 0, false);
	if (r < 0)
		return r;
	close_all(k);
	k->rebuild_tried = true;
	r = engine_rebuild(k->path, &conf);
	k->rebuilt = r == 0;
	q = open_again(k);
	if (q < 0)
		return q;
	if (r < 0)
		check_found(k, CHECK_INDEX, false, "index: cannot rebuild: %s", strerror(-r));
	else if (!k->db && !is_new(k))
		check_found(k, CHECK_INDEX, false, "index: rebuilt, but cannot be read");
	return 0;
}

/* Does what a mount does first: then the index represents the last commit. */
static int apply_journal(struct check *k)
{
	struct engine_conf conf = engine_conf_of(k);
	struct engine *e;
	int r;

	r = check_step(k, "applying the journal", 0, 0, false);
	if (r < 0)
		return r;
	close_all(k);
	r = engine_open(k->path, &conf, &e);
	if (r == 0)
		r = engine_close(e);
	if (r < 0)
		log_warning("store %s: the journal could not be applied: %s", k->path, strerror(-r));
	return open_again(k);
}

/* Steps 4 and 5. */
static int prepare_index(struct check *k)
{
	int r = k->has_marks ? check_headers_first(k) : 0;

	if (r < 0)
		return r;
	if (k->conf->rebuild && check_will_rebuild(k))
		return rebuild(k);
	if (!k->db && !is_new(k)) {
		bool repairs = check_will_rebuild(k);
		char why[CHECK_TEXT];

		snprintf(why, sizeof(why), "%s", k->db_why[0] ? k->db_why : "missing or unusable");
		r = repairs ? rebuild(k) : 0;
		if (r < 0)
			return r;
		check_found(k, CHECK_INDEX, k->rebuilt, "index: %s%s", why,
			    k->rebuilt		      ? "; rebuilt from journal and packs" :
			    repairs || k->journal_bad ? "" :
							"; nothing is lost: -p rebuilds it from journal and packs");
		return 0;
	}
	return k->conf->repair && k->res.unapplied > 0 && !k->journal_bad ? apply_journal(k) : 0;
}

/* Step 6. */
static int prove_view(struct check *k)
{
	int r;

	k->nr_view = 0;
	r = k->db ? check_view(k) : 0;
	if (check_index_unusable(r)) {
		check_found(k, CHECK_INDEX, check_will_rebuild(k), "index: a part of it cannot be read%s",
			    check_will_rebuild(k) ? "; rebuilt from journal and packs" : "");
		r = 0;
	}
	if (r < 0 || k->nr_view == 0 || !check_will_rebuild(k))
		return r;
	r = rebuild(k);
	return r < 0 ? r : prove_view(k);
}

/* Step 7. */
static int prove_packs(struct check *k)
{
	int r;

	if (!k->has_marks)
		return 0; /* there are none, or their end is unknown */
	r = open_packs(k, !k->conf->repair || k->journal_bad);
	if (r == 0)
		r = check_packs(k);
	if (!check_index_unusable(r))
		return r;
	check_found(k, CHECK_INDEX, false, "index: a part of it cannot be read");
	return 0;
}

/* Step 3 for a damaged journal. 1: rebuilt from the view, which must be checked again; 0: not rebuilt. */
static int repair_journal(struct check *k)
{
	int r = prove_view(k);

	if (r == 0)
		r = check_repair_journal(k);
	if (r <= 0)
		return r;
	close_all(k);
	r = open_again(k);
	return r < 0 ? r : 1;
}

static int run(struct check *k)
{
	bool is_proven = false;
	int r;

	r = check_superblock(k);
	if (r <= 0)
		return r;
	r = check_index_open(k);
	if (r == 0)
		r = check_journal(k);
	if (r == 0)
		r = remote_check_allowed(k->path, &k->dirs.sb, k->db, k->res.unapplied > 0);
	if (r == 0 && k->journal_bad) {
		r = repair_journal(k);
		is_proven = r == 0;
	}
	if (r >= 0)
		r = prepare_index(k);
	if (r == 0 && !is_proven)
		r = prove_view(k);
	if (r == 0)
		r = prove_packs(k);
	return r;
}

int check_store(const char *path, const struct check_conf *conf, struct check_result *ret)
{
	struct check *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->conf = conf;
	k->path = path;
	k->dirs = STORE_DIRS_NONE;
	r = run(k);
	close_all(k);
	k->res.rebuilt = k->rebuilt;
	if (r == 0)
		*ret = k->res;
	free(k);
	return r;
}
