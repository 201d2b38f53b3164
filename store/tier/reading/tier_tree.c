/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/reading/tier_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "store/catalog/catalog_format.h"

#define INODES_MAX (UINT32_MAX / 4)

struct builder {
	const struct tier_manifest *m;
	struct tier_tree *t;
	size_t inodes_room, entries_room, xattrs_room, stretches_room;
	uint32_t *dirs, *files; /* inodes by the numbers of the catalog */
	size_t nr_dirs, nr_files, dirs_room, files_room;
	uint64_t covered; /* bytes of the last inode that have runs */
};

static void builder_release(struct builder *b)
{
	free(b->dirs);
	free(b->files);
	tier_tree_free(b->t);
}

static int add_number(uint32_t **list, size_t *nr, size_t *room, uint32_t inode)
{
	int r = list_grow(list, *nr, room, sizeof(**list));

	if (r == 0)
		(*list)[(*nr)++] = inode;
	return r;
}

static int add_name(struct tier_tree *t, const char *name, uint32_t *ret)
{
	if (t->names.len > UINT32_MAX - NS_NAME_MAX - 1)
		return -EBADMSG;
	*ret = (uint32_t)t->names.len;
	buf_add(&t->names, name, strlen(name) + 1);
	return buf_error(&t->names);
}

static int add_entry(struct builder *b, uint32_t dir, uint32_t inode, const char *name)
{
	struct tier_tree *t = b->t;
	struct tier_entry e = { .dir = dir, .inode = inode };
	int r = list_grow(&t->entries, t->nr_entries, &b->entries_room, sizeof(*t->entries));

	if (r == 0)
		r = add_name(t, name, &e.name);
	if (r == 0)
		t->entries[t->nr_entries++] = e;
	return r;
}

/* Runs must cover all bytes of a file. */
static int check_last_inode(const struct builder *b)
{
	const struct tier_tree *t = b->t;
	const struct tier_inode *in = t->nr_inodes > 0 ? &t->inodes[t->nr_inodes - 1] : NULL;

	return in && S_ISREG(in->mode) && b->covered != in->size ? -EBADMSG : 0;
}

static int add_inode(struct builder *b, const struct catalog_record *rec)
{
	struct tier_tree *t = b->t;
	bool is_dir = S_ISDIR(rec->in.mode), is_top = t->nr_inodes == 0;
	struct tier_inode in = {
		.mode = rec->in.mode,
		.uid = rec->in.uid,
		.gid = rec->in.gid,
		.nlink = is_dir ? 2 : 1,
		.rdev = rec->in.rdev,
		.size = S_ISLNK(rec->in.mode) ? rec->len : rec->size,
		.atime_ns = rec->in.atime_ns,
		.mtime_ns = rec->in.mtime_ns,
		.ctime_ns = rec->in.ctime_ns,
		.btime_ns = rec->in.btime_ns,
		.first = S_ISREG(rec->in.mode) ? t->nr_stretches : 0,
		.first_xattr = t->nr_xattrs,
		.target = S_ISLNK(rec->in.mode) ? rec->data : NULL,
	};
	int r = t->nr_inodes >= INODES_MAX ? -EBADMSG :
					     list_grow(&t->inodes, t->nr_inodes, &b->inodes_room, sizeof(*t->inodes));

	if (r == 0)
		r = is_dir ? add_number(&b->dirs, &b->nr_dirs, &b->dirs_room, t->nr_inodes) :
			     add_number(&b->files, &b->nr_files, &b->files_room, t->nr_inodes);
	if (r < 0)
		return r;
	in.parent = b->dirs[rec->dir]; /* the reader has checked the number */
	if (is_top)
		r = add_name(t, "", &in.name);
	else
		r = add_entry(b, in.parent, t->nr_inodes, rec->name);
	if (r < 0)
		return r;
	if (!is_top)
		in.name = t->entries[t->nr_entries - 1].name;
	if (is_dir && !is_top)
		t->inodes[in.parent].nlink++;
	t->inodes[t->nr_inodes++] = in;
	b->covered = 0;
	return 0;
}

static int add_link(struct builder *b, const struct catalog_record *rec)
{
	uint32_t inode = b->files[rec->file];

	b->t->inodes[inode].nlink++;
	return add_entry(b, b->dirs[rec->dir], inode, rec->name);
}

static int add_xattr(struct builder *b, const struct catalog_record *rec)
{
	struct tier_tree *t = b->t;
	struct tier_xattr x = { .value = rec->data, .len = (uint32_t)rec->len };
	int r = list_grow(&t->xattrs, t->nr_xattrs, &b->xattrs_room, sizeof(*t->xattrs));

	if (r == 0)
		r = add_name(t, rec->name, &x.name);
	if (r < 0)
		return r;
	t->xattrs[t->nr_xattrs++] = x;
	t->inodes[t->nr_inodes - 1].nr_xattrs++;
	return 0;
}

static int add_runs(struct builder *b, const uint8_t *p, size_t len)
{
	struct tier_tree *t = b->t;
	struct tier_inode *in = t->nr_inodes > 0 ? &t->inodes[t->nr_inodes - 1] : NULL;
	struct cursor c = cursor_of(p, len);
	uint64_t off = b->covered;
	struct tier_run run;
	int r;

	if (!in || !S_ISREG(in->mode) || len == 0)
		return -EBADMSG;
	while ((r = tier_run_next(&c, &run)) > 0) {
		if (run.len > in->size - b->covered || run.pack > b->m->nr_packs)
			return -EBADMSG;
		b->covered += run.len;
		in->mapped += run.pack > 0 ? run.len : 0;
	}
	if (r == 0)
		r = list_grow(&t->stretches, t->nr_stretches, &b->stretches_room, sizeof(*t->stretches));
	if (r < 0)
		return r;
	t->stretches[t->nr_stretches++] = (struct tier_stretch){ off, p, (uint32_t)len };
	in->nr++;
	return 0;
}

static int add_record(struct builder *b, const struct catalog_record *rec)
{
	int r = 0;

	if (rec->type == CATALOG_INODE || rec->type == CATALOG_LINK || rec->type == CATALOG_END)
		r = check_last_inode(b);
	if (r < 0)
		return r;
	switch (rec->type) {
	case CATALOG_INODE:
		return add_inode(b, rec);
	case CATALOG_LINK:
		return add_link(b, rec);
	case CATALOG_XATTR:
		return add_xattr(b, rec);
	case CATALOG_HEAD:
	case CATALOG_END:
		return 0;
	default:
		return -EBADMSG; /* pieces: a manifest has runs instead */
	}
}

/* Parses a record of runs, a type that only manifests have. 1; 0: another type; -EBADMSG. */
static int parse_runs(struct cursor *c, const uint8_t **ret, size_t *ret_len)
{
	struct cursor at = *c;
	uint64_t len;

	if (cursor_u8(&at) != TIER_RUNS_TYPE)
		return 0;
	len = cursor_varint(&at);
	if (at.failed || len > CATALOG_RECORD_MAX)
		return -EBADMSG;
	*ret = cursor_take(&at, (size_t)len);
	*ret_len = (size_t)len;
	*c = at;
	return *ret ? 1 : -EBADMSG;
}

static int add_records(struct builder *b)
{
	/* The digest of the manifest was verified, so the checksum of the catalog is not needed. */
	struct catalog_reader reader = { .is_without_pieces = true };
	struct cursor c = cursor_of(b->m->catalog, (size_t)b->m->catalog_len);
	struct catalog_record rec;
	const uint8_t *runs;
	size_t used, len;
	int r = 0;

	while (r == 0 && cursor_left(&c) > 0) {
		r = reader.has_head && !reader.at_end ? parse_runs(&c, &runs, &len) : 0;
		if (r > 0) {
			r = add_runs(b, runs, len);
			continue;
		}
		if (r == 0)
			r = catalog_reader_next(&reader, c.p, cursor_left(&c), &used, &rec);
		if (r <= 0)
			return r < 0 ? r : -EBADMSG;
		cursor_take(&c, used);
		r = add_record(b, &rec);
	}
	return r < 0 ? r : reader.at_end ? 0 : -EBADMSG;
}

static int compare_entries(const void *a, const void *b, void *userdata)
{
	const struct tier_entry *x = a, *y = b;
	const struct tier_tree *t = userdata;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return strcmp(tier_tree_name(t, x->name), tier_tree_name(t, y->name));
}

static int sort_entries(struct tier_tree *t)
{
	if (t->nr_entries > 0)
		qsort_r(t->entries, t->nr_entries, sizeof(*t->entries), compare_entries, t);
	for (uint32_t i = 0; i < t->nr_entries; i++) {
		struct tier_inode *dir = &t->inodes[t->entries[i].dir];

		if (i > 0 && compare_entries(&t->entries[i - 1], &t->entries[i], t) == 0)
			return -EBADMSG; /* duplicate name */
		if (dir->nr++ == 0)
			dir->first = i;
	}
	return 0;
}

int tier_tree_new(const struct tier_manifest *m, struct tier_tree **ret)
{
	_cleanup_(builder_release) struct builder b = { .m = m, .t = calloc(1, sizeof(*b.t)) };
	int r = b.t ? add_records(&b) : -ENOMEM;

	if (r == 0)
		r = sort_entries(b.t);
	if (r < 0)
		return r;
	b.t->memory = sizeof(*b.t) + b.inodes_room * sizeof(*b.t->inodes) + b.entries_room * sizeof(*b.t->entries) +
		      b.xattrs_room * sizeof(*b.t->xattrs) + b.stretches_room * sizeof(*b.t->stretches) +
		      b.t->names.size;
	*ret = TAKE(b.t);
	return 0;
}

void tier_tree_free(struct tier_tree *t)
{
	if (!t)
		return;
	free(t->inodes);
	free(t->entries);
	free(t->xattrs);
	free(t->stretches);
	buf_release(&t->names);
	free(t);
}

void tier_tree_freep(struct tier_tree **t)
{
	tier_tree_free(*t);
}

const struct tier_entry *tier_tree_find(const struct tier_tree *t, uint32_t dir, const char *name)
{
	uint32_t low = t->inodes[dir].first, high = low + t->inodes[dir].nr;

	if (!S_ISDIR(t->inodes[dir].mode))
		return NULL;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int k = strcmp(tier_tree_name(t, t->entries[middle].name), name);

		if (k == 0)
			return &t->entries[middle];
		if (k < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

void tier_tree_path(const struct tier_tree *t, uint32_t inode, struct buf *ret)
{
	size_t from = ret->len, len = 0;

	for (uint32_t i = inode; i != 0; i = t->inodes[i].parent) /* parents have lower numbers */
		len += strlen(tier_tree_name(t, t->inodes[i].name)) + (t->inodes[i].parent != 0);
	if (buf_reserve(ret, len + 1) < 0)
		return;
	ret->len += len + 1;
	ret->data[from + len] = '\0';
	for (uint32_t i = inode; i != 0; i = t->inodes[i].parent) {
		const char *name = tier_tree_name(t, t->inodes[i].name);
		size_t n = strlen(name);

		len -= n;
		memcpy(ret->data + from + len, name, n);
		if (t->inodes[i].parent != 0)
			ret->data[from + --len] = '/';
	}
}

/* --- runs --- */

struct tier_runs tier_runs_from(const struct tier_tree *t, uint32_t inode, uint64_t off)
{
	const struct tier_inode *in = &t->inodes[inode];
	struct tier_runs it = { .tree = t, .stretch = in->first, .end = in->first + in->nr };
	uint32_t low = in->first, high = it.end;

	while (high - low > 1) { /* stretches[low].off <= off, and off is before stretch `high` */
		uint32_t middle = low + (high - low) / 2;

		if (t->stretches[middle].off <= off)
			low = middle;
		else
			high = middle;
	}
	it.stretch = low;
	it.off = in->nr > 0 ? t->stretches[low].off : 0;
	it.c = cursor_of(NULL, 0);
	while (it.off <= off) {
		struct tier_runs before = it;
		struct tier_run run;
		uint64_t at;

		if (!tier_runs_next(&it, &run, &at))
			break;
		if (it.off > off)
			return before;
	}
	return it;
}

bool tier_runs_next(struct tier_runs *it, struct tier_run *ret, uint64_t *ret_off)
{
	while (cursor_left(&it->c) == 0) {
		if (it->stretch == it->end)
			return false;
		it->c = cursor_of(it->tree->stretches[it->stretch].runs, it->tree->stretches[it->stretch].len);
		it->stretch++;
	}
	if (tier_run_next(&it->c, ret) <= 0)
		return false; /* all runs were decoded when the tree was built */
	*ret_off = it->off;
	it->off += ret->len;
	return true;
}
