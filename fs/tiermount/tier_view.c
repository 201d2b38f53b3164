/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/tiermount/tier_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/tiermount/tier_view_state.h"

#define LIST_AGE_NS UINT64_C(5000000000) /* between two lists, and a second for each 10,000 checkpoints */
#define LIST_AGE_OF_ONE_NS UINT64_C(100000)
#define LIST_WAIT_NS UINT64_C(5000000000)

/* --- waiting --- */

bool view_must_not_wait(const struct tier_waiter *w)
{
	return w && w->must_not_wait;
}

int view_await_change(struct tier_view *v, const struct tier_waiter *w, uint64_t until_ns) REQUIRES(v->lock)
{
	uint64_t now = monotonic_ns();
	bool is_interrupted = false;

	if (v->stop)
		return -EIO;
	if (now >= until_ns)
		return -ETIMEDOUT;
	if (view_must_not_wait(w))
		return -EINPROGRESS;
	cond_wait_for(&v->changed, &v->lock, MIN(until_ns - now, TIER_LOOK_NS));
	if (w && w->is_interrupted) {
		mutex_unlock(&v->lock);
		is_interrupted = w->is_interrupted(w->userdata);
		mutex_lock(&v->lock);
	}
	return is_interrupted ? -EINTR : 0;
}

int tier_view_refresh(struct tier_view *v, const struct tier_waiter *w)
{
	bool is_due;
	int r = 0;

	mutex_lock(&v->lock);
	is_due = !v->is_listing && !v->stop &&
		 monotonic_ns() - v->listed_ns >= LIST_AGE_NS + v->nr_listed * LIST_AGE_OF_ONE_NS;
	if (is_due && view_must_not_wait(w)) {
		r = -EINPROGRESS;
	} else if (is_due) {
		v->is_listing = true;
		v->began_ns = monotonic_ns();
		tier_pool_submit(v->pool, &v->list_job, TIER_FIRST);
	}
	while (v->is_listing && r == 0)
		r = view_await_change(v, w, v->began_ns + LIST_WAIT_NS);
	mutex_unlock(&v->lock);
	return r == -EINPROGRESS ? r : 0;
}

/* --- the list of checkpoints --- */

uint64_t tier_view_bytes(struct tier_view *v)
{
	uint64_t sum = 0;

	mutex_lock(&v->lock);
	for (size_t i = 0; i < v->nr_checkpoints; i++)
		if (!v->checkpoints[i]->is_gone)
			sum += v->checkpoints[i]->seal.bytes;
	mutex_unlock(&v->lock);
	return sum;
}

size_t tier_view_nr(struct tier_view *v)
{
	size_t nr = 0;

	mutex_lock(&v->lock);
	for (size_t i = 0; i < v->nr_checkpoints; i++)
		nr += !v->checkpoints[i]->is_gone;
	mutex_unlock(&v->lock);
	return nr;
}

/* Is the node in /.ckptfs/stores/STORE? */
static bool is_of_store(struct tier_view *v, uint64_t node, uint8_t ret_store[TIER_ID_LEN])
{
	static const char stores[] = VIEW_OWN "/stores/";
	uint32_t place = tier_node_place(node), inode = tier_node_inode(node);
	const char *path;

	if (place > 0 && (place - 1) % NR_KINDS == BY_STORE && (place - 1) / NR_KINDS < v->nr_checkpoints) {
		memcpy(ret_store, v->checkpoints[(place - 1) / NR_KINDS]->seal.store, TIER_ID_LEN);
		return true;
	}
	path = place == 0 && inode < v->nr_dirs ? v->dirs[inode]->path : "";
	if (strncmp(path, stores, strlen(stores)) != 0 || strlen(path) < strlen(stores) + (size_t)2 * TIER_ID_LEN)
		return false;
	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		if (sscanf(path + strlen(stores) + (size_t)2 * i, "%2" SCNx8, &ret_store[i]) != 1)
			return false;
	return true;
}

int tier_view_next(struct tier_view *v, uint64_t node, uint64_t after, uint64_t *ret_number,
		   const struct tier_seal **ret, struct buf *ret_path)
{
	uint8_t store[TIER_ID_LEN];
	bool has_store;
	int r = 0;

	mutex_lock(&v->lock);
	has_store = is_of_store(v, node, store);
	for (size_t i = after; i < v->nr_checkpoints && r == 0; i++) {
		const struct checkpoint *c = v->checkpoints[i];
		enum view_kind first = has_store ? BY_STORE : BY_PATH;

		if (c->is_gone || (has_store && memcmp(store, c->seal.store, sizeof(store)) != 0))
			continue;
		view_path(&c->seal, c->is_shown[first] ? first : BY_NUMBER, ret_path);
		buf_add_u8(ret_path, 0);
		*ret_number = i + 1;
		*ret = &c->seal;
		r = buf_error(ret_path) < 0 ? -ENOMEM : 1;
	}
	mutex_unlock(&v->lock);
	return r;
}

uint64_t tier_view_number(uint32_t place)
{
	return (place - 1) / NR_KINDS + 1;
}

void tier_view_path(struct tier_view *v, uint32_t place, struct buf *ret)
{
	mutex_lock(&v->lock);
	if (place > 0 && (place - 1) / NR_KINDS < v->nr_checkpoints)
		view_path(&v->checkpoints[(place - 1) / NR_KINDS]->seal, (place - 1) % NR_KINDS, ret);
	buf_add_u8(ret, 0);
	mutex_unlock(&v->lock);
}

/* --- the whole --- */

/* -ETIMEDOUT: a thread of the pool still uses it. */
static int list_at_mount(struct tier_view *v)
{
	uint64_t until = monotonic_ns() + v->conf.timeout_ns;
	int r = 0;

	mutex_lock(&v->lock);
	v->is_listing = true;
	tier_pool_submit(v->pool, &v->list_job, TIER_FIRST);
	while (v->is_listing && r == 0)
		r = view_await_change(v, NULL, until);
	if (!v->is_listing)
		r = v->list_error == -ETIMEDOUT ? -EIO : v->list_error;
	mutex_unlock(&v->lock);
	return r;
}

int tier_view_new(struct tier *t, struct tier_pool *pool, struct tier_cache *c, const struct tier_view_conf *conf,
		  struct tier_view **ret)
{
	struct tier_view *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->tier = t;
	v->pool = pool;
	v->cache = c;
	v->conf = *conf;
	v->list_job.run = view_run_list;
	mutex_init(&v->lock);
	cond_init(&v->changed);
	r = list_at_mount(v);
	if (r == 0)
		*ret = v;
	else if (r != -ETIMEDOUT)
		tier_view_free(v);
	return r;
}

void tier_view_free(struct tier_view *v)
{
	if (!v)
		return;
	mutex_lock(&v->lock);
	view_clear_names(v);
	mutex_unlock(&v->lock);
	for (size_t i = 0; i < v->nr_checkpoints; i++) {
		view_loaded_free(v->checkpoints[i]->loaded);
		free(v->checkpoints[i]->seal.path);
		free(v->checkpoints[i]);
	}
	for (size_t i = 0; i < v->nr_dirs; i++) {
		free(v->dirs[i]->path);
		free(v->dirs[i]);
	}
	tier_log_release(&v->log);
	free(v->fences);
	free(v->checkpoints);
	free(v->dirs);
	free(v->names);
	mutex_release(&v->lock);
	cond_release(&v->changed);
	free(v);
}

void tier_view_stop(struct tier_view *v)
{
	mutex_lock(&v->lock);
	v->stop = true;
	cond_broadcast(&v->changed);
	mutex_unlock(&v->lock);
}
