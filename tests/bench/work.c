/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The workloads of ./bench. One run is one workload by N processes that start together; the result is a line of JSON:
 * what was done, and the seconds from the start until the last process was done, fsync included.
 *
 * Data is made cheaply so that making it is not what is measured: each process fills a pool of memory once, before
 * the start, and stamps every 4 KiB page with (process, page number, version) as it goes by. Version of a page at step
 * S, if P % of the pages change per step: the last step up to S at which the page's turn came, by a hash. So P = 0 is a
 * checkpoint equal to the last, 100 one of new pages only, and any step can be made, or checked, without those before.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define PAGES_PER_MIB 256u
#define MIB ((uint64_t)1 << 20)
#define POOL_SIZE_MAX (256 * MIB)
#define APPEND_SIZE (64u << 10)
#define SMALL_FILE_SIZE 4096u

struct options {
	const char *dir;
	unsigned nr_processes;
	uint64_t size;	  /* bytes per file */
	unsigned count;	  /* files or operations per process */
	unsigned step, changed; /* version of the data: see above */
	unsigned noise;	  /* bytes of every eight that are random: 8 cannot be compressed */
	bool check;	  /* compare the stamps of what is read */
};

struct process {
	const struct options *o;
	unsigned id;
	uint8_t *pool;
	uint64_t pool_size;
	uint32_t *version;    /* per page of the file */
	void (*start)(void);  /* waits for the others */
};

static void die(const char *what, const char *path)
{
	fprintf(stderr, "work: %s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void *memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("cannot map", "memory");
	return p;
}

static void prepare(struct process *p)
{
	uint64_t x = mix(p->id + 1), nr_pages = p->o->size / PAGE;

	p->pool_size = p->o->size < POOL_SIZE_MAX ? p->o->size : POOL_SIZE_MAX;
	p->pool = memory(p->pool_size);
	for (uint64_t *w = (uint64_t *)p->pool; w < (uint64_t *)(p->pool + p->pool_size); w++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		*w = x >> (64 - 8 * p->o->noise);
	}
	p->version = memory(nr_pages * sizeof(*p->version) + 1);
	for (uint64_t i = 0; i < nr_pages; i++) {
		unsigned s = p->o->step;

		while (s > 0 && mix(i << 32 | s) % 100 >= p->o->changed)
			s--;
		p->version[i] = s;
	}
}

static void stamp_of(const struct process *p, uint64_t page, uint64_t version, uint64_t ret[2])
{
	ret[0] = (uint64_t)p->id << 56 | page;
	ret[1] = version;
}

/* The MiB of memory that holds pages [page, page + 256) of the file. */
static const uint8_t *data_at(struct process *p, uint64_t page)
{
	uint8_t *mem = p->pool + page * PAGE % p->pool_size;

	for (unsigned i = 0; i < PAGES_PER_MIB; i++)
		stamp_of(p, page + i, p->version[page + i], (uint64_t *)(mem + (size_t)i * PAGE));
	return mem;
}

static int open_file(const struct process *p, int flags, char path[static 4096])
{
	int fd;

	snprintf(path, 4096, "%s/ckpt-%u.%04u", p->o->dir, p->id, p->o->step);
	fd = open(path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		die("cannot open", path);
	return fd;
}

static void finish_file(int fd, const char *path)
{
	if (fsync(fd) < 0)
		die("cannot sync", path);
	if (close(fd) < 0)
		die("cannot close", path);
}

static void work_write(struct process *p)
{
	char path[4096];
	int fd;

	prepare(p);
	p->start();
	fd = open_file(p, O_WRONLY | O_CREAT | O_TRUNC, path);
	for (uint64_t off = 0; off < p->o->size; off += MIB)
		if (write(fd, data_at(p, off / PAGE), MIB) != (ssize_t)MIB)
			die("cannot write", path);
	finish_file(fd, path);
}

static void work_read(struct process *p)
{
	uint8_t *mem = memory(MIB);
	uint64_t want[2], off = 0;
	char path[4096];
	ssize_t n;
	int fd;

	if (p->o->check)
		prepare(p);
	p->start();
	fd = open_file(p, O_RDONLY, path);
	while ((n = read(fd, mem, MIB)) > 0) {
		for (uint64_t i = 0; p->o->check && i < (uint64_t)n; i += PAGE) {
			stamp_of(p, (off + i) / PAGE, p->version[(off + i) / PAGE], want);
			if (memcmp(mem + i, want, sizeof(want)) != 0) {
				fprintf(stderr, "work: %s offset %" PRIu64 ": other data than written\n", path, off + i);
				exit(1);
			}
		}
		off += (uint64_t)n;
	}
	if (n < 0 || off != p->o->size)
		die("cannot read all of", path);
	close(fd);
}

/* `size` bytes of 4 KiB writes, each page of the file once, in a scattered order. */
static void work_overwrite(struct process *p)
{
	uint64_t nr_pages = p->o->size / PAGE;
	char path[4096];
	int fd;

	prepare(p);
	fd = open_file(p, O_RDWR, path);
	p->start();
	for (uint64_t i = 0; i < nr_pages; i++) {
		uint64_t page = i * 0x9e3779b1 % nr_pages; /* odd, and nr_pages a power of two: a permutation */
		uint8_t *mem = p->pool + page * PAGE % p->pool_size;

		stamp_of(p, page, UINT32_MAX, (uint64_t *)mem);
		if (pwrite(fd, mem, PAGE, (off_t)(page * PAGE)) != (ssize_t)PAGE)
			die("cannot write", path);
	}
	finish_file(fd, path);
}

static void work_append(struct process *p)
{
	char path[4096];
	int fd;

	prepare(p);
	fd = open_file(p, O_WRONLY | O_CREAT | O_APPEND, path);
	p->start();
	for (unsigned i = 0; i < p->o->count; i++) {
		uint64_t page = (uint64_t)i * (APPEND_SIZE / PAGE);
		uint8_t *mem = p->pool + page * PAGE % p->pool_size;

		for (unsigned k = 0; k < APPEND_SIZE / PAGE; k++)
			stamp_of(p, page + k, p->o->step, (uint64_t *)(mem + (size_t)k * PAGE));
		if (write(fd, mem, APPEND_SIZE) != (ssize_t)APPEND_SIZE)
			die("cannot append to", path);
		if (fsync(fd) < 0)
			die("cannot sync", path);
	}
	close(fd);
}

/* Create, stat and unlink small files of distinct content, each kind for all files before the next, in one
 * directory. */
static void work_meta(struct process *p)
{
	uint8_t *mem = memory(SMALL_FILE_SIZE);
	struct stat st;
	char path[4096];

	snprintf(path, sizeof(path), "%s/dir-%u.%u", p->o->dir, p->id, p->o->step);
	if (mkdir(path, 0755) < 0)
		die("cannot make", path);
	p->start();
	for (unsigned i = 0; i < p->o->count; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/dir-%u.%u/file-%u", p->o->dir, p->id, p->o->step, i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			die("cannot create", path);
		stamp_of(p, i, p->o->step, (uint64_t *)mem);
		if (write(fd, mem, SMALL_FILE_SIZE) != (ssize_t)SMALL_FILE_SIZE)
			die("cannot write", path);
		close(fd);
	}
	for (unsigned i = 0; i < p->o->count; i++) {
		snprintf(path, sizeof(path), "%s/dir-%u.%u/file-%u", p->o->dir, p->id, p->o->step, i);
		if (stat(path, &st) < 0 || st.st_size != SMALL_FILE_SIZE)
			die("wrong stat of", path);
	}
	for (unsigned i = 0; i < p->o->count; i++) {
		snprintf(path, sizeof(path), "%s/dir-%u.%u/file-%u", p->o->dir, p->id, p->o->step, i);
		if (unlink(path) < 0)
			die("cannot remove", path);
	}
}

/* Nothing but making the data: shows that it is not what bounds the others. */
static void work_none(struct process *p)
{
	prepare(p);
	p->start();
	for (uint64_t off = 0; off < p->o->size; off += MIB)
		__asm__ volatile("" : : "r"(data_at(p, off / PAGE)) : "memory");
}

static const struct workload {
	const char *name;
	void (*work)(struct process *p);
} workloads[] = {
	{ "write", work_write }, { "read", work_read }, { "overwrite", work_overwrite },
	{ "append", work_append }, { "meta", work_meta }, { "none", work_none },
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Shared by all processes. */
static struct {
	pthread_barrier_t barrier;
	struct {
		double start, end;
	} of[]; /* each process */
} *shared;

static unsigned own_id;

/* The parent may get a processor only when all is done, so it is the processes that look at the clock. */
static void wait_for_all(void)
{
	pthread_barrier_wait(&shared->barrier);
	shared->of[own_id].start = now();
}

/* Seconds from the first start after all were ready to the last end; exits if a process failed. */
static double run(const struct options *o, const struct workload *w)
{
	pthread_barrierattr_t attr;
	double start = 0, end = 0;
	int status, failed = 0;

	shared = memory(sizeof(*shared) + o->nr_processes * sizeof(shared->of[0]));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &attr, o->nr_processes + 1);
	for (unsigned i = 0; i < o->nr_processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("cannot fork", "a process");
		if (pid == 0) {
			struct process p = { .o = o, .id = i, .start = wait_for_all };

			own_id = i;
			w->work(&p);
			shared->of[i].end = now();
			exit(0);
		}
	}
	pthread_barrier_wait(&shared->barrier);
	for (unsigned i = 0; i < o->nr_processes; i++)
		if (wait(&status) < 0 || status != 0)
			failed = 1;
	if (failed)
		exit(1);
	for (unsigned i = 0; i < o->nr_processes; i++) {
		if (i == 0 || start > shared->of[i].start)
			start = shared->of[i].start;
		if (end < shared->of[i].end)
			end = shared->of[i].end;
	}
	return end - start;
}

static int usage(void)
{
	fprintf(stderr, "Usage: work write|read|overwrite|append|meta|none DIR [--processes N] [--size MIB] [--count N]\n"
			"            [--step S] [--changed PERCENT] [--noise BYTES-OF-8] [--check]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "processes", required_argument, NULL, 'p' }, { "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },     { "step", required_argument, NULL, 'S' },
		{ "changed", required_argument, NULL, 'c' },   { "noise", required_argument, NULL, 'N' },
		{ "check", no_argument, NULL, 'C' },	       { 0 },
	};
	struct options o = { .nr_processes = 1, .size = MIB, .noise = 8 };
	const struct workload *w = NULL;
	double seconds;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0)
		switch (c) {
		case 'p': o.nr_processes = (unsigned)atoi(optarg); break;
		case 's': o.size = strtoull(optarg, NULL, 10) * MIB; break;
		case 'n': o.count = (unsigned)atoi(optarg); break;
		case 'S': o.step = (unsigned)atoi(optarg); break;
		case 'c': o.changed = (unsigned)atoi(optarg); break;
		case 'N': o.noise = (unsigned)atoi(optarg); break;
		case 'C': o.check = true; break;
		default: return usage();
		}
	if (argc - optind != 2 || o.noise < 1 || o.noise > 8)
		return usage();
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (strcmp(workloads[i].name, argv[optind]) == 0)
			w = &workloads[i];
	if (!w)
		return usage();
	o.dir = argv[optind + 1];
	seconds = run(&o, w);
	printf("{\"seconds\": %.6f, \"bytes\": %" PRIu64 ", \"operations\": %" PRIu64 "}\n", seconds,
	       o.size * o.nr_processes, (uint64_t)o.count * o.nr_processes);
	return 0;
}
