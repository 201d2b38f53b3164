/* Scrubbing: exactly what is damaged is found, files are named, what is written again is sound again, whatever goes on meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/scrub.h"
#include "store/pack/pack_format.h"
#include "tests/unit/engine/rig.h"

#define LEN MiB(2)
#define PAGE 4096u

/* 0, or the errno of reading all of it. */
static int look(struct rig *rig, uint64_t ino, size_t len)
{
	_cleanup_(freep) uint8_t *p = malloc(len);
	struct content *c = rig_content(rig, ino);
	ssize_t n = content_read(c, p, len, 0);

	content_close(c);
	return n < 0 ? (int)n : 0;
}

/* --- damage --- */

static int open_pack(struct rig *rig, uint32_t pack, int flags)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/packs/%08" PRIx32 ".pack", rig->path, pack);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void flip(struct rig *rig, uint32_t pack, uint64_t off)
{
	int fd = open_pack(rig, pack, O_RDWR);
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

static bool read_table(struct rig *rig, uint32_t pack, uint32_t frame, struct pack_table *ret)
{
	static struct pack_table_disk d;
	int fd = open_pack(rig, pack, O_RDONLY);
	ssize_t n = pread(fd, &d, sizeof(d), pack_table_off(frame));

	close(fd);
	return n == (ssize_t)sizeof(d) && pack_table_decode(&d, sizeof(d), engine_key(rig->e), pack, frame, ret) == 0;
}

static void damage_chunk(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t i)
{
	static struct pack_table t;
	struct pack_cuts cuts;

	assert_true(read_table(rig, pack, frame, &t));
	assert_int_equal(t.coding.codec, PACK_CODEC_NONE);
	assert_true(i < t.nr_chunks);
	cuts = pack_table_cuts(&t);
	flip(rig, pack, pack_data_off(frame) + pack_cut_start(&cuts, i) + pack_cut_len(&cuts, i) / 2);
}

/* Chunks that lie in the part. */
static uint32_t damage_part(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t part)
{
	static const uint8_t noise[64] = "what a broken disk may give instead of what was written there";
	static struct pack_table t;
	struct pack_cuts cuts;
	uint32_t nr = 0;
	int fd;

	assert_true(read_table(rig, pack, frame, &t));
	assert_int_not_equal(t.coding.codec, PACK_CODEC_NONE);
	fd = open_pack(rig, pack, O_RDWR);
	assert_int_equal(pwrite(fd, noise, sizeof(noise),
				pack_data_off(frame) + (pack_part_start(&t.coding, part) + t.coding.part_end[part]) / 2),
			 sizeof(noise));
	assert_int_equal(fsync(fd), 0);
	close(fd);
	cuts = pack_table_cuts(&t);
	for (uint32_t i = 0; i < t.nr_chunks; i++)
		nr += pack_cut_end(&cuts, i) > part * PACK_PART_BYTES && pack_cut_start(&cuts, i) < (part + 1) * PACK_PART_BYTES;
	return nr;
}

/* --- what is told --- */

struct told {
	char hits[16][160];
	unsigned nr;
};

static void on_hit(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len)
{
	struct told *t = userdata;

	assert_true(t->nr < ARRAY_SIZE(t->hits));
	snprintf(t->hits[t->nr++], sizeof(t->hits[0]), "%s %" PRIu64 " %" PRIu64 "+%" PRIu64, path ? path : "-", ino, off, len);
}

static bool was_told(const struct told *t, const char *hit)
{
	for (unsigned i = 0; i < t->nr; i++)
		if (strcmp(t->hits[i], hit) == 0)
			return true;
	return false;
}

static struct scrub_report scrub(struct rig *rig)
{
	return rig_scrub(rig, &(struct scrub_conf){ .restart = true });
}

static struct scrub_report scrub_and_tell(struct rig *rig, struct told *t)
{
	t->nr = 0;
	return rig_scrub(rig, &(struct scrub_conf){ .restart = true, .hit = on_hit, .userdata = t });
}

static struct gc_report collect(struct rig *rig, unsigned move_below)
{
	return rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = move_below });
}

/* --- tests --- */

static void everything_that_is_committed_is_looked_at_once(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct scrub_state st;

	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, 5 * PAGE, 2);
	rig_write(rig, 103, LEN, 1);
	rig_stats(rig);
	rig_write(rig, 104, 3 * PAGE, 3); /* not committed */
	rep = scrub(rig);
	assert_true(rep.complete);
	assert_int_equal(rep.bytes, LEN + 5 * PAGE);
	assert_int_equal(rep.nr_chunks, LEN / PAGE + 5);
	assert_int_equal(rep.read_bytes, rep.bytes + rep.nr_frames * PAGE);
	assert_int_equal(rep.nr_damaged + rep.nr_tables + rep.nr_left, 0);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.pack, 0);
	assert_true(st.last_ns > 0);
	assert_int_equal(st.last.bytes, rep.bytes);
	assert_int_equal(st.last.nr_damaged, 0);
	rig_reopen(rig);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.bytes, rep.bytes);
}

static void exactly_what_is_damaged_is_found_and_heals(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct told told;
	size_t len = MiB(1); /* one frame */

	rig_write(rig, 101, len, 1);
	rig_write(rig, 102, len, 1);
	rig_write(rig, 103, len, 2);
	rig_name(rig, "first", 101);
	rig_name(rig, "twin", 102);
	rig_name(rig, "other", 103);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 3);
	damage_chunk(rig, 1, 0, 4);
	damage_chunk(rig, 1, 0, 255);
	rep = scrub_and_tell(rig, &told);
	assert_int_equal(rep.nr_damaged, 3);
	assert_int_equal(rep.nr_left, 3);
	assert_int_equal(rep.nr_tables + rep.nr_mended + rep.nr_unused, 0);
	assert_int_equal(rep.nr_files, 2);
	assert_int_equal(rep.lost_bytes, 6 * PAGE);
	assert_true(rep.complete);
	assert_int_equal(told.nr, 4);
	assert_true(was_told(&told, "first 101 12288+8192"));
	assert_true(was_told(&told, "first 101 1044480+4096"));
	assert_true(was_told(&told, "twin 102 12288+8192"));
	assert_true(was_told(&told, "twin 102 1044480+4096"));
	assert_int_equal(rig_stats(rig).nr_damaged, 3);
	assert_int_equal(look(rig, 101, len), -EIO);
	assert_int_equal(look(rig, 103, len), 0);

	rig_write(rig, 110, len, 1); /* the same bytes again */
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_healed, 3);
	rep = scrub_and_tell(rig, &told);
	assert_int_equal(rep.nr_damaged + rep.nr_left + told.nr, 0);
	rig_check(rig, 101, len, 1);
	rig_check(rig, 102, len, 1);
}

static void what_no_file_uses_is_told_apart(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct told told;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_drop(rig, 101);
	damage_chunk(rig, 1, 0, 9);
	rep = scrub_and_tell(rig, &told);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_unused, 1);
	assert_int_equal(rep.nr_left + told.nr, 0);
	collect(rig, 0);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rep.bytes, 0);
}

static void chunks_of_varied_lengths_are_compared(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;

	rig_close(rig);
	rig->conf.chunking = CHUNKING_CDC;
	rig_open(rig);
	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rep = scrub(rig);
	assert_int_equal(rep.bytes, LEN);
	assert_int_equal(rep.nr_damaged, 0);
	damage_chunk(rig, 1, 0, 0);
	damage_chunk(rig, 1, 0, 50);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 2);
	assert_int_equal(rep.nr_left, 2);
	rig_write(rig, 102, LEN, 1);
	rig_stats(rig);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_healed, 2);
	rig_check(rig, 101, LEN, 1);
}

static void compressed_frames_are_compared(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	uint32_t nr;

	for (unsigned kind = COMPRESS_LZ4; kind <= COMPRESS_ZSTD; kind++)
		for (unsigned cut = CHUNKING_PAGE; cut <= CHUNKING_CDC; cut++) {
			rig_teardown(state);
			rig_setup(state);
			rig = *state;
			rig_close(rig);
			rig->conf.compress.kind = kind;
			rig->conf.chunking = cut;
			rig_open(rig);
			rig_write_soft(rig, 101, LEN, 1);
			rig_stats(rig);
			rep = scrub(rig);
			assert_int_equal(rep.bytes, LEN);
			assert_int_equal(rep.nr_damaged, 0);
			assert_true(rep.read_bytes < LEN * 9 / 10);
			nr = damage_part(rig, 1, 0, 3);
			rep = scrub(rig);
			assert_in_range(rep.nr_damaged, 1, nr);
			assert_int_equal(rep.nr_left, rep.nr_damaged);
			assert_int_equal(look(rig, 101, LEN), -EIO);
			rig_write_soft(rig, 102, LEN, 1);
			rig_wait_until_healed(rig, rep.nr_damaged);
			rig_stats(rig);
			rep = scrub(rig); /* the damaged copies are still there, and nobody's */
			assert_int_equal(rep.nr_damaged + rep.nr_left, 0);
			assert_int_equal(look(rig, 101, LEN), 0);
			rig_reopen(rig);
			rep = scrub(rig); /* finds the good copies, and forgets the others again */
			assert_int_equal(rep.nr_left + rep.nr_unused, 0);
			assert_int_equal(rep.nr_mended, rep.nr_damaged);
		}
}

/* Of a compressed chunk that has been replaced, the damaged copy is repaired on the disk; then the good copy gets damaged. */
static void a_second_copy_mends_at_once(void **state)
{
	struct rig *rig = *state;
	struct pack_table t;
	struct scrub_report rep;
	uint64_t off;
	uint8_t b;
	int fd;

	rig_close(rig);
	rig->conf.compress.kind = COMPRESS_LZ4;
	rig_open(rig);
	rig_write_soft(rig, 101, MiB(1), 1);
	rig_stats(rig);
	assert_true(read_table(rig, 1, 0, &t));
	off = pack_data_off(0) + (pack_part_start(&t.coding, 2) + t.coding.part_end[2]) / 2;
	fd = open_pack(rig, 1, O_RDWR);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	flip(rig, 1, off);
	rep = scrub(rig);
	assert_true(rep.nr_left > 0);
	rig_close(rig); /* copies in plain frames from now on */
	rig->conf.compress.kind = COMPRESS_NONE;
	rig_open(rig);
	scrub(rig);
	rig_write_soft(rig, 102, MiB(1), 1);
	rig_wait_until_healed(rig, rep.nr_left);
	rig_stats(rig);
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	rig_reopen(rig);
	assert_int_equal(scrub(rig).nr_damaged, 0); /* two good copies of some chunks */

	for (uint32_t pack = 2; pack < 4; pack++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/packs/%08" PRIx32 ".pack", rig->path, pack);
		if (access(path, F_OK) == 0 && read_table(rig, pack, 0, &t))
			damage_chunk(rig, pack, 0, 0);
	}
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_mended, 1);
	assert_int_equal(rep.nr_left + rep.nr_unused, 0);
	assert_int_equal(look(rig, 101, MiB(1)), 0);
	flip(rig, 1, off); /* and the other way round: what cannot be written over is replaced */
	rep = scrub(rig);
	assert_true(rep.nr_damaged > 0);
	assert_int_equal(rep.nr_mended, rep.nr_damaged);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	assert_int_equal(look(rig, 101, MiB(1)), 0);
	assert_int_equal(look(rig, 102, MiB(1)), 0);
}

static void damaged_tables_are_mended_where_they_can_be(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct told told;

	rig_write(rig, 101, LEN, 1);
	rig_name(rig, "file", 101);
	rig_stats(rig);
	flip(rig, 1, pack_table_off(0) + 300); /* memory has it */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_mended, 1);
	assert_int_equal(rep.nr_left + rep.nr_damaged, 0);
	assert_int_equal(rep.bytes, LEN);
	rig_reopen(rig);
	rig_check(rig, 101, LEN, 1);
	rig_reopen(rig);
	flip(rig, 1, pack_table_off(1) + 300); /* proved by the bytes */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_mended, 1);
	assert_int_equal(rep.bytes, LEN);
	rig_check(rig, 101, LEN, 1);
	rig_reopen(rig);
	for (unsigned i = 0; i < PAGE; i += 2)
		flip(rig, 1, pack_table_off(0) + i);
	rep = scrub_and_tell(rig, &told);
	assert_int_equal(rep.nr_tables, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_int_equal(told.nr, 1);
	assert_int_equal(rep.lost_bytes, MiB(1));
	flip(rig, 1, 100); /* of the header */
	rep = scrub(rig);
	assert_int_equal(rep.nr_tables, 2);
	assert_int_equal(rep.nr_mended, 1);
	assert_int_equal(rep.nr_left, 1);
}

static void a_lost_table_and_a_lost_pack_are_told(void **state)
{
	static const uint8_t zeros[PAGE];
	struct rig *rig = *state;
	struct scrub_report rep;
	struct told told;
	char path[128];
	int fd;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(1);
	rig_open(rig);
	for (uint64_t i = 1; i <= 4; i++) {
		rig_write(rig, 100 + i, MiB(1), i);
		rig_name(rig, (const char[]){ 'f', (char)('0' + i), 0 }, 100 + i);
		rig_stats(rig);
	}
	rig_reopen(rig);
	fd = open_pack(rig, 2, O_RDWR);
	assert_int_equal(pwrite(fd, zeros, PAGE, pack_table_off(0)), PAGE);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/packs/00000003.pack", rig->path);
	assert_int_equal(unlink(path), 0);
	rep = scrub_and_tell(rig, &told);
	assert_int_equal(rep.nr_tables, 2);
	assert_int_equal(rep.nr_left, 2);
	assert_int_equal(rep.nr_files, 2);
	assert_int_equal(rep.lost_bytes, MiB(2));
	assert_int_equal(told.nr, 2);
	assert_true(was_told(&told, "f2 102 0+1048576"));
	assert_true(was_told(&told, "f3 103 0+1048576"));
	rig_check(rig, 101, MiB(1), 1);
	rig_check(rig, 104, MiB(1), 4);
}

static uint64_t unreadable_off; /* 0: everything can be read */
static uint64_t unreadable_end;

static int refuse_reading(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	return ev->op == IO_READ && ev->off < unreadable_end && ev->off + ev->len > unreadable_off ? -EIO : 0;
}

static void a_block_that_the_disk_cannot_read_is_damage_to_its_chunk(void **state)
{
	static const struct io_hook hook = { .before = refuse_reading };
	struct rig *rig = *state;
	struct scrub_report rep;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	unreadable_off = pack_data_off(0) + 7 * PAGE;
	unreadable_end = unreadable_off + PAGE;
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_int_equal(rep.bytes, LEN);
	unreadable_end = 0; /* the disk has put another block in its place */
	assert_int_equal(rig_stats(rig).nr_damaged, 1);
	rig_write(rig, 102, LEN, 1);
	assert_int_equal(rig_stats(rig).nr_healed, 1);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

static void what_is_well_again_is_not_damaged_any_more(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 3);
	assert_int_equal(scrub(rig).nr_damaged, 1);
	damage_chunk(rig, 1, 0, 3); /* back */
	assert_int_equal(scrub(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_healed, 0);
}

static bool stop_after(void *userdata, const struct scrub_report *so_far)
{
	unsigned *frames = userdata;

	return so_far->nr_frames < *frames;
}

static void a_stopped_scrub_is_gone_on_with(void **state)
{
	struct rig *rig = *state;
	struct scrub_report rep;
	struct scrub_state st;
	unsigned frames = 3;
	uint64_t bytes = 0;
	struct scrub_conf conf = { .step = stop_after, .userdata = &frames };

	rig_write(rig, 101, 4 * LEN, 1);
	rig_stats(rig);
	do {
		rep = rig_scrub(rig, &conf);
		bytes += rep.bytes;
		assert_int_equal(rep.round_bytes, bytes);
		assert_true(rep.complete || rep.nr_frames == frames);
		assert_int_equal(engine_sync(rig->e), 0);
		rig_crash(rig);
	} while (!rep.complete);
	assert_int_equal(bytes, 4 * LEN);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.bytes, 4 * LEN);

	damage_chunk(rig, 1, 1, 5); /* stopped before its files were looked for: it is met again */
	rep = rig_scrub(rig, &conf);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.nr_left, 1);
	assert_false(rep.is_named);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.pack, 1);
	assert_int_equal(st.frame, 1);
	frames = 100;
	rep = rig_scrub(rig, &conf);
	assert_true(rep.complete && rep.is_named);
	assert_int_equal(rep.nr_damaged, 1);
	assert_int_equal(rep.bytes, 3 * LEN + LEN / 2);
	engine_scrub_state(rig->e, &st);
	assert_int_equal(st.last.nr_damaged, 1);
	assert_int_equal(st.last.nr_left, 1);
	assert_int_equal(st.last.bytes, 4 * LEN);
}

static bool scrub_inside(void *userdata, const struct scrub_report *so_far)
{
	struct scrub_report report;

	(void)so_far;
	assert_int_equal(engine_scrub(userdata, &(struct scrub_conf){ 0 }, &report), -EBUSY);
	return true;
}

static void one_scrub_at_a_time(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	rig_scrub(rig, &(struct scrub_conf){ .step = scrub_inside, .userdata = rig->e });
}

static void the_note_comes_back_and_nothing_else_passes_for_one(void **state)
{
	struct scrub_state st = { 7, 299, { 1, UINT64_MAX, 3, 4 }, 1763212345123456789, { 5, 6, 7, 8 } }, got;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	scrub_state_encode(&st, &b);
	assert_int_equal(scrub_state_decode(b.data, b.len, &got), 0);
	assert_memory_equal(&got.round, &st.round, sizeof(st.round));
	assert_memory_equal(&got.last, &st.last, sizeof(st.last));
	assert_int_equal(got.pack, st.pack);
	assert_int_equal(got.frame, st.frame);
	assert_int_equal(got.last_ns, st.last_ns);
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(scrub_state_decode(b.data, len, &got), -EBADMSG);
	b.data[0]++;
	assert_int_equal(scrub_state_decode(b.data, b.len, &got), -EBADMSG);
}

/* --- everybody at once --- */

#define NR_WRITERS 2u
#define NR_ROUNDS 25u

struct writer {
	struct rig *rig;
	unsigned number;
	pthread_t thread;
};

static _Atomic bool all_written;

static void *write_and_drop(void *arg)
{
	struct writer *w = arg;

	for (uint64_t ino = 1000 * (w->number + 1), end = ino + NR_ROUNDS; ino < end; ino++) {
		if (ino % 2)
			rig_write(w->rig, ino, MiB(1) + 20 * PAGE, ino % 7);
		else
			rig_write_soft(w->rig, ino, MiB(1) + 20 * PAGE, ino % 7);
		assert_int_equal(engine_sync(w->rig->e), 0);
		if (ino % 5)
			rig_drop(w->rig, ino);
	}
	return NULL;
}

static void *collect_on(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = 0; !all_written; i++)
		collect(w->rig, i % 2 ? 90 : 0);
	return NULL;
}

/* However much is written, given back, moved and removed meanwhile, what is damaged is found each time, and nothing else. */
static void scrub_beside_others(struct rig *rig, uint64_t nr_damaged)
{
	struct writer w[NR_WRITERS + 1];

	all_written = false;
	for (unsigned i = 0; i <= NR_WRITERS; i++) {
		w[i] = (struct writer){ .rig = rig, .number = i };
		assert_int_equal(pthread_create(&w[i].thread, NULL, i < NR_WRITERS ? write_and_drop : collect_on, &w[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) {
		struct scrub_report rep = scrub(rig);

		assert_int_equal(rep.nr_damaged, nr_damaged);
		assert_int_equal(rep.nr_left, nr_damaged);
		assert_int_equal(rep.nr_tables, 0);
	}
	for (unsigned i = 0; i < NR_WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	all_written = true;
	pthread_join(w[NR_WRITERS].thread, NULL);
	assert_int_equal(scrub(rig).nr_damaged, nr_damaged);
	assert_int_equal(rig_stats(rig).nr_damaged, nr_damaged);
}

static void make_small_packs(struct rig *rig)
{
	rig_close(rig);
	rig->conf.pack_bytes = MiB(3);
	rig->conf.ingest_entries = 2048;
	rig->conf.compress.kind = COMPRESS_LZ4;
	rig_open(rig);
}

static void sound_data_is_never_taken_for_damaged(void **state)
{
	struct rig *rig = *state;

	make_small_packs(rig);
	scrub_beside_others(rig, 0);
}

static void damage_is_found_beside_writers_and_collections(void **state)
{
	struct rig *rig = *state;

	make_small_packs(rig);
	rig_write(rig, 50, MiB(1), 12345);
	rig_stats(rig);
	damage_chunk(rig, 1, 0, 7);
	damage_chunk(rig, 1, 0, 200);
	scrub_beside_others(rig, 2);
	rig_write(rig, 51, MiB(1), 12345);
	rig_stats(rig);
	assert_int_equal(scrub(rig).nr_damaged, 0);
	rig_check(rig, 50, MiB(1), 12345);
}

static void *heal_on(void *arg)
{
	struct writer *w = arg;

	for (uint64_t ino = 5000; !all_written; ino++)
		rig_write(w->rig, ino, LEN, 1);
	return NULL;
}

/* Somebody writes over what is damaged while it is being looked at: in the end nothing is damaged, and nothing is said to be. */
static void healing_beside_a_scrub_leaves_no_damage(void **state)
{
	struct rig *rig = *state;
	struct writer w = { .rig = rig };
	struct scrub_report rep;

	rig_write(rig, 101, LEN, 1);
	rig_stats(rig);
	all_written = false;
	assert_int_equal(pthread_create(&w.thread, NULL, heal_on, &w), 0);
	for (uint32_t i = 0; i < 40; i++) {
		damage_chunk(rig, 1, i % 2, i);
		scrub(rig);
	}
	all_written = true;
	pthread_join(w.thread, NULL);
	rig_write(rig, 102, LEN, 1);
	rep = scrub(rig);
	assert_int_equal(rep.nr_damaged, 0);
	assert_int_equal(rig_stats(rig).nr_damaged, 0);
	rig_check(rig, 101, LEN, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(everything_that_is_committed_is_looked_at_once, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(exactly_what_is_damaged_is_found_and_heals, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(what_no_file_uses_is_told_apart, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(chunks_of_varied_lengths_are_compared, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(compressed_frames_are_compared, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(a_second_copy_mends_at_once, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(damaged_tables_are_mended_where_they_can_be, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(a_lost_table_and_a_lost_pack_are_told, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(a_block_that_the_disk_cannot_read_is_damage_to_its_chunk, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(what_is_well_again_is_not_damaged_any_more, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(a_stopped_scrub_is_gone_on_with, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(one_scrub_at_a_time, rig_setup, rig_teardown),
		cmocka_unit_test(the_note_comes_back_and_nothing_else_passes_for_one),
		cmocka_unit_test_setup_teardown(sound_data_is_never_taken_for_damaged, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(damage_is_found_beside_writers_and_collections, rig_setup, rig_teardown),
		cmocka_unit_test_setup_teardown(healing_beside_a_scrub_leaves_no_damage, rig_setup, rig_teardown),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("scrub", tests, NULL, NULL);
}
