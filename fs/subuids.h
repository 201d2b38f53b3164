/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The user that a user ID belongs to. An ordinary user may have thousands of them: ranges in /etc/subuid, for user namespaces.
 * Limits per user (fs/places.h) count all of them, and the user's own, as one.
 */
#pragma once

#include <stdint.h>

/*
 * The user ID that all IDs of this user have in common: that of the user if /etc/passwd or /etc/subuid has it, else the
 * first one of the ranges. IDs in no range stay themselves. Files are read again when /etc/subuid has changed; name
 * services are not asked, because they block. Any thread.
 */
uint32_t subuids_user(uint32_t uid);

void subuids_read_from(const char *subuid, const char *passwd); /* for tests: other files; borrowed. NULL: the usual ones */
