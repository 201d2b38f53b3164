/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Space reserved for a file: its ranges are in `allocated`, its bytes in `promised`. A write into a reserved range
 * moves its share from `promised` to `spent`. The job that stores the bytes returns that to the store (space.c).
 */
#include "store/file/reservation.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/allocated.h"
#include "store/file/content_state.h"
#include "store/space.h"

/* Computes *ret, the space missing for the range; if it is at most `has`, assigns the range to the file. */
static bool take_range(struct content *c, uint64_t off, uint64_t end, uint64_t has, struct allocated **fresh,
		       uint64_t *ret)
{
	bool enough;

	mutex_lock(&c->lock);
	*ret = space_with_overhead(allocated_missing(c->allocated, off, end));
	enough = *ret <= has;
	if (enough) {
		if (!c->allocated)
			c->allocated = TAKE(*fresh);
		allocated_add(c->allocated, off, end);
		atomic_fetch_add(&c->promised, *ret);
	}
	mutex_unlock(&c->lock);
	return enough;
}

/*
 * Programs allocate piece by piece, or the same range again; space reserved before is not counted again. Space is
 * reserved without locks, because that may wait for writes to finish. The missing amount is therefore computed again
 * afterwards: another call may have allocated part of the range, or truncated the file.
 */
int content_reserve(struct content *c, uint64_t off, uint64_t end)
{
	_cleanup_(freep) struct allocated *fresh = calloc(1, sizeof(*fresh));
	uint64_t has = 0, missing;
	int r = 0;

	if (!fresh)
		return -ENOMEM;
	while (!take_range(c, off, end, has, &fresh, &missing)) {
		if (r < 0) {
			space_take_back(c->e, has);
			return r;
		}
		r = space_promise(c->e, missing - has);
		if (r == 0)
			has = missing;
	}
	space_take_back(c->e, has - missing);
	return 0;
}

/* Space of reserved ranges for a write into them, and it ends their reservation. The last write takes what rounding has
 * left over; ranges without any space left are forgotten, so that they can be reserved again. */
static void take_reserved(struct content *c, uint64_t off, uint64_t len, uint64_t n) REQUIRES(c->lock)
{
	uint64_t has = atomic_load(&c->promised);

	allocated_remove(c->allocated, off, off + len);
	if (c->allocated->nr == 0 && !c->allocated->dropped_some)
		n = has;
	atomic_fetch_sub(&c->promised, n);
	atomic_fetch_add(&c->spent, n);
	if (n == has)
		free(TAKE(c->allocated));
}

/* Computes *ret, the bytes of a write without reserved space; if they are at most `admitted`, takes that of the
 * others. */
static bool use_reserved(struct content *c, uint64_t off, uint64_t len, uint64_t admitted, uint64_t *ret)
{
	uint64_t reserved, n;
	bool enough;

	mutex_lock(&c->lock);
	if (off == CONTENT_APPEND)
		off = c->live.size;
	reserved = allocated_part(c->allocated, off, off + len);
	n = MIN(atomic_load(&c->promised), space_with_overhead(reserved));
	*ret = len - MIN(n, reserved);
	enough = *ret <= admitted;
	if (enough && n > 0)
		take_reserved(c, off, len, n);
	mutex_unlock(&c->lock);
	return enough;
}

/* Waiting for room needs the lock released. What is missing is therefore computed again afterwards: another write may
 * have used the same range. */
int content_admit_write(struct content *c, uint64_t off, uint64_t len)
{
	uint64_t admitted = 0, missing;
	int r;

	if (atomic_load(&c->promised) == 0)
		return space_wait(c->e, len);
	while (!use_reserved(c, off, len, admitted, &missing)) {
		r = space_wait(c->e, missing);
		if (r < 0)
			return r;
		admitted = missing;
	}
	return 0;
}

void content_spend(struct content *c)
{
	uint64_t n = atomic_load(&c->spent) > 0 ? atomic_exchange(&c->spent, 0) : 0;

	if (n > 0)
		space_spend(c->e, n);
}

void content_release_space(struct content *c)
{
	space_take_back(c->e, atomic_exchange(&c->promised, 0));
	free(TAKE(c->allocated));
}
