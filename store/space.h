/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Free space: checks before writing, space reserved by fallocate(), and the reserve for a full disk. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct space;

struct space *space_new(void); /* NULL: -ENOMEM */
void space_free(struct space *s); /* NULL is fine; after space_close() */

int space_check(struct engine *e, uint64_t need); /* -ENOSPC, -EDQUOT */
uint64_t space_with_overhead(uint64_t len); /* len plus tables, recipes and log */
/* The same, and data on its way counts. May wait for it to be written: no lock held. */
int space_wait(struct engine *e, uint64_t need);
/* Reserve space (store/file/reservation.h). May wait for writes to finish: no lock held. -ENOSPC, -EDQUOT. */
int space_promise(struct engine *e, uint64_t bytes);
void space_take_back(struct engine *e, uint64_t bytes); /* release unused reserved space */
void space_spend(struct engine *e, uint64_t bytes); /* data in reserved space is about to be stored */
void space_close(struct engine *e); /* no file has a reservation any more */
void reserve_make(struct engine *e); /* make the reserve whole, if there is room */
int reserve_for_opening(struct engine *e);
/* Call after opening failed with r. True: it failed for lack of space or inodes, and reserved inodes have been released:
 * try again. */
bool reserve_helps_opening(struct engine *e, int r);
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
/* The housekeeper, and opening: for engine_space_seen(). */
void space_look(struct engine *e);
/* From time to time: return unused reserved space; after a quota was exceeded, check whether there is room again. */
void space_look_again(struct engine *e);
