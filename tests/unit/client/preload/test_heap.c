/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "client/preload/heap.h"
#include "tests/unit/client/preload/heap_check.h"

#define SLOTS 500u

static struct heap heap;

struct slot {
	uint8_t *p;
	size_t len;
	uint8_t fill;
};

static uint64_t next(uint64_t *x)
{
	*x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *x >> 33;
}

/* Many small, some large, few that are very large. */
static size_t some_size(uint64_t *x)
{
	static const size_t most[] = { 64, 64, 300, 300, 5000, 9000, 70000, 1 << 20 };

	return next(x) % most[next(x) % ARRAY_SIZE(most)];
}

static bool is_filled(const struct slot *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (s->p[i] != s->fill)
			return false;
	return true;
}

static void fill(struct slot *s, size_t len, uint64_t *x)
{
	s->len = len;
	s->fill = (uint8_t)(next(x) | 1);
	memset(s->p, s->fill, len);
}

static void take(struct slot *s, uint64_t *x)
{
	static const size_t aligns[] = { 16, 16, 16, 64, 4096, 65536, 1 << 19 };
	size_t len = some_size(x), align = aligns[next(x) % ARRAY_SIZE(aligns)];
	bool zeroed = next(x) % 2 == 0;

	s->p = heap_alloc(&heap, len, align, zeroed);
	assert_non_null(s->p);
	assert_int_equal((uintptr_t)s->p % align, 0);
	assert_true(heap_has(&heap, s->p));
	assert_true(heap_usable(&heap, s->p) >= len);
	s->fill = 0;
	assert_true(!zeroed || is_filled(s, len));
	fill(s, len, x);
}

static void resize(struct slot *s, uint64_t *x)
{
	size_t len = some_size(x);

	s->p = heap_realloc(&heap, s->p, len);
	assert_non_null(s->p);
	assert_true(is_filled(s, MIN(len, s->len)));
	fill(s, len, x);
}

/* Memory belongs to one thread from allocation to free. */
static void *work(void *seed)
{
	struct slot *slots = calloc(SLOTS, sizeof(*slots));
	uint64_t x = (uintptr_t)seed;

	for (int i = 0; i < 2000; i++) {
		struct slot *s = &slots[next(&x) % SLOTS];

		if (!s->p) {
			take(s, &x);
		} else {
			assert_true(is_filled(s, s->len));
			if (next(&x) % 3 == 0) {
				resize(s, &x);
			} else {
				heap_free(&heap, s->p);
				s->p = NULL;
			}
		}
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		if (slots[i].p) {
			assert_true(is_filled(&slots[i], slots[i].len));
			heap_free(&heap, slots[i].p);
		}
	free(slots);
	return NULL;
}

static void taken_memory_has_one_owner(void **state _unused_)
{
	work((void *)1);
	assert_true(heap_is_consistent(&heap));
}

static void threads_share_it(void **state _unused_)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 2)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_true(heap_is_consistent(&heap));
}

static void what_is_given_back_is_used_again(void **state _unused_)
{
	struct heap_extent before[2], after[2];

	work((void *)9);
	heap_extents(&heap, before);
	for (int i = 0; i < 20; i++)
		work((void *)9);
	heap_extents(&heap, after);
	/* Once it may grow by another quarter: how runs fit depends on the address of the heap. */
	assert_in_range(after[0].len, before[0].len, 2 * before[0].len);
	assert_in_range(after[1].len, before[1].len, 2 * before[1].len);
}

static void all_of_it_is_in_its_extents(void **state _unused_)
{
	struct heap_extent extent[2];
	uint8_t *large = heap_alloc(&heap, MiB(40), 16, false);

	heap_extents(&heap, extent);
	assert_ptr_equal(extent[0].p, atomic_load(&heap.state));
	assert_true(large >= extent[1].p && large + MiB(40) <= extent[1].p + extent[1].len);
	heap_free(&heap, large);
}

static void a_large_block_grows_where_it_is(void **state _unused_)
{
	uint8_t *p = heap_alloc(&heap, MiB(8), 16, false), *q = heap_realloc(&heap, p, MiB(2));

	assert_ptr_equal(q, p);
	assert_ptr_equal(heap_realloc(&heap, q, MiB(8)), p);
	heap_free(&heap, p);
}

static void what_cannot_be_had_is_enomem(void **state _unused_)
{
	static const struct {
		size_t size, align;
	} wanted[] = { { SIZE_MAX, 16 },
		       { SIZE_MAX - 100, 4096 },
		       { PTRDIFF_MAX, 16 },
		       { 16, (size_t)1 << 62 },
		       { (size_t)1 << 46, 16 } };

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		errno = 0;
		assert_null(heap_alloc(&heap, wanted[i].size, wanted[i].align, false));
		assert_int_equal(errno, ENOMEM);
	}
}

/* Dies of it, and of nothing else. */
static void assert_aborts(void (*run)(uint8_t *p), uint8_t *p)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct rlimit none = { 0 };

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		run(p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void give_back_twice(uint8_t *p)
{
	heap_free(&heap, p);
	heap_free(&heap, p);
}

static void give_back_another(uint8_t *p)
{
	heap_free(&heap, p + HEAP_UNIT);
}

static void what_is_wrong_ends_the_program(void **state _unused_)
{
	uint8_t *small = heap_alloc(&heap, 24, 16, false), *large = heap_alloc(&heap, MiB(1), 16, false);

	assert_aborts(give_back_twice, small);
	assert_aborts(give_back_twice, large);
	assert_aborts(give_back_another, large);
	heap_free(&heap, small);
	heap_free(&heap, large);
}

static void the_thread_that_holds_it_can_allocate(void **state _unused_)
{
	void *p;

	assert_true(heap_hold(&heap));
	p = heap_alloc(&heap, 100, 16, false);
	heap_free(&heap, p);
	heap_release(&heap);
}

static void limits_of_addresses_are_kept(void **state _unused_)
{
	FILE *f = fopen("/proc/self/statm", "re");
	size_t pages = 0;
	pid_t pid;
	int status;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu", &pages), 1);
	fclose(f);
	if (pages * (size_t)sysconf(_SC_PAGESIZE) > GiB(1))
		skip(); /* sanitizers have more than the limit already */
	pid = fork();
	if (pid == 0) {
		struct rlimit some = { .rlim_cur = GiB(2), .rlim_max = GiB(2) };
		struct heap small = { 0 };

		_exit(setrlimit(RLIMIT_AS, &some) == 0 && heap_alloc(&small, MiB(100), 16, true) && malloc(MiB(100)) ?
			      0 :
			      1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_of_addresses_are_kept), /* before there is a heap */
		cmocka_unit_test(taken_memory_has_one_owner),
		cmocka_unit_test(threads_share_it),
		cmocka_unit_test(what_is_given_back_is_used_again),
		cmocka_unit_test(all_of_it_is_in_its_extents),
		cmocka_unit_test(a_large_block_grows_where_it_is),
		cmocka_unit_test(what_cannot_be_had_is_enomem),
		cmocka_unit_test(what_is_wrong_ends_the_program),
		cmocka_unit_test(the_thread_that_holds_it_can_allocate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
