/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/addr.h"
#include "base/le.h"
#include "base/util.h"

static void taking_a_pointer_leaves_null(void **state _unused_)
{
	int n = 1, *p = &n;

	assert_ptr_equal(TAKE(p), &n);
	assert_null(p);
}

static void minimum_and_maximum_evaluate_once(void **state _unused_)
{
	int n = 0;

	assert_int_equal(MAX(++n, 0), 1);
	assert_int_equal(MIN(++n, 5), 2);
}

static void bytes_that_are_all_zero(void **state _unused_)
{
	uint8_t bytes[40] = { 0 };

	for (size_t len = 0; len <= sizeof(bytes); len++) {
		assert_true(mem_is_zero(bytes, len));
		for (size_t at = 0; at < sizeof(bytes); at++) {
			bytes[at] = 1;
			assert_int_equal(mem_is_zero(bytes, len), at >= len);
			bytes[at] = 0;
		}
	}
}

static void rounding_to_powers_of_two(void **state _unused_)
{
	assert_int_equal(round_down(4095, 4096), 0);
	assert_int_equal(round_down(4096, 4096), 4096);
	assert_int_equal(round_up(0, 4096), 0);
	assert_int_equal(round_up(1, 4096), 4096);
	assert_int_equal(round_up(4096, 4096), 4096);
	assert_int_equal(round_up(MiB(1) + 1, MiB(1)), MiB(2));
}

static void closing_on_the_way_out_keeps_errno(void **state _unused_)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), none = -1;

	assert_true(fd >= 0);
	errno = ENOSPC;
	closep(&fd);
	closep(&none);
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	errno = EIO;
	closep(&fd); /* fails with EBADF */
	assert_int_equal(errno, EIO);
}

static void integers_on_disk(void **state _unused_)
{
	static const uint8_t be[8] = { 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18 };
	uint8_t b[8];

	assert_memory_equal(le16_put(0x0102).b, ((uint8_t[]){ 2, 1 }), 2);
	assert_memory_equal(le32_put(0x01020304).b, ((uint8_t[]){ 4, 3, 2, 1 }), 4);
	assert_memory_equal(le64_put(0x0102030405060708).b, ((uint8_t[]){ 8, 7, 6, 5, 4, 3, 2, 1 }), 8);
	assert_int_equal(le16_get(le16_put(0xfedc)), 0xfedc);
	assert_int_equal(le32_get(le32_put(0xfedcba98)), 0xfedcba98);
	assert_true(le64_get(le64_put(0xfedcba9876543210)) == 0xfedcba9876543210);
	be64_put(b, 0x1112131415161718);
	assert_memory_equal(b, be, sizeof(be));
	assert_true(be64_get(be) == 0x1112131415161718);
}

static void a_zeroed_address_is_nowhere(void **state _unused_)
{
	struct addr a = { .pack = 1, .off = 4096 }, b = { .pack = 1, .off = 4096, .node = 1 };

	assert_true(addr_is_none(ADDR_NONE));
	assert_false(addr_is_none(a));
	assert_true(addr_equal(a, a));
	assert_false(addr_equal(a, b));
}

static void clocks_go_forward(void **state _unused_)
{
	uint64_t begin = monotonic_ns();

	usleep(2000);
	assert_true(monotonic_ns() - begin >= 2000000);
	assert_true(now_ns() > UINT64_C(1600000000) * 1000000000); /* 2020 */
	assert_true(thread_cpu_ns() > 0 && thread_cpu_ns() < now_ns());
}

static void a_list_grows_when_it_is_full(void **state _unused_)
{
	_cleanup_(freep) uint32_t *list = NULL;
	size_t room = 0, nr_grown = 0;

	for (size_t nr = 0; nr < 1000; nr++) {
		size_t before = room;

		assert_int_equal(list_grow(&list, nr, &room, sizeof(*list)), 0);
		assert_true(room > nr);
		nr_grown += room != before;
		list[nr] = (uint32_t)nr;
	}
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(list[i], i);
	assert_int_equal(nr_grown, 7); /* 16 to 1024 */
	assert_int_equal(list_grow(&list, room, &room, SIZE_MAX / room), -ENOMEM);
	assert_int_equal(room, 1024);
	assert_int_equal(list[999], 999);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taking_a_pointer_leaves_null),
		cmocka_unit_test(minimum_and_maximum_evaluate_once),
		cmocka_unit_test(bytes_that_are_all_zero),
		cmocka_unit_test(rounding_to_powers_of_two),
		cmocka_unit_test(closing_on_the_way_out_keeps_errno),
		cmocka_unit_test(integers_on_disk),
		cmocka_unit_test(a_zeroed_address_is_nowhere),
		cmocka_unit_test(clocks_go_forward),
		cmocka_unit_test(a_list_grows_when_it_is_full),
	};

	return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
