/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/acl.h"

#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/le.h"

#define ACL_VERSION 2

enum acl_tag {
	ACL_USER_OBJ = 0x01,
	ACL_USER = 0x02,
	ACL_GROUP_OBJ = 0x04,
	ACL_GROUP = 0x08,
	ACL_MASK = 0x10,
	ACL_OTHER = 0x20,
};

/* The kernel's posix_acl_xattr_header and posix_acl_xattr_entry. */
struct acl_header_bytes {
	struct le32 version;
};

struct acl_entry_bytes {
	struct le16 tag, perm;
	struct le32 id;
};
static_assert(sizeof(struct acl_header_bytes) == 4 && sizeof(struct acl_entry_bytes) == 8, "kernel ABI");

static struct acl_entry_bytes *entries(const void *p)
{
	return (struct acl_entry_bytes *)((uint8_t *)p + sizeof(struct acl_header_bytes));
}

static size_t nr_entries(size_t len)
{
	return (len - sizeof(struct acl_header_bytes)) / sizeof(struct acl_entry_bytes);
}

/* The order the kernel requires: each object entry once and in this order, named entries after their object. */
static bool may_follow(unsigned before, unsigned tag)
{
	switch (tag) {
	case ACL_USER_OBJ:
		return before == 0;
	case ACL_USER:
		return before == ACL_USER_OBJ || before == ACL_USER;
	case ACL_GROUP_OBJ:
		return before == ACL_USER_OBJ || before == ACL_USER;
	case ACL_GROUP:
		return before == ACL_GROUP_OBJ || before == ACL_GROUP;
	case ACL_MASK:
		return before == ACL_GROUP_OBJ || before == ACL_GROUP;
	case ACL_OTHER:
		return before == ACL_GROUP_OBJ || before == ACL_GROUP || before == ACL_MASK;
	default:
		return false;
	}
}

int acl_check(const void *p, size_t len)
{
	const struct acl_header_bytes *header = p;
	const struct acl_entry_bytes *e;
	unsigned before = 0, seen = 0;

	if (len < sizeof(*header) || (len - sizeof(*header)) % sizeof(*e) != 0)
		return -EINVAL;
	if (le32_get(header->version) != ACL_VERSION)
		return -EINVAL;
	e = entries(p);
	for (size_t i = 0; i < nr_entries(len); i++) {
		unsigned tag = le16_get(e[i].tag);

		if (!may_follow(before, tag) || le16_get(e[i].perm) & ~7u)
			return -EINVAL;
		before = tag;
		seen |= tag;
	}
	if (before != ACL_OTHER || ((seen & (ACL_USER | ACL_GROUP)) && !(seen & ACL_MASK)))
		return -EINVAL;
	return 0;
}

static struct acl_entry_bytes *find_entry(const void *p, size_t len, unsigned tag)
{
	struct acl_entry_bytes *e = entries(p);

	for (size_t i = 0; i < nr_entries(len); i++)
		if (le16_get(e[i].tag) == tag)
			return &e[i];
	return NULL;
}

/* The entry that the group bits of the mode reflect. */
static struct acl_entry_bytes *group_class(const void *p, size_t len)
{
	struct acl_entry_bytes *mask = find_entry(p, len, ACL_MASK);

	return mask ? mask : find_entry(p, len, ACL_GROUP_OBJ);
}

uint32_t acl_mode(const void *p, size_t len, bool *ret_mode_says_all)
{
	uint32_t user = le16_get(find_entry(p, len, ACL_USER_OBJ)->perm);
	uint32_t group = le16_get(group_class(p, len)->perm);
	uint32_t other = le16_get(find_entry(p, len, ACL_OTHER)->perm);

	*ret_mode_says_all = nr_entries(len) == 3;
	return user << 6 | group << 3 | other;
}

/*
 * As posix_acl_permission() in the kernel: the entry of the named user decides; else any group of the caller that
 * grants; else, if none of the caller's groups is listed, the `other` entry. When group memberships are unknown, assume
 * the worst case: a single membership, in a group that does not grant.
 */
bool acl_grants(const void *p, size_t len, uint32_t uid, uint32_t gid, acl_member_fn *is_member, void *userdata,
		unsigned want)
{
	const struct acl_entry_bytes *e = entries(p), *mask = find_entry(p, len, ACL_MASK);
	unsigned allowed = mask ? le16_get(mask->perm) : 7;
	bool found = false, risky = false;

	for (size_t i = 0; i < nr_entries(len); i++) {
		unsigned tag = le16_get(e[i].tag);
		uint32_t id = tag == ACL_GROUP_OBJ ? gid : le32_get(e[i].id);
		bool grants = (le16_get(e[i].perm) & allowed & want) == want;
		enum acl_member member;

		if (tag == ACL_USER && id == uid)
			return grants;
		if (tag != ACL_GROUP_OBJ && tag != ACL_GROUP)
			continue;
		member = is_member(userdata, id);
		if (member == ACL_MEMBER && grants)
			return true;
		found |= member == ACL_MEMBER;
		risky |= member == ACL_MEMBER_UNKNOWN && !grants;
	}
	return !found && !risky && (le16_get(find_entry(p, len, ACL_OTHER)->perm) & want) == want;
}

static void set_perm(struct acl_entry_bytes *e, uint32_t perm)
{
	e->perm = le16_put((uint16_t)(perm & 7));
}

void acl_chmod(void *p, size_t len, uint32_t mode)
{
	set_perm(find_entry(p, len, ACL_USER_OBJ), mode >> 6);
	set_perm(group_class(p, len), mode >> 3);
	set_perm(find_entry(p, len, ACL_OTHER), mode);
}

uint32_t acl_inherit(void *p, size_t len, uint32_t mode, bool *ret_mode_says_all)
{
	uint32_t allowed = acl_mode(p, len, ret_mode_says_all);
	uint32_t granted = mode & allowed & 0777;

	acl_chmod(p, len, granted);
	return (mode & ~0777u) | granted;
}
