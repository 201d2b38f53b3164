/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The chunks that are in the tier. Those in use are in memory. With an index in the store (store/tier/index), chunks
 * that memory drops are found there, and tables are loaded into it. Its packs are unproven at first (flush_load.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"

#define FILTER_BYTES 16u /* memory of the index, for each known chunk */
#define OTHERS_PER_KNOWN 16u /* chunks of other stores in the index, for each one that fits into memory */

/* It could not be written, which has been logged. The flush goes on without it. */
void writer_drop_index(struct tier_writer *w)
{
	tier_index_close(TAKE(w->index));
}

/* Its packs are not used before a valid manifest that names them has been read. */
int writer_open_index(struct tier_writer *w)
{
	const char *where = tier_where(w->tier);
	struct tier_index_owner owner;
	struct sha256_digest digest;
	struct sha256 h;
	int r = 0;

	if (!w->conf.has_store)
		return 0;
	sha256_init(&h);
	sha256_add(&h, where, strlen(where));
	digest = sha256_finish(&h);
	memcpy(owner.store, w->conf.store, sizeof(owner.store));
	memcpy(owner.key_id, w->conf.key.id, sizeof(owner.key_id));
	memcpy(owner.where, digest.b, sizeof(owner.where));
	if (tier_index_open(w->conf.store_dirfd, &owner, w->known.max * FILTER_BYTES, &w->index) < 0)
		return 0;
	for (uint32_t i = 0; i < tier_index_nr_packs(w->index) && r == 0; i++) {
		struct tier_footer f = { 0 };
		bool is_valid = tier_index_pack(w->index, i, &f) == 0;

		r = writer_add_pack(w, &f);
		if (r < 0)
			break;
		w->is_dropped[i] = true;
		w->is_unproven[i] = is_valid;
		if (is_valid)
			r = tier_ids_add(&w->numbers, f.id, i);
	}
	return r;
}

/* Writes a run of the chunks that are only in memory: those of the older half, which is dropped next, or all. */
void writer_save_known(struct tier_writer *w, bool older_only)
{
	_cleanup_(freep) struct tier_index_entry *v = NULL;
	struct tier_known_slot *s;
	size_t nr = 0, at = 0, i = 0;

	while (tier_known_unsaved_next(&w->known, older_only, &at))
		nr++;
	v = malloc(MAX(nr, (size_t)1) * sizeof(*v));
	for (at = 0; v && (s = tier_known_unsaved_next(&w->known, older_only, &at)); s->is_saved = true)
		v[i++] = (struct tier_index_entry){ s->fp, s->len, s->place };
	if (!v || tier_index_add(w->index, v, nr, true) < 0)
		writer_drop_index(w);
}

void writer_trim_known(struct tier_writer *w)
{
	if (w->index && tier_known_is_due(&w->known))
		writer_save_known(w, true);
	tier_known_trim(&w->known);
}

/*
 * Entries of chunks that only other stores have flushed. With a checkpoint of the same size as theirs all of them fit. A
 * sparse file has any size, so this has a limit.
 */
uint64_t writer_others_max(const struct tier_writer *w, uint64_t checkpoint_bytes)
{
	uint64_t max = MIN(checkpoint_bytes / PACK_BLOCK, OTHERS_PER_KNOWN * (uint64_t)w->known.max);

	max = MAX(max, (uint64_t)w->known.max);
	return w->index ? MAX(max, tier_index_nr_entries(w->index, true)) : max;
}

void writer_commit_index(struct tier_writer *w, uint64_t checkpoint_bytes)
{
	_cleanup_(buf_release) struct buf packs = BUF_EMPTY;

	for (uint32_t i = 0; i < w->nr_packs; i++)
		tier_pack_ref_encode(&w->packs[i], &packs);
	if (buf_error(&packs) < 0 || tier_index_commit(w->index, packs.data, w->nr_packs, w->is_dropped,
						       writer_others_max(w, checkpoint_bytes)) < 0)
		writer_drop_index(w);
}

int writer_use_chunk(struct tier_writer *w, struct fp fp, uint32_t len)
{
	int r = tier_known_use(&w->known, fp, len);
	struct tier_place place;
	bool own;

	if (r != 0 || !w->index)
		return r;
	r = tier_index_find(w->index, fp, len, w->is_dropped, w->nr_packs, &place, &own);
	w->has_failed |= r < 0; /* the index is gone: a new writer makes it again from the tier */
	if (r <= 0)
		return r;
	r = own ? tier_known_add_saved(&w->known, fp, len, place) : tier_known_add(&w->known, fp, len, place);
	return r < 0 ? r : 1;
}
