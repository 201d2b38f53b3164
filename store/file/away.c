/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files whose bytes are in another place, a tier beneath the store, and no longer here. They keep inode, size and times.
 *
 *   log:  record of the place ─▶ hole [0, a) ─▶ hole [a, b) ─▶ ... ─▶ hole [.., end)
 *
 * The log is ordered, so no state on disk has a hole without the record. A crash leaves a record, and bytes that are
 * unused: the caller calls content_send_away() again.
 *
 * A hole reads as zeros, so no reader may see these. The file is marked in memory, under its lock, before the first
 * hole; every function that uses its recipe looks at the mark under the same lock, and fails. So does every function
 * that changes bytes or size: the record would hide what is written. What a function has taken from the recipe before
 * stays valid until it ends (e->users). A content that is opened later, or that recovery has left in memory, finds the
 * record. Files without a record cost nothing while the store has none.
 *
 * Recovery replays clones of such a file as they were logged, before its holes; so nothing is marked until it has ended.
 */
#include <errno.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/away.h"
#include "store/file/content_state.h"

int away_find(struct engine *e)
{
	struct ns_away a;
	uint64_t ino;
	int r = ns_next_away(e->db, 0, &ino, &a);

	if (r > 0)
		engine_expect_away(e);
	return r == -EBADMSG ? (engine_expect_away(e), 0) : MIN(r, 0); /* such a file cannot be read */
}

void engine_expect_away(struct engine *e)
{
	atomic_store(&e->has_away, true);
}

bool engine_expects_away(const struct engine *e)
{
	return atomic_load(&e->has_away);
}

int content_load_away(struct content *c)
{
	struct ns_away a;
	int r;

	assert(mutex_held(&c->lock));
	if (!atomic_load(&c->e->has_away) || c->is_away_known)
		return 0;
	r = ns_get_away(c->e->db, c->ino, &a);
	if (r == -EBADMSG)
		r = 1; /* the place is lost, but not that the bytes are there */
	c->is_away |= r > 0;
	c->is_away_known = c->is_away; /* a record may be applied while it is open */
	return MIN(r, 0);
}

int content_send_away(struct content *c)
{
	assert(atomic_load(&c->e->has_away));
	mutex_lock(&c->lock);
	c->is_away = c->is_away_known = true;
	mutex_unlock(&c->lock);
	return content_erase_range(c, 0, UINT64_MAX, true);
}

bool content_is_away(const struct content *c)
{
	return atomic_load(&c->is_away);
}
