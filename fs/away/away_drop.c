/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Dropping a sealed checkpoint. Only the order makes it safe:
 *   1. Find its manifest in the tier, read it and the tables of all its packs, also if they are in memory, and compare
 *      the root computed from them with that of the seal. Find the inode of each file in the manifest.
 *                                                                              crash: nothing has changed
 *   2. Record for the directory, and for each file, some per transaction: manifest, its digest, number of the inode in
 *      it. From the first of them on the directory cannot be unsealed.         crash: the files that have a record are
 *                                                                              read from the tier, the others from here
 *   3. Erase the bytes of each file that has a record (content_send_away()).   crash: as before; the next mount erases
 *                                                                              the rest of those with a record
 *   4. Record for the directory that all is erased, and sync.                 crash: as before, or nothing is left to do
 * The log is ordered: no state on disk lacks the record of a file whose bytes are erased. Each step can be repeated: a
 * drop of a directory that has some records continues.
 *
 * Files that have names outside of the directory stay here: when the checkpoint is removed, they go on as ordinary
 * files. So do files without bytes.
 *
 * Another process may remove the checkpoint from the tier between 1 and 3, as it may at any time later: what the tier
 * keeps is for its retention to decide.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/background/flusher.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/seal/freeze.h"
#include "fs/seal/seal_marks.h"
#include "store/engine.h"
#include "store/tier/reading/tier_tree.h"
#include "store/tier/recall/tier_recall.h"
#include "store/tier/seals/tier_root.h"

#define RECORDS_AT_ONCE 64u /* per exclusive hold of fs.names: about a millisecond */

struct drop {
	struct fs *fs;
	uint64_t dir;
	struct ns_seal seal;
	struct ns_away top;
	bool has_top; /* some files may have records */
	struct tier_recalled *e;
	uint64_t *inos; /* of the inodes of the manifest, in this store */
	uint32_t *nr_names; /* of them in the checkpoint */
	struct dropped_file {
		uint64_t ino;
		uint32_t index;
	} * files;
	size_t nr_files;
};

static void drop_release(struct drop *d)
{
	if (d->e)
		tier_recall_leave(away_recall(d->fs->away), d->e);
	free(d->inos);
	free(d->nr_names);
	free(d->files);
}

/* --- may it be dropped? --- */

/* Has its user sealed a later one beside it? */
static int check_not_newest(const struct drop *d, uint64_t parent)
{
	struct ns_seal seal;
	struct ns_inode in;
	uint64_t ino = 0;
	int r;

	while ((r = ns_next_seal(d->fs->db, ino, &ino, &seal)) > 0) {
		if (!seal.is_complete || seal.sealed_ns <= d->seal.sealed_ns || seal.uid != d->seal.uid)
			continue;
		r = attr_load(d->fs, ino, &in);
		if (r > 0 && in.parent == parent && ino != d->dir)
			return 0;
		if (r < 0)
			return r;
	}
	return r < 0 ? r : -EBUSY;
}

static int check(struct drop *d, int64_t sealed_ns, const struct cred *cred)
{
	struct fs *fs = d->fs;
	struct ns_inode in;
	int r;

	if (fs->read_only)
		return -EROFS;
	if (!fs->away || fs->hooks)
		return -EOPNOTSUPP;
	r = attr_load(fs, d->dir, &in);
	if (r <= 0 || in.nlink == 0)
		return r < 0 ? r : -ENOENT;
	r = ns_get_seal(fs->db, d->dir, &d->seal);
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	if (cred->uid != 0 && (cred->uid != d->seal.uid || cred->uid != in.uid))
		return -EPERM;
	if (!d->seal.is_complete)
		return -EBUSY;
	if (sealed_ns != 0 && sealed_ns != d->seal.sealed_ns)
		return -ESTALE;
	r = ns_get_away(fs->db, d->dir, &d->top);
	if (r < 0)
		return r;
	d->has_top = r > 0;
	if (d->has_top && d->top.is_erased)
		return -EALREADY;
	return check_not_newest(d, in.parent);
}

/* --- 1: what the tier has --- */

/* Numbers the inodes of the manifest. A directory has a higher number than its parent. */
static int find_inodes(struct drop *d)
{
	const struct tier_tree *t = d->e->tree;
	struct ns_dirent found;
	int r;

	d->inos = calloc(t->nr_inodes, sizeof(*d->inos));
	d->nr_names = calloc(t->nr_inodes, sizeof(*d->nr_names));
	if (!d->inos || !d->nr_names)
		return -ENOMEM;
	d->inos[0] = d->dir;
	for (uint32_t dir = 0; dir < t->nr_inodes; dir++) {
		const struct tier_inode *in = &t->inodes[dir];

		if (cancel_check() < 0)
			return -EINTR;
		for (uint32_t i = 0; S_ISDIR(in->mode) && i < in->nr; i++) {
			const struct tier_entry *entry = &t->entries[in->first + i];

			r = ns_find(d->fs->db, d->fs->key, d->inos[dir], tier_tree_name(t, entry->name), &found);
			if (r <= 0)
				return r < 0 ? r : -EBADMSG;
			if (d->inos[entry->inode] != 0 && d->inos[entry->inode] != found.ino)
				return -EBADMSG;
			d->inos[entry->inode] = found.ino;
			d->nr_names[entry->inode]++;
		}
	}
	return 0;
}

/* 1: it is dropped; 0: it stays; <0. */
static int look_at_file(const struct drop *d, uint32_t index)
{
	const struct tier_inode *of_tier = &d->e->tree->inodes[index];
	struct ns_content c;
	struct ns_inode in;
	int r;

	if (!S_ISREG(of_tier->mode))
		return 0;
	r = d->inos[index] > 0 ? attr_load(d->fs, d->inos[index], &in) : 0;
	if (r > 0)
		r = content_peek(d->fs->engine, in.ino, &c) < 0 ? -EIO : 1;
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	if (!S_ISREG(in.mode) || !(in.flags & INODE_SEALED) || c.size != of_tier->size)
		return -EBADMSG;
	return c.mapped > 0 && in.nlink == d->nr_names[index];
}

static int find_files(struct drop *d)
{
	uint32_t nr = d->e->tree->nr_inodes;
	int r = 0;

	d->files = calloc(nr, sizeof(*d->files));
	if (!d->files)
		return -ENOMEM;
	for (uint32_t i = 1; i < nr && r >= 0; i++) {
		r = look_at_file(d, i);
		if (r > 0)
			d->files[d->nr_files++] = (struct dropped_file){ d->inos[i], i };
	}
	return MIN(r, 0);
}

static bool is_same_seal(const struct drop *d)
{
	const struct tier_manifest *m = d->e->m;

	return m->ino == d->dir && m->sealed_ns == d->seal.sealed_ns && m->files == d->seal.files &&
	       m->directories == d->seal.directories && memcmp(m->root, d->seal.root, sizeof(m->root)) == 0;
}

/* If some files have records, the others get those of the same manifest. */
static int read_back(struct drop *d)
{
	struct tier_recall *recall = away_recall(d->fs->away);
	const struct tier_waiter w = away_waiter();
	uint8_t root[SHA256_LEN];
	uint64_t number;
	int r = tier_recall_find(recall, d->dir, d->seal.sealed_ns, &w, &number);

	if (r <= 0)
		return r < 0 ? r : -EAGAIN;
	if (d->has_top && d->top.number != number)
		return -EBADMSG;
	r = tier_recall_read_again(recall, number, d->has_top ? d->top.check : NULL, &w, &d->e, NULL);
	if (r < 0)
		return r == -ENOENT ? -EAGAIN : r == -ESTALE ? -EBADMSG : r;
	if (!is_same_seal(d))
		return -EBADMSG;
	r = tier_root(d->e->tree, d->e->source, d->seal.root, &w, root);
	if (r == -ENOENT || (r == 0 && memcmp(root, d->seal.root, sizeof(root)) != 0))
		r = -EBADMSG; /* a pack is missing, or something else was put */
	if (r == 0)
		r = find_inodes(d);
	if (r == 0)
		r = find_files(d);
	d->top.number = number;
	memcpy(d->top.check, d->e->m->check, sizeof(d->top.check));
	tier_recall_leave(recall, TAKE(d->e)); /* it may take hundreds of MiB, and the rest minutes */
	return r;
}

/* --- 2: records --- */

static int put_record(struct engine_tx *tx, uint64_t ino, const struct ns_away *at)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_away_encode(at, &value);
	engine_tx_put(tx, ns_key_away(ino), value.data, value.len);
	return buf_error(&value);
}

/* Is it still sealed, and is no other thread about to change that? */
static int check_again(const struct drop *d) REQUIRES(d->fs->names)
{
	struct ns_seal seal;
	int r;

	if (freezes_has(d->fs->freezes, d->dir, NULL))
		return -EBUSY;
	r = ns_get_seal(d->fs->db, d->dir, &seal);
	return r < 0 ? r : r > 0 && seal.is_complete && seal.sealed_ns == d->seal.sealed_ns ? 0 : -ESTALE;
}

static int record_some(struct drop *d, size_t *at) REQUIRES(d->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	size_t i = *at, end = MIN(d->nr_files, i + RECORDS_AT_ONCE);
	struct ns_away place = d->top;
	int r = check_again(d);

	if (r == 0 && i == 0 && !d->has_top)
		r = put_record(&tx, d->dir, &d->top);
	for (; i < end && r == 0; i++) {
		place.index = d->files[i].index;
		r = put_record(&tx, d->files[i].ino, &place);
	}
	if (r == 0)
		r = fs_apply(d->fs, &tx);
	if (r == 0)
		*at = end;
	return r;
}

static int record_files(struct drop *d)
{
	uint64_t start_ns;
	size_t at = 0;
	int r;

	engine_expect_away(d->fs->engine);
	do {
		mutex_lock(&d->fs->seal_steps);
		start_ns = monotonic_ns();
		rwlock_lock(&d->fs->names);
		r = record_some(d, &at);
		rwlock_unlock(&d->fs->names);
		seal_make_way(start_ns);
		mutex_unlock(&d->fs->seal_steps);
		if (r == 0)
			r = cancel_check();
	} while (r == 0 && at < d->nr_files);
	return r;
}

/* --- 3 and 4 --- */

static int erase_files(struct drop *d)
{
	struct content *c;
	int r = 0;

	for (size_t i = 0; i < d->nr_files && r == 0; i++) {
		r = content_open(d->fs->engine, d->files[i].ino, &c);
		if (r < 0)
			return r;
		r = content_send_away(c);
		content_close(c);
		if (r == 0)
			r = cancel_check();
	}
	return r;
}

static int record_end(struct drop *d)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct ns_away top = d->top;
	int r;

	top.is_erased = true;
	rwlock_lock(&d->fs->names);
	r = check_again(d);
	if (r == 0)
		r = put_record(&tx, d->dir, &top);
	if (r == 0)
		r = fs_apply(d->fs, &tx);
	rwlock_unlock(&d->fs->names);
	return r;
}

int away_drop(struct fs *fs, uint64_t dir, int64_t sealed_ns, const struct cred *cred)
{
	_cleanup_(drop_release) struct drop d = { .fs = fs, .dir = dir };
	int r = check(&d, sealed_ns, cred), synced;

	if (r < 0)
		return r;
	r = read_back(&d);
	if (r == -EBADMSG)
		log_error("directory %" PRIu64 ": not dropped: what tier %s has of it is not what was sealed", dir,
			  away_where(fs->away));
	else if (r == -ETIMEDOUT || r == -EIO)
		log_warning("directory %" PRIu64 ": not dropped: tier %s: %s", dir, away_where(fs->away), strerror(-r));
	if (r < 0)
		return r == -ETIMEDOUT ? -EIO : r;
	r = record_files(&d);
	if (r == 0)
		r = erase_files(&d);
	if (r == 0)
		r = record_end(&d);
	flusher_wake(fs->flusher);
	synced = engine_sync(fs->engine);
	if (r < 0 || synced < 0)
		return r < 0 ? r : synced;
	log_info("directory %" PRIu64 ": dropped, %s of %" PRIu64 "; tier %s has it", dir,
		 human_nr(d.nr_files, "file").s, d.seal.files, away_where(fs->away));
	return 0;
}

/* --- the root --- */

int away_root(struct fs *fs, uint64_t dir, const struct ns_away *at, const struct ns_seal *seal,
	      uint8_t ret[NS_SEAL_ROOT_LEN])
{
	const struct tier_waiter w = away_waiter();
	struct tier_recalled *e;
	const char *why = NULL;
	int r;

	if (!fs->away)
		return log_errno(
			-EIO,
			"directory %" PRIu64 ": was dropped here, and is in a tier: mount the store with tier=", dir);
	r = tier_recall_read_again(away_recall(fs->away), at->number, at->check, &w, &e, &why);
	if (r == 0) {
		r = tier_root(e->tree, e->source, seal->root, &w, ret);
		tier_recall_leave(away_recall(fs->away), e);
	}
	if (r == 0 || r == -EINTR)
		return r;
	log_error("directory %" PRIu64 ": cannot be verified: tier %s: manifest %" PRIu64 " %s", dir,
		  away_where(fs->away), at->number, why ? why : strerror(-r));
	return -EIO;
}
