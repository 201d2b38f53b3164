/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: lineage DIR OTHER
 *
 * What ckptfs_gpu.h promises, with host memory, on a mount: DIR is a directory of one, OTHER of none. Knows nothing of
 * the library but its header.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/lib/ckptfs_gpu.h"

#define NR_BUFFERS 12
#define NR_STEPS 40

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "lineage: line %d: %s\n", __LINE__, #condition); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)
#define CHECK_EQUAL(call, value)                                                                               \
	do {                                                                                                   \
		int _got = (call);                                                                             \
		if (_got != (value)) {                                                                         \
			fprintf(stderr, "lineage: line %d: %s is %d, not %d\n", __LINE__, #call, _got, value); \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

/* --- a state that changes --- */

struct state {
	uint64_t random;
	struct ckptfs_gpu_buffer buffers[NR_BUFFERS]; /* those of length SIZE_MAX are not there */
	char names[NR_BUFFERS][24];
};

static uint64_t next_random(struct state *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return s->random >> 24;
}

static void fill(struct state *s, struct ckptfs_gpu_buffer *b, uint64_t from)
{
	for (uint64_t i = from; i < b->len; i++)
		((uint8_t *)b->p)[i] = (uint8_t)(next_random(s) >> 9);
}

static bool there(const struct ckptfs_gpu_buffer *b)
{
	return b->len != SIZE_MAX;
}

static void resize(struct state *s, struct ckptfs_gpu_buffer *b, uint64_t len)
{
	uint64_t from = there(b) ? b->len : 0;

	b->p = realloc(b->p, len + 1);
	CHECK(b->p);
	b->len = len;
	if (from < len)
		fill(s, b, from);
}

static void state_init(struct state *s, uint64_t seed)
{
	*s = (struct state){ .random = seed };
	for (int i = 0; i < NR_BUFFERS; i++) {
		snprintf(s->names[i], sizeof(s->names[i]), "buffer/%d", i);
		s->buffers[i] = (struct ckptfs_gpu_buffer){ .name = s->names[i], .len = SIZE_MAX };
		if (i % 2 == 0)
			resize(s, &s->buffers[i], next_random(s) % 300000);
	}
}

/* Some grow, shrink, come or go; most change a little. */
static void state_step(struct state *s)
{
	for (int i = 0; i < NR_BUFFERS; i++) {
		struct ckptfs_gpu_buffer *b = &s->buffers[i];

		switch (next_random(s) % 16) {
		case 0:
			resize(s, b, next_random(s) % 300000);
			break;
		case 1:
			if (there(b))
				resize(s, b, b->len + next_random(s) % 100);
			break;
		case 2:
			b->len = SIZE_MAX;
			break;
		case 3:
			resize(s, b, 0);
			break;
		default:
			if (there(b) && b->len > 0)
				((uint8_t *)b->p)[next_random(s) % b->len] ^= 0x55;
			break;
		}
	}
}

static size_t state_list(const struct state *s, struct ckptfs_gpu_buffer ret[NR_BUFFERS])
{
	size_t nr = 0;

	for (int i = 0; i < NR_BUFFERS; i++)
		if (there(&s->buffers[i])) {
			ret[nr] = s->buffers[i];
			ret[nr].info = s->names[i];
			ret[nr++].info_len = strlen(s->names[i]);
		}
	return nr;
}

static void state_copy(const struct state *s, struct state *ret)
{
	*ret = *s;
	for (int i = 0; i < NR_BUFFERS; i++) {
		ret->buffers[i].name = ret->names[i];
		ret->buffers[i].p = NULL;
		if (!there(&s->buffers[i]))
			continue;
		ret->buffers[i].p = malloc(s->buffers[i].len + 1);
		CHECK(ret->buffers[i].p);
		memcpy(ret->buffers[i].p, s->buffers[i].p, s->buffers[i].len);
	}
}

static void state_release(struct state *s)
{
	for (int i = 0; i < NR_BUFFERS; i++)
		free(s->buffers[i].p);
}

/* --- what a version must be --- */

/* By plain read, and by restore. */
static void check_version(struct ckptfs_gpu *g, const char *dir, uint32_t number, const struct state *s)
{
	struct ckptfs_gpu_buffer want[NR_BUFFERS], into[NR_BUFFERS];
	size_t nr = state_list(s, want);
	struct ckptfs_gpu_version *v;
	char path[4096];
	int fd;

	CHECK_EQUAL(ckptfs_gpu_version_read(g, number, &v), 0);
	CHECK(v->nr == nr);
	snprintf(path, sizeof(path), "%s/%06u", dir, number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	for (size_t i = 0; i < nr; i++) {
		into[i] = want[i];
		into[i].p = malloc(want[i].len + 1);
		CHECK(into[i].p);
		CHECK(strcmp(v->buffers[i].name, want[i].name) == 0 && v->buffers[i].len == want[i].len);
		CHECK(v->buffers[i].info_len == want[i].info_len);
		CHECK(memcmp(v->buffers[i].info, want[i].info, want[i].info_len) == 0);
		CHECK(pread(fd, into[i].p, want[i].len, (off_t)v->offs[i]) == (ssize_t)want[i].len);
		CHECK(memcmp(into[i].p, want[i].p, want[i].len) == 0);
		memset(into[i].p, 0xee, want[i].len);
	}
	CHECK_EQUAL(ckptfs_gpu_restore(g, number, into, nr, NULL), 0);
	for (size_t i = 0; i < nr; i++) {
		CHECK(memcmp(into[i].p, want[i].p, want[i].len) == 0);
		free(into[i].p);
	}
	close(fd);
	ckptfs_gpu_version_free(v);
}

static void checkpoint(struct ckptfs_gpu *g, uint32_t number, const struct state *s)
{
	struct ckptfs_gpu_buffer buffers[NR_BUFFERS];

	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, number, buffers, state_list(s, buffers), NULL, NULL, NULL), 0);
}

/* --- promises --- */

static void every_version_is_what_the_program_had(const char *top, uint32_t method)
{
	struct ckptfs_gpu_options options = {
		.size = sizeof(options), .method = method, .flags = CKPTFS_GPU_VERIFY | CKPTFS_GPU_COMPARE
	};
	static struct state s, copies[NR_STEPS + 1];
	struct ckptfs_gpu *g;
	uint32_t *numbers;
	char dir[4000];
	size_t nr;

	snprintf(dir, sizeof(dir), "%s/method%u", top, method);
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), 0);
	state_init(&s, method + 1);
	for (uint32_t i = 1; i <= NR_STEPS; i++) {
		state_step(&s);
		state_copy(&s, &copies[i]);
		checkpoint(g, 3 * i, &s); /* and is overwritten at once, in the next turn */
		if (i == 20) {
			/* Versions that the record refers to are deleted, the parent among them. */
			char path[4096];

			CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
			CHECK_EQUAL(ckptfs_gpu_delete(g, 3 * 7), 0);
			snprintf(path, sizeof(path), "%s/%06u", dir, 3 * 20);
			CHECK(unlink(path) == 0);
		}
	}
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	CHECK_EQUAL(ckptfs_gpu_versions(g, &numbers, &nr), 0);
	CHECK(nr == NR_STEPS - 2);
	for (size_t i = 0; i < nr; i++)
		check_version(g, dir, numbers[i], &copies[numbers[i] / 3]);
	free(numbers);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	for (int i = 1; i <= NR_STEPS; i++)
		state_release(&copies[i]);
	state_release(&s);
}

struct reported {
	uint32_t number;
	int error;
};

static void report(void *arg, uint32_t number, int error)
{
	*(struct reported *)arg = (struct reported){ number, error };
}

static void a_small_change_is_a_small_delta_and_its_end_is_reported(const char *top)
{
	struct reported reported = { .error = 1 };
	struct ckptfs_gpu_stats stats = { .size = sizeof(stats) };
	struct ckptfs_gpu_buffer b = { .name = "data", .len = 8 << 20 };
	struct ckptfs_gpu *g;
	struct pollfd p = { .events = POLLIN };
	struct state s = { .random = 99 };
	char dir[4096];
	uint64_t count;

	snprintf(dir, sizeof(dir), "%s/small", top);
	b.p = malloc(b.len);
	CHECK(b.p);
	fill(&s, &b, 0);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	p.fd = ckptfs_gpu_event_fd(g);
	CHECK(poll(&p, 1, 0) == 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, &b, 1, NULL, report, &reported), 0);
	CHECK(poll(&p, 1, 60000) == 1 && read(p.fd, &count, sizeof(count)) == sizeof(count) && count == 1);
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	CHECK(reported.number == 1 && reported.error == 0);
	CHECK_EQUAL(ckptfs_gpu_stats(g, &stats), 0);
	CHECK(stats.number == 1 && stats.on_gpu == 0 && stats.content_bytes > b.len && stats.delta_bytes > b.len);
	((uint8_t *)b.p)[5000000] ^= 1;
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 2, &b, 1, NULL, report, &reported), 0);
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	CHECK(reported.number == 2 && reported.error == 0);
	CHECK_EQUAL(ckptfs_gpu_stats(g, &stats), 0);
	CHECK(stats.number == 2 && stats.payload_bytes == 128 && stats.delta_bytes < 1024);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	free(b.p);
}

static void what_cannot_be_is_refused_and_changes_nothing(const char *top, const char *other)
{
	struct ckptfs_gpu_options options = { .size = sizeof(options), .chunk_size = 100 };
	struct state s;
	struct ckptfs_gpu_buffer two[2], into;
	struct ckptfs_gpu_version *v;
	struct ckptfs_gpu *g;
	char dir[4000], path[4096];
	uint8_t bytes[100];
	int fd;

	snprintf(dir, sizeof(dir), "%s/refused", top);
	CHECK_EQUAL(ckptfs_gpu_open(other, NULL, &g), -ENOTTY);
	snprintf(path, sizeof(path), "%s/made", other);
	CHECK_EQUAL(ckptfs_gpu_open(path, NULL, &g), -ENOTTY);
	CHECK(access(path, F_OK) < 0 && errno == ENOENT); /* nothing is left of it */
	CHECK_EQUAL(ckptfs_gpu_open("/there/is/no/such/directory", NULL, &g), -ENOENT);
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), -EINVAL);
	options = (struct ckptfs_gpu_options){ .size = sizeof(options), .method = 4 };
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), -EINVAL);
	options = (struct ckptfs_gpu_options){ .size = sizeof(options), .flags = 1u << 31 };
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), -EINVAL);
	options = (struct ckptfs_gpu_options){ .size = 4 };
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), -EINVAL);
	options = (struct ckptfs_gpu_options){ .size = sizeof(options), .flags = CKPTFS_GPU_REQUIRE };
	CHECK_EQUAL(ckptfs_gpu_open(dir, &options, &g), 0);
	state_init(&s, 5);
	memcpy(two, s.buffers, sizeof(two));
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, two, 1, NULL, NULL, NULL), -ENODEV);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);

	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 0, two, 1, NULL, NULL, NULL), -EINVAL);
	two[1] = two[0];
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, two, 2, NULL, NULL, NULL), -EINVAL); /* a name twice */
	two[1].name = "";
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, two, 2, NULL, NULL, NULL), -EINVAL);
	two[1] = (struct ckptfs_gpu_buffer){ .name = "x", .len = 1 };
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, two, 2, NULL, NULL, NULL), -EINVAL); /* NULL */
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	checkpoint(g, 2, &s);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 2, two, 1, NULL, NULL, NULL), -EINVAL);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, two, 1, NULL, NULL, NULL), -EINVAL);

	/* A version of another program, which is no version. */
	snprintf(path, sizeof(path), "%s/000003", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	CHECK(fd >= 0 && write(fd, path, 100) == 100 && close(fd) == 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 3, two, 1, NULL, NULL, NULL), -EEXIST);
	CHECK_EQUAL(ckptfs_gpu_version_read(g, 3, &v), -EBADMSG);
	CHECK_EQUAL(ckptfs_gpu_version_read(g, 9, &v), -ENOENT);
	into = (struct ckptfs_gpu_buffer){ .name = "nobody", .p = bytes, .len = sizeof(bytes) };
	CHECK_EQUAL(ckptfs_gpu_restore(g, 2, &into, 1, NULL), -ENOENT);
	into.name = two[0].name;
	CHECK_EQUAL(ckptfs_gpu_restore(g, 2, &into, 1, NULL), -ERANGE);
	CHECK_EQUAL(ckptfs_gpu_delete(g, 9), -ENOENT);

	state_step(&s);
	checkpoint(g, 4, &s);
	check_version(g, dir, 4, &s);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	state_release(&s);
}

static void a_checkpoint_that_fails_behind_is_reported(const char *top)
{
	struct rlimit limit, before;
	struct state s;
	struct ckptfs_gpu *g;
	char dir[4096];
	struct reported reported = { 0 };
	struct ckptfs_gpu_buffer buffers[NR_BUFFERS];

	snprintf(dir, sizeof(dir), "%s/fails", top);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	state_init(&s, 6);
	checkpoint(g, 1, &s);
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	state_step(&s);
	signal(SIGXFSZ, SIG_IGN);
	CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
	limit = before;
	limit.rlim_cur = 100;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 2, buffers, state_list(&s, buffers), NULL, report, &reported), 0);
	CHECK_EQUAL(ckptfs_gpu_wait(g), -EFBIG);
	CHECK(reported.number == 2 && reported.error == -EFBIG);
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0); /* told once */
	CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
	checkpoint(g, 2, &s); /* from version 1, as if it had never been tried */
	check_version(g, dir, 2, &s);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	state_release(&s);
}

/* An open of a FIFO would wait for the other end. */
static void what_is_no_file_is_no_version(const char *top)
{
	struct ckptfs_gpu_buffer into = { .name = "x" };
	struct ckptfs_gpu_version *v;
	struct ckptfs_gpu *g;
	char dir[4000], path[4096];

	snprintf(dir, sizeof(dir), "%s/odd", top);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	snprintf(path, sizeof(path), "%s/000001", dir);
	CHECK(mkfifo(path, 0600) == 0);
	snprintf(path, sizeof(path), "%s/000002", dir);
	CHECK(mkdir(path, 0700) == 0);
	snprintf(path, sizeof(path), "%s/000003", dir);
	CHECK(symlink("/dev/zero", path) == 0);
	for (uint32_t i = 1; i <= 3; i++) {
		CHECK_EQUAL(ckptfs_gpu_version_read(g, i, &v), -EBADMSG);
		CHECK_EQUAL(ckptfs_gpu_restore(g, i, &into, 1, NULL), -EBADMSG);
		CHECK_EQUAL(ckptfs_gpu_checkpoint(g, i, NULL, 0, NULL, NULL, NULL), -EEXIST);
	}
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
}

static void call_all(void *arg, uint32_t number, int error)
{
	struct ckptfs_gpu *g = *(struct ckptfs_gpu **)arg;
	struct ckptfs_gpu_version *v;
	uint32_t *numbers;
	size_t nr;

	CHECK(error == 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, number + 1, NULL, 0, NULL, NULL, NULL), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_wait(g), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_restore(g, number, NULL, 0, NULL), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_version_read(g, number, &v), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_versions(g, &numbers, &nr), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_delete(g, number), -EDEADLK);
	CHECK_EQUAL(ckptfs_gpu_close(g), -EDEADLK);
	*(struct ckptfs_gpu **)arg = NULL;
}

static void a_callback_that_calls_is_refused(const char *top)
{
	struct ckptfs_gpu *g, *reported;
	char dir[4096];

	snprintf(dir, sizeof(dir), "%s/callback", top);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	reported = g;
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, NULL, 0, NULL, call_all, &reported), 0);
	CHECK_EQUAL(ckptfs_gpu_wait(g), 0);
	CHECK(reported == NULL);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
}

static void on_signal(int number)
{
	(void)number;
	abort();
}

/* One that all threads of the program block waits until one of them wants it. */
static void signals_are_the_programs(const char *top)
{
	sigset_t set, before;
	struct ckptfs_gpu *g;
	char dir[4096];
	int got;

	snprintf(dir, sizeof(dir), "%s/signals", top);
	CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_EQUAL(ckptfs_gpu_checkpoint(g, 1, NULL, 0, NULL, NULL, NULL), 0);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	CHECK(sigwait(&set, &got) == 0 && got == SIGUSR1);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

/* The record knows what it was. */
static void a_version_that_somebody_changed_is_referred_to_no_more(const char *top)
{
	struct state s;
	struct ckptfs_gpu *g;
	char dir[4000], path[4096];
	int fd;

	snprintf(dir, sizeof(dir), "%s/changed", top);
	CHECK_EQUAL(ckptfs_gpu_open(dir, NULL, &g), 0);
	state_init(&s, 7);
	for (uint32_t i = 1; i <= 6; i++) {
		checkpoint(g, i, &s);
		check_version(g, dir, i, &s);
		snprintf(path, sizeof(path), "%s/%06u", dir, i);
		CHECK(chmod(path, 0644) == 0);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		if (i % 2 == 0)
			CHECK(ftruncate(fd, 100) == 0);
		else
			CHECK(pwrite(fd, dir, 100, 5000) == 100);
		CHECK(close(fd) == 0);
		state_step(&s);
	}
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	state_release(&s);
}

static void *lineage_of_its_own(void *arg)
{
	struct state s;
	struct ckptfs_gpu *g;

	CHECK_EQUAL(ckptfs_gpu_open(arg, NULL, &g), 0);
	state_init(&s, (uint64_t)(uintptr_t)arg);
	for (uint32_t i = 1; i <= 10; i++) {
		state_step(&s);
		checkpoint(g, i, &s);
	}
	check_version(g, arg, 10, &s);
	CHECK_EQUAL(ckptfs_gpu_close(g), 0);
	state_release(&s);
	return NULL;
}

static void lineages_do_not_mind_each_other(const char *top)
{
	pthread_t threads[4];
	char dirs[4][4096];

	for (int i = 0; i < 4; i++) {
		snprintf(dirs[i], sizeof(dirs[i]), "%s/beside%d", top, i);
		CHECK(pthread_create(&threads[i], NULL, lineage_of_its_own, dirs[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "Usage: lineage DIR OTHER\n");
		return 2;
	}
	for (uint32_t method = CKPTFS_GPU_TREE; method <= CKPTFS_GPU_FULL; method++)
		every_version_is_what_the_program_had(argv[1], method);
	a_small_change_is_a_small_delta_and_its_end_is_reported(argv[1]);
	what_cannot_be_is_refused_and_changes_nothing(argv[1], argv[2]);
	a_checkpoint_that_fails_behind_is_reported(argv[1]);
	what_is_no_file_is_no_version(argv[1]);
	a_callback_that_calls_is_refused(argv[1]);
	signals_are_the_programs(argv[1]);
	a_version_that_somebody_changed_is_referred_to_no_more(argv[1]);
	lineages_do_not_mind_each_other(argv[1]);
	return 0;
}
