/*
 * POSIX access control lists in the bytes of their extended attributes. Pure functions of bytes.
 *
 * The kernel checks permissions by these lists; what it leaves to a filesystem is the bond between list
 * and mode: a new entry inherits its directory's default list, chmod changes the list, and setting a
 * list changes the mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACL_ACCESS_NAME "system.posix_acl_access"
#define ACL_DEFAULT_NAME "system.posix_acl_default"

/* Entries known, in order, each object once, a mask where one is needed: 0 or -EINVAL. The others take checked lists.
 * */
int acl_check(const void *p, size_t len);
/* The nine permission bits that stand for the list; *ret_mode_says_all: nothing in it goes beyond them. */
uint32_t acl_mode(const void *p, size_t len, bool *ret_mode_says_all);
/* chmod: put the nine bits into the list. */
void acl_chmod(void *p, size_t len, uint32_t mode);
/* Make the access list of a new entry, in place, out of a default list and the mode asked for; returns the mode it
 * gets. *ret_mode_says_all: the list need not be stored. */
uint32_t acl_inherit(void *p, size_t len, uint32_t mode, bool *ret_mode_says_all);
