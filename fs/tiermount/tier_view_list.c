/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Listing the tier, on a thread of the pool. Manifests that the list before did not have are read: their heads only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/tiermount/tier_view_state.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/seals/tier_heads.h"
#include "store/tier/tier.h"

static int compare_seals(const void *a, const void *b)
{
	const struct checkpoint *x = *(struct checkpoint *const *)a, *y = *(struct checkpoint *const *)b;
	int k = memcmp(x->seal.store, y->seal.store, TIER_ID_LEN);

	return k != 0 ? k : (x->seal.number > y->seal.number) - (x->seal.number < y->seal.number);
}

struct listing {
	struct tier_view *v;
	struct checkpoint **sorted; /* those that the previous list had, by store and number */
	bool *found;
	size_t nr;
	struct buf wanted; /* names of new manifests */
	struct tier_object_name *fences; /* in this list */
	size_t nr_fences, fences_room;
};

static void listing_release(struct listing *l)
{
	free(l->sorted);
	free(l->found);
	free(l->fences);
	buf_release(&l->wanted);
}

static int sort_known(struct listing *l)
{
	struct tier_view *v = l->v;

	mutex_lock(&v->lock);
	l->nr = v->nr_checkpoints;
	l->sorted = calloc(MAX(l->nr, (size_t)1), sizeof(struct checkpoint *));
	l->found = calloc(MAX(l->nr, (size_t)1), sizeof(*l->found));
	l->nr = 0;
	for (size_t i = 0; l->sorted && i < v->nr_checkpoints; i++)
		if (!v->checkpoints[i]->is_gone)
			l->sorted[l->nr++] = v->checkpoints[i];
	v->has_gone = l->nr < v->nr_checkpoints;
	mutex_unlock(&v->lock);
	if (!l->sorted || !l->found)
		return -ENOMEM;
	if (l->nr > 0)
		qsort(l->sorted, l->nr, sizeof(struct checkpoint *), compare_seals);
	return 0;
}

static int compare_fences(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int add_fence(struct listing *l, const char *name)
{
	int r = list_grow(&l->fences, l->nr_fences, &l->fences_room, sizeof(*l->fences));

	if (r == 0)
		snprintf(l->fences[l->nr_fences++].s, sizeof(l->fences->s), "%s", name);
	return r;
}

static bool is_fence(const struct tier_view *v, const char *name)
{
	return v->nr_fences > 0 && bsearch(name, v->fences, v->nr_fences, sizeof(*v->fences), compare_fences);
}

/* Remembers the fences of this list, so that they are not read again for the next one. */
static void keep_fences(struct listing *l)
{
	struct tier_view *v = l->v;

	if (l->nr_fences > 0)
		qsort(l->fences, l->nr_fences, sizeof(*l->fences), compare_fences);
	free(v->fences);
	v->fences = TAKE(l->fences);
	v->nr_fences = l->nr_fences;
}

/*
 * The list may have manifests that collections have removed, so the log is read after it (tier_collect.c). If the log
 * is damaged, which is logged, all manifests are shown: those that are kept can be read.
 */
static int read_log(struct tier_view *v)
{
	int r = v->has_log ? tier_log_follow(&v->log, NULL, NULL) : -ESTALE;

	if (r != -ESTALE)
		return r == -EBADMSG || r == -EOPNOTSUPP ? 0 : r; /* with what has been read so far */
	tier_log_release(&v->log);
	r = tier_log_read(v->tier, &v->log);
	v->has_log = r == 0;
	if (r < 0)
		tier_log_release(&v->log);
	return r == -EBADMSG || r == -EOPNOTSUPP ? 0 : r;
}

static int compare_list(struct listing *l, const struct buf *names)
{
	const char *name;
	int r = 0;

	for (size_t at = 0; at < names->len && r == 0; at += strlen(name) + 1) {
		struct checkpoint key = { 0 }, *of_key = &key, **known;

		name = (const char *)names->data + at;
		if (!tier_manifest_name_parse(name, key.seal.store, &key.seal.number) ||
		    !tier_log_keeps(&l->v->log, key.seal.store, key.seal.number))
			continue;
		if (is_fence(l->v, name)) {
			r = add_fence(l, name);
			continue;
		}
		known = l->nr > 0 ? bsearch(&of_key, l->sorted, l->nr, sizeof(of_key), compare_seals) : NULL;
		if (known)
			l->found[known - l->sorted] = true;
		else
			buf_add(&l->wanted, name, strlen(name) + 1);
	}
	return r < 0 ? r : buf_error(&l->wanted);
}

static int add_head(void *userdata, const char *name, int r, const struct tier_manifest *m)
{
	struct listing *l = userdata;
	struct tier_view *v = l->v;

	if (r == -ENODATA)
		return add_fence(l, name);
	if (r == 0)
		r = view_add_checkpoint(v, m);
	if (r < 0)
		log_limited(&v->limit, LOG_LEVEL_ERROR, "tier %s: %s: cannot show the checkpoint: %s",
			    tier_where(v->tier), name,
			    r == -EBADMSG    ? "its manifest is damaged" :
			    r == -EOPNOTSUPP ? "its manifest was written by a newer version" :
					       strerror(-r));
	return 0;
}

static bool is_stopping(void *userdata)
{
	const struct listing *l = userdata;

	return tier_pool_is_stopping(l->v->pool);
}

static size_t nr_of(const struct buf *names)
{
	size_t nr = 0;

	for (size_t i = 0; i < names->len; i++)
		nr += names->data[i] == '\0';
	return nr;
}

static int list_manifests(struct tier_view *v)
{
	_cleanup_(listing_release) struct listing l = { .v = v };
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	const struct tier_heads_sink to = { add_head, is_stopping, &l };
	int r = sort_known(&l);

	if (r == 0)
		r = tier_list_all(v->tier, TIER_SEALED_PREFIX, &names);
	if (r == 0)
		r = read_log(v);
	if (r == 0)
		r = compare_list(&l, &names);
	if (r == 0)
		r = tier_heads_read(v->tier, &l.wanted, &to);
	if (r < 0)
		return r;
	keep_fences(&l);
	mutex_lock(&v->lock);
	for (size_t i = 0; i < l.nr; i++) {
		if (l.sorted[i]->is_gone) /* since the list began: its name is that of another one */
			continue;
		v->is_changed |= !l.found[i];
		l.sorted[i]->is_gone = !l.found[i];
	}
	v->nr_listed = nr_of(&names);
	if (v->is_changed || v->list == 0) /* other requests wait for the lock meanwhile */
		r = view_rebuild_names(v);
	v->is_changed = r < 0;
	mutex_unlock(&v->lock);
	return r;
}

void view_run_list(struct tier_job *job)
{
	struct tier_view *v = container_of(job, struct tier_view, list_job);
	int r = list_manifests(v);
	bool is_first;

	mutex_lock(&v->lock);
	is_first = v->list == 0;
	mutex_unlock(&v->lock);
	if (r < 0 && !is_first) /* the mount reports a failure of the first list */
		log_limited(&v->limit, LOG_LEVEL_ERROR, "tier %s: cannot list checkpoints: %s; the last list stays",
			    tier_where(v->tier), strerror(-r));
	mutex_lock(&v->lock);
	v->list_error = r;
	v->is_listing = false;
	v->listed_ns = monotonic_ns();
	cond_broadcast(&v->changed);
	mutex_unlock(&v->lock);
}
