/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * writers run|verify DIR ACKS N [unordered]
 *
 * N processes write into DIR until the mount dies, each in the way of its kind, and note in ACKS (files outside of the
 * mount, mapped, so that the notes survive any end of a process) what they were promised and what they have begun.
 * `verify` then holds the mount to it: all that was acknowledged is there, whatever else is there is a whole thing that
 * was really written. Every byte written follows from writer, file and place, so nothing has to be remembered of it.
 *
 * `unordered`: the mount has -o writeback. After a crash any part may be missing of what was written to an open file
 * since its last fsync, although its name, or data written later, is there. Missing bytes are zeros, or the file ends
 * before them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define LOG_MAX ((uint64_t)24 << 20)
#define TABLE_PAGES 512
#define KEEP_STEPS 3
#define KEEP_SMALL 40
#define BUF_SIZE ((size_t)8 << 20)

/* The notes of one writer. `begun` is set before a call, `acked` after it has returned. */
struct notes {
	uint64_t rng, nr_acked;
	uint64_t begun, acked;	  /* highest file number (log generation, step, small file), version of the table */
	uint64_t acked_len;	  /* of log number `acked` */
	uint64_t removing_below; /* files with lower numbers may be gone */
	uint64_t page_begun[TABLE_PAGES], page_acked[TABLE_PAGES];
};

static const char *dir;
static int dirfd_;
static unsigned me;
static bool unordered;
static struct notes *notes;
static uint8_t *buf;

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9fb21c651e98df25;
	return h ^ (h >> 29);
}

static uint64_t roll(uint64_t n)
{
	notes->rng = mix(notes->rng, 0x9e3779b97f4a7c15);
	return (notes->rng >> 8) % n;
}

__attribute__((format(printf, 1, 2), noreturn)) static void violation(const char *format, ...)
{
	va_list ap;

	printf("VIOLATION writer %u: ", me);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	exit(EXIT_FAILURE);
}

/* A failed call is how the death of the daemon shows; any other failure is one. */
static void failed(const char *what)
{
	struct statfs st;
	int error = errno;

	if (statfs(dir, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED))
		_exit(EXIT_SUCCESS);
	violation("%s: %s", what, strerror(error));
}
#define DO(expr)                          \
	do {                              \
		if ((expr) < 0)           \
			failed(#expr);    \
	} while (0)

static void name_of(char *ret, const char *kind, uint64_t number)
{
	sprintf(ret, "w%u/%s.%llu", me, kind, (unsigned long long)number);
}

/* Bytes [off, off + len) of a stream without end. */
static void stream(uint8_t *p, uint64_t id, uint64_t off, size_t len)
{
	uint64_t base = mix(mix(77, me), id), word = 0;
	size_t i;

	for (i = 0; i < len; i++, off++) {
		if (i == 0 || off % 8 == 0)
			word = mix(base, off / 8);
		p[i] = word >> (off % 8 * 8);
	}
}

/* Whether all is as written, or missing where that is allowed: behind the first `synced` bytes. */
static bool is_written(const uint8_t *got, const uint8_t *want, size_t len, uint64_t synced)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != want[i] && (!unordered || i < synced || got[i] != 0))
			return false;
	return true;
}

static void write_all(int fd, const uint8_t *p, size_t len)
{
	while (len > 0) {
		size_t n = 1 + roll(400000);
		ssize_t r = write(fd, p, n < len ? n : len);

		DO(r);
		p += r, len -= r;
	}
}

/* The whole file into buf; its length, -1 if there is none. */
static ssize_t read_all(const char *name)
{
	int fd = openat(dirfd_, name, O_RDONLY);
	size_t len = 0;
	ssize_t r;

	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0)
		violation("%s: cannot be opened: %s", name, strerror(errno));
	while ((r = read(fd, buf + len, BUF_SIZE - len)) > 0)
		len += r;
	if (r < 0)
		violation("%s: cannot be read at %zu: %s", name, len, strerror(errno));
	close(fd);
	return len;
}

static void sync_dir(void)
{
	char name[64];
	int fd;

	sprintf(name, "w%u", me);
	DO(fd = openat(dirfd_, name, O_RDONLY | O_DIRECTORY));
	DO(fsync(fd));
	DO(close(fd));
}

static void remove_below(const char *kind, uint64_t limit)
{
	uint64_t i = notes->removing_below;
	char name[64];

	if (limit <= i)
		return;
	notes->removing_below = limit;
	for (i = i > 4 ? i - 4 : 0; i < limit; i++) { /* some again: a crash may have brought them back */
		name_of(name, kind, i);
		if (unlinkat(dirfd_, name, 0) < 0 && errno != ENOENT)
			failed("unlink");
	}
}

/* ---- a log that grows, then the next one ---- */

static void run_log(void)
{
	char name[64];
	struct stat st;
	uint64_t len;
	int fd, n;

	for (;;) {
		name_of(name, "log", notes->begun);
		DO(fd = openat(dirfd_, name, O_WRONLY | O_CREAT | O_APPEND, 0644));
		if (unordered) /* parts of the rest may be missing */
			DO(ftruncate(fd, notes->acked == notes->begun ? (off_t)notes->acked_len : 0));
		DO(fstat(fd, &st));
		len = st.st_size;
		while (len < LOG_MAX) {
			for (n = roll(4); n >= 0; n--) {
				size_t add = 1 + roll(roll(5) ? 20000 : 1200000);

				stream(buf, notes->begun, len, add);
				write_all(fd, buf, add);
				len += add;
			}
			DO(roll(2) ? fsync(fd) : fdatasync(fd));
			notes->acked_len = 0; /* in this order a reader of the notes never sees too much */
			notes->acked = notes->begun;
			notes->acked_len = len;
			notes->nr_acked++;
		}
		DO(close(fd));
		notes->begun++;
		remove_below("log", notes->begun > 1 ? notes->begun - 1 : 0);
	}
}

static void verify_log(void)
{
	static uint8_t want[1 << 20];
	uint64_t number, len, off, synced;
	char name[64];
	struct stat st;
	ssize_t r;
	int fd;

	for (number = notes->removing_below; number <= notes->begun; number++) {
		name_of(name, "log", number);
		fd = openat(dirfd_, name, O_RDONLY);
		if (fd < 0 || fstat(fd, &st) < 0) {
			if (number < notes->acked || (number == notes->acked && notes->acked_len > 0))
				violation("%s is gone", name);
			continue;
		}
		len = st.st_size;
		if ((number < notes->acked && len < LOG_MAX) || (number == notes->acked && len < notes->acked_len))
			violation("%s has %llu bytes of %llu acknowledged", name, (unsigned long long)len,
				  (unsigned long long)notes->acked_len);
		synced = number < notes->acked ? UINT64_MAX : number == notes->acked ? notes->acked_len : 0;
		for (off = 0; off < len; off += r) {
			r = read(fd, buf, sizeof(want));
			if (r <= 0)
				violation("%s: cannot be read at %llu: %s", name, (unsigned long long)off,
					  strerror(errno));
			stream(want, number, off, r);
			if (!is_written(buf, want, r, synced > off ? synced - off : 0))
				violation("%s: other bytes than written from %llu on", name, (unsigned long long)off);
		}
		close(fd);
	}
}

/* ---- checkpoints: each a file of its own, a twentieth of its pages new ---- */

static size_t step_size(uint64_t step)
{
	return 1000000 + mix(step, me) % 1500000;
}

static void step_fill(uint64_t step)
{
	size_t len = step_size(step), page;

	for (page = 0; page * PAGE < len; page++) {
		uint64_t version = step;

		while (version > 0 && mix(mix(5, page), version) % 20 != 0)
			version--;
		stream(buf + page * PAGE, version << 20 | page, 0, PAGE);
	}
}

static void run_steps(void)
{
	char name[64], temp[64];
	uint64_t step;
	int fd;

	sprintf(temp, "w%u/temp", me);
	for (;;) {
		step = notes->begun + 1;
		notes->begun = step;
		step_fill(step);
		DO(fd = openat(dirfd_, temp, O_WRONLY | O_CREAT | O_TRUNC, 0644));
		write_all(fd, buf, step_size(step));
		if (roll(2)) /* without it the file must still be whole where it is seen */
			DO(fsync(fd));
		DO(close(fd));
		name_of(name, "step", step);
		DO(renameat(dirfd_, temp, dirfd_, name));
		sync_dir();
		notes->acked = step;
		notes->nr_acked++;
		if (step > KEEP_STEPS)
			remove_below("step", step - KEEP_STEPS);
	}
}

static void verify_steps(void)
{
	uint64_t step;
	char name[64];
	ssize_t len;
	uint8_t *got = malloc(BUF_SIZE);

	for (step = notes->removing_below > 8 ? notes->removing_below - 8 : 1; step <= notes->begun; step++) {
		name_of(name, "step", step);
		len = read_all(name);
		if (len < 0) {
			if (step >= notes->removing_below && step <= notes->acked && notes->acked > 0)
				if (notes->acked - step < KEEP_STEPS)
					violation("%s is gone", name);
			continue;
		}
		if ((size_t)len != step_size(step))
			violation("%s has %zd bytes of %zu", name, len, step_size(step));
		memcpy(got, buf, len);
		step_fill(step);
		if (memcmp(got, buf, len) != 0)
			violation("%s: other bytes than written", name);
	}
	free(got);
}

/* ---- a table whose pages are overwritten in place ---- */

static void table_page(uint8_t *p, uint64_t page, uint64_t version)
{
	stream(p, version << 10 | page, 0, PAGE);
	memcpy(p, &version, sizeof(version));
}

static void run_table(void)
{
	uint64_t version, pages[32];
	unsigned i, n;
	char name[64];
	int fd;

	name_of(name, "table", 0);
	DO(fd = openat(dirfd_, name, (roll(2) ? O_RDWR : O_WRONLY) | O_CREAT, 0644));
	for (;;) {
		version = ++notes->begun;
		n = 1 + roll(32);
		for (i = 0; i < n; i++) {
			pages[i] = roll(TABLE_PAGES);
			notes->page_begun[pages[i]] = version;
			table_page(buf, pages[i], version);
			DO(pwrite(fd, buf, PAGE, pages[i] * PAGE));
		}
		DO(fdatasync(fd));
		for (i = 0; i < n; i++)
			notes->page_acked[pages[i]] = version;
		notes->nr_acked++;
	}
}

static void verify_table(void)
{
	static const uint8_t zero[PAGE];
	uint8_t want[PAGE];
	uint64_t page, version;
	char name[64];
	ssize_t len;

	name_of(name, "table", 0);
	memset(buf, 0, TABLE_PAGES * PAGE);
	len = read_all(name);
	if (len % PAGE > 0)
		violation("%s has %zd bytes: not whole pages", name, len);
	for (page = 0; page < TABLE_PAGES; page++) {
		memcpy(&version, buf + page * PAGE, sizeof(version));
		if (version < notes->page_acked[page])
			violation("page %llu of %s is of version %llu, %llu was acknowledged", (unsigned long long)page,
				  name, (unsigned long long)version, (unsigned long long)notes->page_acked[page]);
		if (version > notes->page_begun[page])
			violation("page %llu of %s: a version never written", (unsigned long long)page, name);
		table_page(want, page, version);
		if (memcmp(buf + page * PAGE, version ? want : zero, PAGE) != 0)
			violation("page %llu of %s: other bytes than written", (unsigned long long)page, name);
	}
}

/* ---- many small files, made in three ways ---- */

static void run_small(void)
{
	char name[64], other[64];
	uint64_t number;
	size_t len;
	int fd;

	for (;;) {
		number = ++notes->begun;
		len = 1 + mix(number, 3) % 20000;
		stream(buf, number, 0, len);
		name_of(name, "small", number);
		sprintf(other, "w%u/new", me);
		switch (number % 3) {
		case 0: /* under its name at once: may be seen in parts until it is acknowledged */
			DO(fd = openat(dirfd_, name, O_WRONLY | O_CREAT, 0644));
			write_all(fd, buf, len);
			break;
		case 1:
			DO(fd = openat(dirfd_, other, O_WRONLY | O_CREAT | O_TRUNC, 0644));
			write_all(fd, buf, len);
			DO(renameat(dirfd_, other, dirfd_, name)); /* while open */
			break;
		default:
			sprintf(other, "w%u", me);
			DO(fd = openat(dirfd_, other, O_TMPFILE | O_RDWR, 0644));
			write_all(fd, buf, len);
			sprintf(other, "/proc/self/fd/%d", fd);
			DO(linkat(AT_FDCWD, other, dirfd_, name, AT_SYMLINK_FOLLOW));
		}
		DO(fsync(fd));
		DO(close(fd));
		sync_dir();
		notes->acked = number;
		notes->nr_acked++;
		if (number > KEEP_SMALL)
			remove_below("small", number - KEEP_SMALL);
	}
}

static void verify_small(void)
{
	static uint8_t want[20001];
	uint64_t number;
	char name[64];
	size_t full;
	ssize_t len;

	for (number = notes->removing_below > 8 ? notes->removing_below - 8 : 1; number <= notes->begun; number++) {
		name_of(name, "small", number);
		len = read_all(name);
		full = 1 + mix(number, 3) % 20000;
		if (len < 0) {
			if (number >= notes->removing_below && number <= notes->acked &&
			    number + KEEP_SMALL > notes->acked)
				violation("%s is gone", name);
			continue;
		}
		if ((size_t)len > full || ((size_t)len < full && ((number % 3 != 0 && !unordered) || number <= notes->acked)))
			violation("%s has %zd bytes of %zu", name, len, full);
		stream(want, number, 0, len);
		if (!is_written(buf, want, len, number <= notes->acked ? full : 0))
			violation("%s: other bytes than written", name);
	}
}

/* ---- all of them ---- */

static const struct {
	void (*run)(void);
	void (*verify)(void);
	const char *kind;
} kinds[] = {
	{ run_log, verify_log, "log" },
	{ run_steps, verify_steps, "steps" },
	{ run_table, verify_table, "table" },
	{ run_small, verify_small, "small files" },
};
#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/*
 * The number of a file that was not acknowledged is used again after a crash, with other content perhaps: only what
 * is begun anew counts. So a writer takes up its work by removing what the crash has left beyond the acknowledged.
 */
static void take_up(void)
{
	static const char *const names[] = { "log", "step", "table", "small" };
	char name[64];
	uint64_t i;

	sprintf(name, "w%u", me);
	if (mkdirat(dirfd_, name, 0755) < 0 && errno != EEXIST)
		failed("mkdir");
	if (me % NR_KINDS != 1 && me % NR_KINDS != 3)
		return;
	for (i = notes->acked + 1; i <= notes->begun; i++) {
		name_of(name, names[me % NR_KINDS], i);
		if (unlinkat(dirfd_, name, 0) < 0 && errno != ENOENT)
			failed("unlink");
	}
	notes->begun = notes->acked;
}

static void map_notes(const char *acks)
{
	char name[4096];
	int fd;

	snprintf(name, sizeof(name), "%s/writer.%u", acks, me);
	fd = open(name, O_RDWR | O_CREAT, 0644);
	if (fd < 0 || ftruncate(fd, sizeof(*notes)) < 0)
		violation("%s: %s", name, strerror(errno));
	notes = mmap(NULL, sizeof(*notes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (notes == MAP_FAILED)
		violation("%s: %s", name, strerror(errno));
	close(fd);
	notes->rng = mix(notes->rng, (uint64_t)time(NULL) << 20 ^ getpid());
}

int main(int argc, char **argv)
{
	unsigned i, n = argc >= 5 ? atoi(argv[4]) : 0;
	bool verify = argc > 1 && strcmp(argv[1], "verify") == 0;
	int status, code = EXIT_SUCCESS;

	unordered = argc == 6 && strcmp(argv[5], "unordered") == 0;
	if (n == 0 || argc > 6 || (argc == 6 && !unordered) || (!verify && strcmp(argv[1], "run") != 0)) {
		fprintf(stderr, "usage: writers run|verify DIR ACKS N [unordered]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	dir = argv[2];
	for (i = 0; i < n; i++) {
		if (fork() > 0)
			continue;
		me = i;
		buf = malloc(BUF_SIZE);
		dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
		map_notes(argv[3]);
		DO(dirfd_);
		if (!verify) {
			take_up();
			kinds[i % NR_KINDS].run();
		}
		kinds[i % NR_KINDS].verify();
		printf("writer %u (%s): %llu acknowledged\n", me, kinds[i % NR_KINDS].kind,
		       (unsigned long long)notes->nr_acked);
		return EXIT_SUCCESS;
	}
	while (wait(&status) > 0)
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			code = EXIT_FAILURE;
	return code;
}
