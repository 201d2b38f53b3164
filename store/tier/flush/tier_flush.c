/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A writer, and the order of a flush. flush_state.h lists the files of its parts.
 *
 * Flushing a checkpoint. Only the order makes it safe:
 *   1. key, as a new object              crash: a key without manifests, for the next writer
 *   2. packs, several at once, and all   crash: packs that no manifest names. A flush of the same content makes the
 *      of them are awaited               same packs and finds their names taken; a collection removes others
 *   3. manifest, as a new object         COMMIT POINT: it exists if and only if all that it names exists
 *   4. new entries of the log are read   crash: the next writer finds the manifest, valid or not
 * Packs that a flush has added count once its manifest is in the tier. A writer joins in the log before it puts a
 * manifest, so that collections (tier_collect.c) put fences for it.
 *
 * The previous writer may have ended after its manifest had become visible and before it was durable. So the last
 * manifest is put once more, as a new object: this makes it durable, and changes nothing.
 *
 * The names of keys are derived from their content, as those of packs (flush_packs.c). A manifest whose packs are
 * missing or damaged when the writer is opened does not count: its directory is flushed again, under the next number.
 */
#include "store/tier/flush/tier_flush.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/tier/flush/flush_state.h"

#define PACK_BYTES_DEFAULT MiB(64)
#define IN_FLIGHT_DEFAULT 4u
#define KNOWN_DEFAULT ((uint64_t)16 << 20)
#define DISCARDED_MAX 10000u /* packs of abandoned flushes that are listed */

/* The last manifest may be visible and not durable yet. */
static int confirm_last_manifest(struct tier_writer *w)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_object_name name;
	int r;

	if (w->number == 1)
		return 0;
	name = tier_manifest_name(w->conf.store, w->number - 1);
	r = tier_get_all(w->tier, name.s, TIER_MANIFEST_MAX, &b);
	if (r == -ENOENT || r == -EFBIG || r == -EBADMSG) /* no seal relies on it */
		return 0;
	if (r == 0)
		r = tier_put_new(w->tier, name.s, b.data, b.len);
	return r == -EEXIST ? 0 : r;
}

/* The id is made from the key: an object of this name with other bytes is damaged. */
static int put_key(struct tier_writer *w)
{
	struct tier_object_name name = tier_key_name(w->conf.key.id);
	_cleanup_(buf_release) struct buf there = BUF_EMPTY;
	struct tier_key_disk d;
	int r;

	tier_key_encode(&w->conf.key, &d);
	r = tier_put_new(w->tier, name.s, &d, sizeof(d));
	if (r != -EEXIST)
		return r;
	r = tier_get_all(w->tier, name.s, sizeof(d), &there);
	if (r < 0 && r != -ENOENT && r != -EFBIG && r != -EBADMSG)
		return r;
	if (r == 0 && there.len == sizeof(d) && memcmp(there.data, &d, sizeof(d)) == 0)
		return 0;
	return writer_replace_object(w, name.s, &d, sizeof(d));
}

int tier_writer_open(struct tier *t, const struct tier_writer_conf *conf, struct tier_writer **ret)
{
	_cleanup_(tier_writer_closep) struct tier_writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->tier = t;
	w->conf = *conf;
	w->conf.pack_bytes = conf->pack_bytes > 0 ? conf->pack_bytes : PACK_BYTES_DEFAULT;
	w->conf.packs_in_flight =
		MIN(conf->packs_in_flight > 0 ? conf->packs_in_flight : IN_FLIGHT_DEFAULT, PACKS_IN_FLIGHT_MAX);
	w->conf.manifest_max = conf->manifest_max > 0 ? conf->manifest_max : TIER_MANIFEST_MAX;
	w->known.max = conf->known_max > 0 ? conf->known_max : KNOWN_DEFAULT;
	w->number = 1;
	fp_key_init(&w->key, conf->key.hash, conf->key.secret);
	r = tier_queue_new(t, &w->queue);
	if (r == 0)
		r = writer_open_index(w);
	if (r == 0)
		r = put_key(w);
	if (r == 0)
		r = writer_load_all(w);
	if (r == 0)
		r = confirm_last_manifest(w);
	if (r == 0)
		*ret = TAKE(w);
	return r;
}

void tier_writer_close(struct tier_writer *w)
{
	if (!w)
		return;
	tier_writer_save(w);
	tier_queue_free(w->queue); /* waits for packs in flight */
	for (unsigned i = 0; i < PACKS_IN_FLIGHT_MAX; i++)
		buf_release(&w->sending[i].bytes);
	buf_release(&w->data);
	buf_release(&w->tables);
	tier_index_close(w->index);
	tier_known_release(&w->known);
	tier_ids_release(&w->numbers);
	free(w->is_unproven);
	tier_log_release(&w->log);
	free(w->seen);
	free(w->keys);
	free(w->packs);
	free(w->is_dropped);
	free(w->seals);
	free(w);
}

void tier_writer_closep(struct tier_writer **w)
{
	tier_writer_close(*w);
}

int tier_writer_follow(struct tier_writer *w)
{
	int r = w->has_failed ? -ESTALE : writer_read_generations(w);

	w->has_failed |= r == -ESTALE || r == -ENOTUNIQ;
	return r;
}

uint64_t tier_writer_generation(const struct tier_writer *w)
{
	return w->log.generation;
}

static const struct tier_written *find_seal(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	for (size_t i = 0; i < w->nr_seals; i++)
		if (w->seals[i].ino == ino && w->seals[i].sealed_ns == sealed_ns && !w->seals[i].lacks_packs)
			return &w->seals[i];
	return NULL;
}

bool tier_writer_has(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	return find_seal(w, ino, sealed_ns);
}

bool tier_writer_was_removed(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns)
{
	const struct tier_store_marks *s = tier_marks_store(&w->log.marks, w->conf.store);

	return s && !find_seal(w, ino, sealed_ns) && tier_marks_removed(s, ino, sealed_ns);
}

void tier_writer_last(const struct tier_writer *w, struct tier_written *ret)
{
	*ret = w->last;
}

static void flush_freep(struct flush **f)
{
	if (!*f)
		return;
	buf_release(&(*f)->unread);
	buf_release(&(*f)->catalog);
	buf_release(&(*f)->runs);
	buf_release(&(*f)->refs);
	free((*f)->index);
	free((*f)->order);
	for (unsigned i = 0; i < ARRAY_SIZE((*f)->records); i++)
		free((*f)->records[i].bytes);
	free(*f);
}

/*
 * Removes what this flush has added to the writer. Its packs stay in the tier: a collection deletes them. They keep
 * their numbers, since runs of the index may refer to them.
 */
static void discard_flush(struct flush *f)
{
	struct tier_writer *w = f->w;

	for (uint32_t i = f->first_own; i < w->nr_packs; i++)
		w->is_dropped[i] = true;
	if (w->nr_packs > f->first_own)
		tier_known_forget(&w->known, w->is_dropped);
	w->nr_discarded += w->nr_packs - f->first_own;
	w->has_failed = w->nr_discarded > DISCARDED_MAX; /* a new writer has no such packs */
	w->is_open = false;
	w->frame.nr_chunks = 0;
	w->frame_len = 0;
	buf_release(&w->data);
	buf_release(&w->tables);
}

static int flush_all(struct tier_writer *w, const struct tier_checkpoint *c, struct tier_flushed *sums)
{
	_cleanup_(flush_freep) struct flush *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->w = w;
	f->c = c;
	f->sums = sums;
	f->first_own = w->nr_packs;
	for (unsigned i = 0; i < ARRAY_SIZE(f->records); i++) {
		f->records[i].bytes = aligned_alloc(PACK_BLOCK, READ_BYTES);
		if (!f->records[i].bytes)
			return -ENOMEM;
	}
	r = flush_write_packs(f);
	if (r < 0) {
		if (!w->has_failed)
			discard_flush(f);
		return r;
	}
	r = flush_commit(f);
	w->has_failed = r < 0;
	return r;
}

int tier_flush(struct tier_writer *w, const struct tier_checkpoint *c, struct tier_flushed *ret)
{
	struct tier_flushed sums = { 0 };
	const struct tier_written *before;
	int r;

	tier_writer_save(w); /* it must not save packs of this flush, which may fail */
	if (w->has_failed)
		return -ESTALE;
	if (strlen(c->path) > TIER_PATH_MAX)
		return -ENAMETOOLONG;
	r = writer_read_generations(w); /* so that the flush uses no pack that has been dropped by now */
	if (r < 0) {
		w->has_failed = true;
		return r;
	}
	before = find_seal(w, c->ino, c->sealed_ns);
	if (before) {
		*ret = (struct tier_flushed){ .number = before->number, .was_there = true };
		return 0;
	}
	r = writer_load_new(w, c->bytes);
	if (r < 0)
		w->has_failed = true;
	else
		r = flush_all(w, c, &sums);
	if (r == 0) {
		w->is_save_due = true;
		w->flushed_bytes = c->bytes;
		*ret = sums;
	}
	return r;
}

void tier_writer_save(struct tier_writer *w)
{
	if (w->is_save_due && w->index)
		writer_save_known(w, true); /* in two halves, which takes less memory */
	if (w->is_save_due && w->index)
		writer_save_known(w, false);
	if (w->is_save_due && w->index)
		writer_commit_index(w, w->flushed_bytes);
	w->is_save_due = false;
	writer_free_buffers(w);
}

bool tier_writer_has_failed(const struct tier_writer *w)
{
	return w->has_failed;
}
