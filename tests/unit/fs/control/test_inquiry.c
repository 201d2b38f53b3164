#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/control/inquiry.h"

/* Questions that `uid` can begin until it is refused. */
static unsigned begin_all(struct inquiries *q, uint32_t uid, uint64_t *last)
{
	unsigned nr = 0;
	int r;

	while ((r = inquiry_begin(q, uid, uid == 0, last)) == 0)
		nr++;
	assert_int_equal(r, -EBUSY);
	return nr;
}

static void a_user_leaves_places_to_others_and_to_root(void **state _unused_)
{
	struct inquiries *q;
	unsigned nr = 0;
	uint64_t last;

	assert_int_equal(inquiries_new(NULL, &q), 0);
	assert_int_equal(begin_all(q, 1000, &last), 4);
	assert_int_equal(begin_all(q, 1001, &last), 4);
	assert_int_equal(inquiry_end(q, last), 0);
	assert_int_equal(begin_all(q, 1001, &last), 1);
	for (uint32_t uid = 1002; uid < 1100; uid++)
		nr += begin_all(q, uid, &last);
	assert_int_equal(nr, 4);
	assert_int_equal(begin_all(q, 0, &last), 4);
	inquiries_free(q);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(a_user_leaves_places_to_others_and_to_root) };

	return cmocka_run_group_tests_name("inquiry", tests, NULL, NULL);
}
