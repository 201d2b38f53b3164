/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The background thread: commit timer, view, snapshots, fingerprints, repairs, memory. */
#pragma once

struct engine;

int housekeeping_start(struct engine *e);
void housekeeping_stop(struct engine *e); /* waits for it; not running is fine */
