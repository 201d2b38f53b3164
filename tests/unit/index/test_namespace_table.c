/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/index/rig.h"

#include <dirent.h>

#include "base/le.h"
#include "index/namespace_table.h"
#include "tests/unit/golden.h"

static const struct fp_key *fp_key(void)
{
	static struct fp_key k;

	if (k.kind == 0)
		fp_key_init(&k, FP_XXH3, (const uint8_t[FP_KEY_LEN]){ 1, 2, 3 });
	return &k;
}

static void expect_key(struct ns_key k, const char *bytes, size_t len)
{
	assert_int_equal(k.len, len);
	assert_memory_equal(k.b, bytes, len);
}

static void keys_are_the_bytes_of_the_format(void **state)
{
	(void)state;
#define EXPECT(k, bytes) expect_key(k, bytes, sizeof(bytes) - 1)
	EXPECT(ns_key_inode(0x0102030405060708), "I\1\2\3\4\5\6\7\10");
	EXPECT(ns_key_content(1), "C\0\0\0\0\0\0\0\1");
	EXPECT(ns_key_dirent(1, 0x7f00000000000010), "D\0\0\0\0\0\0\0\1\x7f\0\0\0\0\0\0\x10");
	EXPECT(ns_key_dirents(2), "D\0\0\0\0\0\0\0\2");
	EXPECT(ns_key_symlink(3), "L\0\0\0\0\0\0\0\3");
	EXPECT(ns_key_xattr(4, "user.a"), "X\0\0\0\0\0\0\0\4user.a");
	EXPECT(ns_key_xattrs(4), "X\0\0\0\0\0\0\0\4");
	EXPECT(ns_key_orphan(UINT64_MAX), "O\xff\xff\xff\xff\xff\xff\xff\xff");
	EXPECT(ns_key_meta("commit"), "Mcommit");
	EXPECT(ns_key_seal(0x0102030405060708), "S\1\2\3\4\5\6\7\10");
	EXPECT(ns_key_replica(5), "N\0\0\0\0\0\0\0\5");
#undef EXPECT
}

static struct ns_inode sample_inode(uint64_t ino)
{
	return (struct ns_inode){
		.ino = ino,
		.mode = S_IFREG | 04755,
		.nlink = 0xfffffffe,
		.uid = 1000,
		.gid = 0xfffffffd,
		.rdev = 0x0102030405060708,
		.atime_ns = -1,
		.mtime_ns = INT64_MIN,
		.ctime_ns = INT64_MAX,
		.btime_ns = 1234567890123456789,
		.parent = 77,
		.flags = 0x80000001,
	};
}

static void expect_inode(const struct ns_inode *a, const struct ns_inode *b)
{
	assert_int_equal(a->ino, b->ino);
	assert_int_equal(a->mode, b->mode);
	assert_int_equal(a->nlink, b->nlink);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->gid, b->gid);
	assert_int_equal(a->rdev, b->rdev);
	assert_int_equal(a->atime_ns, b->atime_ns);
	assert_int_equal(a->mtime_ns, b->mtime_ns);
	assert_int_equal(a->ctime_ns, b->ctime_ns);
	assert_int_equal(a->btime_ns, b->btime_ns);
	assert_int_equal(a->parent, b->parent);
	assert_int_equal(a->flags, b->flags);
}

static void inode_round_trips(void **state)
{
	struct ns_inode in = sample_inode(5), out;
	struct buf b = BUF_EMPTY;

	(void)state;
	ns_inode_encode(&in, &b);
	assert_int_equal(b.len, 72);
	assert_int_equal(ns_inode_decode(5, b.data, b.len, &out), 0);
	expect_inode(&out, &in);
	buf_release(&b);
}

static void damaged_inodes_are_refused(void **state)
{
	static const uint32_t bad_modes[] = { 0, 0644, S_IFREG | S_IFDIR | S_IFLNK, 0200000 | S_IFREG,
					      0x80000000 | S_IFDIR };
	struct ns_inode in = sample_inode(5), out = { .ino = 99 };
	struct buf b = BUF_EMPTY;

	(void)state;
	ns_inode_encode(&in, &b);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(ns_inode_decode(5, b.data, len, &out), -EBADMSG);
	buf_add_u8(&b, 0);
	assert_int_equal(ns_inode_decode(5, b.data, b.len, &out), -EBADMSG);
	b.data[71] = 1; /* reserved */
	assert_int_equal(ns_inode_decode(5, b.data, 72, &out), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad_modes); i++) {
		buf_clear(&b);
		in.mode = bad_modes[i];
		ns_inode_encode(&in, &b);
		assert_int_equal(ns_inode_decode(5, b.data, b.len, &out), -EBADMSG);
	}
	assert_int_equal(out.ino, 99);
	buf_release(&b);
}

static void content_round_trips_and_damage_is_refused(void **state)
{
	struct ns_content in = { .size = INT64_MAX, .mapped = 4096, .mtime_ns = -5, .ctime_ns = 6 }, out;
	struct buf b = BUF_EMPTY;

	(void)state;
	ns_content_encode(&in, &b);
	assert_int_equal(b.len, 32);
	assert_int_equal(ns_content_decode(b.data, b.len, &out), 0);
	assert_int_equal(out.size, in.size);
	assert_int_equal(out.mapped, in.mapped);
	assert_int_equal(out.mtime_ns, in.mtime_ns);
	assert_int_equal(out.ctime_ns, in.ctime_ns);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(ns_content_decode(b.data, len, &out), -EBADMSG);
	b.data[7] |= 0x80; /* a size that no off_t holds */
	assert_int_equal(ns_content_decode(b.data, b.len, &out), -EBADMSG);
	buf_release(&b);
}

static struct ns_dirent dirent_of(uint64_t ino, uint64_t cookie, const char *name)
{
	struct ns_dirent d = { .ino = ino, .cookie = cookie, .type = DT_REG, .name_len = (uint8_t)strlen(name) };

	memcpy(d.name, name, strlen(name) + 1);
	return d;
}

static void dirent_round_trips(void **state)
{
	struct buf b = BUF_EMPTY;
	struct ns_dirent out;
	char name[256];

	(void)state;
	for (size_t len = 1; len <= NS_NAME_MAX; len++) {
		struct ns_dirent in;

		memset(name, 0xe4, len);
		name[len] = '\0';
		in = dirent_of(UINT64_MAX, 16 + len, name);
		buf_clear(&b);
		ns_dirent_encode(&in, &b);
		assert_int_equal(b.len, 9 + len);
		assert_int_equal(ns_dirent_decode(16 + len, b.data, b.len, &out), 0);
		assert_int_equal(out.ino, UINT64_MAX);
		assert_int_equal(out.cookie, 16 + len);
		assert_int_equal(out.type, DT_REG);
		assert_int_equal(out.name_len, len);
		assert_string_equal(out.name, name);
	}
	buf_release(&b);
}

static void damaged_dirents_are_refused(void **state)
{
	static const struct {
		uint64_t cookie;
		const char *bytes;
		size_t len;
	} cases[] = {
#define CASE(cookie, bytes) { cookie, bytes, sizeof(bytes) - 1 }
		CASE(16, ""),
		CASE(16, "\1\0\0\0\0\0\0\0\10"),	   /* no name */
		CASE(16, "\0\0\0\0\0\0\0\0\10a"),	   /* no inode */
		CASE(16, "\1\0\0\0\0\0\0\0\0a"),	   /* no type */
		CASE(16, "\1\0\0\0\0\0\0\0\3a"),	   /* no such type */
		CASE(16, "\1\0\0\0\0\0\0\0\10a/b"),	   /* slash */
		CASE(16, "\1\0\0\0\0\0\0\0\10a\0b"),	   /* zero byte */
		CASE(16, "\1\0\0\0\0\0\0\0\10."),
		CASE(16, "\1\0\0\0\0\0\0\0\10.."),
		CASE(15, "\1\0\0\0\0\0\0\0\10a"),	   /* cookie of ".." */
		CASE(UINT64_C(1) << 63, "\1\0\0\0\0\0\0\0\10a"),
#undef CASE
	};
	struct ns_dirent out = { .ino = 99 };
	uint8_t too_long[9 + 256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(ns_dirent_decode(cases[i].cookie, cases[i].bytes, cases[i].len, &out), -EBADMSG);
	memset(too_long, 'a', sizeof(too_long));
	too_long[8] = DT_REG;
	assert_int_equal(ns_dirent_decode(16, too_long, sizeof(too_long), &out), -EBADMSG);
	assert_int_equal(out.ino, 99);
	assert_int_equal(ns_dirent_decode(16, too_long, sizeof(too_long) - 1, &out), 0);
	assert_int_equal(out.name_len, 255);
}

static void put_dirent(struct rig *rig, uint64_t dir, const struct ns_dirent *d)
{
	struct ns_key k = ns_key_dirent(dir, d->cookie);
	struct buf b = BUF_EMPTY;

	ns_dirent_encode(d, &b);
	rig_put_bytes(rig, k.b, k.len, &b);
	buf_release(&b);
}

/* Add a name as a caller does: at the cookie that ns_find() gives. */
static uint64_t add_name(struct rig *rig, uint64_t dir, uint64_t ino, const char *name)
{
	struct ns_dirent d;

	assert_int_equal(ns_find(rig->db, fp_key(), dir, name, &d), 0);
	d = dirent_of(ino, d.cookie, name);
	put_dirent(rig, dir, &d);
	return d.cookie;
}

static void names_are_found_where_they_were_added(void **state)
{
	struct rig *rig = *state;
	struct ns_dirent d;
	uint64_t cookie;
	char name[20];

	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "file.%04d", i);
		cookie = add_name(rig, 1, 100 + (uint64_t)i, name);
		assert_in_range(cookie, 16, INT64_MAX);
		assert_int_equal(cookie & 15, 0);
	}
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "file.%04d", i);
		assert_int_equal(ns_find(rig->db, fp_key(), 1, name, &d), 1);
		assert_int_equal(d.ino, 100 + i);
		assert_string_equal(d.name, name);
		assert_int_equal(ns_find(rig->db, fp_key(), 2, name, &d), 0);
	}
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "file.0500", &d), 0);
}

static void names_of_equal_hash_live_side_by_side(void **state)
{
	struct rig *rig = *state;
	struct ns_dirent d;
	uint64_t first;
	char name[20];
	struct ns_key k;

	/* Other names where "wanted" belongs, as if their hashes were the same. */
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 0);
	first = d.cookie;
	for (uint64_t n = 0; n < 3; n++) {
		snprintf(name, sizeof(name), "other%d", (int)n);
		d = dirent_of(50 + n, first + n, name);
		put_dirent(rig, 1, &d);
	}
	assert_int_equal(add_name(rig, 1, 60, "wanted"), first + 3);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 1);
	assert_int_equal(d.ino, 60);
	assert_int_equal(d.cookie, first + 3);

	/* A gap before it neither hides it nor is it added twice. */
	k = ns_key_dirent(1, first);
	rig_del(rig, k.b, k.len);
	k = ns_key_dirent(1, first + 1);
	rig_del(rig, k.b, k.len);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 1);
	assert_int_equal(d.ino, 60);
	k = ns_key_dirent(1, first + 3);
	rig_del(rig, k.b, k.len);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 0);
	assert_int_equal(d.cookie, first);
	d = dirent_of(70, first, "other3");
	put_dirent(rig, 1, &d);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 0);
	assert_int_equal(d.cookie, first + 1);

	/* All taken; the neighbour group is not ours. */
	for (uint64_t n = 0; n < 17; n++) {
		snprintf(name, sizeof(name), "other%d", (int)n);
		d = dirent_of(80 + n, first + n, name);
		put_dirent(rig, 1, &d);
	}
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), -ENOSPC);
	k = ns_key_dirent(1, first + 15);
	rig_del(rig, k.b, k.len);
	assert_int_equal(add_name(rig, 1, 90, "wanted"), first + 15);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 1);
	assert_int_equal(d.ino, 90);
}

static void find_first_looks_at_one_place_only(void **state)
{
	struct rig *rig = *state;
	struct ns_dirent d, other;
	uint64_t first;
	struct ns_key k;

	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "wanted", &d), 0);
	first = d.cookie;
	assert_false(ns_cookie_shared(first));
	assert_int_equal(add_name(rig, 1, 60, "wanted"), first);
	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "wanted", &d), 1);
	assert_int_equal(d.ino, 60);
	other = dirent_of(50, first, "other"); /* in its place, as if of equal hash */
	put_dirent(rig, 1, &other);
	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "wanted", &d), -EEXIST);
	assert_int_equal(add_name(rig, 1, 60, "wanted"), first + 1);
	assert_true(ns_cookie_shared(first + 1));
	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "wanted", &d), -EEXIST);
	k = ns_key_dirent(1, first);
	rig_del(rig, k.b, k.len);
	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "wanted", &d), 0);
	assert_int_equal(d.cookie, first);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "wanted", &d), 1);
	assert_int_equal(d.cookie, first + 1);
	assert_int_equal(ns_find_first(rig->db, fp_key(), 1, "", &d), -EINVAL);
}

static void impossible_names_are_refused(void **state)
{
	struct rig *rig = *state;
	struct ns_dirent d;
	char name[258];

	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	assert_int_equal(ns_find(rig->db, fp_key(), 1, name, &d), -ENAMETOOLONG);
	name[255] = '\0';
	assert_int_equal(ns_find(rig->db, fp_key(), 1, name, &d), 0);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "", &d), -EINVAL);
}

static void readdir_gives_all_in_cookie_order_and_resumes_anywhere(void **state)
{
	struct rig *rig = *state;
	enum { N = 300 };
	uint64_t cookies[N], last = 0;
	struct db_iter *it;
	struct ns_dirent d;
	char name[20];
	int n = 0, r;

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		add_name(rig, 7, 1 + (uint64_t)i, name);
	}
	add_name(rig, 6, 1, "before");
	add_name(rig, 8, 1, "after");
	assert_int_equal(ns_readdir_open(rig->db, 7, 0, &it), 0);
	while ((r = ns_readdir_next(it, &d)) > 0) {
		assert_true(n < N && d.cookie > last);
		cookies[n++] = last = d.cookie;
	}
	assert_int_equal(r, 0);
	assert_int_equal(n, N);
	db_iter_free(it);
	for (int i = 0; i < N; i += 29) {
		assert_int_equal(ns_readdir_open(rig->db, 7, cookies[i], &it), 0);
		r = ns_readdir_next(it, &d);
		assert_int_equal(r, i + 1 < N);
		if (r)
			assert_int_equal(d.cookie, cookies[i + 1]);
		db_iter_free(it);
	}
	assert_int_equal(ns_readdir_open(rig->db, 7, INT64_MAX, &it), 0);
	assert_int_equal(ns_readdir_next(it, &d), 0);
	db_iter_free(it);
	assert_int_equal(ns_readdir_open(rig->db, 7, UINT64_MAX, &it), -EINVAL);
}

static void has_entries_looks_at_this_directory_only(void **state)
{
	struct rig *rig = *state;
	struct ns_key k;
	uint64_t cookie;

	assert_int_equal(ns_has_entries(rig->db, 2), 0);
	add_name(rig, 1, 5, "a");
	add_name(rig, 3, 5, "a");
	assert_int_equal(ns_has_entries(rig->db, 2), 0);
	cookie = add_name(rig, 2, 5, "a");
	assert_int_equal(ns_has_entries(rig->db, 2), 1);
	k = ns_key_dirent(2, cookie);
	rig_del(rig, k.b, k.len);
	assert_int_equal(ns_has_entries(rig->db, 2), 0);
}

static void attributes_are_found_and_damage_is_reported(void **state)
{
	struct rig *rig = *state;
	struct ns_inode in = sample_inode(5), out;
	struct ns_content c = { .size = 10 };
	struct ns_key k = ns_key_inode(5);
	struct buf b = BUF_EMPTY;
	struct ns_dirent d;

	assert_int_equal(ns_get_inode(rig->db, 5, &out), 0);
	ns_inode_encode(&in, &b);
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(ns_get_inode(rig->db, 5, &out), 1);
	expect_inode(&out, &in);
	b.len--;
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(ns_get_inode(rig->db, 5, &out), -EBADMSG);

	assert_int_equal(ns_get_content(rig->db, 5, &c), 0);
	k = ns_key_content(5);
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(ns_get_content(rig->db, 5, &c), -EBADMSG);
	buf_clear(&b);
	ns_content_encode(&c, &b);
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(ns_get_content(rig->db, 5, &c), 1);
	assert_int_equal(c.size, 10);

	assert_int_equal(ns_find(rig->db, fp_key(), 1, "name", &d), 0);
	k = ns_key_dirent(1, d.cookie);
	rig_put_bytes(rig, k.b, k.len, &b);
	b.data[8] = 3;
	rig_put_bytes(rig, k.b, k.len, &b);
	assert_int_equal(ns_find(rig->db, fp_key(), 1, "name", &d), -EBADMSG);
	buf_release(&b);
}

static void symlinks_and_xattrs_are_bytes(void **state)
{
	struct rig *rig = *state;
	struct buf b = BUF_EMPTY, list = BUF_EMPTY;
	struct ns_key k = ns_key_symlink(9);

	assert_int_equal(ns_get_symlink(rig->db, 9, &b), 0);
	buf_add(&b, "../target", 9);
	rig_put_bytes(rig, k.b, k.len, &b);
	for (int i = 0; i < 2; i++) {
		k = ns_key_xattr(9, (const char *const[]){ "user.b", "user.a" }[i]);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	k = ns_key_xattr(8, "user.other");
	rig_put_bytes(rig, k.b, k.len, &b);
	k = ns_key_xattr(10, "user.other");
	rig_put_bytes(rig, k.b, k.len, &b);
	buf_clear(&b);
	assert_int_equal(ns_get_symlink(rig->db, 9, &b), 1);
	assert_int_equal(b.len, 9);
	assert_memory_equal(b.data, "../target", 9);
	assert_int_equal(ns_get_xattr(rig->db, 9, "user.a", NULL), 1);
	assert_int_equal(ns_get_xattr(rig->db, 9, "user.other", NULL), 0);
	assert_int_equal(ns_list_xattrs(rig->db, 9, &list), 0);
	assert_int_equal(list.len, 14);
	assert_memory_equal(list.data, "user.a\0user.b", 14);
	buf_clear(&list);
	assert_int_equal(ns_list_xattrs(rig->db, 11, &list), 0);
	assert_int_equal(list.len, 0);
	buf_release(&b);
	buf_release(&list);
}

static void orphans_come_in_order(void **state)
{
	struct rig *rig = *state;
	static const uint64_t inos[] = { 1, 300, 301, UINT64_MAX };
	struct buf empty = BUF_EMPTY;
	uint64_t ino = 0;

	assert_int_equal(ns_next_orphan(rig->db, 0, &ino), 0);
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		struct ns_key k = ns_key_orphan(inos[i]);

		buf_add(&empty, "", 0);
		rig_put_bytes(rig, k.b, k.len, &empty);
	}
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		assert_int_equal(ns_next_orphan(rig->db, ino, &ino), 1);
		assert_int_equal(ino, inos[i]);
	}
	assert_int_equal(ns_next_orphan(rig->db, ino, &ino), 0);
	assert_int_equal(ns_next_orphan(rig->db, 301, &ino), 1);
	assert_int_equal(ino, UINT64_MAX);
	buf_release(&empty);
}

static const struct ns_seal sample_seal = {
	.uid = 1000, .sealed_ns = -5, .files = UINT64_MAX, .directories = 1, .bytes = 1234567890123456789,
	.is_complete = true, .new_bytes = 77, .root = { 1, 2, 3 },
};

static void expect_seal(const struct ns_seal *a, const struct ns_seal *b)
{
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->sealed_ns, b->sealed_ns);
	assert_int_equal(a->files, b->files);
	assert_int_equal(a->directories, b->directories);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->is_complete, b->is_complete);
	assert_int_equal(a->new_bytes, b->new_bytes);
	assert_memory_equal(a->root, b->root, sizeof(a->root));
}

static void an_incomplete_seal_has_no_root(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_seal s = sample_seal, got = { 0 };

	(void)state;
	s.is_complete = false;
	s.new_bytes = 0;
	memset(s.root, 0, sizeof(s.root));
	ns_seal_encode(&s, &b);
	assert_int_equal(b.len, 80);
	assert_int_equal(b.data[0], 1);
	assert_int_equal(ns_seal_decode(b.data, b.len, &got), 0);
	expect_seal(&got, &s);
	b.data[b.len - 1] ^= 1;
	assert_int_equal(ns_seal_decode(b.data, b.len, &got), -EBADMSG);
	b.data[b.len - 1] ^= 1;
	b.data[1] = 2;
	assert_int_equal(ns_seal_decode(b.data, b.len, &got), -EBADMSG);
}

static void a_seal_round_trips_and_damage_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_seal got = { 0 };

	(void)state;
	ns_seal_encode(&sample_seal, &b);
	assert_int_equal(b.len, 80);
	assert_int_equal(b.data[0], 1);
	assert_int_equal(ns_seal_decode(b.data, b.len, &got), 0);
	expect_seal(&got, &sample_seal);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(ns_seal_decode(b.data, len, &got), -EBADMSG);
	for (size_t i = 0; i < 4; i++) { /* another version, and what has no meaning yet */
		b.data[i] ^= 2;
		assert_int_equal(ns_seal_decode(b.data, b.len, &got), -EBADMSG);
		b.data[i] ^= 2;
	}
	buf_add_u8(&b, 0);
	assert_int_equal(ns_seal_decode(b.data, b.len, &got), -EBADMSG);
}

static void seals_come_in_order(void **state)
{
	static const uint64_t inos[] = { 1, 300, UINT64_MAX };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, bad = BUF_EMPTY;
	struct rig *rig = *state;
	struct ns_seal got;
	uint64_t ino = 0;
	struct ns_key k;

	ns_seal_encode(&sample_seal, &b);
	assert_int_equal(ns_next_seal(rig->db, 0, &ino, &got), 0);
	assert_int_equal(ns_get_seal(rig->db, 300, &got), 0);
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		k = ns_key_seal(inos[i]);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		assert_int_equal(ns_next_seal(rig->db, ino, &ino, &got), 1);
		assert_int_equal(ino, inos[i]);
		expect_seal(&got, &sample_seal);
	}
	assert_int_equal(ns_next_seal(rig->db, ino, &ino, &got), 0);
	assert_int_equal(ns_get_seal(rig->db, 300, &got), 1);
	assert_int_equal(ns_get_seal(rig->db, 301, &got), 0);
	buf_add(&bad, b.data, b.len - 1);
	k = ns_key_seal(500);
	rig_put_bytes(rig, k.b, k.len, &bad);
	ino = 7;
	assert_int_equal(ns_next_seal(rig->db, 300, &ino, &got), -EBADMSG);
	assert_int_equal(ino, 7);
}

static const struct ns_replica sample_copy = { .state = NS_REPLICA_CACHED,
					       .store = "sixteen bytes...",
					       .ino = UINT64_MAX,
					       .sealed_ns = -5,
					       .name = "node-1",
					       .path = "job/a b/step" };

static void expect_copy(const struct ns_replica *a, const struct ns_replica *b)
{
	assert_int_equal(a->state, b->state);
	assert_memory_equal(a->store, b->store, sizeof(a->store));
	assert_int_equal(a->ino, b->ino);
	assert_int_equal(a->sealed_ns, b->sealed_ns);
	assert_string_equal(a->name, b->name);
	assert_string_equal(a->path, b->path);
}

static void a_note_of_a_copy_round_trips_and_damage_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, root = BUF_EMPTY;
	struct ns_replica got, c = sample_copy;

	(void)state;
	ns_replica_encode(&c, &b);
	assert_int_equal(b.len, 36 + 6 + 12);
	assert_int_equal(ns_replica_decode(b.data, b.len, &got), 0);
	expect_copy(&got, &c);
	for (size_t len = 0; len < 36 + 6; len++) /* a path may be as short as you like */
		assert_int_equal(ns_replica_decode(b.data, len, &got), -EBADMSG);
	for (size_t i = 0; i < 4; i++) { /* another version or state, a name that takes all, what has no meaning yet */
		b.data[i] ^= 64;
		assert_int_equal(ns_replica_decode(b.data, b.len, &got), -EBADMSG);
		b.data[i] ^= 64;
	}
	b.data[36 + 2] = '/';
	assert_int_equal(ns_replica_decode(b.data, b.len, &got), -EBADMSG);
	c.path[0] = '\0';
	ns_replica_encode(&c, &root);
	assert_int_equal(ns_replica_decode(root.data, root.len, &got), 0);
	expect_copy(&got, &c);
}

static void a_copy_with_slots_round_trips_and_damage_is_refused(void **state)
{
	static const uint8_t bad[] = { 0x01, 0x10 | 1, 0x33, 0x37, 0x80, 0xff };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_replica got, c = sample_copy;

	(void)state;
	c.state = NS_REPLICA_KEPT;
	c.slot = 2;
	c.nr_slots = 7;
	memcpy(c.sender, "the other chunks", sizeof(c.sender));
	ns_replica_encode(&c, &b);
	assert_int_equal(b.len, 36 + 16 + 6 + 12);
	assert_int_equal(ns_replica_decode(b.data, b.len, &got), 0);
	expect_copy(&got, &c);
	assert_int_equal(got.slot, 2);
	assert_int_equal(got.nr_slots, 7);
	assert_memory_equal(got.sender, c.sender, sizeof(c.sender));
	for (size_t len = 0; len < 36 + 16 + 6; len++)
		assert_int_equal(ns_replica_decode(b.data, len, &got), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		b.data[3] = bad[i];
		assert_int_equal(ns_replica_decode(b.data, b.len, &got), -EBADMSG);
	}
}

static void paths_have_names_between_slashes(void **state)
{
	static const char *const good[] = { "", "a", "a/b", "...", ".a/..b/c " }, *const bad[] = { "/",	     "a/", "/a",
												   "a//b",   ".",  "..",
												   "a/../b", "a/." };
	char longest[NS_PATH_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(ns_path_is_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(ns_path_is_valid(bad[i], strlen(bad[i])));
	for (size_t i = 0; i < sizeof(longest); i++)
		longest[i] = i % 256 == 255 ? '/' : 'n';
	assert_true(ns_path_is_valid(longest, NS_PATH_MAX));
	assert_false(ns_path_is_valid(longest, NS_PATH_MAX + 1));
	longest[255] = 'n'; /* 256 in a row */
	assert_false(ns_path_is_valid(longest, NS_PATH_MAX));
}

static void copies_come_in_order(void **state)
{
	static const uint64_t inos[] = { 2, 300 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig *rig = *state;
	struct ns_replica got;
	uint64_t ino = 0;
	struct ns_key k;

	ns_replica_encode(&sample_copy, &b);
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		k = ns_key_replica(inos[i]);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		assert_int_equal(ns_next_replica(rig->db, ino, &ino, &got), 1);
		assert_int_equal(ino, inos[i]);
		expect_copy(&got, &sample_copy);
	}
	assert_int_equal(ns_next_replica(rig->db, ino, &ino, &got), 0);
	assert_int_equal(ns_get_replica(rig->db, 300, &got), 1);
	assert_int_equal(ns_get_replica(rig->db, 301, &got), 0);
}

static const struct ns_away sample_away = { .number = 0x10203, .index = 7, .check = { 1, 2, 3, [31] = 4 } };

static void a_place_in_a_tier_round_trips_and_damage_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, top = BUF_EMPTY;
	struct ns_away got = { 0 }, a = sample_away;

	(void)state;
	ns_away_encode(&a, &b);
	assert_int_equal(b.len, 48);
	assert_int_equal(ns_away_decode(b.data, b.len, &got), 0);
	assert_int_equal(got.number, a.number);
	assert_int_equal(got.index, a.index);
	assert_false(got.is_erased);
	assert_memory_equal(got.check, a.check, sizeof(a.check));
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(ns_away_decode(b.data, len, &got), -EBADMSG);
	for (size_t i = 0; i < 4; i++) { /* another version, and what has no meaning yet */
		b.data[i] ^= 2;
		assert_int_equal(ns_away_decode(b.data, b.len, &got), -EBADMSG);
		b.data[i] ^= 2;
	}
	b.data[1] = 1; /* only a directory tells that all is erased */
	assert_int_equal(ns_away_decode(b.data, b.len, &got), -EBADMSG);
	a.index = 0;
	a.is_erased = true;
	ns_away_encode(&a, &top);
	assert_int_equal(ns_away_decode(top.data, top.len, &got), 0);
	assert_true(got.is_erased);
	memset(top.data + 8, 0, 8); /* manifests are numbered from 1 */
	assert_int_equal(ns_away_decode(top.data, top.len, &got), -EBADMSG);
}

static void places_in_a_tier_come_in_order(void **state)
{
	static const uint64_t inos[] = { 2, 300 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig *rig = *state;
	struct ns_away got;
	uint64_t ino = 0;
	struct ns_key k;

	ns_away_encode(&sample_away, &b);
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		k = ns_key_away(inos[i]);
		rig_put_bytes(rig, k.b, k.len, &b);
	}
	for (size_t i = 0; i < ARRAY_SIZE(inos); i++) {
		assert_int_equal(ns_next_away(rig->db, ino, &ino, &got), 1);
		assert_int_equal(ino, inos[i]);
		assert_int_equal(got.number, sample_away.number);
	}
	assert_int_equal(ns_next_away(rig->db, ino, &ino, &got), 0);
	assert_int_equal(ns_get_away(rig->db, 300, &got), 1);
	assert_int_equal(ns_get_away(rig->db, 301, &got), 0);
}

static void add_golden(struct buf *to, struct ns_key k, struct buf *value)
{
	rig_golden(to, k.b, k.len, value);
}

static void names_and_attributes_have_these_bytes(void **state)
{
	_cleanup_(buf_release) struct buf all = BUF_EMPTY, v = BUF_EMPTY;
	struct ns_content content = { 5000, 4096, -1, 1700000000123456789 };
	struct ns_dirent name = { .ino = 5, .cookie = 0x123450, .type = DT_REG, .name_len = 5, .name = "step1" };
	struct ns_replica covered = sample_copy;
	struct ns_inode in = sample_inode(5);

	(void)state;
	ns_inode_encode(&in, &v);
	add_golden(&all, ns_key_inode(5), &v);
	ns_content_encode(&content, &v);
	add_golden(&all, ns_key_content(5), &v);
	ns_dirent_encode(&name, &v);
	add_golden(&all, ns_key_dirent(1, name.cookie), &v);
	buf_add(&v, "../target", 9);
	add_golden(&all, ns_key_symlink(6), &v);
	buf_add(&v, "value", 5);
	add_golden(&all, ns_key_xattr(5, "user.name"), &v);
	add_golden(&all, ns_key_orphan(7), &v);
	ns_seal_encode(&sample_seal, &v);
	add_golden(&all, ns_key_seal(8), &v);
	ns_replica_encode(&sample_copy, &v);
	add_golden(&all, ns_key_replica(9), &v);
	covered.state = NS_REPLICA_KEPT;
	covered.slot = 1;
	covered.nr_slots = 3;
	memcpy(covered.sender, "the sender's id.", sizeof(covered.sender));
	ns_replica_encode(&covered, &v);
	add_golden(&all, ns_key_replica(10), &v);
	ns_away_encode(&sample_away, &v);
	add_golden(&all, ns_key_away(11), &v);
	golden_expect("index/v1-names.txt", "tables I C D L X O S N A: lengths, key, value", all.data, all.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_attributes_have_these_bytes),
		cmocka_unit_test(keys_are_the_bytes_of_the_format),
		cmocka_unit_test(inode_round_trips),
		cmocka_unit_test(damaged_inodes_are_refused),
		cmocka_unit_test(content_round_trips_and_damage_is_refused),
		cmocka_unit_test(dirent_round_trips),
		cmocka_unit_test(damaged_dirents_are_refused),
		rig_test(names_are_found_where_they_were_added),
		rig_test(names_of_equal_hash_live_side_by_side),
		rig_test(find_first_looks_at_one_place_only),
		rig_test(impossible_names_are_refused),
		rig_test(readdir_gives_all_in_cookie_order_and_resumes_anywhere),
		rig_test(has_entries_looks_at_this_directory_only),
		rig_test(attributes_are_found_and_damage_is_reported),
		rig_test(symlinks_and_xattrs_are_bytes),
		rig_test(orphans_come_in_order),
		cmocka_unit_test(a_seal_round_trips_and_damage_is_refused),
		cmocka_unit_test(an_incomplete_seal_has_no_root),
		rig_test(seals_come_in_order),
		cmocka_unit_test(a_note_of_a_copy_round_trips_and_damage_is_refused),
		cmocka_unit_test(a_copy_with_slots_round_trips_and_damage_is_refused),
		cmocka_unit_test(paths_have_names_between_slashes),
		rig_test(copies_come_in_order),
		cmocka_unit_test(a_place_in_a_tier_round_trips_and_damage_is_refused),
		rig_test(places_in_a_tier_come_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
