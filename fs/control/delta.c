/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/delta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/seal/freeze.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/permission.h"
#include "fs/subuids.h"
#include "gpu/format/delta_format.h"

#define COPY_BYTES KiB(256)
#define WAIT_NS 20000000u /* between two checks whether the client is gone */
#define PATCHES_MAX 2048u /* 64 KiB of them: memory that is reused */

/* A version that bytes are copied from, open. */
struct source {
	uint32_t number;
	struct inode *inode; /* pinned */
	struct content *content;
	uint64_t size;
};

/* A commit in progress. */
struct making {
	struct fs *fs;
	struct file *f;
	struct caller *caller;
	uint32_t user; /* see fs/subuids.h */
	struct delta_header header;
	struct delta_tables tables;
	uint8_t *table_bytes;
	struct making *next_counted; /* in fs.delta_counted */
	uint64_t counted; /* bytes of tables, while in that list */
	struct source *sources; /* sorted by number */
	size_t nr_sources, room;
	struct inode *inode; /* of the new version; NULL: not created yet; also has a lookup count */
	struct content *content;
	uint8_t *copy; /* COPY_BYTES; NULL: not needed yet */
	struct content_patch *patches; /* PATCHES_MAX, gathered for the engine */
	size_t nr_patches;
};

static void name_of(uint32_t number, char ret[DELTA_NAME_LEN])
{
	snprintf(ret, DELTA_NAME_LEN, "%06" PRIu32, number);
}

/* --- staging --- */

/* Inode of a version; 1/0/<0. */
static int find_version(struct fs *fs, uint64_t dir, uint32_t number, struct ns_inode *ret) REQUIRES_SHARED(fs->names)
{
	char name[DELTA_NAME_LEN];
	struct ns_dirent d;
	int r;

	name_of(number, name);
	r = names_find(fs, dir, name, &d);
	return r > 0 ? attr_load(fs, d.ino, ret) : r;
}

/* Could the version be created now? Checked again at the commit. */
static int check_names(struct fs *fs, uint64_t dir, uint32_t number, uint32_t parent, struct caller *caller)
	REQUIRES_SHARED(fs->names)
{
	struct ns_inode in;
	int r = names_load_dir(fs, dir, NULL, &in);

	if (r == 0)
		r = permission_create(fs, caller, &in);
	if (r < 0)
		return r;
	r = parent == DELTA_NO_PARENT ? 1 : find_version(fs, dir, parent, &in);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	r = find_version(fs, dir, number, &in);
	return r > 0 ? -EEXIST : r;
}

int delta_begin(struct fs *fs, struct file *f, uint32_t number, uint32_t parent, struct caller *caller)
{
	int none = FILE_DELTA_NONE;
	int r;

	if (f->dir == 0 || number <= parent)
		return -EINVAL;
	rwlock_lock_shared(&fs->names);
	r = check_names(fs, f->dir, number, parent, caller);
	rwlock_unlock_shared(&fs->names);
	if (r < 0)
		return r;
	if (!atomic_compare_exchange_strong(&f->delta, &none, FILE_DELTA_BUSY))
		return -EALREADY;
	f->delta_number = number;
	f->delta_parent = parent;
	atomic_store(&f->delta, FILE_DELTA_BEGUN);
	return 0;
}

/* From BEGUN to BUSY: only one request at a time succeeds. */
static int take_stage(struct file *f)
{
	int state = FILE_DELTA_BEGUN;

	if (atomic_compare_exchange_strong(&f->delta, &state, FILE_DELTA_BUSY))
		return 0;
	return state == FILE_DELTA_BUSY ? -EBUSY : state == FILE_DELTA_COMMITTED ? -EALREADY : -EINVAL;
}

int delta_abort(struct file *f)
{
	int r = take_stage(f);

	if (r < 0)
		return r;
	r = content_truncate(f->content, 0);
	atomic_store(&f->delta, r < 0 ? FILE_DELTA_BEGUN : FILE_DELTA_NONE);
	return r;
}

/* --- reading the object --- */

static int read_exactly(struct content *c, void *p, size_t len, uint64_t off)
{
	ssize_t n = content_read(c, p, len, off);

	return n < 0 ? (int)n : (size_t)n == len ? 0 : -EBADMSG;
}

static int read_header(struct making *m)
{
	struct delta_header_disk disk;
	struct ns_content st;
	int r;

	r = read_exactly(m->f->content, &disk, sizeof(disk), 0);
	if (r == 0)
		r = delta_header_decode(&disk, sizeof(disk), &m->header);
	if (r < 0)
		return r;
	if (m->header.number != m->f->delta_number || m->header.parent != m->f->delta_parent)
		return -EINVAL;
	content_stat(m->f->content, &st);
	return st.size == delta_object_len(&m->header) ? 0 : -EBADMSG;
}

/*
 * Limit on the tables of all commits of this user, where those of other users take `others`. A commit may run for hours.
 * An ordinary user gets three quarters of what the others leave, so however many users there are, something is left for
 * the next one, and for root.
 */
static uint64_t tables_max(const struct making *m, uint64_t others)
{
	uint64_t left = m->fs->delta_tables_max - others;

	return permission_operator(m->caller->cred) ? left : left / 4 * 3;
}

/* The list is short: only a few commits run at a time (fs/long_requests.h). */
static bool has_room(const struct fs *fs, const struct making *m, uint64_t len) REQUIRES(fs->delta_tables_lock)
{
	uint64_t others = 0, own = len;

	for (const struct making *at = fs->delta_counted; at; at = at->next_counted)
		*(at->user == m->user ? &own : &others) += at->counted;
	return own <= tables_max(m, others);
}

/* Reserve memory. false: no room, even after a short wait. */
static bool try_count(struct making *m, uint64_t len)
{
	struct fs *fs = m->fs;
	bool fits;

	mutex_lock(&fs->delta_tables_lock);
	if (!has_room(fs, m, len))
		cond_wait_for(&fs->delta_tables_freed, &fs->delta_tables_lock, WAIT_NS);
	fits = has_room(fs, m, len);
	if (fits) {
		m->counted = len;
		m->next_counted = fs->delta_counted;
		fs->delta_counted = m;
	}
	mutex_unlock(&fs->delta_tables_lock);
	return fits;
}

/* Reserve before anything is allocated: the memory for tables of all commits is bounded. */
static int count_tables(struct making *m, uint64_t len)
{
	int r = 0;

	while (r == 0 && !try_count(m, len))
		r = cancel_check();
	return r;
}

static void release_tables(struct making *m)
{
	struct fs *fs = m->fs;
	struct making **at = &fs->delta_counted;

	free(TAKE(m->table_bytes));
	mutex_lock(&fs->delta_tables_lock);
	while (*at && *at != m)
		at = &(*at)->next_counted;
	if (*at) {
		*at = m->next_counted;
		cond_broadcast(&fs->delta_tables_freed);
	}
	mutex_unlock(&fs->delta_tables_lock);
}

static int read_tables(struct making *m)
{
	static struct log_limit said;
	uint64_t len = delta_tables_len(&m->header), max = tables_max(m, 0);
	int r;

	if (len > max) {
		log_limited(&said, LOG_LEVEL_ERROR,
			    "delta object %06" PRIu32 ": %" PRIu64 " MiB of tables, %" PRIu64 " allowed by dirty=",
			    m->header.number, len >> 20, max >> 20);
		return -EFBIG;
	}
	r = count_tables(m, len);
	if (r < 0)
		return r;
	m->table_bytes = malloc(len + 1);
	if (!m->table_bytes)
		return -ENOMEM;
	r = read_exactly(m->f->content, m->table_bytes, len, delta_tables_off(&m->header));
	return r < 0 ? r : delta_tables_decode(&m->header, m->table_bytes, len, &m->tables);
}

/* --- sources of bytes --- */

static void source_release(struct fs *fs, struct source *s)
{
	if (s->content)
		inode_content_close(fs->inodes, s->inode);
	if (s->inode)
		names_put(fs, s->inode);
}

/* Checks permissions as open(2) for reading does. */
static int find_source(struct making *m, uint32_t number, uint64_t *ret) REQUIRES_SHARED(m->fs->names)
{
	struct ns_inode in;
	int r = find_version(m->fs, m->f->dir, number, &in);

	if (r <= 0 || !S_ISREG(in.mode))
		return r < 0 ? r : -ESTALE;
	*ret = in.ino;
	return permission_check(m->fs, m->caller, &in, R_OK);
}

static int source_open(struct making *m, uint32_t number, struct source *ret)
{
	struct source s = { .number = number };
	struct ns_content st;
	uint64_t ino;
	int r;

	rwlock_lock_shared(&m->fs->names);
	r = find_source(m, number, &ino);
	rwlock_unlock_shared(&m->fs->names);
	if (r == 0)
		r = inode_get(m->fs->inodes, ino, &s.inode);
	if (r < 0)
		return r;
	r = inode_content_open(m->fs->inodes, s.inode, &s.content);
	if (r == 0)
		r = content_flush(s.content);
	if (r < 0) {
		source_release(m->fs, &s);
		return r;
	}
	content_stat(s.content, &st);
	s.size = st.size;
	*ret = s;
	return 0;
}

/* *ret is borrowed until the next call. */
static int source_of(struct making *m, uint32_t number, const struct source **ret)
{
	size_t low = 0, high = m->nr_sources;
	struct source s;
	int r;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (m->sources[mid].number < number)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < m->nr_sources && m->sources[low].number == number) {
		*ret = &m->sources[low];
		return 0;
	}
	r = list_grow(&m->sources, m->nr_sources, &m->room, sizeof(*m->sources));
	if (r == 0)
		r = source_open(m, number, &s);
	if (r < 0)
		return r;
	memmove(m->sources + low + 1, m->sources + low, (m->nr_sources - low) * sizeof(s));
	m->sources[low] = s;
	m->nr_sources++;
	*ret = &m->sources[low];
	return 0;
}

/* Check that all versions that the object refers to exist, may be read, and are long enough. */
static int check_sources(struct making *m)
{
	struct delta_iter it;
	const struct source *s;
	struct delta_region g;
	int r;

	if (m->header.parent != DELTA_NO_PARENT) {
		r = source_of(m, m->header.parent, &s);
		if (r < 0)
			return r;
	}
	if (m->header.shifted_len == 0)
		return 0;
	it = delta_iter(&m->tables);
	while ((r = cancel_check()) == 0 && (r = delta_iter_next(&it, &g)) > 0) {
		uint64_t len = g.kind == DELTA_REPEATED ? MIN(g.len, (uint64_t)m->header.chunk_len) : g.len;

		if (g.kind == DELTA_FIRST || g.kind == DELTA_LITERAL || g.version == m->header.number)
			continue;
		r = source_of(m, g.version, &s);
		if (r < 0)
			return r;
		if (g.src_off > s->size || len > s->size - g.src_off)
			return -ESTALE;
	}
	return r;
}

/* --- creating the new version --- */

static int make_file(struct making *m)
{
	struct names_new n = { .mode = S_IFREG, .like = m->f->inode->ino };
	struct stat st;
	int r;

	r = names_make(m->fs, m->f->dir, NULL, &n, m->caller->cred, &st);
	if (r < 0)
		return r;
	r = inode_get(m->fs->inodes, st.st_ino, &m->inode);
	if (r < 0) {
		names_forget(m->fs, &(struct names_forget){ st.st_ino, 1 }, 1);
		return r;
	}
	return inode_content_open(m->fs->inodes, m->inode, &m->content);
}

static int share(struct content *from, uint64_t from_off, struct content *to, uint64_t to_off, uint64_t len)
{
	while (len > 0) {
		uint64_t done;
		int r = content_clone(from, from_off, to, to_off, len, &done);

		if (r < 0)
			return r;
		if (done == 0)
			return -ESTALE; /* the source has been truncated meanwhile */
		from_off += done;
		to_off += done;
		len -= done;
	}
	return 0;
}

static int start_from_parent(struct making *m)
{
	const struct source *parent;
	int r;

	if (m->header.parent != DELTA_NO_PARENT) {
		r = source_of(m, m->header.parent, &parent);
		if (r == 0)
			r = share(parent->content, 0, m->content, 0, MIN(parent->size, m->header.content_len));
		if (r < 0 || parent->size == m->header.content_len)
			return r;
	}
	return content_truncate(m->content, m->header.content_len);
}

static int patches_flush(struct making *m)
{
	int r = content_patch(m->content, m->patches, m->nr_patches);

	m->nr_patches = 0;
	return r;
}

static int patch(struct making *m, struct content *from, uint64_t from_off, uint64_t off, uint64_t len)
{
	int r = m->nr_patches == PATCHES_MAX ? patches_flush(m) : 0;

	if (r == 0 && len > 0)
		m->patches[m->nr_patches++] = (struct content_patch){ from, from_off, off, len };
	return r;
}

static int make_copy(struct making *m)
{
	if (!m->copy)
		m->copy = malloc(COPY_BYTES);
	return m->copy ? 0 : -ENOMEM;
}

/* One chunk repeated: it is written, since all its pages deduplicate to one. */
static int place_repeated(struct making *m, const struct delta_region *g, struct content *from)
{
	size_t chunk = m->header.chunk_len, have = (size_t)MIN(g->len, (uint64_t)chunk), room = COPY_BYTES;
	int r = make_copy(m);

	if (r < 0)
		return r;
	memset(m->copy, 0, chunk);
	r = read_exactly(from, m->copy, have, g->src_off);
	if (r < 0)
		return r == -EBADMSG ? -ESTALE : r;
	if (mem_is_zero(m->copy, chunk))
		return content_punch(m->content, g->off, g->len);
	for (size_t i = chunk; i < room; i += chunk)
		memcpy(m->copy + i, m->copy, chunk);
	for (uint64_t done = 0; done < g->len && r == 0; done += room) { /* room is a multiple of the chunk */
		r = content_write(m->content, m->copy, (size_t)MIN(g->len - done, (uint64_t)room), g->off + done);
		if (r == 0)
			r = cancel_check();
	}
	return r;
}

static int place_shifted(struct making *m, const struct delta_region *g)
{
	struct content *from = m->content;
	const struct source *s;
	int r;

	if (g->version != m->header.number) {
		r = source_of(m, g->version, &s);
		if (r < 0)
			return r;
		from = s->content;
	}
	return g->kind == DELTA_REPEATED ? place_repeated(m, g, from) : patch(m, from, g->src_off, g->off, g->len);
}

static int place_region(struct making *m, const struct delta_region *g)
{
	bool payload = g->kind == DELTA_FIRST || g->kind == DELTA_LITERAL;

	return payload ? patch(m, m->f->content, delta_payload_off(&m->header) + g->payload_off, g->off, g->len) :
			 place_shifted(m, g);
}

/*
 * Bytes of the payload stay where they are in the staging file's data, and are referred to: whole pages share the same
 * chunks. These come first: shifted regions may copy from first occurrences in this version, wherever they are.
 */
static int place_regions(struct making *m)
{
	struct delta_region g;
	int r = 0;

	m->patches = malloc(PATCHES_MAX * sizeof(*m->patches));
	if (!m->patches)
		return -ENOMEM;
	for (int shifted = 0; shifted <= (m->header.shifted_len > 0) && r == 0; shifted++) {
		struct delta_iter it = delta_iter(&m->tables);

		while (r == 0 && (r = cancel_check()) == 0 && (r = delta_iter_next(&it, &g)) > 0)
			r = (g.kind == DELTA_SHIFTED || g.kind == DELTA_REPEATED) == shifted ? place_region(m, &g) : 0;
		if (r == 0)
			r = patches_flush(m);
	}
	return r < 0 ? r : content_flush(m->content);
}

/* Length of the hole from `off` up to `end`, in multiples of COPY_BYTES unless it reaches the end. */
static int hole_after(struct content *c, uint64_t off, uint64_t end, uint64_t *ret)
{
	uint64_t data;
	int r = off < end ? content_seek(c, off, SEEK_DATA, &data) : 0;

	if (r < 0 && r != -ENXIO)
		return r;
	*ret = off >= end ? 0 : r == -ENXIO || data >= end ? end - off : round_down(data - off, COPY_BYTES);
	return 0;
}

static int verify(struct making *m, const uint8_t key[LEAF_KEY_LEN])
{
	static struct log_limit said;
	uint64_t end = m->header.content_len, hole;
	struct content_hash hash;
	struct leaf_key k;
	int r = make_copy(m);

	leaf_key_init(&k, key);
	content_hash_init(&hash, &k, m->header.chunk_len);
	for (uint64_t off = 0; off < end && r == 0; off += hole) {
		size_t n = (size_t)MIN(end - off, COPY_BYTES);

		hole = 0;
		r = cancel_check();
		if (r == 0)
			r = read_exactly(m->content, m->copy, n, off);
		if (r < 0)
			break;
		content_hash_add(&hash, m->copy, n);
		off += n;
		if (mem_is_zero(m->copy, n))
			r = hole_after(m->content, off, end, &hole);
		if (r == 0 && hole > 0)
			content_hash_add_zeros(&hash, hole);
	}
	if (r < 0)
		return r;
	if (digest_equal(content_hash_finish(&hash, m->header.content_len), m->header.fingerprint))
		return 0;
	log_limited(&said, LOG_LEVEL_ERROR,
		    "inode %" PRIu64 ": version %" PRIu32 " does not match the fingerprint of its delta", m->f->dir,
		    m->header.number);
	return -EBADMSG;
}

/* The new version is removed unless it has got its name. */
static void making_release(struct making *m)
{
	for (size_t i = 0; i < m->nr_sources; i++)
		source_release(m->fs, &m->sources[i]);
	if (m->content)
		inode_content_close(m->fs->inodes, m->inode);
	if (m->inode) {
		uint64_t ino = m->inode->ino;

		names_put(m->fs, m->inode);
		names_forget(m->fs, &(struct names_forget){ ino, 1 }, 1);
	}
	free(m->sources);
	release_tables(m);
	free(m->copy);
	free(m->patches);
}

static int make_version(struct making *m, const struct delta_commit *how, struct delta_made *ret)
{
	struct delta_made made = { .dir = m->f->dir };
	struct stat st;
	int r;

	r = content_flush(m->f->content);
	if (r == 0 && how->sync)
		engine_sync_ahead(m->fs->engine); /* starts writing the payload while this thread continues */
	if (r == 0)
		r = read_header(m);
	if (r == 0)
		r = read_tables(m);
	if (r == 0)
		r = check_sources(m);
	if (r == 0)
		r = make_file(m);
	if (r == 0)
		r = start_from_parent(m);
	if (r == 0)
		r = place_regions(m);
	release_tables(m); /* other commits may wait for the memory */
	if (r == 0 && how->verify)
		r = verify(m, how->key);
	if (r < 0)
		return r;
	name_of(m->header.number, made.name);
	do
		r = names_link(m->fs, m->inode->ino, made.dir, made.name, m->caller, &st);
	while (r == -EINPROGRESS && (r = freezes_wait(m->fs->freezes, made.dir)) == 0);
	if (r < 0)
		return r;
	made.ino = st.st_ino;
	made.size = (uint64_t)st.st_size;
	names_forget(m->fs, &(struct names_forget){ made.ino, 1 }, 1); /* the kernel has not looked it up */
	atomic_fetch_add(&m->fs->nr_deltas, 1);
	atomic_fetch_add(&m->fs->delta_bytes, m->header.content_len);
	atomic_fetch_add(&m->fs->delta_payload_bytes, m->header.payload_len);
	*ret = made;
	return 0;
}

/* Called after the reply: brings the in-memory state of the new version up to date. */
void delta_tidy(struct fs *fs, const struct delta_made *made)
{
	struct content *c;

	if (content_open(fs->engine, made->ino, &c) < 0)
		return;
	content_catch_up_all(c);
	content_close(c);
}

int delta_commit(struct fs *fs, struct file *f, const struct delta_commit *how, struct caller *caller,
		 struct delta_made *ret)
{
	struct making m = { .fs = fs, .f = f, .caller = caller, .user = subuids_user(caller->cred->uid) };
	int r = take_stage(f);

	if (r < 0)
		return r;
	r = make_version(&m, how, ret);
	making_release(&m);
	atomic_store(&f->delta, r < 0 ? FILE_DELTA_BEGUN : FILE_DELTA_COMMITTED);
	return r;
}
