/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Written bytes that wait in memory until there are enough of them for a job. */
#pragma once

#include <stdbool.h>

struct engine;
struct engine_waiter;

/* Everything `w` waits for is in the log: continue with waiting for a commit. */
void content_flushed(struct engine_waiter *w);
int stages_flush_all(struct engine *e);
bool stages_flush_oldest(struct engine *e); /* false: nothing is staged */
