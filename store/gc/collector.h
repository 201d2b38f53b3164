/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The lock of everything that frees or moves chunks: a collection or a recoding, which wait for it, and repairs and pins,
 * which mostly only try it. It comes before all other locks.
 */
#pragma once

#include <stdbool.h>

#include "base/mutex.h"

struct collector;
struct engine;

struct collector *collector_new(void); /* NULL: -ENOMEM */
void collector_free(struct collector *g); /* NULL is fine */

extern struct hidden_lock gc_lock;
bool gc_trylock(struct engine *e) TRY_ACQUIRE(true, gc_lock);
void gc_wait_lock(struct engine *e) ACQUIRE(gc_lock);
void gc_unlock(struct engine *e) RELEASE(gc_lock);

/* One collection or recoding at a time: false: another one runs. gc_end() lets the next one begin. */
bool gc_begin(struct engine *e);
void gc_end(struct engine *e);
bool gc_is_running(const struct engine *e);

/* A collection marks the references that enter the log. Inside e->users, or with view_lock held. */
bool gc_has_window(const struct engine *e);
