/* A store in a temporary directory and an engine on it, for tests. Every function fails the test if it cannot do its work. */
#pragma once

#include "store/engine/engine.h"

struct rig {
	char path[64];
	struct engine_conf conf;
	struct engine *e;
};

int rig_setup(void **state);
int rig_teardown(void **state);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
void rig_reopen(struct rig *rig);
/* As if the machine had stopped now: the engine goes on with a copy of what had been acknowledged. */
void rig_crash(struct rig *rig);
void rig_remove_index(struct rig *rig);

void rig_pattern(uint8_t *p, size_t len, uint64_t seed); /* every page different for every seed */
struct content *rig_content(struct rig *rig, uint64_t ino);
void rig_write(struct rig *rig, uint64_t ino, size_t len, uint64_t seed); /* from offset 0, flushed */
void rig_check(struct rig *rig, uint64_t ino, size_t len, uint64_t seed);
void rig_check_absent(struct rig *rig, uint64_t ino);
void rig_name(struct rig *rig, const char *name, uint64_t ino); /* an entry in the root */
uint64_t rig_find(struct rig *rig, const char *name);		 /* 0: none */
struct engine_stats rig_stats(struct rig *rig); /* after a sync */
