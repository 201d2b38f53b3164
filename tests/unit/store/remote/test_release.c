/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Two stores of a cluster: a member, and the collector, which is to have its chunks. These may be coded there, moved
 * and collected, and the member reads every byte, whenever either of them crashes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/util.h"
#include "store/remote/cluster_calls.h"
#include "store/engine_state.h"
#include "tests/content_sync.h"
#include "tests/unit/store/rig.h"
#include "tests/unit/place.h"

#define LEN (MiB(3) + 1000u)
#define INO 100u /* of the member's file, and of the collector's copy of it */
#define PIECES 2000u

enum { MEMBER, COLLECTOR, NR };

struct world {
	struct rig *rig[NR];
	char keyfile[64];
	struct cluster_calls calls[NR];
	unsigned refuses; /* 1 more: of so many chunks the collector does not pin one */
	bool is_remote; /* the collector */
	unsigned nr_asked;
};

static bool is_there(void *world)
{
	(void)world;
	return false;
}

static int fetch(void *world, struct cluster_want *wants, size_t nr)
{
	struct world *w = world;

	return w->is_remote ? -ENOTCONN : engine_cluster_chunks(w->rig[COLLECTOR]->e, wants, nr);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	uint8_t key[32] = { 7 };
	int fd;

	snprintf(w->keyfile, sizeof(w->keyfile), "/tmp/ckptfs-unit-key-XXXXXX");
	fd = mkstemp(w->keyfile);
	if (fd < 0 || write(fd, key, sizeof(key)) != sizeof(key))
		return -1;
	close(fd);
	for (unsigned i = 0; i < NR; i++) {
		struct rig *rig = w->rig[i] = calloc(1, sizeof(*rig));

		w->calls[i] = (struct cluster_calls){ .userdata = w, .is_there = is_there, .fetch = fetch };
		snprintf(rig->path, sizeof(rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
		if (!mkdtemp(rig->path))
			return -1;
		rig->conf = (struct engine_conf){
			.page = 4096,
			.cache = MiB(16),
			.dirty = MiB(16),
			.pack_bytes = MiB(4),
			.cluster = w->keyfile,
			.cluster_calls = &w->calls[i],
		};
		rig_open(rig);
	}
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < NR; i++) {
		void *rig = w->rig[i];

		rig_teardown(&rig);
	}
	unlink(w->keyfile);
	free(w);
	return 0;
}

/* --- what they have, and do --- */

/* A field of doubles that can be coded; the last digits are noise. */
static uint8_t *field(unsigned seed)
{
	uint8_t *p = rig_bytes(LEN, seed);

	for (size_t i = 0; i < LEN / 8; i++) {
		double t = (double)((i + 300 * seed) % 20000) / 20000, x = 2 + t * (1 - t);
		uint64_t bits;

		memcpy(&bits, &x, 8);
		bits ^= (i * 2654435761u ^ seed) & 0xffffff;
		memcpy(p + 8 * i, &bits, 8);
	}
	return p;
}

static void write_field(struct rig *rig, uint64_t ino, unsigned seed)
{
	uint8_t *p = field(seed);

	rig_write_bytes(rig, ino, p, LEN);
	assert_int_equal(engine_sync(rig->e), 0);
	free(p);
}

static void check_field(struct rig *rig, uint64_t ino, unsigned seed)
{
	uint8_t *p = field(seed);

	rig_check_bytes(rig, ino, p, LEN);
	free(p);
}

/* As a PUT with bytes and a REPLICATE: the gatherer has all of the member's file, pinned, and a replica. */
static void hand_over(struct world *w, uint64_t ino)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	size_t nr = rig_pieces(w->rig[MEMBER], ino, p, PIECES);
	struct cluster_chunk *chunks = calloc(nr, sizeof(*chunks));
	struct content *c = rig_content(w->rig[COLLECTOR], ino);
	struct cluster_node member = { .name = "member" };

	for (size_t i = 0; i < nr; i++) {
		void *bytes = malloc(p[i].chunk_len);

		assert_int_equal(engine_cluster_chunk(w->rig[MEMBER]->e, p[i].fp, p[i].chunk_len, bytes), 1);
		chunks[i] = (struct cluster_chunk){ p[i].fp, p[i].chunk_len, bytes };
	}
	assert_int_equal(engine_cluster_keep(w->rig[COLLECTOR]->e, chunks, nr), 0);
	memcpy(member.id, engine_store_id(w->rig[MEMBER]->e), CLUSTER_ID_LEN);
	assert_int_equal(engine_cluster_refer(w->rig[COLLECTOR]->e, &(struct cluster_run){ c, 0, nr }, 1, p, &member), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	for (size_t i = 0; i < nr; i++)
		free((void *)chunks[i].data);
	free(chunks);
	free(p);
}

static int pin(void *world, const struct cluster_want *chunks, size_t nr, bool *has)
{
	struct world *w = world;

	w->nr_asked += (unsigned)nr;
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(engine_cluster_pin(w->rig[COLLECTOR]->e, &chunks[i].fp, 1, &has[i]), 0);
		if (w->refuses > 0 && i % w->refuses == 0)
			has[i] = false;
	}
	return 0;
}

static struct cluster_node collector_of(const struct world *w)
{
	struct cluster_node n = { .name = "collector" };

	memcpy(n.id, engine_store_id(w->rig[COLLECTOR]->e), CLUSTER_ID_LEN);
	return n;
}

static int write_deferred(struct world *w, uint64_t ino, struct cluster_released *sums)
{
	struct cluster_node collector = collector_of(w);
	struct cluster_takers takers = { .nodes = &collector, .nr = 1, .pin = pin, .userdata = w };
	struct content *c = rig_content(w->rig[MEMBER], ino);
	int r = engine_cluster_release(c, &takers, sums);

	content_close(c);
	return r;
}

static uint64_t compact(struct rig *rig, const uint64_t *inos, unsigned nr)
{
	struct compact_extent x[4];
	struct compact_variable v = {
		.key = "field", .shape = { .type = { CODE_FLOAT, 8, false } }, .extent = x, .nr_extents = nr
	};
	struct compact_result result;
	struct compact_conf conf = { .inos = inos, .variable = &v, .nr_variables = 1, .result = &result, .block = KiB(64) };
	struct compact_report report;

	for (unsigned i = 0; i < nr; i++)
		x[i] = (struct compact_extent){ i, 0, LEN };
	assert_int_equal(engine_compact(rig->e, &conf, &report), 0);
	return result.coded;
}

static void collect(struct rig *rig)
{
	rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 90, .place = true });
}

static void check_sound(struct world *w)
{
	for (unsigned i = 0; i < NR; i++)
		rig_fsck(w->rig[i]);
}

/* --- */

static void what_the_collector_has_goes_and_is_read_from_there(void **state)
{
	struct world *w = *state;
	struct cluster_released sums = { 0 };
	struct cluster_node collector;
	uint64_t before;

	write_field(w->rig[MEMBER], INO, 1);
	before = rig_stats(w->rig[MEMBER]).pack_disk;
	hand_over(w, INO);
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(sums.bytes, round_up(LEN, 4096));
	assert_int_equal(sums.nr_refused, 0);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, 1, before / 20); /* tables stay */
	assert_int_equal(rig_stats(w->rig[MEMBER]).remote_bytes, sums.bytes);
	check_field(w->rig[MEMBER], INO, 1);
	rig_crash(w->rig[MEMBER]);
	rig_crash(w->rig[COLLECTOR]);
	check_field(w->rig[MEMBER], INO, 1);
	check_sound(w);
	check_field(w->rig[MEMBER], INO, 1);
	/* a second time there is nothing to be done, and no node is asked */
	w->nr_asked = 0;
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(w->nr_asked, 0);
	/* it is known here by what it is: the same once more costs nothing, and comes from there */
	collector = collector_of(w);
	engine_cluster_present(w->rig[MEMBER]->e, &collector, 1);
	write_field(w->rig[MEMBER], INO + 1, 1);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, 1, before / 20);
	rig_drop(w->rig[MEMBER], INO);
	collect(w->rig[MEMBER]);
	check_field(w->rig[MEMBER], INO + 1, 1);
	rig_drop(w->rig[MEMBER], INO + 1);
	collect(w->rig[MEMBER]);
	assert_int_equal(rig_stats(w->rig[MEMBER]).remote_bytes, 0);
	check_sound(w);
}

static void what_it_does_not_pin_stays(void **state)
{
	struct world *w = *state;
	struct cluster_released sums = { 0 };
	uint64_t left;

	write_field(w->rig[MEMBER], INO, 1);
	hand_over(w, INO);
	w->refuses = 3;
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	left = round_up(LEN, 4096) - sums.bytes;
	assert_int_equal(sums.nr_refused * 4096, left);
	assert_in_range(left, LEN / 4, LEN / 2);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, left, left + MiB(1));
	rig_crash(w->rig[MEMBER]);
	check_field(w->rig[MEMBER], INO, 1);
	check_sound(w);
	w->refuses = 0;
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(sums.bytes, round_up(LEN, 4096));
	check_field(w->rig[MEMBER], INO, 1);
}

static void what_peers_have_from_here_stays(void **state)
{
	struct world *w = *state;
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct cluster_released sums = { 0 };
	size_t nr;
	bool pinned;

	write_field(w->rig[MEMBER], INO, 1);
	hand_over(w, INO);
	nr = rig_pieces(w->rig[MEMBER], INO, p, PIECES);
	assert_int_equal(engine_cluster_pin(w->rig[MEMBER]->e, &p[nr / 2].fp, 1, &pinned), 0);
	assert_true(pinned);
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(sums.bytes, round_up(LEN, 4096) - 4096);
	w->is_remote = true;
	for (size_t i = 0; i < nr; i++) {
		uint8_t page[4096];

		assert_int_equal(engine_cluster_chunk(w->rig[MEMBER]->e, p[i].fp, p[i].chunk_len, page), i == nr / 2);
	}
	w->is_remote = false;
	check_field(w->rig[MEMBER], INO, 1);
	free(p);
}

/* Frames that are coded have parts, which go when nothing of them is left. */
static void what_is_coded_goes_as_well(void **state)
{
	struct world *w = *state;
	struct cluster_released sums = { 0 };
	uint64_t inos[] = { INO };

	write_field(w->rig[MEMBER], INO, 1);
	assert_in_range(compact(w->rig[MEMBER], inos, 1), MiB(2), LEN + 4096);
	hand_over(w, INO);
	w->refuses = 400;
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_in_range(sums.nr_refused, 1, 3);
	rig_crash(w->rig[MEMBER]);
	check_field(w->rig[MEMBER], INO, 1);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, 1, KiB(400));
	check_sound(w);
	w->refuses = 0;
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, 1, KiB(64));
	check_field(w->rig[MEMBER], INO, 1);
	check_sound(w);
}

static void what_is_pinned_stays_so_when_it_is_coded(void **state)
{
	struct world *w = *state;
	struct cluster_released sums = { 0 };
	uint64_t inos[] = { INO, INO + 1 }, pinned, disk;

	write_field(w->rig[MEMBER], INO, 1);
	write_field(w->rig[COLLECTOR], INO + 1, 2); /* its own, which is coded with the other */
	hand_over(w, INO);
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	pinned = rig_stats(w->rig[COLLECTOR]).pinned_bytes;
	disk = rig_stats(w->rig[COLLECTOR]).pack_disk;
	assert_int_equal(pinned, round_up(LEN, 4096));
	assert_in_range(compact(w->rig[COLLECTOR], inos, 2), MiB(5), 2 * LEN + 8192);
	assert_int_equal(rig_stats(w->rig[COLLECTOR]).pinned_bytes, pinned);
	assert_in_range(rig_stats(w->rig[COLLECTOR]).pack_disk, 1, disk * 8 / 10);
	check_field(w->rig[MEMBER], INO, 1);
	/* No file here refers to it any more; the member does. */
	rig_drop(w->rig[COLLECTOR], INO);
	collect(w->rig[COLLECTOR]);
	rig_crash(w->rig[COLLECTOR]);
	collect(w->rig[COLLECTOR]);
	assert_int_equal(rig_stats(w->rig[COLLECTOR]).pinned_bytes, pinned);
	check_field(w->rig[MEMBER], INO, 1);
	check_field(w->rig[COLLECTOR], INO + 1, 2);
	check_sound(w);
	check_field(w->rig[MEMBER], INO, 1);
}

static void nothing_goes_while_nodes_collect_together(void **state)
{
	struct world *w = *state;
	struct cluster_window window = { .number = 0, .nr = 1, .seed = 3 };
	uint8_t *filter = calloc(1, MiB(1)), *ours = calloc(1, MiB(1));
	struct cluster_released sums = { 0 };
	struct cluster_unpinned unpinned;

	write_field(w->rig[MEMBER], INO, 1);
	hand_over(w, INO);
	/* The member has marked: what it comes to refer to now would be dropped. */
	assert_int_equal(engine_cluster_mark(w->rig[MEMBER]->e, &window, filter, MiB(1)), 0);
	assert_int_equal(write_deferred(w, INO, &sums), -EAGAIN);
	assert_int_equal(sums.chunks, 0);
	/* The member is through, the collector is not: it pins nothing. */
	assert_int_equal(engine_cluster_mark(w->rig[COLLECTOR]->e, &window, filter, MiB(1)), 0);
	assert_int_equal(engine_cluster_unpin(w->rig[MEMBER]->e, &window, filter, MiB(1), &unpinned), 0);
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(sums.chunks, 0);
	assert_true(sums.nr_refused > 0);
	/* No node referred to it, so it was unpinned; from now on it is pinned again. */
	assert_int_equal(engine_cluster_unpin(w->rig[COLLECTOR]->e, &window, filter, MiB(1), &unpinned), 0);
	assert_int_equal(unpinned.dropped_bytes, round_up(LEN, 4096));
	sums = (struct cluster_released){ 0 };
	assert_int_equal(write_deferred(w, INO, &sums), 0);
	assert_int_equal(sums.bytes, round_up(LEN, 4096));
	/* And stays, since the member marks it. */
	window.seed++;
	assert_int_equal(engine_cluster_mark(w->rig[MEMBER]->e, &window, ours, MiB(1)), 0);
	assert_int_equal(engine_cluster_mark(w->rig[COLLECTOR]->e, &window, ours, MiB(1)), 0);
	assert_int_equal(engine_cluster_unpin(w->rig[MEMBER]->e, &window, ours, MiB(1), &unpinned), 0);
	assert_int_equal(engine_cluster_unpin(w->rig[COLLECTOR]->e, &window, ours, MiB(1), &unpinned), 0);
	assert_int_equal(unpinned.nr_dropped, 0);
	rig_drop(w->rig[COLLECTOR], INO);
	collect(w->rig[COLLECTOR]);
	check_field(w->rig[MEMBER], INO, 1);
	free(filter);
	free(ours);
}

/* --- crashes --- */

static struct rig *crashes; /* a copy of it is made before the event that this counts down to */
static atomic_int nr_left;

static int copy_then(void *userdata, const struct io_event *ev)
{
	(void)userdata;
	if (ev->op != IO_READ && atomic_fetch_sub(&nr_left, 1) == 1)
		rig_copy_as_it_is(crashes);
	return 0;
}

static const struct io_hook hook = { .before = copy_then };

static void a_crash_while_it_goes_loses_nothing(void **state)
{
	struct world *w = *state;
	unsigned n = 0;

	crashes = w->rig[MEMBER];
	for (bool crashed = true; crashed; n++) {
		struct cluster_released sums = { 0 };

		write_field(w->rig[MEMBER], INO + n, n);
		hand_over(w, INO + n);
		atomic_store(&nr_left, (int)(1 + n * n)); /* first one by one: what matters comes early */
		io_set_hook(&hook);
		assert_int_equal(write_deferred(w, INO + n, &sums), 0);
		io_set_hook(NULL);
		crashed = atomic_load(&nr_left) <= 0;
		if (crashed) {
			rig_close_to_copy(w->rig[MEMBER]);
			rig_open(w->rig[MEMBER]);
		}
		check_field(w->rig[MEMBER], INO + n, n);
		assert_int_equal(write_deferred(w, INO + n, &sums), 0);
		check_field(w->rig[MEMBER], INO + n, n);
		rig_drop(w->rig[COLLECTOR], INO + n); /* what is pinned stays */
	}
	assert_in_range(n, 3, 1000);
	collect(w->rig[COLLECTOR]);
	assert_in_range(rig_stats(w->rig[MEMBER]).pack_disk, 1, n * KiB(64));
	for (unsigned i = 0; i < n; i++)
		check_field(w->rig[MEMBER], INO + i, i);
	check_sound(w);
}

static void a_crash_while_it_is_coded_loses_nothing(void **state)
{
	struct world *w = *state;
	unsigned n = 0;

	crashes = w->rig[COLLECTOR];
	for (bool crashed = true; crashed; n++) {
		struct cluster_released sums = { 0 };
		uint64_t ino = INO + n;

		write_field(w->rig[MEMBER], ino, n);
		hand_over(w, ino);
		assert_int_equal(write_deferred(w, ino, &sums), 0);
		atomic_store(&nr_left, (int)(1 + 2 * n));
		io_set_hook(&hook);
		compact(w->rig[COLLECTOR], &ino, 1);
		io_set_hook(NULL);
		crashed = atomic_load(&nr_left) <= 0;
		if (crashed) {
			rig_close_to_copy(w->rig[COLLECTOR]);
			rig_open(w->rig[COLLECTOR]);
		}
		rig_drop(w->rig[COLLECTOR], ino);
		collect(w->rig[COLLECTOR]);
		check_field(w->rig[MEMBER], ino, n);
		assert_int_equal(rig_stats(w->rig[COLLECTOR]).pinned_bytes, (n + 1) * round_up(LEN, 4096));
	}
	assert_in_range(n, 5, 1000);
	for (unsigned i = 0; i < n; i++)
		check_field(w->rig[MEMBER], INO + i, i);
	check_sound(w);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(what_the_collector_has_goes_and_is_read_from_there),
		world_test(what_it_does_not_pin_stays),
		world_test(what_peers_have_from_here_stays),
		world_test(what_is_coded_goes_as_well),
		world_test(what_is_pinned_stays_so_when_it_is_coded),
		world_test(nothing_goes_while_nodes_collect_together),
		world_test(a_crash_while_it_goes_loses_nothing),
		world_test(a_crash_while_it_is_coded_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
