/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A disk without room, and with room again: refused requests have no effect on later ones. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"
#include "tests/unit/store/rig.h"

#define SMALL_PART KiB(256) /* not enough for a frame of its own */
#define MANY (4 * NR_UNWRITTEN_MAX * (PACK_FRAME_BYTES / SMALL_PART)) /* more than is kept in memory */

static bool may_mount; /* in a namespace of our own, which goes with us */

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
	atomic_bool sync_is_due; /* as soon as a frame was refused, before it is dropped */
	pthread_t id;
	int synced;
	atomic_bool slow;
	atomic_uint nr_refused;
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

	if (ev->op == IO_WRITE && d->slow && is_of_pack(ev))
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
	if (ev->op == IO_WRITE && d->full && is_of_pack(ev))
		return -ENOSPC;
	if (ev->op == IO_READ && is_of_pack(ev) && atomic_exchange(&d->sync_is_due, false)) {
		d->full = false;
		assert_int_equal(pthread_create(&d->id, NULL, sync_meanwhile, d), 0);
		nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000000 }, NULL); /* if it fails, it fails by then */
	}
	return 0;
}

static void count_refused(void *userdata, const struct io_event *ev, int64_t result)
{
	struct disk *d = userdata;

	if (ev->op == IO_WRITE && result < (int64_t)ev->len)
		d->nr_refused++;
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
	set_hook(d->rig, &(struct io_hook){ .before = refuse, .after = count_refused, .userdata = d });
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

static void a_commit_does_not_fail_for_a_refused_write_of_another(void **state)
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

static void what_is_on_its_way_has_room(void **state)
{
	static struct disk d;
	struct rig *rig = *state;
	struct content *c;
	uint8_t *p = rig_bytes(PACK_FRAME_BYTES, 3);
	uint64_t off = 0;
	int r = 0;

	rig_close(rig);
	if (!may_mount || mount("test_engine", rig->path, "tmpfs", 0, "size=48m") < 0) {
		free(p);
		rig_open(rig);
		skip();
	}
	rig_open(rig);
	begin(&d, rig);
	d.slow = true; /* more is written than has arrived */
	c = rig_content(rig, 3);
	for (; off < MiB(64) && r == 0; off += PACK_FRAME_BYTES) {
		rig_pattern(p, PACK_FRAME_BYTES, 3 + off);
		r = content_write(c, p, PACK_FRAME_BYTES, off);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(content_flush(c), 0); /* nothing that was taken is lost */
	assert_int_equal(d.nr_refused, 0);
	content_close(c);
	free(p);
	set_hook(rig, NULL);
	rig_close(rig);
	assert_int_equal(umount(rig->path), 0);
	rig_open(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(room_that_is_there_again_is_used_at_once),
		rig_test(a_commit_does_not_fail_for_a_refused_write_of_another),
		rig_test(what_is_on_its_way_has_room),
	};

	may_mount = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
