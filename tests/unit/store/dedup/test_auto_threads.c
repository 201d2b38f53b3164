/* SPDX-License-Identifier: GPL-3.0-or-later */
/* chunking=auto, several at once: files find their bytes in champions that go, and that are moved, meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/unit/store/crowd.h"

/* The same bytes, each time a little shorter at their beginning; each file's champion is deleted after it. */
static void write_on(struct crowd_writer *w)
{
	for (unsigned i = 0; i < 12; i++) {
		uint64_t last = i > 0 ? w->ino : 0;

		crowd_next(w, i);
		rig_write_next(w->rig, w->ino, last, w->p, w->len, 100000 + i * 77777);
		if (last != 0)
			rig_drop(w->rig, last);
		rig_check_bytes(w->rig, w->ino, w->p, w->len);
	}
}

static void champions_are_given_up_while_a_collection_runs(void **state)
{
	struct rig *rig = *state;

	rig->conf.chunking = CHUNKING_AUTO;
	crowd_run(rig, write_on, &(struct gc_conf){ .delete = true, .move_below = 60, .place = true });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(champions_are_given_up_while_a_collection_runs),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
