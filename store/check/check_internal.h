/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Shared by check*.c only.
 *
 *   check.c          order of the steps; superblock; which repair when
 *   check_index.c    opening the index
 *   check_rules.c    invariants, as pure functions
 *   check_journal.c  every group and record; rebuilding the journal
 *   check_view.c     every entry, every inode: sorted passes over the view
 *   check_backrefs.c back-references against the recipes
 *   check_layers.c   every layer, and the one below it
 *   check_names.c    every name against every inode
 *   check_packs.c    headers, tables, chunks
 *   check_hints.c    is every chunk found by its fingerprint?
 *   check_window.c   some packs at a time: repairing chunks, and reporting what is left
 *   check_extents.c  recipes against the contents of the packs
 *   check_hits.c     names of files with missing bytes
 */
#pragma once

#include "base/fp.h"
#include "base/util.h"
#include "index/freed.h"
#include "index/recipes.h"
#include "store/check/check.h"
#include "store/check/check_rules.h"
#include "store/file/extents/layer_set.h"
#include "store/log/record_format.h"
#include "store/superblock.h"
#include "store/pack/pack.h"

struct db;
struct fingerprint_entry;
struct journal;
struct packs;
struct remote_notes;

/* Chunks freed by commits that are not in the index, which may still refer to them. Sorted by place. */
struct tail_frame {
	uint32_t pack, frame; /* frame UINT32_MAX: the whole pack */
	struct freed_frame freed;
	size_t number; /* order in the journal: the last one of a frame counts */
};

struct check {
	const struct check_conf *conf;
	const char *path;
	struct check_result res;
	struct store_dirs dirs;
	struct fp_key key;

	struct db *db; /* opened read-only; NULL: missing or unusable */
	struct {
		uint64_t commit, logical, next_number, backrefs, layers;
		struct pack_marks marks, absorbed;
	} meta; /* 'M' records of the index */
	char db_why[CHECK_TEXT]; /* why there is no index, if more is known than "missing or unusable" */
	bool rebuild_tried, rebuilt; /* of the index */
	uint64_t nr_view; /* findings that a rebuilt index may repair */

	struct journal *journal; /* opened read-only; NULL: cannot be opened */
	bool journal_bad;
	char journal_why[8][CHECK_TEXT];
	unsigned nr_journal_why;
	uint64_t last; /* its last group */
	uint32_t *removed; /* removed packs, sorted */
	size_t nr_removed, size_removed;
	struct tail_frame *tail;
	size_t nr_tail, size_tail;
	struct freed_totals tail_totals; /* totals of freed chunks in the last of these commits */
	bool has_tail_totals;
	struct remote_notes *notes; /* about other nodes, of these commits */

	struct packs *packs;
	bool has_marks;
	struct pack_marks marks; /* of the last commit */
};

/* check.c */
/* Findings in index, names, contents and fingerprints count as repaired if the index will be rebuilt. */
void check_found(struct check *k, enum check_area area, bool repaired, const char *fmt, ...) _printf_(4, 5);
void check_report(struct check *k, const struct check_finding *f);
bool check_will_rebuild(const struct check *k);
int check_step(struct check *k, const char *what, uint64_t done, uint64_t all, bool bytes); /* -EINTR: stop */
/* Chunks of a frame that are on other nodes (remote_hooks.h). 1/0/<0 */
int check_remote_of(struct check *k, uint32_t pack, uint32_t frame, uint64_t remote[PACK_GONE_WORDS],
		    bool *ret_settled);

/* check_index.c */
int check_index_open(struct check *k); /* k->db and k->meta; no db: missing or unusable */
bool check_index_unusable(int r); /* does this error mean so? */

/* check_journal.c */
int check_journal(struct check *k);
void check_journal_close(struct check *k);
int check_repair_journal(struct check *k); /* reports a damaged journal and repairs it if allowed. 1: rebuilt */
int check_repair_counts(struct check *k, const struct pack_counts *counts); /* appends a commit; the last step */
bool check_is_removed(const struct check *k, uint32_t pack);
/* NULL: nothing of the frame was freed. */
const struct tail_frame *check_tail_of(const struct check *k, uint32_t pack, uint32_t frame);

/* check_view.c */
int check_view(struct check *k);
void check_found_in_view(struct check *k, enum check_area area, const char *text);
/* 1: valid */
int check_entry_alone(struct check *k, const uint8_t *key, size_t key_len, const void *value, size_t value_len);

/* check_backrefs.c */
int check_backrefs(struct check *k);

/* check_layers.c */
int check_layers(struct check *k, const struct layer_set *in_use);

/* check_names.c */
int check_names(struct check *k);

/* check_packs.c */
int check_headers(struct check *k);
int check_packs(struct check *k);

/* check_extents.c: one pass over all recipes for the packs of a window. */
struct bad_chunk {
	struct fp fp;
	uint32_t pack, off, len;
	bool repaired, used;
	struct addr from; /* source of the repair */
};
struct bad_frame {
	uint32_t pack, frame;
	bool used;
};
struct gone_chunks {
	uint32_t pack, off, len;
};
struct check_window {
	struct frame_map map;
	bool is_first; /* also check addresses that are in no pack at all */
	struct bad_chunk *bad; /* sorted by place, like the next two */
	struct bad_frame *frames; /* without a table */
	struct gone_chunks *gone;
	size_t nr_bad, size_bad, nr_frames, size_frames, nr_gone, size_gone;
};
int check_extents(struct check *k, struct check_window *w);

/* check_window.c. Add in order of place. */
int check_window_add_chunk(struct check_window *w, struct addr a, uint32_t len, struct fp fp);
int check_window_add_frame(struct check_window *w, uint32_t pack, uint32_t frame);
int check_window_add_gone(struct check_window *w, struct addr a, uint32_t len);
void check_window_release(struct check_window *w);
/* Repairs, compares with all recipes, reports, and resets. `buf` holds a chunk; *uncounted: some chunks could not be
 * counted. */
int check_window_close(struct check *k, struct check_window *w, uint8_t *buf, bool *uncounted);

/* check_hints.c */
struct check_hints {
	struct fingerprint_entry *missing; /* up to a limit, for repair */
	size_t nr, size;
	uint64_t nr_missing; /* all of them, beyond the limit too */
};
void check_hints_expect(struct check *k, struct check_window *w, const struct pack_frame_rec *rec); /* per frame, */
int check_hints_compare(struct check *k, struct check_window *w, struct check_hints *h); /* then the whole window */
int check_hints_repair(struct check *k, struct check_hints *h);

/* check_hits.c */
enum hit_why { HIT_NOWHERE, HIT_NEVER_WRITTEN, HIT_MISSING, HIT_TABLE, HIT_CHUNK, HIT_COLLECTED };
struct hit {
	uint64_t ino, off, len;
	struct addr addr;
	enum hit_why why;
};
struct hits {
	struct hit *v;
	size_t nr;
	uint64_t last_ino; /* counted last */
};
int hits_init(struct hits *h);
void hits_release(struct hits *h);
/* Sorted by inode and offset; adjacent hits are merged. When there are many, they are reported and dropped. */
int hits_add(struct check *k, struct hits *h, const struct hit *hit);
int hits_report(struct check *k, struct hits *h);
