/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Restricts the calling process permanently: it may use its open files, and its memory up to a limit, for some seconds,
 * and nothing else. It can open no file or socket, and create no process.
 */
#pragma once

#include <stdint.h>

/* 0 or a negative errno: then do not continue. */
int sandbox_enter(uint64_t memory_bytes, unsigned cpu_seconds);
