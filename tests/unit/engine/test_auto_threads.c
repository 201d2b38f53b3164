/* chunking=auto, several at once: files find their bytes in champions that go, and that are moved, meanwhile. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/unit/engine/rig.h"

struct writer {
	struct rig *rig;
	const uint8_t *p;
	uint64_t ino;
	_Atomic bool *stop;
};

/* The same bytes, each time a little shorter at their beginning; each file's champion is given up after it. */
static void *write_on(void *arg)
{
	struct writer *w = arg;
	uint64_t last = 0;

	for (unsigned i = 0; i < 12; i++) {
		size_t skip = i * 977 + w->ino % 7, len = MiB(2) - skip;

		w->ino += 10;
		rig_write_next(w->rig, w->ino, last, w->p + skip, len, 100000 + i * 77777);
		if (last != 0)
			rig_drop(w->rig, last);
		rig_check_bytes(w->rig, w->ino, w->p + skip, len);
		last = w->ino;
	}
	return NULL;
}

static void *collect_on(void *arg)
{
	struct writer *w = arg;

	while (!*w->stop)
		rig_collect(w->rig, &(struct gc_conf){ .delete = true, .move_below = 60, .place = true });
	return NULL;
}

static void champions_are_given_up_while_a_collection_runs(void **state)
{
	_cleanup_(freep) uint8_t *p = malloc(MiB(2));
	_Atomic bool stop = false;
	struct writer w[4];
	pthread_t t[4];
	struct rig *rig = *state;

	rig_pattern(p, MiB(2), 1);
	rig_close(rig);
	rig->conf.chunking = CHUNKING_AUTO;
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct writer){ rig, p, 101 + i, &stop };
		assert_int_equal(pthread_create(&t[i], NULL, i == 3 ? collect_on : write_on, &w[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	stop = true;
	assert_int_equal(pthread_join(t[3], NULL), 0);
	rig_fsck(rig);
	for (unsigned i = 0; i < 3; i++) {
		size_t skip = 11 * 977 + (w[i].ino - 10) % 7;

		rig_check_bytes(rig, w[i].ino, p + skip, MiB(2) - skip);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(champions_are_given_up_while_a_collection_runs),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
