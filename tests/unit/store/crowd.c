/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/crowd.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"

#define NR_WRITERS 3u
#define LEN MiB(2)

struct thread {
	struct crowd_writer w;
	void (*write)(struct crowd_writer *w);
	pthread_t id;
};

struct collector {
	struct rig *rig;
	const struct gc_conf *conf;
	_Atomic bool stop;
	pthread_t id;
};

void crowd_next(struct crowd_writer *w, unsigned i)
{
	size_t skip = i * 977 + w->ino % 7;

	w->ino += 10;
	w->p = w->all + skip;
	w->len = LEN - skip;
}

static void *write_on(void *arg)
{
	struct thread *t = arg;

	t->write(&t->w);
	return NULL;
}

static void *collect_on(void *arg)
{
	struct collector *c = arg;

	while (!c->stop)
		rig_collect(c->rig, c->conf);
	return NULL;
}

void crowd_run(struct rig *rig, void (*write)(struct crowd_writer *w), const struct gc_conf *conf)
{
	_cleanup_(freep) uint8_t *all = rig_bytes(LEN, 1);
	struct collector c = { .rig = rig, .conf = conf };
	struct thread t[NR_WRITERS];

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (unsigned i = 0; i < NR_WRITERS; i++) {
		t[i] = (struct thread){ .w = { .rig = rig, .ino = 101 + i, .all = all }, .write = write };
		assert_int_equal(pthread_create(&t[i].id, NULL, write_on, &t[i]), 0);
	}
	assert_int_equal(pthread_create(&c.id, NULL, collect_on, &c), 0);
	for (unsigned i = 0; i < NR_WRITERS; i++)
		assert_int_equal(pthread_join(t[i].id, NULL), 0);
	c.stop = true;
	assert_int_equal(pthread_join(c.id, NULL), 0);
	rig_fsck(rig);
	for (unsigned i = 0; i < NR_WRITERS; i++)
		rig_check_bytes(rig, t[i].w.ino, t[i].w.p, t[i].w.len);
}
