/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/seal/freeze.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/cancel.h"
#include "base/mutex.h"
#include "base/util.h"

#define SLOTS_MIN 256u /* power of two */
#define WAIT_NS 20000000

struct freeze {
	struct freezes *all; /* constant */
	struct freeze *next; /* this and the fields below: all->lock */
	uint64_t *slot; /* open addressing; 0: empty */
	size_t nr, nr_slots; /* nr_slots: a power of two, at least 4/3 of nr */
};

struct freezes {
	atomic_uint nr; /* changed under `lock` */
	struct mutex lock; /* leaf */
	struct freeze *first GUARDED_BY(lock);

	struct mutex thawed_lock; /* outside the lock of fs/long_requests.h */
	void (*thawed)(void *userdata) GUARDED_BY(thawed_lock);
	void *userdata GUARDED_BY(thawed_lock);
};

int freezes_new(struct freezes **ret)
{
	struct freezes *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	mutex_init(&all->lock);
	mutex_init(&all->thawed_lock);
	*ret = all;
	return 0;
}

void freezes_free(struct freezes *all)
{
	if (!all)
		return;
	mutex_release(&all->thawed_lock);
	mutex_release(&all->lock);
	free(all);
}

/* The slot that holds `ino`, or the empty one to insert it into. */
static size_t find_slot(const uint64_t *slot, size_t nr_slots, uint64_t ino)
{
	size_t at = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (nr_slots - 1);

	while (slot[at] != 0 && slot[at] != ino)
		at = (at + 1) & (nr_slots - 1);
	return at;
}

static bool is_in_any(struct freezes *all, uint64_t ino, const struct freeze *except) REQUIRES(all->lock)
{
	for (const struct freeze *f = all->first; f; f = f->next)
		if (f != except && f->slot[find_slot(f->slot, f->nr_slots, ino)] == ino)
			return true;
	return false;
}

bool freezes_has(struct freezes *all, uint64_t ino, const struct freeze *except)
{
	bool is_in;

	if (atomic_load(&all->nr) == 0)
		return false;
	mutex_lock(&all->lock);
	is_in = is_in_any(all, ino, except);
	mutex_unlock(&all->lock);
	return is_in;
}

int freezes_wait(struct freezes *all, uint64_t ino)
{
	int r = 0;

	while (r == 0 && freezes_has(all, ino, NULL)) {
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
		r = cancel_check();
	}
	return r;
}

void freezes_set_thawed(struct freezes *all, void (*fn)(void *userdata), void *userdata)
{
	mutex_lock(&all->thawed_lock);
	all->thawed = fn;
	all->userdata = userdata;
	mutex_unlock(&all->thawed_lock);
}

int freeze_new(struct freezes *all, size_t nr_expected, struct freeze **ret)
{
	struct freeze *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->all = all;
	for (f->nr_slots = SLOTS_MIN; f->nr_slots < 2 * nr_expected; f->nr_slots *= 2)
		;
	f->slot = calloc(f->nr_slots, sizeof(*f->slot));
	if (!f->slot) {
		free(f);
		return -ENOMEM;
	}
	mutex_lock(&all->lock);
	f->next = all->first;
	all->first = f;
	atomic_fetch_add(&all->nr, 1);
	mutex_unlock(&all->lock);
	*ret = f;
	return 0;
}

static int grow(struct freeze *f) REQUIRES(f->all->lock)
{
	size_t nr_slots = 2 * f->nr_slots;
	uint64_t *slot = calloc(nr_slots, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	for (size_t i = 0; i < f->nr_slots; i++)
		if (f->slot[i] != 0)
			slot[find_slot(slot, nr_slots, f->slot[i])] = f->slot[i];
	free(f->slot);
	f->slot = slot;
	f->nr_slots = nr_slots;
	return 0;
}

static int add_inode(struct freeze *f, uint64_t ino) REQUIRES(f->all->lock)
{
	size_t at = find_slot(f->slot, f->nr_slots, ino);
	int r = 0;

	if (f->slot[at] == ino)
		return 0;
	if (is_in_any(f->all, ino, f))
		return -EBUSY;
	if (4 * (f->nr + 1) > 3 * f->nr_slots)
		r = grow(f);
	if (r < 0)
		return r;
	f->slot[find_slot(f->slot, f->nr_slots, ino)] = ino;
	f->nr++;
	return 1;
}

int freeze_add(struct freeze *f, uint64_t ino)
{
	int r;

	mutex_lock(&f->all->lock);
	r = add_inode(f, ino);
	mutex_unlock(&f->all->lock);
	return r;
}

void freeze_end(struct freeze *f)
{
	struct freezes *all;
	struct freeze **at;

	if (!f)
		return;
	all = f->all;
	mutex_lock(&all->lock);
	for (at = &all->first; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	atomic_fetch_sub(&all->nr, 1);
	mutex_unlock(&all->lock);
	free(f->slot);
	free(f);
	mutex_lock(&all->thawed_lock);
	if (all->thawed)
		all->thawed(all->userdata);
	mutex_unlock(&all->thawed_lock);
}
