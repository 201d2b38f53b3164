/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Several threads that write nearly the same bytes at once, beside a collection that never ends. */
#pragma once

#include "tests/unit/store/rig.h"

struct crowd_writer {
	struct rig *rig;
	uint64_t ino; /* the last one written */
	const uint8_t *p; /* what is to be in it */
	size_t len;
	const uint8_t *all;
};

/* The next file: other bytes in the i-th round, and for each writer. */
void crowd_next(struct crowd_writer *w, unsigned i);
/* With small packs. When all have ended the store is sound, and each one's last file is what was written. */
void crowd_run(struct rig *rig, void (*write)(struct crowd_writer *w), const struct gc_conf *conf);
