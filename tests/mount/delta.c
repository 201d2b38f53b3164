/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A producer of deltas on a mount, with the CPU's twin of what a GPU does. Its content follows from the seed and the
 * number of the version, so that any later call can tell whether a version is what it was.
 *
 *   delta make DIR SEED METHOD CHUNK FROM TO    versions FROM to TO of lineage DIR; FROM is made from nothing
 *   delta make-on DIR SEED METHOD CHUNK FROM TO the same, FROM from FROM - 1
 *   delta check DIR SEED FROM TO                they are there, byte for byte
 *   delta stage DIR SEED NUMBER                 begun and written, not committed: says "staged" and waits
 *   delta errors DIR                            what must be refused is, and changes nothing
 *   delta crowd DIR NR MIB ERRNO                NR commits at once with tables of MIB, each refused with ERRNO
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checksum.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "gpu/format/delta_record.h"

#define START_LEN (3 * MiB(1) + 777)
#define CHANGES 200
#define SEED_DENSE 1000 /* from here on: small changes everywhere, with every version */
#define CHANGES_DENSE 3000

static _Noreturn void fail(const char *what, const char *of)
{
	fprintf(stderr, "delta: %s: %s: %s\n", of, what, strerror(errno));
	exit(1);
}

/* --- content --- */

struct series {
	uint64_t random;
	bool dense;
	uint8_t *p;
	size_t len;
};

static uint64_t next_random(struct series *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return s->random >> 24;
}

static void fill_noise(struct series *s, size_t off, size_t len)
{
	for (size_t i = 0; i < len; i++)
		s->p[off + i] = (uint8_t)(next_random(s) >> 8);
}

static void resize(struct series *s, size_t len)
{
	uint8_t *p = realloc(s->p, len);

	if (!p)
		fail("no memory", "content");
	s->p = p;
	if (len > s->len)
		memset(p + s->len, 0, len - s->len);
	s->len = len;
}

/* A range of at most `max` bytes that begins at a multiple of `align`. */
static void some_range(struct series *s, size_t max, size_t align, size_t *off, size_t *len)
{
	*len = next_random(s) % max + 1;
	*off = next_random(s) % (s->len - *len) / align * align;
}

static void change_everywhere(struct series *s, int nr)
{
	size_t off, len;

	for (int i = 0; i < nr; i++) {
		some_range(s, 100, 1, &off, &len);
		fill_noise(s, off, len);
	}
}

/* From one version to the next: what programs do to their memory, a kind of it after the other. */
static void step(struct series *s, uint32_t number)
{
	size_t off, len, to, to_len;

	if (number == 1) {
		resize(s, START_LEN);
		fill_noise(s, 0, s->len);
		return;
	}
	if (s->dense) {
		change_everywhere(s, CHANGES_DENSE);
		return;
	}
	switch (number % 9) {
	case 2: /* small changes everywhere */
		change_everywhere(s, CHANGES);
		break;
	case 3: /* long ones */
		for (int i = 0; i < 3; i++) {
			some_range(s, 100000, 1, &off, &len);
			fill_noise(s, off, len);
		}
		break;
	case 4: /* moved by a multiple of no page */
		some_range(s, 200000, 128, &off, &len);
		some_range(s, 200000, 128, &to, &to_len);
		memmove(s->p + to, s->p + off, MIN(len, s->len - to));
		break;
	case 5: /* the same again and again */
		some_range(s, 300000, 1, &off, &len);
		memset(s->p + off, number & 1 ? 0 : 0x5a, len);
		break;
	case 6:
		resize(s, s->len + next_random(s) % 100000);
		break;
	case 7:
		resize(s, s->len - next_random(s) % 100000);
		break;
	case 8:
		fill_noise(s, 0, s->len);
		break;
	default: /* nothing */
		break;
	}
}

static struct series series_at(uint64_t seed, uint32_t number)
{
	struct series s = { .random = seed, .dense = seed >= SEED_DENSE };

	for (uint32_t n = 1; n <= number; n++)
		step(&s, n);
	return s;
}

/* --- the calls --- */

/* A file without a name, in one way and the other by turns: an old kernel knows no O_TMPFILE on FUSE. */
static int stage_open(const char *dir)
{
	static bool named;
	char path[PATH_MAX + 32];
	int fd;

	named = !named;
	snprintf(path, sizeof(path), "%s/.staging.%d", dir, getpid());
	fd = named ? open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0640) :
		     open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0640);
	if (fd < 0 || (named && unlink(path) < 0))
		fail("cannot make a file without a name", dir);
	return fd;
}

static int begin(int fd, uint32_t number, uint32_t parent)
{
	struct ckptfs_delta_begin arg = { sizeof(arg), CKPTFS_IOC_VERSION, number, parent };

	return ioctl(fd, CKPTFS_IOC_DELTA_BEGIN, &arg) < 0 ? errno : 0;
}

static int commit(int fd, uint32_t flags, const uint8_t key[LEAF_KEY_LEN])
{
	struct ckptfs_delta_commit arg = { .size = sizeof(arg), .version = CKPTFS_IOC_VERSION, .flags = flags };

	memcpy(arg.key, key, sizeof(arg.key));
	return ioctl(fd, CKPTFS_IOC_DELTA_COMMIT, &arg) < 0 ? errno : 0;
}

static int abort_stage(int fd)
{
	struct ckptfs_delta_abort arg = { sizeof(arg), CKPTFS_IOC_VERSION };

	return ioctl(fd, CKPTFS_IOC_DELTA_ABORT, &arg) < 0 ? errno : 0;
}

static void put(int fd, const void *p, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const uint8_t *)p + done, MIN(len - done, MiB(1)), (off_t)done);

		if (n < 0)
			fail("cannot write the object", "staging file");
		done += (size_t)n;
	}
	if (ftruncate(fd, (off_t)len) < 0)
		fail("cannot truncate", "staging file");
}

static struct delta_record *record_new(uint64_t seed, uint32_t chunk_len, uint8_t key[LEAF_KEY_LEN])
{
	struct delta_record_params params = { .chunk_len = chunk_len, .table_limit = MiB(64) };
	struct delta_record *rec;

	memset(params.key, (int)(seed + 1), sizeof(params.key));
	memset(params.lineage, (int)seed, sizeof(params.lineage));
	memcpy(key, params.key, sizeof(params.key));
	if (delta_record_new(&params, &rec) < 0)
		fail("cannot make a record", "delta");
	return rec;
}

/* --- commands --- */

/* As if this process had committed `s`, which is version `number`. */
static void remember(struct delta_record *rec, const struct series *s, uint32_t number)
{
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	struct delta_take take = { .method = DELTA_METHOD_TREE, .number = number };

	if (delta_record_take(rec, s->p, s->len, &take, &object) < 0)
		fail("cannot take a delta", "delta");
	delta_record_commit(rec);
}

static void make(const char *dir, uint64_t seed, enum delta_method method, uint32_t chunk_len, uint32_t from,
		 uint32_t to, bool on)
{
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	struct series s = series_at(seed, from - 1);
	uint8_t key[LEAF_KEY_LEN];
	struct delta_record *rec = record_new(seed, chunk_len, key);
	uint64_t bytes = 0;

	if (on)
		remember(rec, &s, from - 1);
	for (uint32_t n = from; n <= to; n++) {
		struct delta_take take = { .method = method, .number = n };
		int fd = stage_open(dir), r;
		struct delta_header h;

		step(&s, n);
		if (delta_record_take(rec, s.p, s.len, &take, &object) < 0)
			fail("cannot take a delta", dir);
		if (delta_header_decode(object.data, object.len, &h) < 0)
			fail("object without a header", dir);
		errno = begin(fd, n, h.parent);
		if (errno)
			fail("cannot begin", dir);
		put(fd, object.data, object.len);
		r = commit(fd, CKPTFS_DELTA_VERIFY | (n == to ? CKPTFS_DELTA_SYNC : 0), key);
		errno = r;
		if (r)
			fail("cannot commit", dir);
		delta_record_commit(rec);
		bytes += object.len;
		close(fd);
	}
	printf("%u versions, %" PRIu64 " bytes of objects\n", to - from + 1, bytes);
	delta_record_free(rec);
	free(s.p);
}

static void check_one(const char *dir, uint32_t number, const struct series *s)
{
	char path[PATH_MAX + 16];
	struct stat st;
	uint8_t *got;
	int fd;

	snprintf(path, sizeof(path), "%s/%06" PRIu32, dir, number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		fail("is not there", path);
	errno = EBADMSG;
	if ((size_t)st.st_size != s->len)
		fail("has another size", path);
	got = malloc(s->len);
	if (!got || read(fd, got, s->len) != (ssize_t)s->len || memcmp(got, s->p, s->len) != 0)
		fail("has other bytes", path);
	free(got);
	got = mmap(NULL, s->len, PROT_READ, MAP_SHARED, fd, 0);
	if (got == MAP_FAILED || memcmp(got, s->p, s->len) != 0)
		fail("has other bytes when mapped", path);
	munmap(got, s->len);
	close(fd);
}

static void check(const char *dir, uint64_t seed, uint32_t from, uint32_t to)
{
	struct series s = { .random = seed, .dense = seed >= SEED_DENSE };

	for (uint32_t n = 1; n <= to; n++) {
		step(&s, n);
		if (n >= from)
			check_one(dir, n, &s);
	}
	free(s.p);
}

static void stage(const char *dir, uint64_t seed, uint32_t number)
{
	_cleanup_(buf_release) struct buf object = BUF_EMPTY;
	struct series s = series_at(seed, number);
	struct delta_take take = { .method = DELTA_METHOD_FULL, .number = number };
	uint8_t key[LEAF_KEY_LEN];
	struct delta_record *rec = record_new(seed, 128, key);
	int fd = stage_open(dir);

	errno = begin(fd, number, 0);
	if (errno || delta_record_take(rec, s.p, s.len, &take, &object) < 0)
		fail("cannot begin", dir);
	put(fd, object.data, object.len);
	puts("staged");
	fflush(stdout);
	pause();
}

static void expect(const char *what, int got, int want)
{
	if (got == want)
		return;
	fprintf(stderr, "delta: %s: %s instead of %s\n", what, strerrorname_np(got), strerrorname_np(want));
	exit(1);
}

/* The header's checksum made right after it was changed: what lies must be found out by what it says. */
static void seal(uint8_t *object)
{
	struct delta_header_disk *d = (struct delta_header_disk *)object;

	d->crc32c = le32_put(crc32c(d, offsetof(struct delta_header_disk, crc32c)));
}

static void refuse_object(int fd, const char *what, const void *object, size_t len, const uint8_t key[LEAF_KEY_LEN],
			  uint32_t flags, int want)
{
	put(fd, object, len);
	expect(what, commit(fd, flags, key), want);
}

/* Version 1 is there and `object` makes 2 from it. */
static void refuse_objects(const char *dir, const struct buf *object, const uint8_t key[LEAF_KEY_LEN])
{
	static const uint8_t other_key[LEAF_KEY_LEN];
	_cleanup_(freep) uint8_t *bad = malloc(object->len + 1);
	struct delta_header_disk *d = (struct delta_header_disk *)bad;
	int fd = stage_open(dir);

	assert(bad);
	expect("begin", begin(fd, 2, 1), 0);
	refuse_object(fd, "nothing", "", 0, key, 0, EBADMSG);
	refuse_object(fd, "half a header", object->data, 100, key, 0, EBADMSG);
	refuse_object(fd, "a byte too few", object->data, object->len - 1, key, 0, EBADMSG);
	memcpy(bad, object->data, object->len);
	bad[object->len] = 0;
	refuse_object(fd, "a byte too many", bad, object->len + 1, key, 0, EBADMSG);
	for (size_t i = 0; i < sizeof(*d); i += 5) {
		bad[i] ^= 1;
		refuse_object(fd, "a damaged header", bad, object->len, key, 0, EBADMSG);
		bad[i] ^= 1;
	}
	bad[object->len - 3] ^= 1;
	refuse_object(fd, "a damaged table", bad, object->len, key, 0, EBADMSG);
	bad[object->len - 3] ^= 1;
	bad[sizeof(*d) + 50] ^= 1;
	refuse_object(fd, "a damaged payload", bad, object->len, key, CKPTFS_DELTA_VERIFY, EBADMSG);
	bad[sizeof(*d) + 50] ^= 1;
	refuse_object(fd, "another key", bad, object->len, other_key, CKPTFS_DELTA_VERIFY, EBADMSG);
	d->number = le32_put(3);
	seal(bad);
	refuse_object(fd, "another number", bad, object->len, key, 0, EINVAL);
	d->number = le32_put(2);
	d->parent = le32_put(0);
	seal(bad);
	refuse_object(fd, "another parent", bad, object->len, key, 0, EINVAL);
	d->parent = le32_put(1);
	d->version = le32_put(DELTA_VERSION + 1);
	seal(bad);
	refuse_object(fd, "a later version", bad, object->len, key, 0, EOPNOTSUPP);
	expect("unknown flags", commit(fd, 4, key), EINVAL);
	put(fd, object->data, object->len);
	expect("the right one after all these", commit(fd, CKPTFS_DELTA_VERIFY, key), 0);
	expect("a second commit", commit(fd, 0, key), EALREADY);
	expect("an abort of what is done", abort_stage(fd), EALREADY);
	close(fd);
}

static void refuse_calls(const char *dir, const uint8_t key[LEAF_KEY_LEN])
{
	char path[PATH_MAX + 16];
	int fd = stage_open(dir), opened;

	expect("commit of what was not begun", commit(fd, 0, key), EINVAL);
	expect("abort of what was not begun", abort_stage(fd), EINVAL);
	expect("a parent that is not there", begin(fd, 9, 8), ENOENT);
	expect("a version that is there", begin(fd, 1, 0), EEXIST);
	expect("a number below its parent", begin(fd, 1, 2), EINVAL);
	expect("number 0", begin(fd, 0, 0), EINVAL);
	expect("begin", begin(fd, 2, 1), 0);
	expect("a second begin", begin(fd, 2, 1), EALREADY);
	expect("abort", abort_stage(fd), 0);
	expect("a second abort", abort_stage(fd), EINVAL);
	expect("begin again", begin(fd, 2, 1), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/named", dir);
	fd = open(path, O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0640);
	expect("a file for reading only", begin(fd, 2, 1), EBADF);
	close(fd);
	unlink(path);
	snprintf(path, sizeof(path), "%s/000001", dir);
	opened = open(path, O_RDWR | O_CLOEXEC);
	expect("a file that was not made here", begin(opened, 2, 1), EINVAL);
	close(opened);
	opened = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	expect("a directory", begin(opened, 2, 1), EISDIR);
	close(opened);
}

/* What an object refers to goes away before it is committed. */
static void refuse_what_is_gone(const char *dir, const uint8_t key[LEAF_KEY_LEN], const struct buf *object)
{
	char path[PATH_MAX + 16];
	int fd = stage_open(dir);

	expect("begin", begin(fd, 2, 1), 0);
	put(fd, object->data, object->len);
	snprintf(path, sizeof(path), "%s/000001", dir);
	if (unlink(path) < 0)
		fail("cannot remove", path);
	expect("a parent that has been deleted", commit(fd, 0, key), ESTALE);
	close(fd);
}

static void errors(const char *dir)
{
	_cleanup_(buf_release) struct buf first = BUF_EMPTY, second = BUF_EMPTY;
	struct delta_take take = { .method = DELTA_METHOD_TREE, .number = 1 };
	struct series s = series_at(5, 1);
	uint8_t key[LEAF_KEY_LEN];
	struct delta_record *rec = record_new(5, 128, key);
	char lineage[PATH_MAX];

	if (delta_record_take(rec, s.p, s.len, &take, &first) < 0)
		fail("cannot take a delta", dir);
	delta_record_commit(rec);
	step(&s, 2);
	take.number = 2;
	if (delta_record_take(rec, s.p, s.len, &take, &second) < 0)
		fail("cannot take a delta", dir);
	for (int i = 0; i < 3; i++) {
		int fd;

		snprintf(lineage, sizeof(lineage), "%s/%d", dir, i);
		if (mkdir(lineage, 0755) < 0)
			fail("cannot make", lineage);
		fd = stage_open(lineage);
		expect("begin", begin(fd, 1, 0), 0);
		put(fd, first.data, first.len);
		expect("commit", commit(fd, CKPTFS_DELTA_VERIFY, key), 0);
		close(fd);
		if (i == 0)
			refuse_calls(lineage, key);
		else if (i == 1)
			refuse_objects(lineage, &second, key);
		else
			refuse_what_is_gone(lineage, key, &second);
	}
	snprintf(lineage, sizeof(lineage), "%s/1", dir);
	check(lineage, 5, 1, 2);
	delta_record_free(rec);
	free(s.p);
}

/* Objects with nothing but a bitmap of `mib` MiB, a hole, committed all at once: none is right, and none is memory. */
static void crowd(const char *dir, unsigned nr, uint64_t mib, int want)
{
	uint64_t len = mib << 20;
	unsigned i, nr_failed = 0;

	for (i = 1; i <= nr; i++) {
		struct delta_header h = { .chunk_len = 4096,
					  .number = i,
					  .content_len = len * 8 * 4096,
					  .first_encoding = DELTA_BITMAP,
					  .shifted_encoding = DELTA_LIST,
					  .first_len = len };
		uint8_t key[LEAF_KEY_LEN] = { 0 };
		struct delta_header_disk disk;
		int fd, status;

		if (fork() != 0)
			continue;
		fd = stage_open(dir);
		delta_header_encode(&h, &disk);
		status = begin(fd, i, DELTA_NO_PARENT) != 0 || pwrite(fd, &disk, sizeof(disk), 0) != sizeof(disk) ||
			 ftruncate(fd, (off_t)delta_object_len(&h)) < 0;
		if (status == 0) {
			status = commit(fd, 0, key);
			if (status != want)
				fprintf(stderr, "delta: commit gave %s\n", strerror(status));
		}
		_exit(status != want);
	}
	for (int status; wait(&status) > 0;)
		nr_failed += status != 0;
	if (nr_failed > 0)
		fail("commits with large tables", dir);
}

static enum delta_method method_of(const char *name)
{
	static const char *const names[] = { "full", "basic", "list", "tree" };

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return (enum delta_method)i;
	fprintf(stderr, "delta: no method %s\n", name);
	exit(2);
}

int main(int argc, char *argv[])
{
	if (argc == 8 && strncmp(argv[1], "make", 4) == 0)
		make(argv[2], strtoull(argv[3], NULL, 10), method_of(argv[4]), (uint32_t)atoi(argv[5]),
		     (uint32_t)atoi(argv[6]), (uint32_t)atoi(argv[7]), strcmp(argv[1], "make-on") == 0);
	else if (argc == 6 && strcmp(argv[1], "check") == 0)
		check(argv[2], strtoull(argv[3], NULL, 10), (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]));
	else if (argc == 5 && strcmp(argv[1], "stage") == 0)
		stage(argv[2], strtoull(argv[3], NULL, 10), (uint32_t)atoi(argv[4]));
	else if (argc == 3 && strcmp(argv[1], "errors") == 0)
		errors(argv[2]);
	else if (argc == 6 && strcmp(argv[1], "crowd") == 0)
		crowd(argv[2], (unsigned)atoi(argv[3]), strtoull(argv[4], NULL, 10), atoi(argv[5]));
	else {
		fprintf(stderr, "usage: delta make|make-on|check|stage|errors|crowd DIR ...\n");
		return 2;
	}
	return 0;
}
