/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: hog KIND DIR MARK      sends one kind of long request on files below DIR, again and again, until it is killed.
 *                               Creates the file MARK before the first of them. Files that are missing are made.
 *        hog victim DIR MS      for that many milliseconds an ordinary user's stat, create, write, fsync and unlink in DIR;
 *                               then prints how many such rounds were completed, and p50, p99 and the longest in us.
 *        hog once DIR KIND      one of them; fails if that does.
 *        hog files DIR          makes what the kinds need.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "gpu/format/delta_format.h"

#define SPARSE ((uint64_t)512 << 50)
#define SPARSER ((uint64_t)900 << 50)
#define DEEP GiB(4) /* with a recipe for each MiB: clones of its first one */
#define CHUNK 4096u
#define PAUSE_NS 20000000
#define NR_SEALED 100u
#define LEVELS 2100u /* more than a path has */

static const char *dir;
static bool is_once;

#define BEGIN(s) (memset(&(s), 0, sizeof(s)), (s).size = sizeof(s), (s).version = CKPTFS_IOC_VERSION)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int open_in(const char *name, int flags)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags, 0644);
	if (fd < 0)
		fail(path);
	return fd;
}

/* Killed, or the daemon has ended: both are how this program ends. Other errors are part of what is asked for. */
static void request(int fd, unsigned long cmd, void *arg)
{
	if (ioctl(fd, cmd, arg) == 0)
		return;
	if (is_once)
		fail("request");
	if (errno == ENOTCONN || errno == EINTR)
		exit(0);
}

static uint64_t handle_of(int fd)
{
	struct ckptfs_handle h;

	BEGIN(h);
	if (ioctl(fd, CKPTFS_IOC_HANDLE, &h) < 0)
		fail("handle");
	return h.handle;
}

static void seal(const char *name, uint32_t command)
{
	int fd = open_in(name, O_RDONLY | O_DIRECTORY);
	struct ckptfs_seal *s = calloc(1, sizeof(*s));

	BEGIN(*s);
	s->command = command;
	request(fd, CKPTFS_IOC_SEAL, s);
	free(s);
	close(fd);
}

static void reseal(void)
{
	seal("whole", CKPTFS_SEAL_SEAL);
	seal("whole", CKPTFS_SEAL_UNSEAL);
}

/* --- files --- */

static void make_sparse(const char *name, uint64_t size)
{
	int fd = open_in(name, O_RDWR | O_CREAT);

	if (ftruncate(fd, (off_t)size) < 0 || pwrite(fd, "x", 1, (off_t)(size / 2)) != 1)
		fail(name);
	close(fd);
}

static void make_deep(const char *name)
{
	static uint8_t bytes[MiB(1)];
	int fd = open_in(name, O_RDWR | O_CREAT | O_TRUNC), from = open_in(name, O_RDONLY);
	struct ckptfs_clone c;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	if (pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes))
		fail(name);
	for (uint64_t len = MiB(1); len < DEEP; len *= 2) {
		BEGIN(c);
		c.from = handle_of(from);
		c.to_off = c.len = len;
		if (ioctl(fd, CKPTFS_IOC_CLONE, &c) < 0 || c.done != len)
			fail("clone");
	}
	close(fd);
	close(from);
}

/* Sealed directories that lie too deep to have a path, since the directory that they are in was moved. */
static void make_hidden(void)
{
	int top = open_in(".", O_RDONLY | O_DIRECTORY), at = dup(top);

	if (mkdirat(top, "hidden", 0755) < 0)
		fail("hidden");
	for (unsigned i = 0; i < NR_SEALED; i++) {
		char name[32];

		snprintf(name, sizeof(name), "hidden/%u", i);
		if (mkdirat(top, name, 0755) < 0)
			fail(name);
		seal(name, CKPTFS_SEAL_SEAL);
	}
	for (unsigned i = 0; i < LEVELS; i++) {
		int below = mkdirat(at, "d", 0755) < 0 ? -1 : openat(at, "d", O_RDONLY | O_DIRECTORY);

		if (below < 0)
			fail("deep directory");
		close(at);
		at = below;
	}
	if (renameat(top, "hidden", at, "hidden") < 0)
		fail("rename");
	close(at);
	close(top);
}

static void make_files(void)
{
	char path[4200];

	make_sparse("sparse", SPARSE);
	make_sparse("sparser", SPARSER);
	make_deep("deep");
	make_deep("deeper");
	snprintf(path, sizeof(path), "%s/lineage", dir);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		fail(path);
	make_hidden();
}

/* --- requests --- */

static void clone(const char *from_name)
{
	int from = open_in(from_name, O_RDONLY), to = open_in(".", O_TMPFILE | O_RDWR);
	struct ckptfs_clone c;

	BEGIN(c);
	c.from = handle_of(from);
	request(to, CKPTFS_IOC_CLONE, &c);
	close(from);
	close(to);
}

static void copy(void)
{
	int from = open_in("sparser", O_RDONLY), to = open_in(".", O_TMPFILE | O_RDWR);

	if (copy_file_range(from, NULL, to, NULL, (size_t)SPARSER, 0) < 0 && (errno == ENOTCONN || errno == EINTR))
		exit(0);
	close(from);
	close(to);
}

static void compare(const char *a, const char *b)
{
	int with = open_in(a, O_RDONLY), fd = open_in(b, O_RDONLY);
	struct ckptfs_compare c;

	BEGIN(c);
	c.with = handle_of(with);
	c.len = INT64_MAX;
	request(fd, CKPTFS_IOC_COMPARE, &c);
	close(with);
	close(fd);
}

static void stat_of(const char *name)
{
	int fd = open_in(name, O_RDONLY);
	struct ckptfs_stat s;
	char value[64];

	BEGIN(s);
	request(fd, CKPTFS_IOC_STAT, &s);
	if (fgetxattr(fd, "user.ckptfs.fingerprint", value, sizeof(value)) < 0 && errno == ENOTCONN)
		exit(0);
	close(fd);
}

static void seek(void)
{
	int fd = open_in("deep", O_RDONLY);

	if (lseek(fd, 0, SEEK_HOLE) < 0 && (errno == ENOTCONN || errno == EINTR))
		exit(0);
	close(fd);
}

/* An object of a few KiB: 8 TiB of zeros, or of one page again and again. */
static void commit(bool repeat)
{
	static uint8_t bytes[8192];
	static uint32_t number;
	struct delta_header h = { .chunk_len = CHUNK, .number = ++number, .content_len = DELTA_CHUNKS_MAX * CHUNK,
				  .first_encoding = DELTA_RUNS, .shifted_encoding = DELTA_RUNS };
	struct delta_shifted_run_disk run = { le32_put(1), le32_put((uint32_t)DELTA_CHUNKS_MAX - 1), le32_put(number),
					      le32_put(DELTA_SRC_REPEATED) };
	struct delta_run_disk first = { le32_put(0), le32_put(1) };
	uint8_t tables[sizeof(first) + sizeof(run)], key[LEAF_KEY_LEN] = { 0 };
	int fd = open_in("lineage", O_TMPFILE | O_RDWR);
	struct delta_header_disk disk;
	struct ckptfs_delta_begin b;
	struct ckptfs_delta_commit c;
	struct content_hash hash;
	struct leaf_key k;
	size_t len = sizeof(disk);

	leaf_key_init(&k, key);
	content_hash_init(&hash, &k, CHUNK);
	content_hash_add_zeros(&hash, h.content_len);
	h.fingerprint = content_hash_finish(&hash, h.content_len);
	if (repeat) {
		memcpy(tables, &first, sizeof(first));
		memcpy(tables + sizeof(first), &run, sizeof(run));
		h.payload_len = h.pages_len = CHUNK;
		h.first_len = sizeof(first);
		h.shifted_len = sizeof(run);
		h.tables_crc = crc32c(tables, sizeof(tables));
		memset(bytes + CHUNK, 'x', CHUNK);
		len = 2 * CHUNK;
	} else {
		h.tables_crc = crc32c(tables, 0);
	}
	delta_header_encode(&h, &disk);
	memcpy(bytes, &disk, sizeof(disk));
	if (pwrite(fd, bytes, len, 0) != (ssize_t)len ||
	    (repeat && pwrite(fd, tables, sizeof(tables), (off_t)len) != sizeof(tables)))
		fail("object");
	BEGIN(b);
	b.number = number;
	if (ioctl(fd, CKPTFS_IOC_DELTA_BEGIN, &b) == 0) {
		BEGIN(c);
		c.flags = CKPTFS_DELTA_VERIFY;
		request(fd, CKPTFS_IOC_DELTA_COMMIT, &c);
	}
	close(fd);
}

/* All that have a path, and then in vain for another one. */
static void list(void)
{
	int fd = open_in(".", O_RDONLY | O_DIRECTORY), r;
	struct ckptfs_seal *s = calloc(1, sizeof(*s));
	uint64_t after = 0;

	do {
		BEGIN(*s);
		s->command = CKPTFS_SEAL_NEXT;
		s->inode = after;
		r = ioctl(fd, CKPTFS_IOC_SEAL, s);
		after = s->inode;
	} while (r == 0);
	if (errno != ENOENT)
		exit(0);
	free(s);
	close(fd);
}

/* An object with a bitmap of so many bytes; tables have 32 MiB of memory with dirty=64M. Making it takes minutes: one
 * page again and again. */
static void commit_tables(uint64_t bytes)
{
	uint64_t nr = bytes * 8;
	struct delta_header h = { .chunk_len = CHUNK, .number = 1, .content_len = nr * CHUNK, .payload_len = CHUNK,
				  .pages_len = CHUNK, .first_encoding = DELTA_BITMAP, .shifted_encoding = DELTA_RUNS,
				  .first_len = nr / 8, .shifted_len = sizeof(struct delta_shifted_run_disk) };
	struct delta_shifted_run_disk run = { le32_put(1), le32_put((uint32_t)nr - 1), le32_put(1),
					      le32_put(DELTA_SRC_REPEATED) };
	size_t len = (size_t)h.first_len + sizeof(run);
	uint8_t *tables = calloc(1, len), page[CHUNK];
	int fd = open_in("lineage", O_TMPFILE | O_RDWR);
	struct delta_header_disk disk;
	struct ckptfs_delta_begin b;
	struct ckptfs_delta_commit c;

	if (!tables)
		fail("tables");
	tables[0] = 1;
	memcpy(tables + h.first_len, &run, sizeof(run));
	h.tables_crc = crc32c(tables, len);
	delta_header_encode(&h, &disk);
	memset(page, 'x', sizeof(page));
	if (pwrite(fd, &disk, sizeof(disk), 0) != sizeof(disk) ||
	    pwrite(fd, page, sizeof(page), (off_t)delta_payload_off(&h)) != sizeof(page) ||
	    pwrite(fd, tables, len, (off_t)delta_tables_off(&h)) != (ssize_t)len)
		fail("object");
	BEGIN(b);
	b.number = 1;
	if (ioctl(fd, CKPTFS_IOC_DELTA_BEGIN, &b) < 0)
		fail("begin");
	BEGIN(c);
	if (ioctl(fd, CKPTFS_IOC_DELTA_COMMIT, &c) < 0 && errno != EINTR && errno != ENOTCONN)
		fail("commit");
	free(tables);
	close(fd);
}

static void ask(void)
{
	int fd = open_in(".", O_RDONLY | O_DIRECTORY);
	struct ckptfs_exclusive x;

	BEGIN(x);
	x.command = CKPTFS_EXCLUSIVE_BEGIN;
	request(fd, CKPTFS_IOC_EXCLUSIVE, &x);
	x.command = CKPTFS_EXCLUSIVE_ADD;
	request(fd, CKPTFS_IOC_EXCLUSIVE, &x);
	x.command = CKPTFS_EXCLUSIVE_RUN;
	request(fd, CKPTFS_IOC_EXCLUSIVE, &x);
	close(fd);
}

static void owners(void)
{
	int fd = open_in(".", O_RDONLY | O_DIRECTORY);
	struct ckptfs_owners o;

	BEGIN(o);
	o.kind = CKPTFS_OWNER_USER;
	request(fd, CKPTFS_IOC_OWNERS, &o);
	close(fd);
}

/* Each of these requests waits for a commit. */
static void write_synchronously(void)
{
	static int fd = -1;
	static uint64_t page[512];

	if (fd < 0)
		fd = open_in(".", O_TMPFILE | O_WRONLY | O_SYNC);
	page[0]++;
	if (pwrite(fd, page, sizeof(page), 0) != sizeof(page))
		exit(0);
}

static bool send_one(const char *kind)
{
	if (strcmp(kind, "clone") == 0)
		clone("sparse");
	else if (strcmp(kind, "clone-deep") == 0)
		clone("deep");
	else if (strcmp(kind, "copy") == 0)
		copy();
	else if (strcmp(kind, "compare") == 0)
		compare("sparse", "sparser");
	else if (strcmp(kind, "compare-deep") == 0)
		compare("deep", "deeper");
	else if (strcmp(kind, "stat") == 0)
		stat_of("deep");
	else if (strcmp(kind, "seek") == 0)
		seek();
	else if (strcmp(kind, "verify") == 0)
		commit(false);
	else if (strcmp(kind, "repeat") == 0)
		commit(true);
	else if (strcmp(kind, "tables") == 0)
		commit_tables(MiB(20));
	else if (strcmp(kind, "half-tables") == 0)
		commit_tables(MiB(15));
	else if (strcmp(kind, "seal") == 0) /* which fails: the test writes to a file of it */
		seal("many", CKPTFS_SEAL_SEAL);
	else if (strcmp(kind, "reseal") == 0) /* which succeeds, for one of several processes at a time */
		reseal();
	else if (strcmp(kind, "seals") == 0)
		seal("sealed", CKPTFS_SEAL_CHECK);
	else if (strcmp(kind, "list") == 0)
		list();
	else if (strcmp(kind, "osync") == 0)
		write_synchronously();
	else if (strcmp(kind, "ask") == 0)
		ask();
	else if (strcmp(kind, "owners") == 0)
		owners();
	else
		return false;
	return true;
}

/* --- the other user --- */

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#define ROUNDS_MAX 1000000u

static void live(unsigned ms)
{
	uint64_t *took = calloc(ROUNDS_MAX, sizeof(*took)), start = monotonic_ns(), end = start + ms * UINT64_C(1000000);
	char path[4200], page[4096] = "page";
	size_t nr = 0;

	snprintf(path, sizeof(path), "%s/%d", dir, (int)getpid());
	for (uint64_t now = start; now < end && nr < ROUNDS_MAX; nr++) {
		struct stat st;
		int fd;

		if (stat(dir, &st) < 0)
			fail("stat");
		fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page) || fsync(fd) < 0 || fstat(fd, &st) < 0 ||
		    close(fd) < 0 || unlink(path) < 0)
			fail(path);
		took[nr] = monotonic_ns() - now;
		now += took[nr];
	}
	qsort(took, nr, sizeof(*took), compare_ns);
	printf("%zu %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", nr, took[nr / 2] / 1000, took[nr - 1 - nr / 100] / 1000,
	       took[nr - 1] / 1000);
	free(took);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc < 3)
		return 2;
	dir = argv[2];
	if (strcmp(argv[1], "files") == 0) {
		make_files();
		return 0;
	}
	if (argc != 4)
		return 2;
	if (strcmp(argv[1], "victim") == 0) {
		live((unsigned)strtoul(argv[3], NULL, 10));
		return 0;
	}
	if (strcmp(argv[1], "once") == 0) {
		is_once = true;
		return send_one(argv[3]) ? 0 : 2;
	}
	fd = open(argv[3], O_WRONLY | O_CREAT, 0644);
	if (fd < 0)
		fail(argv[3]);
	close(fd);
	while (send_one(argv[1])) /* short ones are to wait, too: this is not about who has the processors */
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	return 2;
}
