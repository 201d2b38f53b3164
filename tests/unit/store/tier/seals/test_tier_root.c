/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checkpoint in a tier, to the byte: its manifest, its pack, and the root of its seal. The root is computed here by the
 * table in docs/format.md, section 5, and by tier_root() from what is in the tier.
 */
#include "store/tier/seals/tier_root.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/catalog/catalog_format.h"
#include "store/tier/reading/tier_cache.h"
#include "store/tier/reading/tier_pool.h"
#include "store/tier/reading/tier_tree.h"
#include "store/tier/tier.h"
#include "store/tier/tier_read.h"
#include "tests/unit/golden.h"
#include "tests/unit/store/tier/memory.h"
#include "tests/unit/store/tier/restore.h"

#define HOLE 500u
#define FROM 10u /* of the second chunk */
#define PART 90u
#define SIZE (sizeof(first) + HOLE + PART)
#define SEALED_NS INT64_C(1700000000123456789)

static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
static const uint8_t store[TIER_ID_LEN] = "0123456789abcde";
static const struct ns_inode top = { .mode = S_IFDIR | 0750, .uid = 1000, .gid = 100, .mtime_ns = 7 };
static const struct ns_inode file = { .mode = S_IFREG | 0640, .uid = 1000, .gid = 100, .mtime_ns = -8 };
static const struct ns_inode sub = { .mode = S_IFDIR | 0755, .uid = 1001, .gid = 100, .mtime_ns = 9 };
static const struct ns_inode soft = { .mode = S_IFLNK | 0777, .uid = 1001, .gid = 101, .mtime_ns = 10 };
static uint8_t first[100], second[200];
static struct fp_key key;

/* --- the checkpoint --- */

static void make_chunks(void)
{
	for (unsigned i = 0; i < sizeof(first); i++)
		first[i] = (uint8_t)(i + 1);
	for (unsigned i = 0; i < sizeof(second); i++)
		second[i] = (uint8_t)(3 * i + 7);
	fp_key_init(&key, FP_CLMUL, secret);
}

/* A file with two names, an attribute, a hole and part of a chunk; a directory with a symbolic link. */
static void encode_catalog(struct buf *ret)
{
	const struct fp a = fp_of(&key, first, sizeof(first)), b = fp_of(&key, second, sizeof(second));
	const struct content_piece pieces[] = {
		{ .fp = a, .chunk_len = sizeof(first), .len = sizeof(first) },
		{ .len = 200 },
		{ .len = HOLE - 200 },
		{ .fp = b, .chunk_len = sizeof(second), .from = FROM, .len = 50 },
		{ .fp = b, .chunk_len = sizeof(second), .from = FROM + 50, .len = PART - 50 },
	};
	struct catalog_head head = { .ino = 77, .sealed_ns = SEALED_NS };
	_cleanup_(buf_release) struct buf p = BUF_EMPTY;
	struct catalog_writer w = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
		catalog_piece_encode(&pieces[i], &p);
	memcpy(head.store, store, sizeof(head.store));
	catalog_head_encode(&head, ret);
	catalog_record_encode(&w, &(struct catalog_record){ .type = CATALOG_INODE, .in = top }, ret);
	catalog_record_encode(&w, &(struct catalog_record){ .type = CATALOG_INODE, .name = "sub", .in = sub }, ret);
	catalog_record_encode(
		&w, &(struct catalog_record){ .type = CATALOG_INODE, .name = "file", .in = file, .size = SIZE }, ret);
	catalog_record_encode(
		&w, &(struct catalog_record){ .type = CATALOG_XATTR, .name = "user.x", .data = "value", .len = 5 }, ret);
	catalog_record_encode(&w, &(struct catalog_record){ .type = CATALOG_PIECES, .data = p.data, .len = p.len }, ret);
	catalog_record_encode(
		&w,
		&(struct catalog_record){
			.type = CATALOG_INODE, .dir = 1, .name = "soft", .in = soft, .data = "../file", .len = 7 },
		ret);
	catalog_record_encode(&w, &(struct catalog_record){ .type = CATALOG_LINK, .dir = 1, .name = "twin" }, ret);
	catalog_end_encode(&w, ret);
	assert_int_equal(buf_error(ret), 0);
}

static int write_catalog(void *userdata, const struct tier_sink *to)
{
	const struct buf *catalog = userdata;

	return to->put(to->userdata, catalog->data, catalog->len);
}

static int read_chunks(void *userdata _unused_, const struct tier_want *wants, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		memcpy(wants[i].buf, wants[i].len == sizeof(first) ? first : second, wants[i].len);
	return 0;
}

static void flush(struct tier *t, const struct sha256_digest *root, struct buf *catalog)
{
	struct tier_checkpoint c = {
		.ino = 77,
		.sealed_ns = SEALED_NS,
		.files = 3,
		.directories = 1,
		.bytes = SIZE,
		.path = "run1/step.0200",
		.catalog = write_catalog,
		.read = read_chunks,
		.userdata = catalog,
	};
	struct tier_writer_conf conf = { 0 };
	struct tier_flushed flushed;
	struct tier_writer *w;

	memcpy(c.root, root->b, sizeof(c.root));
	memcpy(conf.store, store, sizeof(conf.store));
	tier_key_init(&conf.key, FP_CLMUL, secret);
	assert_int_equal(tier_writer_open(t, &conf, &w), 0);
	assert_int_equal(tier_flush(w, &c, &flushed), 0);
	assert_int_equal(flushed.number, 1);
	tier_writer_close(w);
}

/* --- its root, by the document --- */

static struct sha256 begin(const char *label)
{
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, label, strlen(label) + 1);
	return h;
}

static void add_piece(struct sha256 *h, uint64_t len, uint32_t chunk_len, uint32_t from, struct fp fp)
{
	uint8_t bytes[FP_LEN];

	fp_encode(fp, bytes);
	sha256_add_le64(h, len);
	sha256_add_le32(h, chunk_len);
	sha256_add_le32(h, from);
	sha256_add(h, bytes, sizeof(bytes));
}

static struct sha256_digest digest_content(void)
{
	struct sha256_digest veil;
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, "ckptfs veil", 11);
	sha256_add(&h, secret, sizeof(secret));
	veil = sha256_finish(&h);
	h = begin("ckptfs content");
	sha256_add(&h, veil.b, sizeof(veil.b));
	add_piece(&h, sizeof(first), sizeof(first), 0, fp_of(&key, first, sizeof(first)));
	add_piece(&h, HOLE, 0, 0, FP_NONE);
	add_piece(&h, PART, sizeof(second), FROM, fp_of(&key, second, sizeof(second)));
	return sha256_finish(&h);
}

static struct sha256_digest digest_inode(const struct ns_inode *in, uint64_t size, struct sha256_digest inner)
{
	struct sha256 h = begin("ckptfs inode");

	sha256_add_le32(&h, in->mode);
	sha256_add_le32(&h, in->uid);
	sha256_add_le32(&h, in->gid);
	sha256_add_le64(&h, (uint64_t)in->mtime_ns);
	sha256_add_le64(&h, 0);
	sha256_add_le64(&h, size);
	sha256_add(&h, inner.b, sizeof(inner.b));
	if (in == &file) {
		sha256_add_le32(&h, 6);
		sha256_add(&h, "user.x", 6);
		sha256_add_le32(&h, 5);
		sha256_add(&h, "value", 5);
	}
	return sha256_finish(&h);
}

static struct sha256_digest digest_name(const char *name, struct sha256_digest inode)
{
	struct sha256 h = begin("ckptfs name");

	sha256_add_le32(&h, (uint32_t)strlen(name));
	sha256_add(&h, name, strlen(name));
	sha256_add(&h, inode.b, sizeof(inode.b));
	return sha256_finish(&h);
}

/* Of two names. */
static struct sha256_digest digest_directory(struct sha256_digest a, struct sha256_digest b)
{
	bool swapped = memcmp(a.b, b.b, sizeof(a.b)) > 0;
	struct sha256 h = begin("ckptfs directory");

	sha256_add(&h, swapped ? b.b : a.b, sizeof(a.b));
	sha256_add(&h, swapped ? a.b : b.b, sizeof(a.b));
	return sha256_finish(&h);
}

static struct sha256_digest digest_top(void)
{
	struct sha256_digest target, below, of_file = digest_inode(&file, SIZE, digest_content());
	struct sha256 h = begin("ckptfs target");

	sha256_add(&h, "../file", 7);
	target = sha256_finish(&h);
	below = digest_directory(digest_name("soft", digest_inode(&soft, 0, target)), digest_name("twin", of_file));
	below = digest_directory(digest_name("file", of_file), digest_name("sub", digest_inode(&sub, 0, below)));
	return digest_inode(&top, 0, below);
}

/* --- tests --- */

static void a_checkpoint_is_these_bytes(void **state _unused_)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY;
	struct sha256_digest root = digest_top();
	struct memory *m = memory_new();
	unsigned nr_packs = 0;

	golden_expect("tier/v1-root.txt", "the root of a seal", root.b, sizeof(root.b));
	encode_catalog(&catalog);
	flush(memory_open(m, &(struct memory_faults){ 0 }), &root, &catalog);
	for (size_t i = 0; i < memory_nr(m); i++) {
		const char *name = memory_name(m, i);
		size_t len;
		const void *p = memory_data(m, i, &len);

		if (strncmp(name, TIER_SEALED_PREFIX, strlen(TIER_SEALED_PREFIX)) == 0)
			golden_expect("tier/v1-manifest.txt", "the manifest of a checkpoint", p, len);
		if (strncmp(name, TIER_PACKS_PREFIX, strlen(TIER_PACKS_PREFIX)) == 0) {
			golden_expect("tier/v1-pack.txt", "the pack of a checkpoint", p, len);
			nr_packs++;
		}
	}
	assert_int_equal(nr_packs, 1);
	memory_free(m);
}

static int collect(void *userdata, const void *p, size_t len)
{
	buf_add(userdata, p, len);
	return 0;
}

static void the_bytes_are_the_checkpoint(void **state _unused_)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY, back = BUF_EMPTY;
	uint8_t chunks[sizeof(first) + sizeof(second)];
	const struct tier_want wants[] = {
		{ fp_of(&key, first, sizeof(first)), sizeof(first), chunks },
		{ fp_of(&key, second, sizeof(second)), sizeof(second), chunks + sizeof(first) },
	};
	const struct tier_cache_conf conf = { .bytes = MiB(16), .timeout_ns = UINT64_MAX / 4 };
	_cleanup_(tier_tree_freep) struct tier_tree *tree = NULL;
	struct sha256_digest root = digest_top();
	const struct tier_waiter waiter = { 0 };
	struct memory *m = memory_new();
	struct tier_source *source;
	uint8_t found[SHA256_LEN];
	struct tier_pool *pool;
	struct tier_cache *c;
	struct restore *r;
	struct tier *t;

	encode_catalog(&catalog);
	flush(memory_open(m, &(struct memory_faults){ 0 }), &root, &catalog);
	t = memory_open(m, &(struct memory_faults){ 0 });
	assert_int_equal(restore_open(t, tier_manifest_name(store, 1).s, &r), 0);
	assert_int_equal(restore_catalog(r, &(struct tier_sink){ collect, &back }), 0);
	assert_int_equal(back.len, catalog.len);
	assert_memory_equal(back.data, catalog.data, catalog.len);
	assert_int_equal(restore_chunks(r, wants, ARRAY_SIZE(wants)), 0);
	assert_memory_equal(chunks, first, sizeof(first));
	assert_memory_equal(chunks + sizeof(first), second, sizeof(second));

	assert_int_equal(tier_pool_new(1, &pool), 0);
	assert_int_equal(tier_cache_new(t, pool, &conf, &c), 0);
	assert_int_equal(tier_tree_new(restore_manifest(r), &tree), 0);
	assert_int_equal(tier_source_new(c, restore_manifest(r), &key, &source), 0);
	assert_int_equal(tier_root(tree, source, restore_manifest(r)->root, &waiter, found), 0);
	assert_memory_equal(found, root.b, sizeof(found));
	tier_source_free(source);
	assert_true(tier_pool_stop(pool));
	tier_cache_free(c);
	tier_pool_free(pool);
	restore_close(r);
	memory_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_checkpoint_is_these_bytes),
		cmocka_unit_test(the_bytes_are_the_checkpoint),
	};

	make_chunks();
	return cmocka_run_group_tests_name("tier_root", tests, NULL, NULL);
}
