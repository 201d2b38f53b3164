/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks the view: every entry by itself, then all entries of each inode together.
 *
 * The tables are sorted by inode, so a parallel pass over all of them has everything about one inode at a time, and
 * nothing else in memory.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/le.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"
#include "store/file/extents/layer_stack.h"

#define ENTRIES_PER_STEP 4096u
#define HINTS_PER_STEP 65536u

void check_found_in_view(struct check *k, enum check_area area, const char *text)
{
	check_found(k, area, check_will_rebuild(k), "%s%s", text, check_will_rebuild(k) ? "; the index is rebuilt" : "");
}

/* --- every entry by itself --- */

struct key_text {
	char s[80];
};

static struct key_text key_text(const uint8_t *key, size_t len)
{
	struct key_text t = { { len > 0 && key[0] >= ' ' && key[0] < 0x7f ? (char)key[0] : '?' } };
	size_t at = 1;

	for (size_t i = 1; i < len && at + 4 < sizeof(t.s); i++)
		at += (size_t)snprintf(t.s + at, sizeof(t.s) - at, "%s%02x", i % 8 == 1 ? " " : "", key[i]);
	return t;
}

int check_entry_alone(struct check *k, const uint8_t *key, size_t key_len, const void *value, size_t value_len)
{
	const char *why = check_entry(&k->key, key, key_len, value, value_len);
	char text[CHECK_TEXT];

	if (!why)
		return 1;
	snprintf(text, sizeof(text), "index: entry %s: %s", key_text(key, key_len).s, why);
	check_found_in_view(k, CHECK_INDEX, text);
	return 0;
}

/* For tables that are not keyed by inode. */
static int check_small_table(struct check *k, uint8_t table)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *key, *value;
	size_t key_len, value_len;
	int r = db_iter_new(k->db, NULL, &table, 1, NULL, 0, &it);

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0)
		check_entry_alone(k, key, key_len, value, value_len);
	return r;
}

/* Finds unknown tables by the first key of each letter. */
static int check_letters(struct check *k)
{
	for (unsigned letter = 0; letter <= UINT8_MAX; letter++) {
		_cleanup_(db_iter_freep) struct db_iter *it = NULL;
		uint8_t from = (uint8_t)letter;
		const void *key, *value;
		size_t key_len, value_len;
		int r;

		if (check_table_is_known(from))
			continue;
		r = db_iter_new(k->db, NULL, NULL, 0, &from, 1, &it);
		if (r == 0)
			r = db_iter_next(it, &key, &key_len, &value, &value_len);
		if (r <= 0)
			return r;
		letter = MAX(letter, *(const uint8_t *)key);
		if (!check_table_is_known(*(const uint8_t *)key))
			check_entry_alone(k, key, key_len, value, value_len);
	}
	return 0;
}

/* --- everything about each inode --- */

enum { INODES, CONTENTS, DIRENTS, SYMLINKS, ORPHANS, SEALS, COPIES, AWAY, RECIPES, XATTRS, NR_TABLES };
static const uint8_t letters[NR_TABLES] = {
	VIEW_INODE, VIEW_CONTENT, VIEW_DIRENT, VIEW_SYMLINK, VIEW_ORPHAN,
	VIEW_SEAL,  VIEW_REPLICA, VIEW_AWAY,   VIEW_RECIPE,  VIEW_XATTR,
};

/* One table, positioned at its next valid entry. */
struct table_at {
	struct db_iter *it;
	const uint8_t *key;
	const void *value;
	size_t key_len, value_len;
	uint64_t ino; /* of the key; UINT64_MAX if at_end */
	bool at_end;
};

struct names_of_hash {
	uint64_t hash; /* their first cookie */
	unsigned nr;
	char name[NS_COOKIES_PER_HASH][NS_NAME_MAX + 1];
};

struct inodes {
	struct check *k;
	struct table_at t[NR_TABLES];
	struct names_of_hash same; /* the last ones in the current directory */
	struct inode_facts root;
	uint64_t nr_entries, logical;
	struct layer_set layers; /* layers that recipes need */
};

static int advance(struct inodes *s, struct table_at *t)
{
	const void *key;
	int r;

	do {
		r = db_iter_next(t->it, &key, &t->key_len, &t->value, &t->value_len);
		if (r <= 0) {
			t->at_end = true;
			t->ino = UINT64_MAX;
			return r;
		}
		t->key = key;
	} while (check_entry_alone(s->k, t->key, t->key_len, t->value, t->value_len) == 0);
	t->ino = be64_get(t->key + 1);
	return ++s->nr_entries % ENTRIES_PER_STEP == 0 ? check_step(s->k, "names", s->nr_entries, 0, false) : 0;
}

/* Two entries with the same name: lookups never find the second. */
static void check_same_name(struct inodes *s, uint64_t dir, const struct ns_dirent *d)
{
	uint64_t hash = d->cookie & ~(uint64_t)(NS_COOKIES_PER_HASH - 1);
	struct names_of_hash *n = &s->same;
	char text[CHECK_TEXT];

	if (n->hash != hash)
		n->nr = 0;
	n->hash = hash;
	for (unsigned i = 0; i < n->nr; i++)
		if (strcmp(n->name[i], d->name) == 0) {
			snprintf(text, sizeof(text), "directory %" PRIu64 ": has the name '%.100s' twice", dir, d->name);
			check_found_in_view(s->k, CHECK_NAMES, text);
		}
	if (n->nr < NS_COOKIES_PER_HASH)
		memcpy(n->name[n->nr++], d->name, (size_t)d->name_len + 1);
}

static void gather_name(struct inodes *s, const struct table_at *t, struct inode_facts *f)
{
	struct ns_dirent d;

	ns_dirent_decode(be64_get(t->key + 9), t->value, t->value_len, &d);
	if (f->nr_entries == 0)
		s->same.nr = 0;
	check_same_name(s, f->ino, &d);
	f->nr_entries++;
	f->nr_subdirs += d.type == DT_DIR;
	f->nr_shared_cookies += ns_cookie_shared(d.cookie);
}

static uint64_t mapped(const struct extent *x, size_t nr)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < nr; i++)
		sum += x[i].len;
	return sum;
}

static void report_recipe(struct inodes *s, uint64_t ino, uint64_t segment, const char *what)
{
	char text[CHECK_TEXT];

	snprintf(text, sizeof(text), "inode %" PRIu64 ": segment %" PRIu64 " %s", ino, segment, what);
	check_found_in_view(s->k, CHECK_CONTENTS, text);
}

static int gather_extents(struct inodes *s, const struct stack *stack, uint64_t segment, struct inode_facts *f)
{
	const struct stack_part *lowest = &stack->v[stack->nr - 1];
	_cleanup_(freep) struct extent *x = NULL;
	size_t nr;
	int r = stack_merge(stack, &x, &nr);

	for (unsigned i = 0; i < stack->nr && r == 0; i++)
		if (stack->v[i].layer > 0)
			r = layer_set_add(&s->layers, stack->v[i].layer);
	if (r < 0)
		return r;
	if (mapped(x, nr) != mapped(lowest->x, lowest->nr))
		report_recipe(s, f->ino, segment, "has layers with more than the lowest of them");
	f->mapped += mapped(x, nr);
	if (nr > 0)
		f->end = MAX(f->end, segment * SEGMENT_SIZE + x[nr - 1].off + x[nr - 1].len);
	return 0;
}

static int gather_recipe(struct inodes *s, const struct table_at *t, struct inode_facts *f)
{
	uint64_t segment = be64_get(t->key + 9);
	struct stack stack;
	int r = stack_read(s->k->db, NULL, t->value, t->value_len, &stack);

	f->nr_segments++;
	if (r == -EBADMSG) {
		report_recipe(s, f->ino, segment, "has layers that are missing, damaged, or too many");
		return 0;
	}
	if (r == 0) {
		r = gather_extents(s, &stack, segment, f);
		stack_release(&stack);
	}
	return r;
}

/* Adds one valid entry to the facts of its inode. */
static int add_fact(struct inodes *s, unsigned table, struct inode_facts *f)
{
	const struct table_at *t = &s->t[table];

	switch (table) {
	case INODES:
		f->has_inode = true;
		return ns_inode_decode(f->ino, t->value, t->value_len, &f->in);
	case CONTENTS:
		f->has_content = true;
		return ns_content_decode(t->value, t->value_len, &f->content);
	case DIRENTS:
		gather_name(s, t, f);
		return 0;
	case SYMLINKS:
		f->has_symlink = true;
		return 0;
	case ORPHANS:
		f->is_orphan = true;
		return 0;
	case SEALS:
		f->has_seal = true;
		return 0;
	case COPIES:
		f->has_replica = true;
		return 0;
	case AWAY:
		f->is_away = true;
		return ns_away_decode(t->value, t->value_len, &f->away);
	case RECIPES:
		return gather_recipe(s, t, f);
	default:
		f->nr_xattrs++;
		return 0;
	}
}

static void report_problems(struct check *k, const struct inode_facts *f)
{
	struct check_problems p;
	char text[CHECK_TEXT + 64];

	check_inode(f, &p);
	for (unsigned i = 0; i < p.nr; i++) {
		snprintf(text, sizeof(text), "inode %" PRIu64 ": %s", f->ino, p.v[i].text);
		check_found_in_view(k, p.v[i].of_content ? CHECK_CONTENTS : CHECK_NAMES, text);
	}
}

static uint64_t lowest(const struct inodes *s)
{
	uint64_t ino = UINT64_MAX;

	for (unsigned i = 0; i < NR_TABLES; i++)
		ino = MIN(ino, s->t[i].ino);
	return ino;
}

static bool all_at_end(const struct inodes *s)
{
	for (unsigned i = 0; i < NR_TABLES; i++)
		if (!s->t[i].at_end)
			return false;
	return true;
}

static int next_inode(struct inodes *s)
{
	struct inode_facts f = {
		.ino = lowest(s),
		.next_number = s->k->meta.next_number,
		.shared_hash = s->root.in.flags & INODE_SHARED_HASH,
	};
	int r = 0;

	for (unsigned i = 0; i < NR_TABLES; i++)
		while (r == 0 && !s->t[i].at_end && s->t[i].ino == f.ino) {
			r = add_fact(s, i, &f);
			if (r == 0)
				r = advance(s, &s->t[i]);
		}
	if (r < 0)
		return r;
	s->k->res.nr_inodes += f.has_inode;
	s->k->res.nr_names += f.nr_entries;
	s->logical += f.has_content ? f.content.mapped : 0;
	report_problems(s->k, &f);
	return 0;
}

static int go_through_inodes(struct inodes *s)
{
	int r;

	r = ns_get_inode(s->k->db, NS_ROOT_INO, &s->root.in);
	if (r < 0 && r != -EBADMSG) /* a damaged one is reported below */
		return r;
	s->root.has_inode = r > 0;
	r = 0;
	for (unsigned i = 0; i < NR_TABLES && r == 0; i++) {
		r = db_iter_new(s->k->db, NULL, &letters[i], 1, NULL, 0, &s->t[i].it);
		if (r == 0)
			r = advance(s, &s->t[i]);
	}
	while (r == 0 && !all_at_end(s))
		r = next_inode(s);
	return r;
}

static int check_inodes(struct check *k)
{
	_cleanup_(freep) struct inodes *s = calloc(1, sizeof(*s));
	char text[CHECK_TEXT];
	int r;

	if (!s)
		return -ENOMEM;
	s->k = k;
	k->res.nr_inodes = k->res.nr_names = 0;
	r = go_through_inodes(s);
	if (r == 0)
		r = check_layers(k, &s->layers);
	layer_set_release(&s->layers);
	for (unsigned i = 0; i < NR_TABLES; i++)
		db_iter_free(s->t[i].it);
	if (r < 0)
		return r;
	if (!s->root.has_inode && k->res.nr_inodes + k->res.nr_names > 0)
		check_found_in_view(k, CHECK_NAMES, "the root does not exist");
	if (s->logical != k->meta.logical) {
		snprintf(text, sizeof(text), "index: counts %" PRIu64 " bytes with data in all files, they have %" PRIu64,
			 k->meta.logical, s->logical);
		check_found_in_view(k, CHECK_INDEX, text);
	}
	return 0;
}

/* --- hints --- */

/* Can all of them be read? Their values are compared with the packs later. */
static int read_hints(struct check *k)
{
	_cleanup_(freep) uint64_t *keys = malloc(HINTS_PER_STEP * sizeof(*keys));
	uint64_t from = 0, done = 0;
	size_t nr = HINTS_PER_STEP;
	int r = keys ? 0 : -ENOMEM;

	while (r == 0 && nr == HINTS_PER_STEP) {
		r = fingerprints_scan(k->db, from, keys, HINTS_PER_STEP, &nr);
		if (r < 0 || nr == 0 || keys[nr - 1] == UINT64_MAX)
			break;
		from = keys[nr - 1] + 1;
		done += nr;
		r = check_step(k, "fingerprints", done, 0, false);
	}
	return r;
}

int check_view(struct check *k)
{
	int r;

	r = check_letters(k);
	if (r == 0)
		r = check_small_table(k, VIEW_META);
	if (r == 0)
		r = check_small_table(k, VIEW_FREED);
	if (r == 0)
		r = check_small_table(k, VIEW_SHARE);
	if (r == 0)
		r = check_small_table(k, VIEW_GUARD);
	if (r == 0)
		r = check_inodes(k);
	if (r == 0)
		r = check_backrefs(k);
	if (r == 0)
		r = check_names(k);
	if (r == 0)
		r = read_hints(k);
	return r;
}
