/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Ages as people read them. */
#pragma once

#include <stdint.h>

#include "base/conf.h"

uint64_t age_since(int64_t then_ns); /* nanoseconds since that wall-clock time; 0 if it is in the future */
struct human human_age(uint64_t ns); /* "45s", "12m", "3h", "5d": in whole units */
