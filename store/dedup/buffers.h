/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The buffers that carry written data; engine.h has the functions for callers of the store.
 *
 * Writers wait for a buffer when `dirty` is used up. The job that used one returns it (write_jobs.h). When the stages of
 * files hold all buffers, the oldest stage is submitted as a job.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct buffers;
struct engine;
struct engine_buffer;

struct buffers *buffers_new(uint64_t bytes); /* up to this much memory, but always some; NULL: -ENOMEM */
void buffers_free(struct buffers *b); /* NULL is fine */
bool buffers_are_short(struct buffers *b); /* more than half of them are in use */
uint64_t buffers_memory(struct buffers *b);
int buffer_try(struct engine *e, struct engine_buffer **ret); /* 1: got one, 0: all in use, -ENOMEM */
