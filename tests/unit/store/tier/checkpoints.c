/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/checkpoints.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/tier.h"
#include "tests/unit/store/tier/restore.h"

static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";

const struct tier_writer_conf checkpoint_writer = {
	/* as tier_key_init() makes it of the secret: see pool_init() */
	.store = "0123456789abcde",
	.pack_bytes = 100000,
	.packs_in_flight = 3,
};

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* --- chunks --- */

static void fill_pool(struct pool *p, uint64_t seed, unsigned nr, bool pages)
{
	uint64_t random = seed * 2654435761u + 1;

	assert_true(nr <= POOL);
	*p = (struct pool){ .nr = nr };
	fp_key_init(&p->key, FP_CLMUL, secret);
	for (unsigned i = 0; i < nr; i++) {
		struct chunk *c = &p->v[i];
		uint64_t kind = pages ? 0 : draw(&random) % 8;

		c->len = kind < 5 ? 4096 : kind == 5 ? 16384 : (uint32_t)(1 + draw(&random) % 6000);
		c->bytes = malloc(c->len);
		assert_non_null(c->bytes);
		for (uint32_t k = 0; k < c->len; k++)
			c->bytes[k] = (uint8_t)draw(&random);
		memcpy(c->bytes, &i, MIN(c->len, (uint32_t)sizeof(i)));
		c->fp = fp_of(&p->key, c->bytes, c->len);
	}
}

void pool_init(struct pool *p, uint64_t seed, unsigned nr)
{
	fill_pool(p, seed, nr, false);
}

void pool_init_pages(struct pool *p, uint64_t seed, unsigned nr)
{
	fill_pool(p, seed, nr, true);
}

void pool_release(struct pool *p)
{
	for (unsigned i = 0; i < p->nr; i++)
		free(p->v[i].bytes);
}

static const struct chunk *pool_find(const struct pool *p, struct fp fp, uint32_t len)
{
	for (unsigned i = 0; i < p->nr; i++)
		if (fp_equal(p->v[i].fp, fp) && p->v[i].len == len)
			return &p->v[i];
	return NULL;
}

/* --- as a source --- */

static int read_now(struct checkpoint *c, const struct tier_want *wants, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		const struct chunk *chunk = pool_find(c->pool, wants[i].fp, wants[i].len);

		assert_non_null(chunk);
		memcpy(wants[i].buf, chunk->bytes, chunk->len);
		if (c->pool->returns_others)
			((uint8_t *)wants[i].buf)[0] ^= 1;
	}
	return c->pool->read_fails;
}

static int read_chunks(void *userdata, const struct tier_want *wants, size_t nr)
{
	struct checkpoint *c = userdata;

	assert_null(c->late); /* one read at a time */
	if (!c->pool->reads_late)
		return read_now(c, wants, nr);
	for (size_t i = 0; i < nr; i++)
		memset(wants[i].buf, 0xa5, wants[i].len);
	c->late = wants;
	c->nr_late = nr;
	return 0;
}

static int await_chunks(void *userdata)
{
	struct checkpoint *c = userdata;
	const struct tier_want *wants = c->late;

	c->late = NULL;
	return wants ? read_now(c, wants, c->nr_late) : 0;
}

/* In portions of any length: those of records are not known to a sink. */
static int write_catalog(void *userdata, const struct tier_sink *to)
{
	struct checkpoint *c = userdata;
	uint64_t random = c->seed + 77;
	int r = 0;

	for (size_t at = 0, n; at < c->catalog.len && r == 0; at += n) {
		n = MIN((size_t)(1 + draw(&random) % 3000), c->catalog.len - at);
		r = to->put(to->userdata, c->catalog.data + at, n);
		c->sent = at + n;
	}
	return r < 0 ? r : c->catalog_fails;
}

/* --- catalogs --- */

struct encoding {
	struct checkpoint *c;
	struct catalog_writer w;
	uint64_t random;
};

static void begin(struct encoding *e, struct checkpoint *c, struct pool *pool, uint64_t seed, uint64_t ino)
{
	struct catalog_head head = { .ino = ino, .sealed_ns = (int64_t)ino * 1000 };
	struct catalog_record top = { .type = CATALOG_INODE, .in = { .mode = S_IFDIR | 0755 } };

	*c = (struct checkpoint){ .pool = pool, .seed = seed };
	c->c = (struct tier_checkpoint){
		.ino = ino,
		.sealed_ns = head.sealed_ns,
		.root = { (uint8_t)ino, 1, 2 },
		.path = "run1/step.0200",
		.catalog = write_catalog,
		.read = read_chunks,
		.await = await_chunks,
		.userdata = c,
	};
	*e = (struct encoding){ .c = c, .random = seed * 40503 + 11 };
	memcpy(head.store, checkpoint_writer.store, sizeof(head.store));
	catalog_head_encode(&head, &c->catalog);
	catalog_record_encode(&e->w, &top, &c->catalog);
}

static void end(struct encoding *e)
{
	catalog_end_encode(&e->w, &e->c->catalog);
	assert_int_equal(buf_error(&e->c->catalog), 0);
}

static void add_inode(struct encoding *e, const char *name, uint32_t mode, uint64_t size)
{
	struct catalog_record rec = { .type = CATALOG_INODE, .in = { .mode = mode, .mtime_ns = 5 }, .size = size };

	strcpy(rec.name, name);
	if (S_ISLNK(mode)) {
		rec.data = "target";
		rec.len = 6;
	}
	catalog_record_encode(&e->w, &rec, &e->c->catalog);
}

static void add_pieces(struct encoding *e, const struct content_piece *v, unsigned nr)
{
	for (unsigned i = 0, n; i < nr; i += n) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct catalog_record rec = { .type = CATALOG_PIECES };

		n = MIN(1 + (unsigned)(draw(&e->random) % 60), nr - i);
		for (unsigned k = i; k < i + n; k++)
			catalog_piece_encode(&v[k], &b);
		rec.data = b.data;
		rec.len = b.len;
		catalog_record_encode(&e->w, &rec, &e->c->catalog);
	}
}

static void add_file(struct encoding *e, const char *name, unsigned from, unsigned to)
{
	struct content_piece v[200];
	unsigned nr = (unsigned)(draw(&e->random) % ARRAY_SIZE(v)), at = from;
	uint64_t size = 0;

	for (unsigned i = 0; i < nr; i++) {
		const struct chunk *c = &e->c->pool->v[at];
		uint64_t kind = draw(&e->random) % 16;

		v[i] = (struct content_piece){ .fp = c->fp, .chunk_len = c->len, .len = c->len };
		if (kind == 0) {
			v[i] = (struct content_piece){ .len = 1 + draw(&e->random) % 1000000 };
		} else if (kind == 1 && c->len > 1) {
			v[i].from = (uint32_t)(draw(&e->random) % c->len);
			v[i].len = 1 + draw(&e->random) % (c->len - v[i].from);
		}
		size += v[i].len;
		/* mostly one behind the other, as files are */
		at = kind < 3 ? from + (unsigned)(draw(&e->random) % (to - from)) : at + 1 < to ? at + 1 : from;
	}
	add_inode(e, name, S_IFREG | 0644, size);
	if (draw(&e->random) % 2 == 0) {
		struct catalog_record rec = { .type = CATALOG_XATTR, .name = "user.x", .data = "va\0lue", .len = 6 };

		catalog_record_encode(&e->w, &rec, &e->c->catalog);
	}
	add_pieces(e, v, nr);
}

void checkpoint_init(struct checkpoint *c, struct pool *pool, uint64_t seed, uint64_t ino, unsigned from, unsigned to)
{
	struct catalog_record link = { .type = CATALOG_LINK, .name = "twin" };
	struct encoding e;

	begin(&e, c, pool, seed, ino);
	add_file(&e, "a", from, to);
	add_file(&e, "b", from, to);
	add_inode(&e, "empty", S_IFREG | 0600, 0);
	add_inode(&e, "soft", S_IFLNK | 0777, 0);
	catalog_record_encode(&e.w, &link, &c->catalog);
	add_file(&e, "c", from, to);
	end(&e);
}

void checkpoint_init_file(struct checkpoint *c, struct pool *pool, uint64_t ino, const unsigned *chunks, unsigned nr)
{
	struct content_piece *v = calloc(MAX(nr, 1u), sizeof(*v));
	uint64_t size = 0;
	struct encoding e;

	assert_non_null(v);
	begin(&e, c, pool, 1, ino);
	for (unsigned i = 0; i < nr; i++) {
		const struct chunk *k = &pool->v[chunks[i]];

		v[i] = (struct content_piece){ .fp = k->fp, .chunk_len = k->len, .len = k->len };
		size += k->len;
	}
	add_inode(&e, "file", S_IFREG | 0644, size);
	add_pieces(&e, v, nr);
	end(&e);
	free(v);
}

void checkpoint_init_attributes(struct checkpoint *c, struct pool *pool, uint64_t ino, unsigned nr, size_t len)
{
	char *value = malloc(len);
	struct encoding e;

	assert_non_null(value);
	begin(&e, c, pool, 1, ino);
	for (unsigned i = 0; i < nr; i++) {
		struct catalog_record rec = { .type = CATALOG_XATTR, .name = "user.x", .data = value, .len = len };
		char name[20];

		snprintf(name, sizeof(name), "file%08u", i);
		add_inode(&e, name, S_IFREG | 0644, 0);
		for (size_t k = 0; k < len; k++)
			value[k] = (char)(i + k * 7);
		catalog_record_encode(&e.w, &rec, &c->catalog);
	}
	end(&e);
	free(value);
}

void checkpoint_release(struct checkpoint *c)
{
	buf_release(&c->catalog);
}

/* --- reading --- */

static int collect(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return buf_error(userdata);
}

static void check_chunks(struct restore *r, const struct pool *pool, const struct buf *catalog)
{
	struct catalog_reader reader = { 0 };
	struct catalog_record rec;
	size_t at = 0, used;

	while (catalog_reader_next(&reader, catalog->data + at, catalog->len - at, &used, &rec) > 0) {
		struct cursor c = cursor_of(rec.data, rec.type == CATALOG_PIECES ? rec.len : 0);
		struct content_piece piece;
		struct tier_want wants[64];
		unsigned nr = 0;

		while (catalog_piece_next(&c, &piece) > 0)
			if (piece.chunk_len > 0)
				wants[nr++] = (struct tier_want){ piece.fp, piece.chunk_len, malloc(piece.chunk_len) };
		assert_int_equal(restore_chunks(r, wants, nr), 0);
		for (unsigned i = 0; i < nr; i++) {
			assert_memory_equal(wants[i].buf, pool_find(pool, wants[i].fp, wants[i].len)->bytes,
					    wants[i].len);
			free(wants[i].buf);
		}
		at += used;
	}
	assert_true(reader.at_end);
}

void checkpoint_check(struct tier *t, const char *name, const struct checkpoint *const *v, unsigned nr)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY;
	const struct checkpoint *c = NULL;
	const struct tier_manifest *m;
	struct restore *r;

	assert_int_equal(restore_open(t, name, &r), 0);
	m = restore_manifest(r);
	for (unsigned i = 0; i < nr; i++)
		if (v[i]->c.ino == m->ino)
			c = v[i];
	assert_non_null(c);
	assert_int_equal(m->sealed_ns, c->c.sealed_ns);
	assert_memory_equal(m->root, c->c.root, sizeof(m->root));
	assert_int_equal(m->path_len, strlen(c->c.path));
	assert_int_equal(restore_catalog(r, &(struct tier_sink){ collect, &catalog }), 0);
	assert_int_equal(catalog.len, c->catalog.len);
	assert_memory_equal(catalog.data, c->catalog.data, catalog.len);
	check_chunks(r, c->pool, &catalog);
	restore_close(r);
}

unsigned checkpoints_check(struct tier *t, const struct checkpoint *const *v, unsigned nr)
{
	_cleanup_(buf_release) struct buf names = BUF_EMPTY;
	unsigned found = 0;

	assert_int_equal(tier_list_all(t, TIER_SEALED_PREFIX, &names), 0);
	for (size_t at = 0; at < names.len; at += strlen((char *)names.data + at) + 1) {
		checkpoint_check(t, (char *)names.data + at, v, nr);
		found++;
	}
	return found;
}
