/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * coherence DIR ROUNDS together|apart [WRITER]
 *
 * One process changes blocks of a file, others read them meanwhile: no read that begins after a change has returned
 * may see older bytes. Every way to change a file is run against every way to read it; with `together` the readers of
 * all ways run at once. WRITER: only those that have this in their names.
 *
 * Version v of a block consists of words that are value(v). The writer sets begun[block] before a change and
 * done[block] after it. So a word is right if it is of a version between what was done before the read and what had
 * begun after it. A block is not a number of pages: neighbours share one.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "async_io.h"
#include "client/ioctl.h"

#define WORDS 1500
#define BLOCK (WORDS * sizeof(uint64_t))
#define BLOCKS 160 /* all at once: more than the kernel's limit of background requests */
#define SIZE (BLOCKS * BLOCK)
#define ALL_BLOCKS 16 /* of so many changes one is of all blocks */
#define SYNC_ROUNDS 20 /* with all readers at once, a change that waits for the disk counts as many */

struct shared {
	_Atomic uint64_t begun[BLOCKS], done[BLOCKS];
	atomic_uint nr_reading;
	atomic_bool finished, failed;
};

struct writer {
	const char *name;
	bool (*change)(struct writer *w, unsigned block, unsigned nr); /* of `nr` blocks; false: not on this machine */
	int flags; /* of open(2) */
	int later; /* set by fcntl(2) */
	bool holes; /* even versions are zeros */
	struct async_io *async;
	int fd, from;
	uint64_t *map, handle;
};

struct reader {
	const char *name;
	void (*read)(struct reader *r, unsigned block, uint64_t *words);
	int flags;
	int fd;
	const uint64_t *map;
};

static struct shared *shared;
static const char *writer_name, *reader_name;

__attribute__((format(printf, 1, 2), noreturn)) static void failed(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	printf("not ok %s, %s: ", writer_name, reader_name ? reader_name : "writing");
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
	fflush(stdout);
	if (shared)
		shared->failed = true;
	_exit(1);
}

static int64_t ok(int64_t r, const char *what)
{
	if (r < 0)
		failed("%s: %s", what, strerror(errno));
	return r;
}

static uint64_t value(const struct writer *w, uint64_t version)
{
	return w->holes && version % 2 == 0 ? 0 : version;
}

/* The next version of a block, in a buffer of its own. */
static uint64_t *next_version(const struct writer *w, unsigned block)
{
	static uint64_t buffers[BLOCKS][WORDS] __attribute__((aligned(4096)));
	uint64_t v = shared->begun[block] + 1;

	for (unsigned i = 0; i < WORDS; i++)
		buffers[block][i] = value(w, v);
	shared->begun[block] = v;
	return buffers[block];
}

static void is_done(unsigned block)
{
	shared->done[block] = shared->begun[block];
}

static bool change_by_pwrite(struct writer *w, unsigned block, unsigned nr)
{
	for (unsigned b = block; b < block + nr; b++) {
		const uint64_t *words = next_version(w, b);

		if (ok(pwrite(w->fd, words, BLOCK, (off_t)(b * BLOCK)), "pwrite") != BLOCK)
			failed("short write");
		is_done(b);
	}
	return true;
}

static bool change_async(struct writer *w, unsigned block, unsigned nr, enum async_io_kind kind)
{
	int64_t result;
	uint64_t b;
	int r;

	if (!w->async)
		w->async = async_io_new(kind, 256);
	if (!w->async)
		return false;
	for (b = block; b < block + nr; b++) {
		const uint64_t *words = next_version(w, (unsigned)b);

		r = async_io_write(w->async, w->fd, words, BLOCK, b * BLOCK, b);
		if (r < 0)
			failed("asynchronous write: %s", strerror(-r));
	}
	for (unsigned i = 0; i < nr; i++) {
		r = async_io_wait(w->async, &b, &result);
		if (r < 0 || result != (int64_t)BLOCK)
			failed("asynchronous write: %s", strerror(r < 0 ? -r : (int)-result));
		is_done((unsigned)b);
	}
	return true;
}

static bool change_by_libaio(struct writer *w, unsigned block, unsigned nr)
{
	return change_async(w, block, nr, ASYNC_LIBAIO);
}

static bool change_by_uring(struct writer *w, unsigned block, unsigned nr)
{
	return change_async(w, block, nr, ASYNC_URING);
}

static bool change_by_map(struct writer *w, unsigned block, unsigned nr)
{
	if (!w->map)
		w->map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
	if (w->map == MAP_FAILED)
		failed("mmap: %s", strerror(errno));
	for (unsigned b = block; b < block + nr; b++) {
		const uint64_t *words = next_version(w, b);

		memcpy(w->map + (size_t)b * WORDS, words, BLOCK);
		is_done(b);
	}
	return true;
}

static bool change_by_map_and_sync(struct writer *w, unsigned block, unsigned nr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = block * BLOCK / page * page;

	change_by_map(w, block, nr);
	ok(msync((uint8_t *)w->map + begin, (block + nr) * BLOCK - begin, MS_SYNC), "msync");
	return true;
}

/* The next version as a file of its own, from which it is taken. */
static void make_source(struct writer *w, unsigned block)
{
	const uint64_t *words = next_version(w, block);

	if (ok(pwrite(w->from, words, BLOCK, 0), "write the source") != BLOCK)
		failed("short write");
}

static bool change_by_copy(struct writer *w, unsigned block, unsigned nr)
{
	for (unsigned b = block; b < block + nr; b++) {
		off_t from = 0, to = (off_t)(b * BLOCK);

		make_source(w, b);
		if (ok(copy_file_range(w->from, &from, w->fd, &to, BLOCK, 0), "copy_file_range") != BLOCK)
			failed("copy_file_range: short copy");
		is_done(b);
	}
	return true;
}

static bool change_by_clone(struct writer *w, unsigned block, unsigned nr)
{
	struct ckptfs_handle handle = { .size = sizeof(handle), .version = CKPTFS_IOC_VERSION };

	if (w->handle == 0) {
		if (ioctl(w->from, CKPTFS_IOC_HANDLE, &handle) < 0)
			return false; /* on a plain directory */
		w->handle = handle.handle;
	}
	for (unsigned b = block; b < block + nr; b++) {
		struct ckptfs_clone c = {
			.size = sizeof(c), .version = CKPTFS_IOC_VERSION, .from = w->handle, .len = BLOCK
		};

		make_source(w, b);
		c.to_off = b * BLOCK;
		ok(ioctl(w->fd, CKPTFS_IOC_CLONE, &c), "clone");
		is_done(b);
	}
	return true;
}

/* Odd versions are written, even ones are zeros. */
static bool change_by_fallocate(struct writer *w, unsigned block, unsigned nr, int mode)
{
	for (unsigned b = block; b < block + nr; b++) {
		if (shared->begun[b] % 2 == 0) {
			change_by_pwrite(w, b, 1);
			continue;
		}
		next_version(w, b);
		ok(fallocate(w->fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)(b * BLOCK), BLOCK), "fallocate");
		is_done(b);
	}
	return true;
}

static bool change_by_punching(struct writer *w, unsigned block, unsigned nr)
{
	return change_by_fallocate(w, block, nr, FALLOC_FL_PUNCH_HOLE);
}

static bool change_by_zeroing(struct writer *w, unsigned block, unsigned nr)
{
	return change_by_fallocate(w, block, nr, FALLOC_FL_ZERO_RANGE);
}

static void read_by_pread(struct reader *r, unsigned block, uint64_t *words)
{
	if (ok(pread(r->fd, words, BLOCK, (off_t)(block * BLOCK)), "pread") != BLOCK)
		failed("short read");
}

static void read_afresh(struct reader *r, unsigned block, uint64_t *words)
{
	close(r->fd);
	r->fd = (int)ok(open("file", r->flags), "open");
	read_by_pread(r, block, words);
}

static void read_by_map(struct reader *r, unsigned block, uint64_t *words)
{
	if (!r->map)
		r->map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, r->fd, 0);
	if (r->map == MAP_FAILED)
		failed("mmap: %s", strerror(errno));
	memcpy(words, r->map + (size_t)block * WORDS, BLOCK);
}

/* Fails unless every word is of a version from `done` to `begun`. */
static void check_words(const struct writer *w, unsigned block, const uint64_t *words, uint64_t done, uint64_t begun)
{
	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t v = words[i];
		bool is_hole = w->holes && v == 0 && (done % 2 == 0 || begun > done);

		if (!is_hole && (v < done || v > begun || v != value(w, v)))
			failed("word %u of block %u is of version %llu; %llu was written, and %llu had begun", i, block,
			       (unsigned long long)v, (unsigned long long)done, (unsigned long long)begun);
	}
}

static void check_block(struct reader *r, const struct writer *w, unsigned block)
{
	static uint64_t words[WORDS] __attribute__((aligned(4096)));
	uint64_t done = shared->done[block];

	r->read(r, block, words);
	check_words(w, block, words, done, shared->begun[block]);
}

/* In order, so that the kernel reads ahead; and once more when nothing changes any longer. */
static void run_reader(struct reader *r, const struct writer *w)
{
	bool last = false;

	reader_name = r->name;
	r->fd = (int)ok(open("file", r->flags), "open");
	shared->nr_reading++;
	while (!last) {
		last = shared->finished;
		for (unsigned b = 0; b < BLOCKS && !shared->failed && (last || !shared->finished); b++)
			check_block(r, w, b);
		last |= shared->failed;
	}
	_exit(0);
}

/* Single blocks, some, and all of them at once, in turns. */
static bool run_writer(struct writer *w, unsigned rounds)
{
	uint32_t random = 1;

	for (unsigned i = 0; i < rounds && !shared->failed; i++) {
		unsigned nr = i % ALL_BLOCKS == ALL_BLOCKS - 1 && !(w->flags & O_SYNC) ? BLOCKS : i % 4 == 3 ? 8 : 1;

		random = random * 1664525 + 1013904223;
		if (!w->change(w, (random >> 8) % (BLOCKS - nr + 1), nr))
			return false;
	}
	return true;
}

static void make_file(void)
{
	static const uint8_t zeros[SIZE];
	int fd = (int)ok(open("file", O_WRONLY | O_CREAT | O_TRUNC, 0600), "create");

	if (ok(write(fd, zeros, SIZE), "write") != (int64_t)SIZE)
		failed("short write");
	close(fd);
	memset(shared, 0, sizeof(*shared));
}

static pid_t start(struct reader *r, const struct writer *w)
{
	pid_t pid = (pid_t)ok(fork(), "fork");

	if (pid == 0)
		run_reader(r, w);
	return pid;
}

/* false: this way of writing does not exist on this machine. */
static bool run_pair(struct writer *w, struct reader *readers, unsigned nr, unsigned rounds)
{
	pid_t pids[8];
	bool can, good = true;
	int status;

	writer_name = w->name;
	reader_name = NULL;
	make_file();
	w->fd = (int)ok(open("file", w->flags), "open");
	if (w->later)
		ok(fcntl(w->fd, F_SETFL, w->later), "fcntl");
	w->from = (int)ok(open("source", O_RDWR | O_CREAT | O_TRUNC, 0600), "create");
	for (unsigned i = 0; i < nr; i++)
		pids[i] = start(&readers[i], w);
	while (shared->nr_reading < nr && !shared->failed)
		usleep(100);
	can = run_writer(w, rounds);
	shared->finished = true;
	for (unsigned i = 0; i < nr; i++)
		good &= waitpid(pids[i], &status, 0) == pids[i] && status == 0;
	if (w->async)
		async_io_free(w->async);
	if (w->map)
		munmap(w->map, SIZE);
	close(w->fd);
	close(w->from);
	w->async = NULL;
	w->map = NULL;
	w->handle = 0;
	if (!good)
		exit(1);
	return can;
}

static struct writer writers[] = {
	{ .name = "pwrite, O_WRONLY", .change = change_by_pwrite, .flags = O_WRONLY },
	{ .name = "pwrite, O_WRONLY|O_DIRECT", .change = change_by_pwrite, .flags = O_WRONLY | O_DIRECT },
	{ .name = "pwrite, O_WRONLY|O_SYNC", .change = change_by_pwrite, .flags = O_WRONLY | O_SYNC },
	{ .name = "pwrite, O_WRONLY|O_DIRECT|O_SYNC", .change = change_by_pwrite, .flags = O_WRONLY | O_DIRECT | O_SYNC },
	{ .name = "pwrite, O_RDWR", .change = change_by_pwrite, .flags = O_RDWR },
	{ .name = "pwrite, O_RDWR|O_DIRECT", .change = change_by_pwrite, .flags = O_RDWR | O_DIRECT },
	{ .name = "pwrite, O_RDWR|O_SYNC", .change = change_by_pwrite, .flags = O_RDWR | O_SYNC },
	{ .name = "pwrite, O_RDWR|O_DIRECT|O_SYNC", .change = change_by_pwrite, .flags = O_RDWR | O_DIRECT | O_SYNC },
	{ .name = "pwrite, O_WRONLY, later O_DIRECT", .change = change_by_pwrite, .flags = O_WRONLY, .later = O_DIRECT },
	{ .name = "pwrite, O_RDWR, later O_DIRECT", .change = change_by_pwrite, .flags = O_RDWR, .later = O_DIRECT },
	{ .name = "libaio, O_WRONLY", .change = change_by_libaio, .flags = O_WRONLY },
	{ .name = "libaio, O_WRONLY|O_DIRECT", .change = change_by_libaio, .flags = O_WRONLY | O_DIRECT },
	{ .name = "libaio, O_WRONLY|O_SYNC", .change = change_by_libaio, .flags = O_WRONLY | O_SYNC },
	{ .name = "libaio, O_WRONLY|O_DIRECT|O_SYNC", .change = change_by_libaio, .flags = O_WRONLY | O_DIRECT | O_SYNC },
	{ .name = "libaio, O_RDWR", .change = change_by_libaio, .flags = O_RDWR },
	{ .name = "libaio, O_RDWR|O_DIRECT", .change = change_by_libaio, .flags = O_RDWR | O_DIRECT },
	{ .name = "libaio, O_RDWR|O_SYNC", .change = change_by_libaio, .flags = O_RDWR | O_SYNC },
	{ .name = "libaio, O_RDWR|O_DIRECT|O_SYNC", .change = change_by_libaio, .flags = O_RDWR | O_DIRECT | O_SYNC },
	{ .name = "io_uring, O_WRONLY", .change = change_by_uring, .flags = O_WRONLY },
	{ .name = "io_uring, O_WRONLY|O_DIRECT", .change = change_by_uring, .flags = O_WRONLY | O_DIRECT },
	{ .name = "io_uring, O_WRONLY|O_SYNC", .change = change_by_uring, .flags = O_WRONLY | O_SYNC },
	{ .name = "io_uring, O_WRONLY|O_DIRECT|O_SYNC", .change = change_by_uring, .flags = O_WRONLY | O_DIRECT | O_SYNC },
	{ .name = "io_uring, O_RDWR", .change = change_by_uring, .flags = O_RDWR },
	{ .name = "io_uring, O_RDWR|O_DIRECT", .change = change_by_uring, .flags = O_RDWR | O_DIRECT },
	{ .name = "io_uring, O_RDWR|O_SYNC", .change = change_by_uring, .flags = O_RDWR | O_SYNC },
	{ .name = "io_uring, O_RDWR|O_DIRECT|O_SYNC", .change = change_by_uring, .flags = O_RDWR | O_DIRECT | O_SYNC },
	{ .name = "shared mapping", .change = change_by_map, .flags = O_RDWR },
	{ .name = "shared mapping, msync", .change = change_by_map_and_sync, .flags = O_RDWR | O_SYNC },
	{ .name = "copy_file_range", .change = change_by_copy, .flags = O_RDWR },
	{ .name = "copy_file_range, O_WRONLY", .change = change_by_copy, .flags = O_WRONLY },
	{ .name = "clone", .change = change_by_clone, .flags = O_RDWR },
	{ .name = "clone, O_WRONLY", .change = change_by_clone, .flags = O_WRONLY },
	{ .name = "punched hole", .change = change_by_punching, .flags = O_RDWR, .holes = true },
	{ .name = "punched hole, O_WRONLY", .change = change_by_punching, .flags = O_WRONLY, .holes = true },
	{ .name = "zeroed range", .change = change_by_zeroing, .flags = O_RDWR, .holes = true },
	{ .name = "zeroed range, O_WRONLY", .change = change_by_zeroing, .flags = O_WRONLY, .holes = true },
};

static struct reader readers[] = {
	{ .name = "buffered", .read = read_by_pread, .flags = O_RDONLY },
	{ .name = "buffered, opened afresh", .read = read_afresh, .flags = O_RDONLY },
	{ .name = "mapped", .read = read_by_map, .flags = O_RDONLY },
	{ .name = "direct", .read = read_by_pread, .flags = O_RDONLY | O_DIRECT },
};
#define READERS (sizeof(readers) / sizeof(readers[0]))

int main(int argc, char **argv)
{
	bool together = argc > 3 && strcmp(argv[3], "together") == 0;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	bool can;

	if (rounds == 0 || argc < 4 || argc > 5 || chdir(argv[1]) < 0) {
		fprintf(stderr, "usage: coherence DIR ROUNDS together|apart [WRITER]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	for (struct writer *w = writers; w < writers + sizeof(writers) / sizeof(writers[0]); w++) {
		for (unsigned i = 0; i < (together ? 1 : READERS) && (argc < 5 || strstr(w->name, argv[4])); i++) {
			unsigned nr = together && w->flags & O_SYNC ? 1 + rounds / SYNC_ROUNDS : rounds;

			can = run_pair(w, together ? readers : &readers[i], together ? READERS : 1, nr);
			printf("%s %s, %s, %u rounds\n", can ? "ok" : "skipped in part: not on this machine:", w->name,
			       together ? "all readers" : readers[i].name, nr);
			fflush(stdout);
		}
	}
	return 0;
}
