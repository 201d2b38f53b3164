/* SPDX-License-Identifier: GPL-3.0-or-later */
/* State of free, reserved and promised space. For space.c alone. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct space {
	_Atomic uint64_t avail, checked_ns; /* result and time of the last check */
	struct {
		_Atomic uint64_t total, free, avail, ns; /* ns: when, monotonic */
	} seen; /* by the housekeeper */
	struct {
		struct mutex lock; /* leaf; also held while the file is resized */
		int fd GUARDED_BY(lock); /* the file `promised`; -1: not made yet */
		_Atomic uint64_t held; /* its size; changed under the lock */
		_Atomic uint64_t bytes; /* reserved by content_allocate(), and no job stores them yet */
	} promised;
	_Atomic uint64_t reserve_held; /* bytes of the reserve that this mount has allocated or found */
	bool files_released; /* by opening, which then creates them again */
	_Atomic bool quota_is_used_up; /* a commit failed with EDQUOT; statvfs() does not report quotas */
};
