/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A store in a temporary directory and an engine on it. Every function fails the test if it cannot do its work. */
#pragma once

#include "store/remote/cluster_calls.h"
#include "store/engine.h"

struct rig {
	char path[64];
	struct engine_conf conf;
	struct engine *e;
};

#define RIG_PATH_MAX 300

int rig_setup(void **state);
int rig_teardown(void **state);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
void rig_reopen(struct rig *rig);
/* As if the machine had stopped now: the engine goes on with a copy of what had been acknowledged. */
void rig_crash(struct rig *rig);
/* The same in two steps: a copy of the store as it is now, and later the end of the engine, which leaves that copy in
 * its place. */
void rig_copy_as_it_is(struct rig *rig);
void rig_close_to_copy(struct rig *rig);
void rig_remove_index(struct rig *rig);

#define rig_test(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* A file of the store, the last one where several match. */
void rig_path_of(const struct rig *rig, const char *pattern, char ret[RIG_PATH_MAX]);
void rig_flip(const struct rig *rig, const char *pattern, uint64_t off); /* a bit of it, behind the engine's back */
/* Everything is sound, with all bytes read, but for names and attributes. Closes the store meanwhile. */
void rig_fsck(struct rig *rig);

void rig_pattern(uint8_t *p, size_t len, uint64_t seed); /* every page different for every seed */
uint8_t *rig_bytes(size_t len, uint64_t seed); /* of that pattern; caller frees */
uint8_t *rig_soft_bytes(size_t len, uint64_t seed); /* half of each page always the same: they compress */
struct content *rig_content(struct rig *rig, uint64_t ino);
void rig_write(struct rig *rig, uint64_t ino, size_t len, uint64_t seed); /* from offset 0, flushed */
void rig_write_soft(struct rig *rig, uint64_t ino, size_t len, uint64_t seed);
/* As the next of a series, after `champion` (0: the first), by calls of `step` bytes. */
void rig_write_next(struct rig *rig, uint64_t ino, uint64_t champion, const uint8_t *p, size_t len, size_t step);
void rig_write_bytes(struct rig *rig, uint64_t ino, const uint8_t *p, size_t len);
void rig_check(struct rig *rig, uint64_t ino, size_t len, uint64_t seed); /* that this is all of it */
void rig_check_bytes(struct rig *rig, uint64_t ino, const uint8_t *want, size_t len);
/* Files of steps, all but those that were dropped (a bit each), as `fill` makes them. */
void rig_check_steps(struct rig *rig, uint64_t first_ino, unsigned nr, unsigned dropped, size_t len,
		     void (*fill)(uint8_t *p, unsigned step));
void rig_check_absent(struct rig *rig, uint64_t ino);
void rig_drop(struct rig *rig, uint64_t ino); /* its bytes; a name stays */
void rig_name(struct rig *rig, const char *name, uint64_t ino); /* an entry in the root */
/* What content_pieces() tells of it, at most `max`: how many. */
size_t rig_pieces(struct rig *rig, uint64_t ino, struct content_piece *ret, size_t max);
uint64_t rig_find(struct rig *rig, const char *name); /* 0: none */

struct gc_report rig_collect(struct rig *rig, const struct gc_conf *conf);
struct scrub_report rig_scrub(struct rig *rig, const struct scrub_conf *conf);
struct engine_stats rig_stats(struct rig *rig); /* after a sync, which brings everything written to its place */
void rig_wait_until_repaired(struct rig *rig, uint64_t nr); /* chunks, by the background thread */
