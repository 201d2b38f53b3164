/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * POSIX access control lists in the byte format of their extended attributes. Pure functions of bytes.
 *
 * The kernel checks permissions against these lists, except for the requests handled by permission.h. Keeping list and
 * mode consistent is left to the filesystem: a new entry inherits its directory's default list, chmod updates the list,
 * and setting a list updates the mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACL_ACCESS_NAME "system.posix_acl_access"
#define ACL_DEFAULT_NAME "system.posix_acl_default"

/*
 * 0 if all entries are known, in order, each object once, with a mask where one is required; else -EINVAL. The
 * functions below expect a list that passed this check.
 */
int acl_check(const void *p, size_t len);
/* The nine permission bits that correspond to the list. *ret_mode_says_all: the list holds nothing beyond them. */
uint32_t acl_mode(const void *p, size_t len, bool *ret_mode_says_all);
/* Result of a group membership check. */
enum acl_member { ACL_NO_MEMBER, ACL_MEMBER, ACL_MEMBER_UNKNOWN };
typedef enum acl_member acl_member_fn(void *userdata, uint32_t gid);
/*
 * Does the list grant the bits `want` (4 read, 2 write, 1 search or execute) to a caller that is not the owner? `gid`
 * is the file's group. With unknown memberships: true only if the list grants them for any set of memberships.
 */
bool acl_grants(const void *p, size_t len, uint32_t uid, uint32_t gid, acl_member_fn *is_member, void *userdata,
		unsigned want);
/* chmod: copy the nine permission bits into the list. */
void acl_chmod(void *p, size_t len, uint32_t mode);
/*
 * Turn a default list, in place, into the access list of a new entry created with `mode`. Returns the resulting mode.
 * *ret_mode_says_all: the list need not be stored.
 */
uint32_t acl_inherit(void *p, size_t len, uint32_t mode, bool *ret_mode_says_all);
