/* The background thread: commit timer, view, snapshots, fingerprints, repairs, memory. */
#pragma once

struct engine;

int keeper_start(struct engine *e);
void keeper_stop(struct engine *e); /* waits for it; not running is fine */
