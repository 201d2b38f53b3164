/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/seal/seal_marks.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/posix/attr_cache.h"
#include "fs/posix/inode.h"
#include "index/namespace_table.h"

#define MARKS_AT_ONCE 64u /* inodes per exclusive hold of fs.names: about a millisecond */
#define PAUSE_NS_MAX 2000000u

void seal_make_way(uint64_t start_ns)
{
	uint64_t held_ns = monotonic_ns() - start_ns;

	nanosleep(&(struct timespec){ .tv_nsec = (long)MIN(held_ns / 2, PAUSE_NS_MAX) }, NULL);
}

static int put_record(struct engine_tx *tx, uint64_t dir, const struct ns_seal *seal)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_seal_encode(seal, &value);
	engine_tx_put(tx, ns_key_seal(dir), value.data, value.len);
	return buf_error(&value);
}

int seal_record_write(struct fs *fs, uint64_t dir, const struct ns_seal *seal)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	int r = put_record(&tx, dir, seal);

	return r < 0 ? r : fs_apply(fs, &tx);
}

static int count(const struct seal_marks *m, const struct ns_inode *in)
{
	struct ns_content c = { 0 };
	int r;

	if (S_ISDIR(in->mode)) {
		m->seal->directories++;
		return 0;
	}
	r = S_ISREG(in->mode) ? content_peek(m->fs->engine, in->ino, &c) : 0;
	m->seal->files++;
	m->seal->bytes += c.size;
	return r;
}

static int mark_one(const struct seal_marks *m, struct engine_tx *tx, uint64_t ino, bool sealed) REQUIRES(m->fs->names)
{
	struct ns_inode in;
	int r = attr_load(m->fs, ino, &in);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = sealed ? count(m, &in) : 0;
	in.flags = sealed ? in.flags | INODE_SEALED : in.flags & ~(uint32_t)INODE_SEALED;
	attr_store(m->fs, tx, &in);
	return r;
}

static int apply_marks(const struct seal_marks *m, struct engine_tx *tx, int r)
{
	if (r == 0)
		return fs_apply(m->fs, tx);
	attr_cache_clear(m->fs->attrs); /* the cache holds changes that were not applied */
	return r;
}

/* Mark inodes from *at on. The first transaction includes the seal record with the time of the seal. */
static int mark_some(const struct seal_marks *m, size_t *at) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_GROWING;
	size_t i = *at, end = MIN(m->nr, i + MARKS_AT_ONCE);
	int r = 0;

	if (i == 0) {
		m->seal->sealed_ns = MAX((int64_t)now_ns(), m->fs->last_seal_ns + 1); /* the clock may go back */
		r = put_record(&tx, m->inos[0], m->seal);
	}
	for (; i < end && r == 0; i++)
		r = mark_one(m, &tx, m->inos[i], true);
	r = apply_marks(m, &tx, r);
	if (r == 0 && *at == 0)
		m->fs->last_seal_ns = m->seal->sealed_ns;
	if (r == 0)
		*at = end;
	return r;
}

/* Unmark inodes before *at, backwards. The seal record is deleted with the first inode. */
static int unmark_some(const struct seal_marks *m, size_t *at) REQUIRES(m->fs->names)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	size_t i = *at, end = i - MIN(i, MARKS_AT_ONCE);
	bool was_complete = m->seal->is_complete;
	int r = 0;

	while (i > end && r == 0)
		r = mark_one(m, &tx, m->inos[--i], false);
	m->seal->is_complete = false;
	if (end == 0)
		engine_tx_del(&tx, ns_key_seal(m->inos[0]));
	else if (was_complete && r == 0)
		r = put_record(&tx, m->inos[0], m->seal);
	r = apply_marks(m, &tx, r);
	if (r == 0)
		*at = end;
	if (r == 0 && was_complete)
		atomic_fetch_sub(&m->fs->nr_sealed, 1);
	return r;
}

static int mark_step(const struct seal_marks *m, size_t *at, int (*step)(const struct seal_marks *m, size_t *at))
{
	uint64_t start_ns;
	int r;

	mutex_lock(&m->fs->seal_steps);
	start_ns = monotonic_ns();
	rwlock_lock(&m->fs->names);
	r = step(m, at);
	rwlock_unlock(&m->fs->names);
	seal_make_way(start_ns);
	mutex_unlock(&m->fs->seal_steps);
	return r;
}

/* Not cancellable: stopping halfway would leave the tree neither sealed nor unsealed. */
static int unmark(const struct seal_marks *m, size_t nr)
{
	int r = 0;

	while (r == 0 && nr > 0)
		r = mark_step(m, &nr, unmark_some);
	return r;
}

int seal_marks_clear(const struct seal_marks *m)
{
	return unmark(m, m->nr);
}

int seal_marks_set(const struct seal_marks *m, uint32_t uid)
{
	size_t nr = 0;
	int r = 0;

	*m->seal = (struct ns_seal){ .uid = uid };
	while (r == 0 && nr < m->nr) {
		r = mark_step(m, &nr, mark_some);
		if (r == 0)
			r = cancel_check();
	}
	if (r < 0)
		unmark(m, nr);
	return r;
}
