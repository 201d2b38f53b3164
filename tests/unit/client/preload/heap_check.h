/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include <stdbool.h>

#include "client/preload/heap.h"

/* Checks all invariants. With the heap held or unused by other threads. It may be a copy at the old addresses. */
bool heap_is_consistent(const struct heap *h);
