/*
 * What the files of check share. Nobody else includes this.
 *
 *   check.c         the order of things; superblock; which mending when
 *   check_index.c   opening the index
 *   check_rules.c   what must hold, as pure functions
 *   check_journal.c every group and record; beginning the journal anew
 *   check_view.c    every entry, every inode: sorted passes over the view
 *   check_referrers.c who refers to what, as the recipes say
 *   check_layers.c  every layer, and the one below it
 *   check_names.c   every name against every inode
 *   check_packs.c   headers, tables, chunks
 *   check_shares.c  what is shared with other nodes
 *   check_hints.c   is every chunk found by its fingerprint?
 *   check_window.c  some packs at a time: healing, and telling what is left
 *   check_extents.c recipes against what the packs have
 *   check_hits.c    files that miss bytes: their names
 */
#pragma once

#include "base/fp.h"
#include "base/util.h"
#include "index/freed.h"
#include "index/recipes.h"
#include "index/shares.h"
#include "store/engine/check.h"
#include "store/engine/check_rules.h"
#include "store/engine/layer_set.h"
#include "store/engine/record_format.h"
#include "store/engine/superblock.h"
#include "store/pack/pack.h"

struct db;
struct fingerprint_entry;
struct journal;
struct packs;

/* What commits that the index has not seen have collected: the index may still refer to it. In order of place. */
struct tail_frame {
	uint32_t pack, frame; /* frame UINT32_MAX: the whole pack */
	struct freed_frame freed;
	size_t number; /* the later one of the same frame counts */
};

/* What they say of chunks that are away. */
struct tail_share {
	uint32_t pack, frame;
	uint64_t away[SHARE_WORDS];
	bool settled;
	size_t number;
};

struct check {
	const struct check_conf *conf;
	const char *path;
	struct check_result res;
	struct store_dirs dirs;
	struct fp_key key;

	struct db *db; /* open for reading; NULL: missing or unusable */
	struct {
		uint64_t commit, logical, next_number, referrers, layers;
		struct pack_marks marks, absorbed;
	} meta; /* the index's own notes */
	char db_why[CHECK_TEXT]; /* there is none to go by, if this is known better than "missing or unusable" */
	bool rebuilt;
	uint64_t nr_view; /* findings that a new index may mend */

	struct journal *journal; /* open for reading; NULL: it cannot be */
	bool journal_bad;
	char journal_why[8][CHECK_TEXT];
	unsigned nr_journal_why;
	uint64_t last; /* its last group */
	uint32_t *removed; /* packs that were collected, in order */
	size_t nr_removed, size_removed;
	struct tail_frame *tail;
	size_t nr_tail, size_tail;
	struct freed_totals tail_totals; /* of all that is gone, as the last of these commits has them */
	bool has_tail_totals;
	struct tail_share *shares;
	size_t nr_shares, size_shares;

	struct packs *packs;
	bool has_marks;
	struct pack_marks marks; /* of the last commit */
};

/* check.c */
/* Findings. Those of index, names, contents and fingerprints are mended by a new index where one will be made. */
void check_found(struct check *k, enum check_area area, bool mended, const char *fmt, ...) _printf_(4, 5);
void check_tell(struct check *k, const struct check_finding *f);
bool check_will_rebuild(const struct check *k);
int check_step(struct check *k, const char *what, uint64_t done, uint64_t all, bool bytes); /* -EINTR: stop */

/* check_index.c */
int check_index_open(struct check *k); /* k->db and k->meta; no db: missing or unusable */
bool check_index_unusable(int r); /* is it an error that says so? */

/* check_journal.c */
int check_journal(struct check *k);
void check_journal_close(struct check *k);
int check_mend_journal(struct check *k); /* what is to be said of a damaged one, and done. 1: it is made anew */
int check_mend_counts(struct check *k, const struct pack_counts *counts); /* a commit that says so; the last step */
bool check_is_removed(const struct check *k, uint32_t pack);
/* NULL: nothing of it. */
const struct tail_frame *check_tail_of(const struct check *k, uint32_t pack, uint32_t frame);

/* check_shares.c */
int check_shares_add(struct check *k, uint32_t pack, uint32_t frame, const void *value, size_t len);
void check_shares_sort(struct check *k);
void check_shares_release(struct check *k);
/* 1/0 it shares nothing/<0 */
int check_share_of(struct check *k, uint32_t pack, uint32_t frame, uint64_t away[SHARE_WORDS], bool *ret_settled);

/* check_view.c */
int check_view(struct check *k);
void check_found_in_view(struct check *k, enum check_area area, const char *text);
/* 1: right */
int check_entry_alone(struct check *k, const uint8_t *key, size_t key_len, const void *value, size_t value_len);

/* check_referrers.c */
int check_referrers(struct check *k);

/* check_layers.c */
int check_layers(struct check *k, const struct layer_set *in_use);

/* check_names.c */
int check_names(struct check *k);

/* check_packs.c */
int check_headers(struct check *k);
int check_packs(struct check *k);

/* check_extents.c: one round over all recipes for the packs of a window. */
struct bad_chunk {
	struct fp fp;
	uint32_t pack, off, len;
	bool healed, used;
	struct addr from; /* healed from */
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
	bool is_first; /* also judge what lies in no pack at all */
	struct bad_chunk *bad; /* all in order of place */
	struct bad_frame *frames; /* without a table */
	struct gone_chunks *gone;
	size_t nr_bad, size_bad, nr_frames, size_frames, nr_gone, size_gone;
};
int check_extents(struct check *k, struct check_window *w);

/* check_window.c. In order of place. */
int check_window_add_chunk(struct check_window *w, struct addr a, uint32_t len, struct fp fp);
int check_window_add_frame(struct check_window *w, uint32_t pack, uint32_t frame);
int check_window_add_gone(struct check_window *w, struct addr a, uint32_t len);
void check_window_release(struct check_window *w);
/* Heal, compare, tell, and begin anew. `buf` has room for a chunk; *uncounted: there are chunks nobody could count. */
int check_window_close(struct check *k, struct check_window *w, uint8_t *buf, bool *uncounted);

/* check_hints.c */
struct check_hints {
	struct fingerprint_entry *missing; /* as many as can be put back */
	size_t nr, size;
	uint64_t nr_missing; /* all of them */
};
void check_hints_expect(struct check *k, struct check_window *w, const struct pack_frame_rec *rec); /* one by one ... */
int check_hints_compare(struct check *k, struct check_window *w, struct check_hints *h); /* then all of the window */
int check_hints_mend(struct check *k, struct check_hints *h);

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
/* In order of inode and offset; neighbours become one. When there are many, they are told and forgotten. */
int hits_add(struct check *k, struct hits *h, const struct hit *hit);
int hits_tell(struct check *k, struct hits *h);
