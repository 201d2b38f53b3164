/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The directories above checkpoints. Each list of the tier makes the names again, sorted; the numbers of directories
 * stay.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/tiermount/tier_paths.h"
#include "fs/tiermount/tier_view_state.h"

/* --- paths of seals --- */

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

void view_path(const struct tier_seal *s, enum view_kind kind, struct buf *ret)
{
	char number[20];

	if (kind == BY_PATH) {
		add_text(ret, s->path);
		return;
	}
	add_text(ret, kind == BY_STORE ? VIEW_OWN "/stores/" : VIEW_OWN "/sealed/");
	add_text(ret, hex_id(s->store).s);
	if (kind == BY_STORE && s->path[0] == '\0')
		return;
	add_text(ret, "/");
	snprintf(number, sizeof(number), "%016" PRIx64, s->number);
	add_text(ret, kind == BY_STORE ? s->path : number);
}

/* --- making the names; with the lock --- */

static unsigned bucket_of(const char *path, size_t len)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)path[i]) * 16777619u;
	return h % VIEW_BUCKETS;
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

		for (enum view_kind k = 0; k < NR_KINDS; k++) {
			_cleanup_(buf_release) struct buf b = BUF_EMPTY;

			c->is_shown[k] = false;
			if (c->is_gone ||
			    (k == BY_PATH && (!c->seal.path[0] || tier_path_is_below(c->seal.path, VIEW_OWN))))
				continue;
			view_path(&c->seal, k, &b);
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

void view_clear_names(struct tier_view *v)
{
	free(TAKE(v->by_offset));
	while (v->nr_names > 0)
		free(v->names[--v->nr_names].name);
}

int view_rebuild_names(struct tier_view *v)
{
	struct tier_shown *all = calloc(MAX(NR_KINDS * v->nr_checkpoints, (size_t)1), sizeof(*all));
	size_t nr = 0;
	uint32_t dir;
	int r = all ? 0 : -ENOMEM, sorted;

	view_clear_names(v);
	v->list++;
	if (r == 0)
		r = list_dir(v, "", 0, 0, &dir); /* the first: number 0 */
	if (r == 0)
		r = list_dir(v, VIEW_OWN "/stores", strlen(VIEW_OWN "/stores"), 0, &dir);
	if (r == 0)
		r = list_dir(v, VIEW_OWN "/sealed", strlen(VIEW_OWN "/sealed"), 0, &dir);
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

/* --- reading them --- */

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
		if (dir == 0 && strcmp(n->name, VIEW_OWN) == 0)
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
