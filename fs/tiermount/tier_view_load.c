/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checkpoints of the view. The first request that uses one has a thread of the pool read its manifest, and waits. The
 * trees that were made of manifests are dropped in the order of their last use.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/tiermount/tier_view_state.h"
#include "store/tier/tier_read.h"

#define CHECKPOINTS_MAX (UINT32_MAX / 4)

void view_loaded_free(struct loaded *l)
{
	if (!l)
		return;
	tier_source_free(l->e.source);
	tier_tree_free(l->tree);
	tier_reader_close(l->reader);
	free(l);
}

/* Compares the head of a manifest with the seal that was listed under its name. */
static bool seal_matches(const struct tier_seal *s, const struct tier_manifest *m)
{
	return s->ino == m->ino && s->sealed_ns == m->sealed_ns && strlen(s->path) == m->path_len &&
	       memcmp(s->path, m->path, m->path_len) == 0 && memcmp(s->root, m->root, sizeof(s->root)) == 0;
}

static int load_checkpoint(struct checkpoint *c, struct loaded **ret)
{
	struct tier_object_name name = tier_manifest_name(c->seal.store, c->seal.number);
	struct tier_view *v = c->view;
	struct loaded *l = calloc(1, sizeof(*l));
	const struct tier_manifest *m;
	int r = l ? tier_reader_open(v->tier, name.s, &l->reader) : -ENOMEM;

	if (r < 0) {
		free(l);
		return r;
	}
	m = tier_reader_manifest(l->reader);
	if (!seal_matches(&c->seal, m)) {
		log_error("tier %s: %s: is another checkpoint than before: the tier was emptied, and written again",
			  tier_where(v->tier), name.s);
		view_loaded_free(l);
		return -ESTALE;
	}
	r = tier_tree_new(m, &l->tree);
	if (r == -EBADMSG || r == -EOPNOTSUPP)
		log_cause(r, "tier %s: %s: %s", tier_where(v->tier), name.s,
			  r == -EBADMSG ? "its catalog is damaged" : "its catalog was written by a newer version");
	if (r == 0)
		r = tier_source_new(v->cache, m, tier_reader_key(l->reader), &l->e.source);
	if (r < 0) {
		view_loaded_free(l);
		return r;
	}
	l->of = c;
	l->e.seal = &c->seal;
	l->e.m = m;
	l->e.tree = l->tree;
	l->memory = l->tree->memory + m->catalog_len + m->path_len +
		    m->nr_packs * (sizeof(struct tier_pack_ref_disk) + sizeof(void *) + sizeof(struct tier_tables));
	*ret = l;
	return 0;
}

static void add_newest(struct tier_view *v, struct loaded *l) REQUIRES(v->lock)
{
	l->older = v->newest;
	l->newer = NULL;
	*(v->newest ? &v->newest->newer : &v->oldest) = l;
	v->newest = l;
}

static void remove_from_list(struct tier_view *v, struct loaded *l) REQUIRES(v->lock)
{
	*(l->older ? &l->older->newer : &v->oldest) = l->newer;
	*(l->newer ? &l->newer->older : &v->newest) = l->older;
}

/*
 * Removes trees beyond the limit, which the caller frees without the lock. The newest stays even if it is larger than the
 * limit by itself: each request would read its manifest.
 */
static struct loaded *drop_trees(struct tier_view *v) REQUIRES(v->lock)
{
	struct loaded *dropped = NULL, *next;

	for (struct loaded *l = v->oldest; l && l != v->newest && v->trees > v->conf.trees; l = next) {
		next = l->newer;
		if (l->of->nr_users > 0)
			continue;
		remove_from_list(v, l);
		v->trees -= l->memory;
		l->of->loaded = NULL;
		l->newer = dropped;
		dropped = l;
	}
	return dropped;
}

static void free_dropped(struct loaded *dropped)
{
	while (dropped) {
		struct loaded *l = dropped;

		dropped = l->newer;
		view_loaded_free(l);
	}
}

static void run_load(struct tier_job *job)
{
	struct checkpoint *c = container_of(job, struct checkpoint, job);
	struct tier_view *v = c->view;
	struct loaded *l = NULL, *dropped = NULL;
	int r = load_checkpoint(c, &l);

	mutex_lock(&v->lock);
	c->is_loading = false;
	c->error = r;
	c->nr_attempts++;
	if (r == -ESTALE) { /* the next list reads what is there now */
		c->is_gone = true;
		v->is_changed = true;
		v->listed_ns = 0;
	}
	if (r == 0) {
		c->top = l->tree->inodes[0];
		c->has_top = true;
		c->loaded = l;
		add_newest(v, l);
		v->trees += l->memory;
		dropped = drop_trees(v);
	}
	cond_broadcast(&v->changed);
	mutex_unlock(&v->lock);
	free_dropped(dropped);
}

/* Shows a checkpoint again whose manifest is back in the list. */
static bool restore_gone(struct tier_view *v, const struct tier_manifest *m)
{
	bool is_found = false;

	mutex_lock(&v->lock);
	for (size_t i = 0; i < v->nr_checkpoints && v->has_gone && !is_found; i++) {
		struct checkpoint *c = v->checkpoints[i];

		is_found = c->is_gone && c->seal.number == m->number &&
			   memcmp(c->seal.store, m->store, sizeof(m->store)) == 0 && seal_matches(&c->seal, m);
		c->is_gone &= !is_found;
		v->is_changed |= is_found;
	}
	mutex_unlock(&v->lock);
	return is_found;
}

int view_add_checkpoint(struct tier_view *v, const struct tier_manifest *m)
{
	struct checkpoint *c;
	int r;

	if (restore_gone(v, m))
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->job.run = run_load;
	c->view = v;
	c->seal = (struct tier_seal){
		.number = m->number,
		.ino = m->ino,
		.sealed_ns = m->sealed_ns,
		.files = m->files,
		.directories = m->directories,
		.bytes = m->bytes,
		.uid = m->uid,
		.path = strndup(m->path, m->path_len),
	};
	memcpy(c->seal.store, m->store, sizeof(c->seal.store));
	memcpy(c->seal.root, m->root, sizeof(c->seal.root));
	mutex_lock(&v->lock);
	r = !c->seal.path || v->nr_checkpoints == CHECKPOINTS_MAX ?
		    -ENOMEM :
		    list_grow(&v->checkpoints, v->nr_checkpoints, &v->checkpoints_room, sizeof(struct checkpoint *));
	if (r == 0)
		v->checkpoints[v->nr_checkpoints++] = c;
	v->is_changed |= r == 0;
	mutex_unlock(&v->lock);
	if (r < 0) {
		free(c->seal.path);
		free(c);
	}
	return r;
}

/* --- using a checkpoint --- */

int tier_view_enter(struct tier_view *v, uint32_t place, const struct tier_waiter *w, struct tier_entered **ret)
{
	uint64_t until = monotonic_ns() + v->conf.timeout_ns;
	struct checkpoint *c = NULL;
	unsigned nr_attempts;
	int r = 0;

	mutex_lock(&v->lock);
	if (place > 0 && (place - 1) / NR_KINDS < v->nr_checkpoints)
		c = v->checkpoints[(place - 1) / NR_KINDS];
	nr_attempts = c ? c->nr_attempts : 0;
	if (c)
		c->nr_users++;
	else
		r = -ESTALE;
	while (r == 0 && !c->loaded) {
		if (view_must_not_wait(w) || (!c->is_loading && c->nr_attempts != nr_attempts && c->error < 0)) {
			r = view_must_not_wait(w) ? -EINPROGRESS : c->error;
			break;
		}
		if (!c->is_loading) {
			c->is_loading = true;
			tier_pool_submit(v->pool, &c->job, TIER_URGENT);
		}
		r = view_await_change(v, w, until);
	}
	if (r == 0) {
		remove_from_list(v, c->loaded);
		add_newest(v, c->loaded);
		*ret = &c->loaded->e;
	} else if (c) {
		c->nr_users--;
	}
	mutex_unlock(&v->lock);
	if (r == -ETIMEDOUT)
		log_limited(&v->limit, LOG_LEVEL_ERROR, "tier %s: %s: cannot read: no answer for %" PRIu64 " s",
			    tier_where(v->tier), tier_manifest_name(c->seal.store, c->seal.number).s,
			    v->conf.timeout_ns / 1000000000);
	return r;
}

void tier_view_leave(struct tier_view *v, struct tier_entered *e)
{
	struct loaded *dropped;

	if (!e)
		return;
	mutex_lock(&v->lock);
	container_of(e, struct loaded, e)->of->nr_users--;
	dropped = drop_trees(v);
	mutex_unlock(&v->lock);
	free_dropped(dropped);
}

bool tier_view_top(struct tier_view *v, uint32_t place, struct tier_inode *ret)
{
	const struct checkpoint *c = NULL;
	bool has_top;

	mutex_lock(&v->lock);
	if (place > 0 && (place - 1) / NR_KINDS < v->nr_checkpoints)
		c = v->checkpoints[(place - 1) / NR_KINDS];
	has_top = c && c->has_top;
	if (has_top)
		*ret = c->top;
	mutex_unlock(&v->lock);
	return has_top;
}
