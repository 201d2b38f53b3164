/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The round of a commit fails here, at any write and without memory from then on: the commit fails, and the next one,
 * when writes and memory are available again, has everything. Data that arrived between the two is not missing either.
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
#include "store/engine_state.h"
#include "store/remote/remote.h"
#include "tests/unit/store/world.h"

/* --- what fails --- */

static const char *failing; /* the path of a store */
static _Atomic int nr_before; /* writes there until one fails; -1: none does */
static _Atomic bool has_failed, without_memory;

static int before(void *userdata _unused_, const struct io_event *ev)
{
	char link[32], path[RIG_PATH_MAX];
	ssize_t len;

	if (ev->op != IO_WRITE || atomic_load(&nr_before) < 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", ev->fd);
	len = readlink(link, path, sizeof(path));
	if (len < (ssize_t)strlen(failing) || memcmp(path, failing, strlen(failing)) != 0)
		return 0;
	if (atomic_fetch_sub(&nr_before, 1) > 0)
		return 0;
	atomic_store(&has_failed, true);
	atomic_store(&without_memory, true);
	return -EIO;
}

static void fail_after(struct world *w, int nr)
{
	failing = w->nodes[0].rig->path;
	atomic_store(&has_failed, false);
	atomic_store(&nr_before, nr);
}

static bool end_of_failures(void)
{
	atomic_store(&nr_before, -1);
	atomic_store(&without_memory, false);
	return atomic_load(&has_failed);
}

/* The linker has the engine call these (tests/meson.build). Not all of its memory: only what keeps frames. */
void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__real_reallocarray(void *p, size_t nr, size_t len);
void *__wrap_reallocarray(void *p, size_t nr, size_t len);

void *__wrap_malloc(size_t len)
{
	return len == sizeof(struct unsettled) && atomic_load(&without_memory) ? NULL : __real_malloc(len);
}

void *__wrap_reallocarray(void *p, size_t nr, size_t len)
{
	bool is_refused = len == sizeof(struct pack_frame *) && atomic_load(&without_memory);

	return is_refused ? NULL : __real_reallocarray(p, nr, len);
}

/* --- rounds of one node --- */

#define APART 90u /* one write for the chunks between two remote ones */
#define LEN (MiB(1) + 65536) /* a frame that is full, and one that is not */

/* Node 1 has some of it, pinned. */
static int decide(void *node, const struct fp *offer _unused_, size_t nr, struct cluster_decision *ret)
{
	struct world *w = ((struct world_node *)node)->w;

	*ret = (struct cluster_decision){ .nr_nodes = NODES };
	ret->nodes = calloc(NODES, sizeof(*ret->nodes));
	ret->owners = calloc(nr + 1, sizeof(*ret->owners));
	for (unsigned i = 0; i < NODES; i++)
		memcpy(ret->nodes[i].id, engine_store_id(w->nodes[i].rig->e), CLUSTER_ID_LEN);
	for (size_t i = 0; i < nr; i += APART)
		ret->owners[ret->nr++] =
			(struct cluster_owners){ .index = (uint32_t)i, .nr = 1, .owners = { 1 }, .has = 1 };
	return 0;
}

static int nothing_is_decided(void *node _unused_, const struct fp *offer _unused_, size_t nr _unused_,
			      struct cluster_decision *ret _unused_)
{
	return -ETIMEDOUT;
}

static int all_have_stored(void *node _unused_, const struct cluster_decision *d, int stored _unused_, bool *has_stored)
{
	for (unsigned i = 0; has_stored && i < d->nr_nodes; i++)
		has_stored[i] = true;
	return 0;
}

static int no_node_receives(void *node _unused_, const struct cluster_decision *d _unused_, int stored _unused_,
			bool *has_stored _unused_)
{
	return -ETIMEDOUT;
}

static void pin_file(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct fp *fps = calloc(PIECES, sizeof(*fps));
	bool *pinned = calloc(PIECES, sizeof(*pinned));
	size_t nr;

	rig_write(rig, ino, len, seed);
	assert_int_equal(engine_sync(rig->e), 0);
	nr = rig_pieces(rig, ino, p, PIECES);
	for (size_t i = 0; i < nr; i++)
		fps[i] = p[i].fp;
	assert_int_equal(engine_cluster_pin(rig->e, fps, nr, pinned), 0);
	for (size_t i = 0; i < nr; i++)
		assert_true(pinned[i]);
	free(pinned);
	free(fps);
	free(p);
}

/* A file for each write of a commit, which fails at that. */
static void fail_each_write(struct world *w, size_t len)
{
	struct rig *rig = w->nodes[0].rig;
	bool failed = true;

	for (unsigned i = 0; failed; i++) {
		uint64_t ino = 10 + i;

		w->open = false;
		pin_file(w->nodes[1].rig, ino, len, ino);
		w->open = true;
		rig_write(rig, ino, len, ino);
		fail_after(w, (int)i);
		world_commit(w, 1);
		failed = end_of_failures();
		assert_int_equal(w->nodes[0].result, failed ? -EIO : 0);
		world_commit(w, 1);
		assert_int_equal(w->nodes[0].result, 0);
		rig_check(rig, ino, len, ino);
		rig_crash(rig);
		world_present(w, 0);
		rig_check(rig, ino, len, ino);
		assert_true(failed || i > 1); /* frames, and the journal */
	}
	w->open = false;
	rig_fsck(rig);
}

static void what_fails_before_it_is_remote_is_in_the_next_commit(void **state)
{
	struct world *w = *state;

	w->calls[0].decide = decide;
	w->calls[0].settle = all_have_stored;
	fail_each_write(w, LEN);
	assert_true(engine_cluster_nr_referred(w->nodes[0].rig->e) > 0);
}

static void what_fails_when_it_is_written_after_all_is_in_the_next_commit(void **state)
{
	struct world *w = *state;

	w->calls[0].decide = decide;
	w->calls[0].settle = no_node_receives;
	w->nr_remote = NODES;
	fail_each_write(w, LEN);
	assert_int_equal(engine_cluster_nr_referred(w->nodes[0].rig->e), 0);
}

static void what_fails_without_a_round_is_in_the_next_commit(void **state)
{
	struct world *w = *state;

	w->calls[0].decide = nothing_is_decided;
	w->nr_remote = NODES;
	fail_each_write(w, 65536);
}

int main(void)
{
	static const struct io_hook hook = { .before = before };
	const struct CMUnitTest tests[] = {
		world_test(what_fails_before_it_is_remote_is_in_the_next_commit),
		world_test(what_fails_when_it_is_written_after_all_is_in_the_next_commit),
		world_test(what_fails_without_a_round_is_in_the_next_commit),
	};

	atomic_store(&nr_before, -1);
	io_set_hook(&hook);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
