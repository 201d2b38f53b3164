/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/tiermount/tier_view.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/tiermount/tier_paths.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/seals/tier_heads.h"
#include "store/tier/tier.h"
#include "store/tier/tier_read.h"

#define LIST_AGE_NS UINT64_C(5000000000) /* between two lists, and a second for each 10,000 checkpoints */
#define LIST_AGE_OF_ONE_NS UINT64_C(100000)
#define LIST_WAIT_NS UINT64_C(5000000000)
#define BUCKETS 1024u
#define OWN ".ckptfs"
#define CHECKPOINTS_MAX (UINT32_MAX / 4)

enum kind { BY_PATH, BY_STORE, BY_NUMBER, NR_KINDS };

struct checkpoint;

struct loaded {
	struct tier_entered e; /* the first member */
	struct tier_reader *reader;
	struct tier_tree *tree;
	struct checkpoint *of;
	uint64_t memory;
	struct loaded *older, *newer; /* by last use */
};

struct checkpoint {
	struct tier_job job; /* loads it */
	struct tier_view *view;
	struct tier_seal seal;
	bool is_gone; /* not in the last list; or its name is that of another one by now, and stays so */
	bool is_shown[NR_KINDS];
	bool is_loading;
	int error; /* of the last attempt to load it */
	unsigned nr_attempts; /* ended */
	struct loaded *loaded; /* NULL: not now */
	unsigned nr_users; /* requests that use it, or wait for it */
	bool has_top;
	struct tier_inode top; /* its directory; without entries */
};

struct dir {
	char *path; /* from the mountpoint; "": the root */
	struct dir *next; /* in its bucket */
	uint32_t number;
	uint64_t listed; /* number of the last list that contains it */
	int64_t newest_ns;
};

struct name {
	uint32_t dir;
	uint64_t node;
	char *name;
};

struct tier_view {
	struct tier *tier; /* constant, like the next three */
	struct tier_pool *pool;
	struct tier_cache *cache;
	struct tier_view_conf conf;
	struct tier_job list_job;
	/* Used by the job only. */
	struct tier_log log;
	bool has_log;
	struct tier_object_name *fences; /* of collections, in the last list; sorted */
	size_t nr_fences, fences_room;
	struct log_limit limit;
	struct mutex lock; /* a leaf */
	struct cond changed;
	bool stop GUARDED_BY(lock);
	struct checkpoint **checkpoints GUARDED_BY(lock); /* numbers are not reused */
	size_t nr_checkpoints GUARDED_BY(lock), checkpoints_room GUARDED_BY(lock);
	struct dir **dirs GUARDED_BY(lock); /* likewise */
	size_t nr_dirs GUARDED_BY(lock), dirs_room GUARDED_BY(lock);
	struct dir *buckets[BUCKETS] GUARDED_BY(lock);
	struct name *names GUARDED_BY(lock); /* of the last list, sorted by directory and name */
	size_t nr_names GUARDED_BY(lock), names_room GUARDED_BY(lock);
	struct name **by_offset GUARDED_BY(lock); /* the same, sorted by directory and offset */
	bool has_gone GUARDED_BY(lock); /* some are no longer in the list */
	bool is_changed GUARDED_BY(lock); /* since the names were made */
	size_t nr_listed GUARDED_BY(lock);
	uint64_t list GUARDED_BY(lock); /* number of the last one */
	uint64_t listed_ns GUARDED_BY(lock); /* when the last attempt ended */
	bool is_listing GUARDED_BY(lock);
	uint64_t began_ns GUARDED_BY(lock); /* the current list */
	int list_error GUARDED_BY(lock); /* of the last attempt */
	uint64_t trees GUARDED_BY(lock); /* bytes */
	struct loaded *oldest GUARDED_BY(lock), *newest GUARDED_BY(lock); /* of the trees */
};

/* --- names of stores and checkpoints --- */

struct hex_id {
	char s[2 * TIER_ID_LEN + 1];
};

static struct hex_id hex_id(const uint8_t id[TIER_ID_LEN])
{
	struct hex_id h;

	for (unsigned i = 0; i < TIER_ID_LEN; i++)
		sprintf(h.s + 2 * i, "%02x", id[i]);
	return h;
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

/* Without a zero byte. */
static void path_of(const struct tier_seal *s, enum kind kind, struct buf *ret)
{
	char number[20];

	if (kind == BY_PATH) {
		add_text(ret, s->path);
		return;
	}
	add_text(ret, kind == BY_STORE ? OWN "/stores/" : OWN "/sealed/");
	add_text(ret, hex_id(s->store).s);
	if (kind == BY_STORE && s->path[0] == '\0')
		return;
	add_text(ret, "/");
	snprintf(number, sizeof(number), "%016" PRIx64, s->number);
	add_text(ret, kind == BY_STORE ? s->path : number);
}

/* --- the list of names; with the lock --- */

static unsigned bucket_of(const char *path, size_t len)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)path[i]) * 16777619u;
	return h % BUCKETS;
}

static int dir_get_or_add(struct tier_view *v, const char *path, size_t len, struct dir **ret)
{
	struct dir **bucket = &v->buckets[bucket_of(path, len)], *d;
	int r;

	for (d = *bucket; d; d = d->next)
		if (strlen(d->path) == len && memcmp(d->path, path, len) == 0) {
			*ret = d;
			return 0;
		}
	r = list_grow(&v->dirs, v->nr_dirs, &v->dirs_room, sizeof(struct dir *));
	d = r == 0 ? calloc(1, sizeof(*d)) : NULL;
	if (!d)
		return -ENOMEM;
	d->path = strndup(path, len);
	if (!d->path) {
		free(d);
		return -ENOMEM;
	}
	d->number = (uint32_t)v->nr_dirs;
	d->next = *bucket;
	*bucket = d;
	v->dirs[v->nr_dirs++] = d;
	*ret = d;
	return 0;
}

static int add_name(struct tier_view *v, uint32_t dir, const char *name, size_t len, uint64_t node)
{
	struct name n = { .dir = dir, .node = node };
	int r = list_grow(&v->names, v->nr_names, &v->names_room, sizeof(*v->names));

	if (r < 0)
		return r;
	n.name = strndup(name, len);
	if (!n.name)
		return -ENOMEM;
	v->names[v->nr_names++] = n;
	return 0;
}

/* Adds the directory with this path and its parents to the list. */
static int list_dir(struct tier_view *v, const char *path, size_t len, int64_t newest_ns, uint32_t *ret)
{
	struct dir *d;
	int r = dir_get_or_add(v, path, len, &d);
	size_t last = len;
	uint32_t above;
	bool is_new;

	if (r < 0)
		return r;
	is_new = d->listed != v->list;
	d->newest_ns = is_new ? newest_ns : MAX(d->newest_ns, newest_ns);
	d->listed = v->list;
	*ret = d->number;
	if (len == 0)
		return 0;
	while (last > 0 && path[last - 1] != '/')
		last--;
	r = list_dir(v, path, last > 0 ? last - 1 : 0, newest_ns, &above);
	return r < 0 || !is_new ? r : add_name(v, above, path + last, len - last, tier_node(0, d->number));
}

static int list_path(struct tier_view *v, const char *path, int64_t newest_ns, uint64_t node)
{
	const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
	uint32_t dir;
	int r = list_dir(v, path, slash ? (size_t)(slash - path) : 0, newest_ns, &dir);

	return r < 0 ? r : add_name(v, dir, last, strlen(last), node);
}

static int collect_paths(struct tier_view *v, struct tier_shown *all, size_t *nr)
{
	for (size_t i = 0; i < v->nr_checkpoints; i++) {
		struct checkpoint *c = v->checkpoints[i];

		for (enum kind k = 0; k < NR_KINDS; k++) {
			_cleanup_(buf_release) struct buf b = BUF_EMPTY;

			c->is_shown[k] = false;
			if (c->is_gone || (k == BY_PATH && (!c->seal.path[0] || tier_path_is_below(c->seal.path, OWN))))
				continue;
			path_of(&c->seal, k, &b);
			buf_add_u8(&b, 0);
			if (buf_error(&b) < 0)
				return -ENOMEM;
			all[(*nr)++] = (struct tier_shown){ (char *)b.data, &c->seal, .checkpoint = i, .kind = k };
			b = BUF_EMPTY;
		}
	}
	return 0;
}

static int list_paths(struct tier_view *v, struct tier_shown *all, size_t nr)
{
	int r = tier_paths_choose(all, nr);

	for (size_t i = 0; i < nr && r == 0; i++) {
		struct tier_shown *s = &all[i];

		if (!s->is_shown)
			continue;
		v->checkpoints[s->checkpoint]->is_shown[s->kind] = true;
		r = list_path(v, s->path, s->seal->sealed_ns,
			      tier_node((uint32_t)(1 + NR_KINDS * s->checkpoint + (unsigned)s->kind), 0));
	}
	return r;
}

static int compare_names(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int compare_offsets(const void *a, const void *b)
{
	const struct name *x = *(struct name *const *)a, *y = *(struct name *const *)b;
	uint64_t p = tier_node_offset(x->node), q = tier_node_offset(y->node);

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return (p > q) - (p < q);
}

static int sort_names(struct tier_view *v)
{
	if (v->nr_names == 0)
		return 0;
	qsort(v->names, v->nr_names, sizeof(*v->names), compare_names);
	v->by_offset = calloc(v->nr_names, sizeof(*v->by_offset));
	for (size_t i = 0; v->by_offset && i < v->nr_names; i++)
		v->by_offset[i] = &v->names[i];
	if (v->by_offset)
		qsort(v->by_offset, v->nr_names, sizeof(*v->by_offset), compare_offsets);
	return v->by_offset ? 0 : -ENOMEM;
}

static void clear_names(struct tier_view *v)
{
	free(TAKE(v->by_offset));
	while (v->nr_names > 0)
		free(v->names[--v->nr_names].name);
}

static int rebuild_names(struct tier_view *v)
{
	struct tier_shown *all = calloc(MAX(NR_KINDS * v->nr_checkpoints, (size_t)1), sizeof(*all));
	size_t nr = 0;
	uint32_t dir;
	int r = all ? 0 : -ENOMEM, sorted;

	clear_names(v);
	v->list++;
	if (r == 0)
		r = list_dir(v, "", 0, 0, &dir); /* the first: number 0 */
	if (r == 0)
		r = list_dir(v, OWN "/stores", strlen(OWN "/stores"), 0, &dir);
	if (r == 0)
		r = list_dir(v, OWN "/sealed", strlen(OWN "/sealed"), 0, &dir);
	if (r == 0)
		r = collect_paths(v, all, &nr);
	if (r == 0)
		r = list_paths(v, all, nr);
	sorted = sort_names(v);
	for (size_t i = 0; all && i < nr; i++)
		free(all[i].path);
	free(all);
	return r < 0 ? r : sorted;
}

/* --- listing the tier, on a thread of the pool --- */

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

static int add_checkpoint(struct tier_view *v, const struct tier_manifest *m);

static int add_head(void *userdata, const char *name, int r, const struct tier_manifest *m)
{
	struct listing *l = userdata;
	struct tier_view *v = l->v;

	if (r == -ENODATA)
		return add_fence(l, name);
	if (r == 0)
		r = add_checkpoint(v, m);
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
		r = rebuild_names(v);
	v->is_changed = r < 0;
	mutex_unlock(&v->lock);
	return r;
}

static void run_list(struct tier_job *job)
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

/* --- loading a checkpoint, on a thread of the pool --- */

static void loaded_free(struct loaded *l)
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
		loaded_free(l);
		return -ESTALE;
	}
	r = tier_tree_new(m, &l->tree);
	if (r == -EBADMSG || r == -EOPNOTSUPP)
		log_cause(r, "tier %s: %s: %s", tier_where(v->tier), name.s,
			  r == -EBADMSG ? "its catalog is damaged" : "its catalog was written by a newer version");
	if (r == 0)
		r = tier_source_new(v->cache, m, tier_reader_key(l->reader), &l->e.source);
	if (r < 0) {
		loaded_free(l);
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
		loaded_free(l);
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

/* Adds a new checkpoint, which is not shown until rebuild_names(). */
static int add_checkpoint(struct tier_view *v, const struct tier_manifest *m)
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

/* --- waiting --- */

static bool must_not_wait(const struct tier_waiter *w)
{
	return w && w->must_not_wait;
}

/* Waits for a while. The lock is released meanwhile. */
static int await_change(struct tier_view *v, const struct tier_waiter *w, uint64_t until_ns) REQUIRES(v->lock)
{
	uint64_t now = monotonic_ns();
	bool is_interrupted = false;

	if (v->stop)
		return -EIO;
	if (now >= until_ns)
		return -ETIMEDOUT;
	if (must_not_wait(w))
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
	if (is_due && must_not_wait(w)) {
		r = -EINPROGRESS;
	} else if (is_due) {
		v->is_listing = true;
		v->began_ns = monotonic_ns();
		tier_pool_submit(v->pool, &v->list_job, TIER_FIRST);
	}
	while (v->is_listing && r == 0)
		r = await_change(v, w, v->began_ns + LIST_WAIT_NS);
	mutex_unlock(&v->lock);
	return r == -EINPROGRESS ? r : 0;
}

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
		if (must_not_wait(w) || (!c->is_loading && c->nr_attempts != nr_attempts && c->error < 0)) {
			r = must_not_wait(w) ? -EINPROGRESS : c->error;
			break;
		}
		if (!c->is_loading) {
			c->is_loading = true;
			tier_pool_submit(v->pool, &c->job, TIER_URGENT);
		}
		r = await_change(v, w, until);
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

/* --- directories above checkpoints --- */

int tier_view_find(struct tier_view *v, uint32_t dir, const char *name, uint64_t *ret_node)
{
	const struct name key = { .dir = dir, .name = (char *)(uintptr_t)name };
	const struct name *n;

	mutex_lock(&v->lock);
	n = v->nr_names > 0 ? bsearch(&key, v->names, v->nr_names, sizeof(key), compare_names) : NULL;
	if (n)
		*ret_node = n->node;
	mutex_unlock(&v->lock);
	return n ? 0 : -ENOENT;
}

/* The place of the first name after this offset. */
static size_t first_after(struct tier_view *v, uint32_t dir, uint64_t after)
{
	size_t low = 0, high = v->by_offset ? v->nr_names : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct name *n = v->by_offset[middle];

		if (n->dir < dir || (n->dir == dir && tier_node_offset(n->node) <= after))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int tier_view_list(struct tier_view *v, uint32_t dir, uint64_t after, size_t len, struct buf *ret)
{
	size_t end = ret->len + len;

	mutex_lock(&v->lock);
	for (size_t i = first_after(v, dir, after); v->by_offset && i < v->nr_names && ret->len <= end; i++) {
		const struct name *n = v->by_offset[i];

		if (n->dir != dir)
			break;
		if (dir == 0 && strcmp(n->name, OWN) == 0)
			continue;
		buf_add(ret, &n->node, sizeof(n->node));
		buf_add(ret, n->name, strlen(n->name) + 1);
	}
	mutex_unlock(&v->lock);
	return buf_error(ret);
}

int tier_view_time(struct tier_view *v, uint32_t dir, int64_t *ret_ns)
{
	bool is_there;

	mutex_lock(&v->lock);
	is_there = dir < v->nr_dirs;
	if (is_there)
		*ret_ns = v->dirs[dir]->newest_ns;
	mutex_unlock(&v->lock);
	return is_there ? 0 : -ESTALE;
}

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

/* --- the list of checkpoints --- */

/* Is the node in /.ckptfs/stores/STORE? */
static bool is_of_store(struct tier_view *v, uint64_t node, uint8_t ret_store[TIER_ID_LEN])
{
	static const char stores[] = OWN "/stores/";
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

int tier_view_next(struct tier_view *v, uint64_t node, uint64_t after, uint64_t *ret_number, const struct tier_seal **ret,
		   struct buf *ret_path)
{
	uint8_t store[TIER_ID_LEN];
	bool has_store;
	int r = 0;

	mutex_lock(&v->lock);
	has_store = is_of_store(v, node, store);
	for (size_t i = after; i < v->nr_checkpoints && r == 0; i++) {
		const struct checkpoint *c = v->checkpoints[i];
		enum kind first = has_store ? BY_STORE : BY_PATH;

		if (c->is_gone || (has_store && memcmp(store, c->seal.store, sizeof(store)) != 0))
			continue;
		path_of(&c->seal, c->is_shown[first] ? first : BY_NUMBER, ret_path);
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
		path_of(&v->checkpoints[(place - 1) / NR_KINDS]->seal, (place - 1) % NR_KINDS, ret);
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
		r = await_change(v, NULL, until);
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
	v->list_job.run = run_list;
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
	clear_names(v);
	mutex_unlock(&v->lock);
	for (size_t i = 0; i < v->nr_checkpoints; i++) {
		loaded_free(v->checkpoints[i]->loaded);
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
