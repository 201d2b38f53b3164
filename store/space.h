/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Free space: checks before writing, space reserved by fallocate(), and the reserve for a full disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct content;
struct engine;
struct space;

struct space *space_new(void); /* NULL: -ENOMEM */
void space_free(struct space *s); /* NULL is fine; after space_close() */

int space_check(struct engine *e, uint64_t need); /* -ENOSPC, -EDQUOT */
uint64_t space_with_overhead(uint64_t len); /* len plus tables, recipes and log */
/* Reserve space for a file; the caller then adds it to content.promised. May wait for writes to finish: no lock held.
 * -ENOSPC, -EDQUOT. */
int space_promise(struct engine *e, uint64_t bytes);
void space_take_back(struct engine *e, uint64_t bytes); /* release unused reserved space */
/* May this be written? Bytes of reserved ranges may, the others if there is room. May wait for writes to finish: no
 * lock held. -ENOSPC, -EDQUOT. */
int space_admit_write(struct content *c, uint64_t off, uint64_t len);
void space_spend(struct content *c); /* a job of this file starts: allow it the space of admitted writes */
void space_close(struct engine *e); /* no file has a reservation any more */
void space_release(struct content *c); /* release all of its remaining reservation */
void reserve_make(struct engine *e); /* make the reserve whole, if there is room */
int reserve_for_opening(struct engine *e);
void reserve_restore(struct engine *e); /* allocate the missing part of it, as far as there is room */
/* Bytes that commits of the next mount need on a full disk, or 0 if the index was not opened. reserve_rest() then
 * shrinks the reserve to this size, after the index is closed. */
uint64_t reserve_at_rest(struct engine *e);
void reserve_rest(struct engine *e, uint64_t commit_bytes);
bool reserve_is_whole(struct engine *e);
bool reserve_is_there(struct engine *e); /* enough of it for changes of names and attributes on a full disk */
/* Call after an operation failed with r. True: it failed for lack of space, and releasing the reserve has made room;
 * try again. The part needed for opening is kept. */
bool reserve_helps(struct engine *e, int r);
/* From time to time: return unused reserved space; after a quota was exceeded, check whether there is room again. */
void space_look_again(struct engine *e);
