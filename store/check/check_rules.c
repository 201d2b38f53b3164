/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/check/check_rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/conf.h"
#include "base/le.h"
#include "base/util.h"
#include "index/backref_table.h"
#include "index/freed.h"
#include "index/index_format.h"
#include "index/recipes.h"
#include "store/log/record_format.h"
#include "store/remote_hooks.h"

#define NUMBER_KEY_LEN 9 /* table letter and inode */
#define PAIR_KEY_LEN 17 /* and a second number */

/* --- one entry --- */

struct entry {
	const struct fp_key *key;
	const uint8_t *k;
	size_t k_len;
	const void *v;
	size_t v_len;
};

static const char *entry_inode(const struct entry *e)
{
	struct ns_inode in;

	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return ns_inode_decode(be64_get(e->k + 1), e->v, e->v_len, &in) < 0 ? "its attributes do not decode" : NULL;
}

static const char *entry_content(const struct entry *e)
{
	struct ns_content c;

	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return ns_content_decode(e->v, e->v_len, &c) < 0 ? "its size and times do not decode" : NULL;
}

static const char *entry_dirent(const struct entry *e)
{
	struct ns_dirent d;
	uint64_t cookie;

	if (e->k_len != PAIR_KEY_LEN)
		return "its key has the wrong length";
	cookie = be64_get(e->k + 9);
	if (ns_dirent_decode(cookie, e->v, e->v_len, &d) < 0)
		return "its name does not decode";
	if (cookie - ns_cookie(e->key, d.name, d.name_len) >= NS_COOKIES_PER_HASH)
		return "its name is not where look-ups search for it";
	return NULL;
}

static const char *entry_symlink(const struct entry *e)
{
	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return e->v_len == 0 || memchr(e->v, 0, e->v_len) ? "its target is invalid" : NULL;
}

static const char *entry_xattr(const struct entry *e)
{
	size_t len = e->k_len - MIN(e->k_len, (size_t)NUMBER_KEY_LEN);

	return len == 0 || len > NS_NAME_MAX || memchr(e->k + NUMBER_KEY_LEN, 0, len) ? "its name is invalid" : NULL;
}

static const char *entry_orphan(const struct entry *e)
{
	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return e->v_len != 0 ? "it has a value" : NULL;
}

static const char *entry_seal(const struct entry *e)
{
	struct ns_seal s;

	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return ns_seal_decode(e->v, e->v_len, &s) < 0 ? "the record of its seal does not decode" : NULL;
}

static const char *entry_away(const struct entry *e)
{
	struct ns_away a;

	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return ns_away_decode(e->v, e->v_len, &a) < 0 ? "the record of its place in a tier does not decode" : NULL;
}

static const char *entry_replica(const struct entry *e)
{
	struct ns_replica c;

	if (e->k_len != NUMBER_KEY_LEN)
		return "its key has the wrong length";
	return ns_replica_decode(e->v, e->v_len, &c) < 0 ? "the record of the replica does not decode" : NULL;
}

static const char *entry_recipe(const struct entry *e)
{
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t ino, segment, layer;
	size_t nr;

	if (recipe_key_decode(e->k, e->k_len, &ino, &segment) < 0 || segment > INT64_MAX / SEGMENT_SIZE)
		return "its key does not decode";
	if (recipe_decode_over(e->v, e->v_len, &layer, &x, &nr) < 0)
		return "its extents do not decode";
	return nr == 0 && layer == 0 ? "it is empty" : NULL;
}

static const char *entry_layer(const struct entry *e)
{
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t layer, below;
	size_t nr;

	if (layer_key_decode(e->k, e->k_len, &layer) < 0)
		return "its key does not decode";
	if (recipe_decode_over(e->v, e->v_len, &below, &x, &nr) < 0)
		return "its extents do not decode";
	if (nr == 0)
		return "it is empty";
	return below >= layer ? "its base is a later layer" : NULL;
}

static const char *entry_freed(const struct entry *e)
{
	struct freed_totals totals;
	struct freed_frame gone;
	uint32_t pack, frame;
	int r;

	if (freed_key_decode(e->k, e->k_len, &pack, &frame) < 0 || (e->k_len > 1 && pack == 0))
		return "its key does not decode";
	if (e->k_len == 1)
		r = freed_totals_decode(e->v, e->v_len, &totals);
	else if (frame == UINT32_MAX)
		r = freed_pack_decode(e->v, e->v_len);
	else
		r = freed_frame_decode(e->v, e->v_len, &gone);
	return r < 0 ? "the record of freed chunks does not decode" : NULL;
}

static const char *entry_of_cluster(const struct entry *e)
{
	return remote_check ? remote_check->entry(e->k, e->k_len, e->v, e->v_len) : NULL;
}

static const char *entry_backref(const struct entry *e)
{
	struct backref r;

	if (backref_key_decode(e->k, e->k_len, &r) < 0)
		return "its key does not decode";
	return e->v_len != 0 ? "it has a value" : NULL;
}

static const char *entry_meta(const struct entry *e)
{
	static const char *const numbers[] = { "backrefs", "commit", "layers", "logical", "next_number" };
	static const char *const marks[] = { "marks", "absorbed", "moving" };
	const char *name = (const char *)e->k + 1;
	size_t len = e->k_len - 1;
	struct pack_marks m;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (len == strlen(numbers[i]) && memcmp(name, numbers[i], len) == 0)
			return e->v_len != sizeof(struct le64) ? "its number does not decode" : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (len == strlen(marks[i]) && memcmp(name, marks[i], len) == 0)
			return marks_decode(e->v, e->v_len, &m) < 0 ? "its marks do not decode" : NULL;
	return NULL; /* optional records of the engine */
}

static const struct {
	enum view_table table;
	const char *(*check)(const struct entry *e);
} tables[] = {
	{ VIEW_INODE, entry_inode },	 { VIEW_CONTENT, entry_content }, { VIEW_DIRENT, entry_dirent },
	{ VIEW_SYMLINK, entry_symlink }, { VIEW_XATTR, entry_xattr },	  { VIEW_ORPHAN, entry_orphan },
	{ VIEW_RECIPE, entry_recipe },	 { VIEW_FREED, entry_freed },	  { VIEW_META, entry_meta },
	{ VIEW_BACKREF, entry_backref }, { VIEW_SHARE, entry_of_cluster }, { VIEW_LAYER, entry_layer },
	{ VIEW_SEAL, entry_seal },	 { VIEW_REPLICA, entry_replica }, { VIEW_GUARD, entry_of_cluster },
	{ VIEW_AWAY, entry_away },
};

const char *check_entry(const struct fp_key *key, const void *k, size_t k_len, const void *v, size_t v_len)
{
	struct entry e = { key, k, k_len, v, v_len };

	for (size_t i = 0; k_len > 0 && i < ARRAY_SIZE(tables); i++)
		if (tables[i].table == e.k[0])
			return tables[i].check(&e);
	return "it belongs to no table";
}

bool check_table_is_known(uint8_t letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (tables[i].table == letter)
			return true;
	return false;
}

/* --- one inode --- */

static void _printf_(3, 4) problem(struct check_problems *p, bool of_content, const char *fmt, ...)
{
	va_list ap;

	if (p->nr == CHECK_PROBLEMS_MAX)
		return;
	p->v[p->nr].of_content = of_content;
	va_start(ap, fmt);
	vsnprintf(p->v[p->nr].text, sizeof(p->v[p->nr].text), fmt, ap);
	va_end(ap);
	p->nr++;
}

static void check_unknown(const struct inode_facts *f, struct check_problems *p)
{
	if (f->has_content || f->nr_segments > 0)
		problem(p, true, "there are bytes of a file that does not exist");
	if (f->has_symlink)
		problem(p, false, "there is a target of a symbolic link that does not exist");
	if (f->nr_xattrs > 0)
		problem(p, false, "there are extended attributes of nothing");
	if (f->nr_entries > 0)
		problem(p, false, "does not exist as a directory, but has %s in it", human_nr(f->nr_entries, "name").s);
	if (f->is_orphan)
		problem(p, false, "is to be removed, but does not exist");
	if (f->has_seal)
		problem(p, false, "has a seal record, but does not exist");
	if (f->has_replica)
		problem(p, false, "has a replica record, but does not exist");
	if (f->is_away)
		problem(p, false, "has a place in a tier, but does not exist");
}

static void check_directory(const struct inode_facts *f, struct check_problems *p)
{
	if (!S_ISDIR(f->in.mode)) {
		if (f->nr_entries > 0)
			problem(p, false, "has %s in it but is no directory", human_nr(f->nr_entries, "name").s);
		return;
	}
	if (f->in.nlink == 0 && f->nr_entries > 0 && !(f->in.flags & INODE_SEALED)) /* sealed: see fs/seal/reaper.c */
		problem(p, false, "is removed but has %s in it", human_nr(f->nr_entries, "name").s);
	if (f->in.nlink > 0 && f->in.nlink != 2 + f->nr_subdirs)
		problem(p, false, "has a link count of %" PRIu32 ", but %s in it", f->in.nlink,
			human_nr(f->nr_subdirs, "directory").s);
	if (f->nr_shared_cookies > 0 && !f->shared_hash)
		problem(p, false, "has names of equal hash, but the root does not say so: look-ups miss them");
}

static void check_bytes(const struct inode_facts *f, struct check_problems *p)
{
	if (!S_ISREG(f->in.mode)) {
		if (f->has_content || f->nr_segments > 0)
			problem(p, true, "is no regular file but has bytes");
		return;
	}
	if (f->nr_segments > 0 && !f->has_content)
		problem(p, true, "has a recipe but no size");
	if (f->has_content && f->content.mapped != f->mapped)
		problem(p, true, "counts %" PRIu64 " bytes with data, its recipe has %" PRIu64, f->content.mapped,
			f->mapped);
	if (f->has_content && f->end > f->content.size)
		problem(p, true, "has data up to %" PRIu64 ", behind its end at %" PRIu64, f->end, f->content.size);
}

void check_inode(const struct inode_facts *f, struct check_problems *ret)
{
	ret->nr = 0;
	if (!f->has_inode) {
		check_unknown(f, ret);
		return;
	}
	if (f->ino == 0 || f->ino >= f->next_number)
		problem(ret, false, "has a number that was never issued");
	if (f->ino == NS_ROOT_INO && (!S_ISDIR(f->in.mode) || f->in.parent != NS_ROOT_INO || f->in.nlink < 2))
		problem(ret, false, "is the root, but not a directory in itself");
	if (f->is_orphan != (f->in.nlink == 0))
		problem(ret, false,
			f->is_orphan ? "is to be removed, but has links" : "has no links, but is not to be removed");
	if (f->has_symlink != S_ISLNK(f->in.mode))
		problem(ret, false,
			f->has_symlink ? "has a target but is no symbolic link" : "is a symbolic link without a target");
	if (f->nr_xattrs > 0 && !(f->in.flags & INODE_HAS_XATTRS))
		problem(ret, false, "has extended attributes, but does not say so");
	if (f->has_seal && !(S_ISDIR(f->in.mode) && f->in.flags & INODE_SEALED))
		problem(ret, false, "has a seal record, but is not a directory");
	if (f->ino == NS_ROOT_INO && f->in.flags & INODE_SEALED && !f->has_seal)
		problem(ret, false, "is marked as sealed, but in no directory that is");
	if (f->has_replica && !(S_ISDIR(f->in.mode) && f->in.flags & INODE_REPLICA && f->in.parent == f->ino))
		problem(ret, false, "has a replica record, but is not the top of a replica");
	if (f->in.flags & INODE_REPLICA && !(f->in.flags & INODE_SEALED))
		problem(ret, false, "belongs to a replica, but is not sealed");
	if (f->is_away && (f->away.index == 0 ? !S_ISDIR(f->in.mode) : !S_ISREG(f->in.mode)))
		problem(ret, false, "has a place in a tier, but is not a file or sealed directory");
	if (f->is_away && !(f->in.flags & INODE_SEALED))
		problem(ret, false, "has a place in a tier, but is not sealed");
	check_directory(f, ret);
	check_bytes(f, ret);
}

/* --- extents --- */

bool check_place(uint32_t off, uint32_t *ret_frame, uint32_t *ret_in)
{
	uint32_t block = off / PACK_BLOCK;

	if (block == 0 || (block - 1) % PACK_FRAME_STRIDE == 0)
		return false;
	*ret_frame = (block - 1) / PACK_FRAME_STRIDE;
	*ret_in = ((block - 1) % PACK_FRAME_STRIDE - 1) * PACK_BLOCK + off % PACK_BLOCK;
	return true;
}

int frame_map_add_pack(struct frame_map *m, uint32_t pack)
{
	struct frame_map_pack *packs = reallocarray(m->packs, m->nr_packs + 1, sizeof(*packs));

	if (!packs)
		return -ENOMEM;
	if (m->nr_packs == 0)
		m->first = pack;
	m->packs = packs;
	m->packs[m->nr_packs++] = (struct frame_map_pack){ 0 };
	m->end = pack + 1;
	m->bytes += sizeof(*packs);
	return 0;
}

int frame_map_add(struct frame_map *m, uint32_t pack, uint32_t frame, uint32_t len)
{
	struct frame_map_pack *p = &m->packs[pack - m->first];

	if (frame >= p->nr) {
		uint32_t nr = MAX(frame + 1, 2 * p->nr);
		uint32_t *lens = reallocarray(p->lens, nr, sizeof(*lens));
		uint64_t *sums = reallocarray(p->sums, nr, sizeof(*sums));

		p->lens = lens ? lens : p->lens;
		p->sums = sums ? sums : p->sums;
		if (!lens || !sums)
			return -ENOMEM;
		memset(lens + p->nr, 0, (nr - p->nr) * sizeof(*lens));
		memset(sums + p->nr, 0, (nr - p->nr) * sizeof(*sums));
		m->bytes += (nr - p->nr) * (sizeof(*lens) + sizeof(*sums));
		p->nr = nr;
	}
	p->lens[frame] = len;
	return 0;
}

uint64_t *frame_map_sum(struct frame_map *m, uint32_t pack, uint32_t frame)
{
	if (m->nr_packs == 0 || pack < m->first || pack >= m->end || frame >= m->packs[pack - m->first].nr)
		return NULL;
	return &m->packs[pack - m->first].sums[frame];
}

void frame_map_release(struct frame_map *m)
{
	for (size_t i = 0; i < m->nr_packs; i++) {
		free(m->packs[i].lens);
		free(m->packs[i].sums);
	}
	free(m->packs);
	*m = (struct frame_map){ 0 };
}

enum extent_state check_extent(const struct frame_map *m, struct addr a, uint32_t len)
{
	const struct frame_map_pack *p;
	uint32_t frame, in;

	if (a.node != 0 || !check_place(a.off, &frame, &in))
		return EXTENT_NOWHERE;
	if (len == 0 || len > PACK_FRAME_BYTES - in)
		return EXTENT_CROSSES;
	if (m->nr_packs == 0 || a.pack < m->first || a.pack >= m->end)
		return EXTENT_UNMAPPED;
	p = &m->packs[a.pack - m->first];
	if (frame >= p->nr || p->lens[frame] == 0)
		return EXTENT_NO_FRAME;
	if (p->lens[frame] == FRAME_DAMAGED)
		return EXTENT_NO_TABLE;
	return in + len > p->lens[frame] ? EXTENT_NO_CHUNK : EXTENT_FINE;
}
