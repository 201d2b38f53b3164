/* A disk that has no room, and then has some again: what was refused is not held against those who come later. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/util.h"
#include "store/engine/engine_internal.h"
#include "tests/unit/engine/rig.h"

#define SMALL_PART KiB(256) /* not enough for a frame of its own */
#define MANY (4 * NR_UNWRITTEN_MAX * (PACK_FRAME_BYTES / SMALL_PART)) /* more than is kept in memory */

static bool is_of_pack(const struct io_event *ev)
{
	char link[32], path[RIG_PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", ev->fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[MAX(n, 0)] = 0;
	return strstr(path, "/packs/");
}

struct disk {
	struct rig *rig;
	atomic_bool full;
	atomic_bool sync_is_due; /* as soon as a frame was refused, before it is given up */
	pthread_t id;
	int synced;
};

static void *sync_meanwhile(void *arg)
{
	struct disk *d = arg;

	d->synced = engine_sync(d->rig->e);
	return NULL;
}

static int refuse(void *userdata, const struct io_event *ev)
{
	struct disk *d = userdata;

	if (ev->op == IO_WRITE && d->full && is_of_pack(ev))
		return -ENOSPC;
	if (ev->op == IO_READ && is_of_pack(ev) && atomic_exchange(&d->sync_is_due, false)) {
		d->full = false;
		assert_int_equal(pthread_create(&d->id, NULL, sync_meanwhile, d), 0);
		nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000000 }, NULL); /* if it fails, it fails by then */
	}
	return 0;
}

static void set_hook(struct rig *rig, const struct io_hook *hook)
{
	rig_close(rig);
	io_set_hook(hook);
	rig_open(rig);
}

static void begin(struct disk *d, struct rig *rig)
{
	d->rig = rig;
	set_hook(d->rig, &(struct io_hook){ .before = refuse, .userdata = d });
	rig_write(d->rig, 1, SMALL_PART, 1); /* there are packs for either */
	rig_write(d->rig, 2, PACK_FRAME_BYTES, 2);
	assert_int_equal(engine_sync(d->rig->e), 0);
}

static int write_file(struct rig *rig, uint64_t ino, size_t len)
{
	struct content *c = rig_content(rig, ino);
	uint8_t *p = rig_bytes(len, ino);
	int r = content_write(c, p, len, 0), flushed = content_flush(c);

	content_close(c);
	free(p);
	return r < 0 ? r : flushed;
}

static void room_that_is_there_again_is_used_at_once(void **state)
{
	static struct disk d;
	int r = 0;

	begin(&d, *state);
	d.full = true;
	for (unsigned i = 0; i < MANY && r == 0; i++)
		r = write_file(d.rig, 100 + i, SMALL_PART);
	assert_int_equal(r, -ENOSPC);
	d.full = false;
	assert_int_equal(write_file(d.rig, 50, SMALL_PART), 0);
	assert_int_equal(engine_sync(d.rig->e), 0);
	rig_crash(d.rig);
	rig_check(d.rig, 50, SMALL_PART, 50);
	rig_check(d.rig, 100, SMALL_PART, 100); /* which was told to be there */
	set_hook(d.rig, NULL);
}

static void who_commits_does_not_hear_what_another_was_refused(void **state)
{
	static struct disk d;

	begin(&d, *state);
	rig_name(d.rig, "name", 77);
	d.full = d.sync_is_due = true;
	assert_int_equal(write_file(d.rig, 50, PACK_FRAME_BYTES), -ENOSPC);
	assert_false(d.sync_is_due);
	pthread_join(d.id, NULL);
	assert_int_equal(d.synced, 0);
	rig_crash(d.rig);
	assert_int_equal(rig_find(d.rig, "name"), 77);
	set_hook(d.rig, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(room_that_is_there_again_is_used_at_once),
		rig_test(who_commits_does_not_hear_what_another_was_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
