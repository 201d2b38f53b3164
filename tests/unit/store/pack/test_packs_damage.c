/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/pack/pack_rig.h"

#include <pthread.h>

static void damage_of_any_byte_of_a_table_is_found(void **state)
{
	struct pack_frame_rec rec;
	struct pack_iter it;
	struct addr a;
	struct fp fp;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 2);
	rig_sync(&rig);
	for (uint32_t i = 0; i < PACK_BLOCK; i++) {
		flip_byte(&rig, 1, pack_table_off(0) + i);
		rig_reopen(&rig);
		if (i % 2)
			assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 1, &fp), -EBADMSG);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 2), -EBADMSG);
		it = pack_iter(rig.p, 0, 0);
		assert_int_equal(pack_iter_next(&it, &rec), 1);
		assert_true(rec.damaged);
		assert_int_equal(rec.nr_chunks, 0);
		assert_int_equal(pack_iter_next(&it, &rec), 0);
		flip_byte(&rig, 1, pack_table_off(0) + i);
	}
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 2), 0);
	rig_release(&rig);
}

static void damage_of_any_byte_of_a_header_is_found_and_harmless(void **state)
{
	enum pack_stream stream;
	struct pack_stats stats;
	struct addr a;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 2);
	rig_sync(&rig);
	for (uint32_t i = 0; i < PACK_BLOCK; i++) {
		flip_byte(&rig, 1, i);
		rig_reopen(&rig);
		assert_int_equal(packs_stream_of(rig.p, 1, &stream), -EBADMSG);
		packs_stats(rig.p, &stats);
		assert_int_equal(stats.nr_damaged, 1);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 2), 0);
		if (i == 0) /* nothing is added to it any more */
			assert_int_equal(rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 7, 1).pack, 2);
		flip_byte(&rig, 1, i);
	}
	rig_release(&rig);
}

static void damaged_data_is_found_and_repaired(void **state)
{
	static const uint32_t lens[] = { 4096, 65536, 1048576 };
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	for (size_t c = 0; c < ARRAY_SIZE(lens); c++) {
		uint32_t nr = PACK_FRAME_BYTES / lens[c], bad = nr / 3;
		struct addr a = rig_write_frame(&rig, PACK_BULK, lens[c], 50, nr);
		struct addr chunk = { .pack = a.pack, .off = a.off + bad * lens[c] };
		uint8_t *right = aligned_bytes(lens[c] + 8);
		struct pack_stats stats;

		flip_byte(&rig, a.pack, chunk.off + lens[c] - 1);
		assert_false(packs_is_damaged(rig.p, chunk));
		assert_int_equal(rig_check(&rig, a, lens[c], 50, nr), -EBADMSG);
		assert_true(packs_is_damaged(rig.p, chunk));
		assert_int_equal(packs_read(rig.p, chunk, 1, right), -EBADMSG);
		if (nr > 1) {
			assert_false(packs_is_damaged(rig.p, a));
			assert_int_equal(rig_check(&rig, a, lens[c], 50, bad), 0);
		}
		packs_stats(rig.p, &stats);
		assert_int_equal(stats.nr_damaged, 1);

		fill_chunk(right, 49, lens[c]);
		assert_int_equal(packs_repair_chunk(rig.p, chunk, right, lens[c]), -EINVAL); /* other bytes */
		fill_chunk(right + 8, 50 + bad, lens[c]); /* not aligned */
		assert_int_equal(packs_repair_chunk(rig.p, chunk, right + 8, lens[c] - 1), -EINVAL);
		assert_int_equal(packs_repair_chunk(rig.p, chunk, right + 8, lens[c]), 0);
		assert_false(packs_is_damaged(rig.p, chunk));
		assert_int_equal(rig_check(&rig, a, lens[c], 50, nr), 0);
		packs_stats(rig.p, &stats);
		assert_int_equal(stats.nr_damaged, 0);
		assert_int_equal(stats.nr_repaired, c + 1);
		free(right);
	}
	rig_sync(&rig);
	rig_release(&rig);
}

static void a_cut_or_missing_pack_is_damage(void **state)
{
	static const uint32_t sizes[] = { 0, 100, 4096, 5000, 8192, 8192 + 100, 3 * 4096, 8192 + 255 * 4096 };
	struct pack_frame_rec rec;
	struct pack_iter it;
	struct fp fp;
	struct addr a;
	struct rig rig;

	(void)state;
	for (size_t i = 0; i <= ARRAY_SIZE(sizes); i++) {
		rig_init(&rig, (struct packs_conf){ .pack_bytes = PACK_FRAME_BYTES, .table_memory = MiB(1) });
		a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
		rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256); /* so that it is not the one to go on in */
		rig_sync(&rig);
		if (i < ARRAY_SIZE(sizes)) {
			int fd = openat(rig.dirfd, pack_name(1).s, O_RDWR | O_CLOEXEC);

			assert_int_equal(ftruncate(fd, sizes[i]), 0);
			close(fd);
		} else {
			assert_int_equal(unlinkat(rig.dirfd, pack_name(1).s, 0), 0);
		}
		rig_reopen(&rig);
		assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), -EBADMSG);
		if (i < ARRAY_SIZE(sizes) && sizes[i] == 8192 + 255 * 4096)
			assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 255), 0);
		packs_fps(rig.p, a, PACK_BLOCK, 1, &fp);
		it = pack_iter(rig.p, 2, 0);
		assert_int_equal(pack_iter_next(&it, &rec), 1);
		assert_int_equal(rec.pack, 2);
		rig_release(&rig);
	}
}

static void a_store_goes_on_when_its_last_pack_is_missing(void **state)
{
	struct addr a, b;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 1);
	rig_sync(&rig);
	assert_int_equal(unlinkat(rig.dirfd, pack_name(1).s, 0), 0);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 1), -EBADMSG);
	b = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 1);
	assert_int_equal(b.pack, 2);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 2, 1);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, b, PACK_BLOCK, 0, 1), 0);
	rig_release(&rig);
}

/* Fails the call of number `at` of the kinds in `ops`, once or from then on. */
struct failing {
	unsigned ops;
	unsigned at, seen;
	bool for_good;
	int result; /* < 0: errno; > 0: a write cut to so many bytes, then ENOSPC */
};

static int fail_before(void *userdata, const struct io_event *ev)
{
	struct failing *f = userdata;

	if (!(f->ops & 1u << ev->op))
		return 0;
	f->seen++;
	if (f->seen != f->at && !(f->for_good && f->seen > f->at))
		return 0;
	if (f->result > 0 && ev->op != IO_WRITE)
		return -ENOSPC;
	return f->result;
}

static void a_disk_error_is_eio_and_not_damage(void **state)
{
	struct failing failing = { .ops = 1u << IO_READ, .at = 1, .for_good = true, .result = -EIO };
	struct io_hook hook = { .before = fail_before, .userdata = &failing };
	struct addr a;
	struct fp fp;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	rig_reopen(&rig);
	io_set_hook(&hook);
	assert_int_equal(packs_fps(rig.p, a, PACK_BLOCK, 1, &fp), -EIO);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), -EIO);
	io_set_hook(NULL);
	assert_false(packs_is_damaged(rig.p, a));
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);
	rig_release(&rig);
}

static void a_failed_frame_can_be_written_again(void **state)
{
	struct failing failing = { .ops = 1u << IO_WRITE, .at = 1, .result = 3 * PACK_BLOCK };
	struct io_hook hook = { .before = fail_before, .userdata = &failing };
	struct pack_marks marks;
	struct pack_frame *f;
	struct addr a;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_SMALL, PACK_BLOCK, 5, 100, &a, &memory);
	io_set_hook(&hook);
	assert_int_equal(packs_frame_write(rig.p, f), -ENOSPC);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 5, 100), 0); /* from memory */
	assert_int_equal(packs_sync(rig.p, &marks), -ENOSPC);
	assert_int_equal(packs_frame_write(rig.p, f), 0);
	io_set_hook(NULL);
	assert_int_equal(packs_wait(rig.p, a), 0);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_SMALL], 1, 1);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 5, 100), 0);
	free(memory);
	rig_release(&rig);
}

static void a_half_written_frame_leaves_nothing_behind(void **state)
{
	struct failing failing = { .ops = 1u << IO_WRITE, .at = 1, .result = 3 * PACK_BLOCK };
	struct io_hook hook = { .before = fail_before, .userdata = &failing };
	struct pack_frame_rec rec;
	struct pack_iter it;
	struct pack_frame *f;
	struct addr a;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 5, 100, &a, &memory);
	io_set_hook(&hook);
	assert_int_equal(packs_frame_write(rig.p, f), -ENOSPC);
	io_set_hook(NULL);
	packs_frame_abandon(rig.p, f);
	free(memory);
	assert_int_equal(packs_wait(rig.p, a), -ENOSPC);
	rig_sync(&rig);
	assert_int_equal(pack_stat(&rig, 1).st_blocks * 512, PACK_BLOCK);
	for (unsigned reopened = 0; reopened < 2; reopened++) {
		it = pack_iter(rig.p, 0, 0);
		assert_int_equal(pack_iter_next(&it, &rec), 0);
		rig_reopen(&rig);
	}
	rig_release(&rig);
}

static void no_marks_cover_a_place_that_could_not_be_wiped(void **state)
{
	struct failing failing = {
		.ops = 1u << IO_WRITE | 1u << IO_PUNCH, .at = 1, .for_good = true, .result = 3 * PACK_BLOCK
	};
	struct io_hook hook = { .before = fail_before, .userdata = &failing };
	struct pack_frame_rec rec;
	struct pack_marks marks;
	struct pack_frame *f;
	struct pack_iter it;
	struct addr a;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 5, 100, &a, &memory);
	io_set_hook(&hook);
	assert_int_equal(packs_frame_write(rig.p, f), -ENOSPC); /* the table is there and two chunks */
	failing.result = -EIO;
	packs_frame_abandon(rig.p, f);
	free(memory);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	io_set_hook(NULL);
	rig_sync(&rig);
	assert_mark(rig.marks.stream[PACK_BULK], 1, 1);
	rig_reopen(&rig);
	it = pack_iter(rig.p, 0, 0);
	assert_int_equal(pack_iter_next(&it, &rec), 0);
	rig_release(&rig);
}

struct waiting {
	struct packs *p;
	struct addr a;
	int result;
};

static void *wait_thread(void *arg)
{
	struct waiting *w = arg;

	w->result = packs_wait(w->p, w->a);
	return NULL;
}

static void a_thread_that_waits_for_a_frame_receives_its_failure(void **state)
{
	struct failing failing = { .ops = 1u << IO_WRITE, .at = 1, .result = -EIO };
	struct io_hook hook = { .before = fail_before, .userdata = &failing };
	struct waiting waiting = { .result = 1 };
	struct pack_frame *f;
	pthread_t thread;
	void *memory;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	f = rig_fill_frame(&rig, PACK_BULK, PACK_BLOCK, 5, 100, &waiting.a, &memory);
	waiting.p = rig.p;
	io_set_hook(&hook);
	assert_int_equal(pthread_create(&thread, NULL, wait_thread, &waiting), 0);
	usleep(20000);
	assert_int_equal(packs_frame_write(rig.p, f), -EIO);
	pthread_join(thread, NULL);
	io_set_hook(NULL);
	assert_int_equal(waiting.result, -EIO);
	packs_frame_abandon(rig.p, f);
	free(memory);
	rig_release(&rig);
}

static int refuse_direct(void *userdata, const struct io_event *ev)
{
	struct failing *f = userdata;

	if (ev->op == IO_OPEN && ev->flags & O_DIRECT)
		return -EINVAL;
	return fail_before(f, ev);
}

static void a_filesystem_without_direct_io_is_used_and_reported(void **state)
{
	struct failing failing = { .ops = 1u << IO_SYNC, .at = 2, .result = -EIO };
	struct io_hook hook = { .before = refuse_direct, .userdata = &failing };
	struct pack_marks marks;
	struct pack_stats stats;
	struct addr a, b;
	struct rig rig;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	packs_stats(rig.p, &stats);
	assert_true(stats.direct_io);
	io_set_hook(&hook);
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	packs_stats(rig.p, &stats);
	assert_false(stats.direct_io);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);

	/* The page cache takes what it could not write for clean: the next sync is of no use unless it is written again. */
	b = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1, 256);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	failing = (struct failing){ .ops = 1u << IO_WRITE };
	rig_sync(&rig);
	assert_true(failing.seen > 0);
	io_set_hook(NULL);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);
	assert_int_equal(rig_check(&rig, b, PACK_BLOCK, 1, 256), 0);
	rig_release(&rig);
}

/* A drive: `sync_nr`, counted from 1, fails, and with it goes what is in some pack from `drop_off` on, if not 0. */
struct drive {
	struct rig *rig;
	unsigned sync_nr, nr_syncs;
	uint32_t drop_pack;
	off_t drop_off;
	unsigned nr_writes; /* after it failed */
};

static int drive_before(void *userdata, const struct io_event *ev)
{
	static const uint8_t nothing[PACK_BLOCK * PACK_FRAME_STRIDE];
	struct drive *d = userdata;

	d->nr_writes += ev->op == IO_WRITE && d->nr_syncs >= d->sync_nr;
	if (ev->op != IO_SYNC || ++d->nr_syncs != d->sync_nr)
		return 0;
	if (d->drop_off > 0) {
		char path[128];
		int fd;

		snprintf(path, sizeof(path), "%s/%s", d->rig->dir, pack_name(d->drop_pack).s);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(pwrite(fd, nothing, sizeof(nothing), d->drop_off), sizeof(nothing));
		close(fd);
	}
	return -EIO;
}

static void after_a_failed_sync_everything_is_written_again(void **state)
{
	struct rig rig;
	struct drive drive = { .rig = &rig, .sync_nr = 1 };
	struct io_hook hook = { .before = drive_before, .userdata = &drive };
	struct pack_marks marks;
	struct addr a, b, c;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
	rig_sync(&rig);
	b = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1000, 200);
	c = rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 2000, 10);
	io_set_hook(&hook);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	assert_int_equal(drive.nr_syncs, 2); /* that of the other pack succeeded, and is worth nothing */
	drive.nr_writes = 0;
	rig_sync(&rig);
	assert_int_equal(drive.nr_syncs, 4);
	assert_true(drive.nr_writes >= 3); /* two frames and the header of the new pack, but not what was durable */
	drive.nr_writes = 0;
	rig_sync(&rig);
	assert_int_equal(drive.nr_writes, 0);
	io_set_hook(NULL);
	rig_reopen(&rig);
	assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);
	assert_int_equal(rig_check(&rig, b, PACK_BLOCK, 1000, 200), 0);
	assert_int_equal(rig_check(&rig, c, PACK_BLOCK, 2000, 10), 0);
	rig_release(&rig);
}

/* Whichever pack has lost something, and whichever sync failed, another file's included. */
static void no_sync_succeeds_once_a_frame_is_lost(void **state)
{
	(void)state;
	for (uint32_t pack = 1; pack <= 2; pack++)
		for (unsigned sync_nr = 1; sync_nr <= 3; sync_nr++) {
			struct rig rig;
			struct drive drive = { .rig = &rig, .sync_nr = sync_nr, .drop_pack = pack };
			struct io_hook hook = { .before = drive_before, .userdata = &drive };
			struct pack_marks marks;
			struct addr a;

			rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
			a = rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 256);
			rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 500, 10);
			rig_sync(&rig);
			rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1000, 200);
			rig_write_frame(&rig, PACK_SMALL, PACK_BLOCK, 2000, 10);
			drive.drop_off = pack_table_off(1);
			io_set_hook(&hook);
			if (sync_nr == 3) /* as of the journal */
				assert_int_equal(io_sync(rig.dirfd) + io_sync(rig.dirfd) + io_sync(rig.dirfd), -EIO);
			for (int i = 0; i < 3; i++)
				assert_int_equal(packs_sync(rig.p, &marks), -EIO);
			io_set_hook(NULL);
			assert_int_equal(packs_sync(rig.p, &marks), -EIO);
			rig_reopen(&rig);
			assert_int_equal(rig_check(&rig, a, PACK_BLOCK, 0, 256), 0);
			rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1000, 200);
			rig_sync(&rig);
			rig_release(&rig);
		}
}

/* An older frame of the same place is intact, and not what was written. */
static void a_frame_of_an_earlier_life_does_not_pass_for_a_lost_one(void **state)
{
	struct drive drive = { .sync_nr = 1 };
	struct io_hook hook = { .before = drive_before, .userdata = &drive };
	static uint8_t old[PACK_BLOCK * PACK_FRAME_STRIDE];
	struct pack_marks marks, at_first;
	struct rig rig;
	char path[128];
	int fd;

	(void)state;
	rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 0, 1);
	rig_sync(&rig);
	at_first = rig.marks;
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 1000, 256);
	rig_sync(&rig);
	snprintf(path, sizeof(path), "%s/%s", rig.dir, pack_name(1).s);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(pread(fd, old, sizeof(old), pack_table_off(1)) > (ssize_t)PACK_BLOCK);
	rig.marks = at_first;
	rig_reopen(&rig);
	rig_write_frame(&rig, PACK_BULK, PACK_BLOCK, 5000, 256);
	io_set_hook(&hook);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	io_set_hook(NULL);
	assert_int_equal(pwrite(fd, old, sizeof(old), pack_table_off(1)), sizeof(old));
	close(fd);
	assert_int_equal(packs_sync(rig.p, &marks), -EIO);
	rig_release(&rig);
}

/* What the load below has been promised. */
struct promised {
	struct addr addr[64];
	uint64_t number[64];
	uint32_t nr[64];
	unsigned count;
	struct pack_marks marks;
};

static void load_frame(struct rig *rig, enum pack_stream s, uint64_t number, uint32_t nr, struct promised *new)
{
	uint8_t *memory = aligned_bytes(nr * PACK_BLOCK);
	struct addr first = ADDR_NONE;
	struct pack_frame *f;

	if (packs_frame_open(rig->p, s, PACK_BLOCK, &f) < 0) {
		free(memory);
		return;
	}
	for (uint32_t i = 0; i < nr; i++) {
		uint8_t *chunk = memory + i * PACK_BLOCK;
		struct addr a;

		fill_chunk(chunk, number + i, PACK_BLOCK);
		a = pack_frame_add(f, fp_of(&rig->key, chunk, PACK_BLOCK), chunk);
		first = i == 0 ? a : first;
	}
	if (packs_frame_write(rig->p, f) == 0 || (s == PACK_SMALL && packs_frame_write(rig->p, f) == 0)) {
		new->addr[new->count] = first;
		new->number[new->count] = number;
		new->nr[new->count++] = nr;
	} else {
		packs_frame_abandon(rig->p, f);
	}
	free(memory);
}

/* Writes, reads and syncs, whatever fails. Afterwards `promised` has what the last successful sync covered. */
static void load(struct rig *rig, struct promised *promised)
{
	struct promised new = { .marks = rig->marks };

	*promised = new;
	for (unsigned i = 0; i < 9; i++) {
		load_frame(rig, PACK_BULK, i * 1000, 8 + i, &new);
		if (i % 2)
			load_frame(rig, PACK_SMALL, 500 + i * 1000, 3, &new);
		for (unsigned j = i % 4; j < new.count; j += 4) {
			int r = rig_check(rig, new.addr[j], PACK_BLOCK, new.number[j], new.nr[j]);

			assert_true(r == 0 || r == -EIO || r == -ENOSPC);
		}
		if (i % 3 == 2 && packs_sync(rig->p, &new.marks) == 0)
			*promised = new;
	}
}

/* Marks told are true, nothing after them is seen, no table stands for bytes that are not there. */
static void check_promised(struct rig *rig, const struct promised *promised)
{
	struct pack_counts counts = { 0 };
	struct pack_frame_rec rec;
	struct pack_iter it;

	for (unsigned i = 0; i < promised->count; i++)
		assert_int_equal(
			rig_check(rig, promised->addr[i], PACK_BLOCK, promised->number[i], promised->nr[i]), 0);
	it = pack_iter(rig->p, 0, 0);
	while (pack_iter_next(&it, &rec) > 0) {
		uint8_t *memory = aligned_bytes(PACK_FRAME_BYTES);

		assert_false(rec.damaged);
		assert_int_equal(packs_read(rig->p, rec.first, rec.nr_chunks * rec.chunk_len, memory), 0);
		counts.nr_frames++;
		counts.nr_chunks += rec.nr_chunks;
		counts.chunk_bytes += rec.nr_chunks * rec.chunk_len;
		free(memory);
	}
	assert_int_equal(counts.nr_frames, promised->count);
	assert_counts(promised->marks.counts, counts);
}

static void whatever_call_fails_what_was_synced_is_there(void **state)
{
	static const struct {
		int result;
		bool for_good;
	} kinds[] = {
		{ -EIO, false }, { -ENOSPC, false }, { 2 * PACK_BLOCK, false }, { 5 * PACK_BLOCK, true }, { -EIO, true }
	};
	unsigned nr_points = 0;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		for (unsigned at = 1;; at++) {
			struct failing failing = {
				.ops = ~0u, .at = at, .for_good = kinds[k].for_good, .result = kinds[k].result
			};
			struct io_hook hook = { .before = fail_before, .userdata = &failing };
			struct promised promised;
			struct rig rig;

			rig_init(&rig, (struct packs_conf){ .pack_bytes = 25 * PACK_BLOCK });
			io_set_hook(&hook);
			load(&rig, &promised);
			io_set_hook(NULL);
			if (failing.seen < at) {
				rig_release(&rig);
				break;
			}
			nr_points++;
			rig.marks = promised.marks;
			rig_reopen(&rig);
			check_promised(&rig, &promised);
			load_frame(&rig, PACK_BULK, 1, 5, &promised); /* and it goes on */
			rig_sync(&rig);
			promised.marks = rig.marks;
			rig_reopen(&rig);
			check_promised(&rig, &promised);
			rig_release(&rig);
			if (kinds[k].for_good)
				at += 6; /* every call is met by the others */
		}
	assert_true(nr_points > 150);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(damage_of_any_byte_of_a_table_is_found),
		cmocka_unit_test(damage_of_any_byte_of_a_header_is_found_and_harmless),
		cmocka_unit_test(a_store_goes_on_when_its_last_pack_is_missing),
		cmocka_unit_test(a_disk_error_is_eio_and_not_damage),
		cmocka_unit_test(a_failed_frame_can_be_written_again),
		cmocka_unit_test(a_half_written_frame_leaves_nothing_behind),
		cmocka_unit_test(no_marks_cover_a_place_that_could_not_be_wiped),
		cmocka_unit_test(a_thread_that_waits_for_a_frame_receives_its_failure),
		cmocka_unit_test(a_filesystem_without_direct_io_is_used_and_reported),
		cmocka_unit_test(after_a_failed_sync_everything_is_written_again),
		cmocka_unit_test(no_sync_succeeds_once_a_frame_is_lost),
		cmocka_unit_test(a_frame_of_an_earlier_life_does_not_pass_for_a_lost_one),
		cmocka_unit_test(whatever_call_fails_what_was_synced_is_there),
	}, of_exact_places[] = {
		cmocka_unit_test(damaged_data_is_found_and_repaired),
		cmocka_unit_test(a_cut_or_missing_pack_is_damage),
	};
	int r;

	log_set_level(LOG_LEVEL_ERROR);
	r = cmocka_run_group_tests_name("packs_damage", tests, NULL, NULL) +
	    cmocka_run_group_tests_name("packs_damage, places", of_exact_places, NULL, NULL);
	rig_compression.kind = PACK_COMPRESS_LZ4;
	return r + cmocka_run_group_tests_name("packs_damage, lz4", tests, NULL, NULL);
}
