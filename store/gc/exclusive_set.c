/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Maps names to files: a file is deleted with its last name. */
#include "store/gc/exclusive.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/gc/owners.h"

#define NAMES_PER_STEP 4096u

/* A name of a file. */
struct found {
	uint64_t ino, dir, cookie;
};

struct search {
	struct db_iter *it;
	const struct exclusive_conf *conf;
	struct exclusive_report *report;
	struct found *found;
	uint64_t *inos; /* of an owner */
	size_t nr, size; /* of either */
};

/* Room for one more in *v, of which each takes `each` bytes in the end. */
static int make_room(struct search *s, void *v, size_t element, size_t each)
{
	size_t size = MAX(2 * s->size, (size_t)256);
	void *more;

	if (s->nr < s->size)
		return 0;
	if (s->conf->set_bytes != 0 && size > s->conf->set_bytes / each)
		return -E2BIG;
	memcpy(&more, v, sizeof(more));
	more = reallocarray(more, size, element);
	if (!more)
		return -ENOMEM;
	memcpy(v, &more, sizeof(more));
	s->size = size;
	return 0;
}

static int count_found(struct search *s)
{
	s->nr++;
	if (s->nr % NAMES_PER_STEP == 0 && s->conf->step && !s->conf->step(s->conf->userdata, s->report))
		return -ECANCELED;
	return 0;
}

static int add_found(struct search *s, const struct found *f)
{
	int r = make_room(s, &s->found, sizeof(*s->found), sizeof(*s->found) + sizeof(*s->inos));

	if (r < 0)
		return r;
	s->found[s->nr] = *f;
	return count_found(s);
}

static int add_owned(struct search *s, uint64_t ino)
{
	int r = make_room(s, &s->inos, sizeof(*s->inos), sizeof(*s->inos));

	if (r < 0)
		return r;
	s->inos[s->nr] = ino;
	return count_found(s);
}

static int check(struct search *s, uint64_t ino)
{
	return s->conf->check ? s->conf->check(s->conf->userdata, ino) : 0;
}

static int add_file(struct search *s, const struct found *f)
{
	int r = check(s, f->ino);

	return r < 0 ? (r == -ENOENT ? 0 : r) : add_found(s, f);
}

static int add_names(struct search *s, const struct exclusive_name *n)
{
	struct ns_key dir = ns_key_dirents(n->dir), from = n->cookie ? ns_key_dirent(n->dir, n->cookie) : dir;
	const void *key, *value;
	size_t key_len, value_len;
	struct ns_dirent d;
	int r = check(s, n->dir);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	db_iter_seek(s->it, from.b, from.len);
	while ((r = db_iter_next(s->it, &key, &key_len, &value, &value_len)) > 0) {
		if (key_len != dir.len + 8 || memcmp(key, from.b, from.len) != 0)
			return 0;
		r = ns_dirent_decode(be64_get((const uint8_t *)key + dir.len), value, value_len, &d);
		if (r < 0)
			return log_errno(r, "index: a name is damaged: run fsck.ckptfs");
		if (d.type == DT_REG)
			r = add_file(s, &(struct found){ d.ino, n->dir, d.cookie });
		if (r < 0)
			return r;
	}
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return (x->cookie > y->cookie) - (x->cookie < y->cookie);
}

/* 1: found the value of exactly this key. */
static int seek_value(struct db_iter *it, struct ns_key want, const void **ret, size_t *ret_len)
{
	const void *key;
	size_t key_len;
	int r;

	db_iter_seek(it, want.b, want.len);
	r = db_iter_next(it, &key, &key_len, ret, ret_len);
	return r <= 0 ? r : key_len == want.len && memcmp(key, want.b, want.len) == 0;
}

static int links_of(struct db_iter *it, uint64_t ino, uint32_t *ret)
{
	struct ns_inode in;
	const void *value;
	size_t len;
	int r = seek_value(it, ns_key_inode(ino), &value, &len);

	if (r > 0)
		r = ns_inode_decode(ino, value, len, &in);
	else if (r == 0)
		r = -EBADMSG;
	if (r < 0)
		return log_errno(r, "index: inode %" PRIu64 " is damaged: run fsck.ckptfs", ino);
	*ret = in.nlink;
	return 0;
}

static int count_content(struct search *s, uint64_t ino)
{
	struct ns_content content;
	const void *value;
	size_t len;
	int r = seek_value(s->it, ns_key_content(ino), &value, &len);

	if (r <= 0)
		return r;
	r = ns_content_decode(value, len, &content);
	if (r < 0)
		return log_errno(r, "index: the size of inode %" PRIu64 " is damaged: run fsck.ckptfs", ino);
	s->report->size += content.size;
	s->report->mapped += content.mapped;
	return 0;
}

/* Lists the inodes that have all their names in the set, each once. */
static int list_contained(struct search *s, uint64_t *inos, size_t *ret_nr)
{
	uint32_t nr_links = 0;
	size_t nr = 0, nr_names;
	int r;

	for (size_t i = 0; i < s->nr; i += nr_names) {
		uint64_t ino = s->found[i].ino;
		uint32_t nr_distinct = 1;

		for (nr_names = 1; i + nr_names < s->nr && s->found[i + nr_names].ino == ino; nr_names++)
			nr_distinct += compare(&s->found[i + nr_names - 1], &s->found[i + nr_names]) != 0;
		r = links_of(s->it, ino, &nr_links);
		if (r < 0)
			return r;
		if (nr_distinct < nr_links) {
			s->report->nr_linked++;
			continue;
		}
		r = count_content(s, ino);
		if (r < 0)
			return r;
		inos[nr++] = ino;
	}
	*ret_nr = nr;
	return 0;
}

/* Lists all files of an owner, with or without a name, sorted. */
static int choose_owned(struct search *s, struct db_iter *inodes)
{
	struct ns_inode in;
	int r = 0;

	while (r == 0 && (r = owners_next(inodes, &in)) > 0)
		r = owner_has(&s->conf->owner, &in) ? add_owned(s, in.ino) : 0;
	for (size_t i = 0; i < s->nr && r == 0; i++)
		r = count_content(s, s->inos[i]);
	return r;
}

int exclusive_set_find(struct db_iter *it, struct db_iter *inodes, const struct exclusive_conf *conf,
		       struct exclusive_set *ret, struct exclusive_report *report)
{
	struct search s = { .it = it, .conf = conf, .report = report };
	bool is_owner = conf->owner.kind != FP_OF_ALL;
	size_t nr;
	int r = is_owner ? choose_owned(&s, inodes) : 0;

	nr = s.nr;
	for (size_t i = 0; i < conf->nr_names && r == 0; i++)
		r = add_names(&s, &conf->names[i]);
	if (r == 0 && s.nr > 0 && !is_owner) {
		qsort(s.found, s.nr, sizeof(*s.found), compare);
		s.inos = calloc(s.nr, sizeof(*s.inos));
		r = s.inos ? list_contained(&s, s.inos, &nr) : -ENOMEM;
	}
	free(s.found);
	if (r < 0) {
		free(s.inos);
		return r;
	}
	*ret = (struct exclusive_set){ s.inos, nr };
	report->nr_files = ret->nr;
	return 0;
}

bool exclusive_set_has(const struct exclusive_set *s, uint64_t ino)
{
	size_t low = 0, high = s->nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->inos[middle] < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->nr && s->inos[low] == ino;
}

void exclusive_set_release(struct exclusive_set *s)
{
	free(s->inos);
	*s = (struct exclusive_set){ 0 };
}
