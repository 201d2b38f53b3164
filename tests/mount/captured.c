/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: captured
 *
 * A program that knows nothing of checkpoints: threads that change memory of malloc(), posix_memalign() and mmap(),
 * take it and give it back (captured.h). A timer interrupts them, whose handler maps memory and forks; what it has not
 * opened is closed at first. Prints "root ADDRESS"; at each line on its standard input it forks, so that a child looks
 * at the memory, and maps and unmaps some; at the end of the input it ends, if all is right. "asked R": what
 * ckptfs_checkpoint() returned, if there is one.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "captured.h"

int ckptfs_checkpoint(void) __attribute__((weak));

static atomic_bool ending;

static void *go_round(void *arg)
{
	struct ring *r = arg;

	for (uint64_t n = RING_PAGES; !ending; n++) {
		*ring_page(r, n % RING_PAGES) = n;
		if (n % 20000 == 0)
			usleep(200); /* so that others have their turn */
	}
	return NULL;
}

static void change(struct block *b, uint64_t x)
{
	b->changing = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (b->p && x % 3 == 0) {
		free(b->p);
		b->p = NULL;
	} else {
		b->len = (uint32_t)(x >> 8) % (x % 400 == 1 ? 200000 : 500);
		b->p = realloc(b->p, b->len + 1);
		b->fill = (uint8_t)x;
		memset(b->p, b->fill, b->len);
	}
	atomic_signal_fence(memory_order_seq_cst);
	b->changing = false;
}

static void *take_and_give(void *arg)
{
	struct root *root = arg;
	uint64_t x = 1;

	while (!ending) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		change(&root->blocks[(x >> 40) % NR_BLOCKS], x >> 20);
		free(malloc((x >> 40) % 9000));
		if ((x >> 50) % 8192 == 0)
			usleep(200);
	}
	return NULL;
}

static void die(const char *why)
{
	fprintf(stderr, "captured: %s\n", why);
	exit(1);
}

static struct root *make_root(void)
{
	struct root *root = calloc(1, sizeof(*root));
	size_t len = (RING_PAGES / RING_PARTS + 1) * RING_STEP;
	void *p;

	for (uint32_t i = 0; i < RING_PARTS; i++) {
		root->ring[0].part[i] = malloc(len);
		if (posix_memalign(&p, 4096, len) != 0)
			die("posix_memalign");
		root->ring[1].part[i] = p;
		root->ring[2].part[i] = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	for (int k = 0; k < NR_RINGS; k++)
		for (uint64_t i = 0; i < RING_PAGES; i++)
			*ring_page(&root->ring[k], i) = i;
	/* Guards in memory of the heap, one for good. */
	if (posix_memalign(&p, 65536, 3 * 65536) != 0 || mprotect(p, 65536, PROT_NONE) < 0 ||
	    mprotect((char *)p + 65536, 65536, PROT_NONE) < 0 ||
	    mprotect((char *)p + 65536, 65536, PROT_READ | PROT_WRITE) < 0)
		die("mprotect");
	root->guarded = (uint8_t *)p + 65536;
	memset(root->guarded, 'g', 2 * 65536);
	root->blocks = calloc(NR_BLOCKS, sizeof(*root->blocks));
	root->magic = ROOT_MAGIC;
	return root;
}

/* A child has the memory of one moment, too, and can go on with it. */
static void try_child(const struct root *root)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		for (int i = 0; i < 1000; i++)
			free(malloc((size_t)i * 100));
		root->ring[0].part[0][8]++;
		_exit(root->magic == ROOT_MAGIC ? 0 : 1);
	}
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("a child");
}

/* One that was not told ends as well. */
static void try_unannounced_child(void)
{
	pid_t pid = _Fork();
	int status;

	if (pid == 0)
		exit(0);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("a child of _Fork()");
}

/* At any moment, also within malloc(), mmap() and munmap(). */
static void on_alarm(int number)
{
	static int nr;
	void *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int saved = errno;
	pid_t pid;

	(void)number;
	if (p != MAP_FAILED)
		munmap(p, 65536);
	if (++nr % 64 == 0) {
		pid = fork();
		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	errno = saved;
}

static void set_alarm(void)
{
	const struct itimerval often = { .it_interval.tv_usec = 2000, .it_value.tv_usec = 2000 };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

/* Whole, in part, and moved. */
static void try_maps(void)
{
	size_t len = 1 << 20, page = 65536;
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q;

	memset(p, 7, len);
	if (p == MAP_FAILED || munmap(p + len / 2, page) < 0 || mprotect(p, page, PROT_NONE) < 0)
		die("mmap");
	if (madvise(p + page, page, MADV_DONTNEED) < 0 || p[page] != 0 || p[2 * page] != 7)
		die("madvise");
	q = mremap(p + 2 * page, page, 4 * page, MREMAP_MAYMOVE);
	if (q == MAP_FAILED || q[0] != 7 || q[4 * page - 1] != 0)
		die("mremap");
	munmap(q, 4 * page);
	munmap(p, len);
	/* Without a call of the library that captures it. */
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || syscall(SYS_munmap, p, len) < 0)
		die("munmap");
}

int main(void)
{
	struct root *root = make_root();
	pthread_t threads[NR_RINGS + 1];
	char line[16];

	closefrom(3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_alarm();
	printf("root %p\n", (void *)root);
	for (int k = 0; k < NR_RINGS; k++)
		pthread_create(&threads[k], NULL, go_round, &root->ring[k]);
	pthread_create(&threads[NR_RINGS], NULL, take_and_give, root);
	if (ckptfs_checkpoint)
		printf("asked %d\n", ckptfs_checkpoint());
	while (fgets(line, sizeof(line), stdin)) {
		try_child(root);
		try_unannounced_child();
		try_maps();
		printf("done\n");
	}
	ending = true;
	for (int k = 0; k <= NR_RINGS; k++)
		pthread_join(threads[k], NULL);
	if (root_wrong(root))
		die(root_wrong(root));
	printf("right\n");
	return 0;
}
