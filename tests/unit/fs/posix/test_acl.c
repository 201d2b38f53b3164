/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/posix/acl.h"

enum tag { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

struct entry {
	uint16_t tag, perm;
	uint32_t id;
};

#define NO_ID UINT32_MAX

static void encode(struct buf *b, uint32_t version, const struct entry *e, size_t nr)
{
	buf_clear(b);
	buf_add_le32(b, version);
	for (size_t i = 0; i < nr; i++) {
		buf_add_le32(b, (uint32_t)e[i].tag | (uint32_t)e[i].perm << 16);
		buf_add_le32(b, e[i].id);
	}
}

#define ENCODE(b, ...)                                     \
	do {                                               \
		const struct entry _e[] = { __VA_ARGS__ }; \
		encode(b, 2, _e, ARRAY_SIZE(_e));          \
	} while (0)

static const struct entry minimal[] = { { USER_OBJ, 7, NO_ID }, { GROUP_OBJ, 5, NO_ID }, { OTHER, 4, NO_ID } };
static const struct entry named[] = {
	{ USER_OBJ, 7, NO_ID }, { USER, 6, 1000 },  { USER, 1, 1001 },	 { GROUP_OBJ, 5, NO_ID },
	{ GROUP, 2, 50 },	{ MASK, 6, NO_ID }, { OTHER, 4, NO_ID },
};

static void well_formed_lists_are_accepted(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	encode(&b, 2, minimal, ARRAY_SIZE(minimal));
	assert_int_equal(acl_check(b.data, b.len), 0);
	encode(&b, 2, named, ARRAY_SIZE(named));
	assert_int_equal(acl_check(b.data, b.len), 0);
}

/* Members of group 100, the file's, and 50, which the list names. */
static enum acl_member of_none(void *userdata, uint32_t gid)
{
	(void)userdata;
	(void)gid;
	return ACL_NO_MEMBER;
}

static enum acl_member of_100(void *userdata, uint32_t gid)
{
	(void)userdata;
	return gid == 100 ? ACL_MEMBER : ACL_NO_MEMBER;
}

static enum acl_member of_50(void *userdata, uint32_t gid)
{
	(void)userdata;
	return gid == 50 ? ACL_MEMBER : ACL_NO_MEMBER;
}

static enum acl_member of_both(void *userdata, uint32_t gid)
{
	(void)userdata;
	return gid == 50 || gid == 100 ? ACL_MEMBER : ACL_NO_MEMBER;
}

static enum acl_member of_unknown(void *userdata, uint32_t gid)
{
	(void)userdata;
	(void)gid;
	return ACL_MEMBER_UNKNOWN;
}

static enum acl_member of_100_and_unknown(void *userdata, uint32_t gid)
{
	(void)userdata;
	return gid == 100 ? ACL_MEMBER : ACL_MEMBER_UNKNOWN;
}

/* user 1000 6, user 1001 1, group 5, group 50 2, mask 6, other 4. */
static void a_list_grants_by_user_then_groups_then_other(void **state)
{
	static const struct {
		uint32_t uid;
		acl_member_fn *member;
		unsigned grants; /* the largest set of single bits */
	} cases[] = {
		{ 1000, of_none, 6 },  { 1000, of_unknown, 6 }, { 1001, of_none, 0 }, { 1001, of_both, 0 },
		{ 1002, of_none, 4 },  { 1002, of_100, 4 },	{ 1002, of_50, 2 },   { 1002, of_both, 6 },
		{ 1002, of_unknown, 0 }, { 1002, of_100_and_unknown, 4 },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	encode(&b, 2, named, ARRAY_SIZE(named));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (unsigned bit = 1; bit <= 4; bit <<= 1)
			assert_int_equal(acl_grants(b.data, b.len, cases[i].uid, 100, cases[i].member, NULL, bit),
					 (cases[i].grants & bit) != 0);
	/* No single group grants both: two that grant one each do not add up. */
	assert_false(acl_grants(b.data, b.len, 1002, 100, of_both, NULL, 6));
	assert_true(acl_grants(b.data, b.len, 1000, 100, of_none, NULL, 6));
}

/* Where every entry grants it, groups need not be known. */
static void what_all_may_do_needs_no_groups(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	ENCODE(&b, { USER_OBJ, 7, NO_ID }, { USER, 0, 1000 }, { GROUP_OBJ, 5, NO_ID }, { GROUP, 4, 50 },
	       { MASK, 7, NO_ID }, { OTHER, 5, NO_ID });
	assert_true(acl_grants(b.data, b.len, 1002, 100, of_unknown, NULL, 4));
	assert_false(acl_grants(b.data, b.len, 1002, 100, of_unknown, NULL, 1));
	assert_false(acl_grants(b.data, b.len, 1000, 100, of_unknown, NULL, 4));
}

static void every_malformed_list_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	encode(&b, 1, minimal, ARRAY_SIZE(minimal));
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* version */
	encode(&b, 2, minimal, ARRAY_SIZE(minimal));
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(acl_check(b.data, len), -EINVAL); /* cut off */
	ENCODE(&b, { USER_OBJ, 8, NO_ID }, { GROUP_OBJ, 5, NO_ID }, { OTHER, 4, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* permission beyond rwx */
	ENCODE(&b, { GROUP_OBJ, 5, NO_ID }, { USER_OBJ, 7, NO_ID }, { OTHER, 4, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* order */
	ENCODE(&b, { USER_OBJ, 7, NO_ID }, { USER_OBJ, 7, NO_ID }, { GROUP_OBJ, 5, NO_ID }, { OTHER, 4, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* twice */
	ENCODE(&b, { USER_OBJ, 7, NO_ID }, { USER, 7, 1 }, { GROUP_OBJ, 5, NO_ID }, { OTHER, 4, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* named entry without a mask */
	ENCODE(&b, { USER_OBJ, 7, NO_ID }, { GROUP_OBJ, 5, NO_ID }, { 64, 4, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* unknown tag */
	ENCODE(&b, { USER_OBJ, 7, NO_ID }, { GROUP_OBJ, 5, NO_ID });
	assert_int_equal(acl_check(b.data, b.len), -EINVAL); /* others missing */
}

static void the_mode_shows_the_mask_as_group_bits(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	bool all;

	(void)state;
	encode(&b, 2, minimal, ARRAY_SIZE(minimal));
	assert_int_equal(acl_mode(b.data, b.len, &all), 0754);
	assert_true(all);
	encode(&b, 2, named, ARRAY_SIZE(named));
	assert_int_equal(acl_mode(b.data, b.len, &all), 0764);
	assert_false(all);
}

static void chmod_changes_mask_and_not_the_owning_group(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, want = BUF_EMPTY;

	(void)state;
	encode(&b, 2, named, ARRAY_SIZE(named));
	acl_chmod(b.data, b.len, 0100620);
	ENCODE(&want, { USER_OBJ, 6, NO_ID }, { USER, 6, 1000 }, { USER, 1, 1001 }, { GROUP_OBJ, 5, NO_ID },
	       { GROUP, 2, 50 }, { MASK, 2, NO_ID }, { OTHER, 0, NO_ID });
	assert_int_equal(b.len, want.len);
	assert_memory_equal(b.data, want.data, b.len);
}

/* By hand after posix_acl_create_masq(), which applies the mode asked for to owner, mask and others. */
static void a_new_entry_gets_no_more_than_asked_for_and_than_the_default_allows(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, want = BUF_EMPTY;
	bool all;

	(void)state;
	encode(&b, 2, named, ARRAY_SIZE(named));
	assert_int_equal(acl_inherit(b.data, b.len, 0100666, &all), 0100664);
	assert_false(all);
	ENCODE(&want, { USER_OBJ, 6, NO_ID }, { USER, 6, 1000 }, { USER, 1, 1001 }, { GROUP_OBJ, 5, NO_ID },
	       { GROUP, 2, 50 }, { MASK, 6, NO_ID }, { OTHER, 4, NO_ID });
	assert_memory_equal(b.data, want.data, b.len);

	encode(&b, 2, minimal, ARRAY_SIZE(minimal));
	assert_int_equal(acl_inherit(b.data, b.len, 0042777, &all), 0042754);
	assert_true(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(well_formed_lists_are_accepted),
		cmocka_unit_test(a_list_grants_by_user_then_groups_then_other),
		cmocka_unit_test(what_all_may_do_needs_no_groups),
		cmocka_unit_test(every_malformed_list_is_refused),
		cmocka_unit_test(the_mode_shows_the_mask_as_group_bits),
		cmocka_unit_test(chmod_changes_mask_and_not_the_owning_group),
		cmocka_unit_test(a_new_entry_gets_no_more_than_asked_for_and_than_the_default_allows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
