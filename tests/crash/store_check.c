#include "tests/crash/store_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/le.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "index/recipes.h"
#include "store/engine/superblock_format.h"
#include "store/pack/pack_format.h"

struct inode_seen {
	uint64_t ino, mapped, mapped_found;
	uint32_t mode, nlink, nr_names;
	bool has_content;
};

struct checker {
	const char *path;
	FILE *to;
	struct fp_key key;
	struct db *db;
	struct inode_seen *inodes;
	size_t nr;
	uint8_t chunk[PACK_FRAME_BYTES];
};

static bool _printf_(2, 3) bad(struct checker *k, const char *fmt, ...)
{
	va_list ap;

	fputs("checker: ", k->to);
	va_start(ap, fmt);
	vfprintf(k->to, fmt, ap);
	va_end(ap);
	fputc('\n', k->to);
	return false;
}

static struct inode_seen *inode(struct checker *k, uint64_t ino, bool make)
{
	struct inode_seen *more;

	for (size_t i = 0; i < k->nr; i++)
		if (k->inodes[i].ino == ino)
			return &k->inodes[i];
	more = make ? realloc(k->inodes, (k->nr + 1) * sizeof(*more)) : NULL;
	if (!more)
		return NULL;
	k->inodes = more;
	k->inodes[k->nr] = (struct inode_seen){ .ino = ino };
	return &k->inodes[k->nr++];
}

static bool load_key(struct checker *k)
{
	static struct superblock_disk d;
	struct superblock sb;
	char path[300];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/superblock", k->path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : pread(fd, &d, sizeof(d), 0);
	closep(&fd);
	if (n != sizeof(d) || superblock_decode(&d, sizeof(d), &sb) < 0)
		return bad(k, "superblock cannot be read");
	fp_key_init(&k->key, sb.hash, sb.secret);
	return true;
}

/* One chunk of a frame against its fingerprint. */
static bool check_chunk(struct checker *k, int fd, uint32_t frame, const struct pack_table *t, uint32_t i)
{
	off_t off = (off_t)pack_data_off(frame) + (off_t)i * t->chunk_len;

	return pread(fd, k->chunk, t->chunk_len, off) == (ssize_t)t->chunk_len &&
	       fp_equal(fp_of(&k->key, k->chunk, t->chunk_len), t->fps[i]);
}

static bool check_extent(struct checker *k, uint64_t ino, const struct extent *x)
{
	static uint8_t block[PACK_BLOCK];
	struct pack_table t;
	_cleanup_(closep) int fd = -1;
	uint32_t frame, in;
	char path[300];

	if (x->addr.node != 0 || !pack_place_of(x->addr.off, &frame, &in))
		return bad(k, "inode %" PRIu64 ": an extent points nowhere: offset %" PRIu32, ino, x->addr.off);
	snprintf(path, sizeof(path), "%s/packs/%s", k->path, pack_name(x->addr.pack).s);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return bad(k, "inode %" PRIu64 ": %s: %s", ino, path, strerror(errno));
	if (pread(fd, block, sizeof(block), pack_table_off(frame)) != sizeof(block) ||
	    pack_table_decode(block, sizeof(block), &k->key, x->addr.pack, frame, &t) < 0)
		return bad(k, "inode %" PRIu64 ": pack %" PRIu32 " frame %" PRIu32 " has no table", ino, x->addr.pack,
			   frame);
	if ((uint64_t)in + x->len > (uint64_t)t.nr_chunks * t.chunk_len)
		return bad(k,
			   "inode %" PRIu64 ": pack %" PRIu32 " frame %" PRIu32 ": extent %" PRIu32 "+%" PRIu32
			   " goes beyond %" PRIu32 " chunks",
			   ino, x->addr.pack, frame, in, x->len, t.nr_chunks);
	for (uint32_t i = in / t.chunk_len; i <= (in + x->len - 1) / t.chunk_len; i++)
		if (!check_chunk(k, fd, frame, &t, i))
			return bad(k,
				   "inode %" PRIu64 ": pack %" PRIu32 " frame %" PRIu32 " chunk %" PRIu32 " is damaged",
				   ino, x->addr.pack, frame, i);
	return true;
}

static bool check_recipe(struct checker *k, const void *key, size_t key_len, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	uint64_t ino, segment;
	struct inode_seen *in;
	size_t nr;

	if (recipe_key_decode(key, key_len, &ino, &segment) < 0 || recipe_decode(value, len, &x, &nr) < 0)
		return bad(k, "a recipe cannot be decoded");
	in = inode(k, ino, false);
	if (!in || !in->has_content)
		return bad(k, "inode %" PRIu64 ": a recipe without a content", ino);
	for (size_t i = 0; i < nr; i++) {
		if (!check_extent(k, ino, &x[i]))
			return false;
		in->mapped_found += x[i].len;
	}
	return true;
}

static bool check_inode(struct checker *k, const void *key, size_t key_len, const void *value, size_t len)
{
	struct inode_seen *in;
	struct ns_inode i;

	if (key_len != 9 || ns_inode_decode(be64_get((const uint8_t *)key + 1), value, len, &i) < 0)
		return bad(k, "an inode cannot be decoded");
	in = inode(k, i.ino, true);
	if (!in)
		return bad(k, "no memory");
	in->mode = i.mode;
	in->nlink = i.nlink;
	return true;
}

static bool check_content(struct checker *k, const void *key, size_t key_len, const void *value, size_t len)
{
	struct inode_seen *in;
	struct ns_content c;

	if (key_len != 9 || ns_content_decode(value, len, &c) < 0)
		return bad(k, "a content cannot be decoded");
	in = inode(k, be64_get((const uint8_t *)key + 1), false);
	if (!in || !S_ISREG(in->mode))
		return bad(k, "inode %" PRIu64 ": a content without a file", be64_get((const uint8_t *)key + 1));
	in->has_content = true;
	in->mapped = c.mapped;
	return true;
}

static bool check_name(struct checker *k, const void *key, size_t key_len, const void *value, size_t len)
{
	struct inode_seen *in;
	struct ns_dirent d;

	if (key_len != 17 || ns_dirent_decode(be64_get((const uint8_t *)key + 9), value, len, &d) < 0)
		return bad(k, "a name cannot be decoded");
	in = inode(k, d.ino, false);
	if (!in || IFTODT(in->mode) != d.type)
		return bad(k, "name %s: inode %" PRIu64 " is not there or not of its type", d.name, d.ino);
	in->nr_names++;
	return true;
}

typedef bool (*check_entry)(struct checker *k, const void *key, size_t key_len, const void *value, size_t len);

static bool check_table(struct checker *k, enum view_table table, check_entry check)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	uint8_t prefix = (uint8_t)table;
	const void *key, *value;
	size_t key_len, len;
	int r = db_iter_new(k->db, NULL, &prefix, 1, NULL, 0, &it);

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &len)) > 0)
		if (!check(k, key, key_len, value, len))
			return false;
	return r == 0 || bad(k, "table %c: %s", prefix, strerror(-r));
}

static bool check_sums(struct checker *k)
{
	for (size_t i = 0; i < k->nr; i++) {
		const struct inode_seen *in = &k->inodes[i];

		if (S_ISREG(in->mode) && in->nr_names != in->nlink)
			return bad(k, "inode %" PRIu64 ": %" PRIu32 " names, counts %" PRIu32, in->ino, in->nr_names,
				   in->nlink);
		if (!S_ISREG(in->mode) && in->ino != NS_ROOT_INO && in->nr_names != 1)
			return bad(k, "inode %" PRIu64 ": %" PRIu32 " names", in->ino, in->nr_names);
		if (in->mapped != in->mapped_found)
			return bad(k, "inode %" PRIu64 ": %" PRIu64 " bytes mapped, recipe has %" PRIu64, in->ino,
				   in->mapped, in->mapped_found);
	}
	return true;
}

bool store_check(const char *path, FILE *to)
{
	struct checker *k = calloc(1, sizeof(*k));
	struct db_conf conf = { .cache = MiB(4), .read_only = true };
	char index[300];
	bool good;

	if (!k)
		return false;
	k->path = path;
	k->to = to;
	snprintf(index, sizeof(index), "%s/index", path);
	good = load_key(k) && (db_open(index, &conf, &k->db) == 0 || bad(k, "index cannot be opened")) &&
	       check_table(k, VIEW_INODE, check_inode) && check_table(k, VIEW_CONTENT, check_content) &&
	       check_table(k, VIEW_RECIPE, check_recipe) && check_table(k, VIEW_DIRENT, check_name) && check_sums(k);
	db_close(k->db);
	free(k->inodes);
	free(k);
	return good;
}
