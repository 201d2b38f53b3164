/*
 * A process that restricts itself for good: it may use what it has open and its memory up to a limit, for some seconds,
 * and nothing else. No file can be opened, no socket, no process made.
 */
#pragma once

#include <stdint.h>

/* 0 or a negative errno: then do not go on. */
int sandbox_enter(uint64_t memory_bytes, unsigned cpu_seconds);
