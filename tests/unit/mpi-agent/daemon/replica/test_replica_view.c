/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The node directory view beside replicas: cached replicas of what is looked at, and those that are kept. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/nodes/answers.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "mpi-agent/daemon/nodes/peer_list.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "tests/unit/mpi-agent/daemon/replica/replica_pair.h"

static uint64_t copy_in_state(struct replica_pair *w, enum ns_replica_state state)
{
	struct ns_replica c;
	uint64_t top = 0;

	while (nodes_next(w->fs[HERE], top, &top, &c) > 0)
		if (c.state == state)
			return top;
	return 0;
}

static int take_as(struct replica_pair *w, enum ns_replica_state state)
{
	w->s.cached = state == NS_REPLICA_CACHED;
	return pair_take(w);
}

static uint64_t nr_inodes(struct replica_pair *w)
{
	uint64_t next, nr = 0;
	struct ns_inode in;

	pair_wait_for_reaper(w);
	assert_int_equal(engine_new_number(w->fs[HERE]->engine, &next), 0);
	for (uint64_t ino = NS_ROOT_INO + 1; ino < next; ino++)
		nr += ns_get_inode(w->fs[HERE]->db, ino, &in) > 0;
	return nr;
}

static void what_is_kept_stays_when_a_reader_looks(void **state)
{
	struct replica_pair *w = *state;
	uint64_t kept, nr;
	struct ns_replica c;

	assert_int_equal(take_as(w, NS_REPLICA_KEPT), 0);
	kept = pair_replica(w, &c);
	nr = nr_inodes(w);
	assert_int_equal(take_as(w, NS_REPLICA_CACHED), -EEXIST);
	assert_int_equal(pair_replica(w, &c), kept);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(pair_nr_notes(w), 1);
	assert_int_equal(nr_inodes(w), nr);
	pair_expect_whole(w);

	/* Another seal than the one that is kept can be looked at beside it, ... */
	pair_seal_again(w, "added");
	assert_int_equal(take_as(w, NS_REPLICA_CACHED), 0);
	assert_int_equal(copy_in_state(w, NS_REPLICA_KEPT), kept);
	pair_look_up(w->fs[HERE], copy_in_state(w, NS_REPLICA_CACHED), "added");
	assert_int_equal(nodes_drop_replica(w->fs[HERE], copy_in_state(w, NS_REPLICA_CACHED)), 0);
	assert_int_equal(pair_replica(w, &c), kept);
	assert_int_equal(nr_inodes(w), nr);

	/* until that is kept. */
	assert_int_equal(take_as(w, NS_REPLICA_CACHED), 0);
	assert_int_equal(take_as(w, NS_REPLICA_KEPT), 0);
	pair_replica(w, &c);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(pair_nr_notes(w), 1);
	assert_int_equal(nr_inodes(w), nr + 1);
	pair_expect_whole(w);
}

static void what_its_node_drops_goes_with_what_was_looked_at(void **state)
{
	struct replica_pair *w = *state;

	assert_int_equal(take_as(w, NS_REPLICA_KEPT), 0);
	pair_seal_again(w, "added");
	assert_int_equal(take_as(w, NS_REPLICA_CACHED), 0);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0);
	pair_expect_nothing(w);
}

/* He has the directory, and comes to its files one after the other. */
static void a_reader_in_a_replica_goes_on_when_it_is_kept(void **state)
{
	struct replica_pair *w = *state;
	uint64_t looked_at;
	struct ns_replica c;
	struct inode *i;

	assert_int_equal(take_as(w, NS_REPLICA_CACHED), 0);
	looked_at = pair_replica(w, &c);
	assert_int_equal(inode_get(w->fs[HERE]->inodes, looked_at, &i), 0);
	assert_int_equal(take_as(w, NS_REPLICA_KEPT), 0);
	pair_expect_bytes(w, pair_look_up(w->fs[HERE], looked_at, "twin"), 0);
	assert_int_equal(view_trim(w->fs[HERE]->view), 0);
	pair_expect_bytes(w, pair_look_up(w->fs[HERE], looked_at, "sparse"), SPARSE);
	names_put(w->fs[HERE], i);
	assert_int_equal(view_trim(w->fs[HERE]->view), 1); /* though its node does not take part */
	pair_replica(w, &c);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	pair_expect_whole(w);
}

/* The pair with a connected other node, and what happens there, or here, before it has sent the last part. */
static struct asked {
	struct replica_pair *w; /* NULL: none */
	struct answers *answers;
	enum question_kind kind;
	void (*before)(struct replica_pair *w); /* once */
	bool is_silent; /* it does not answer in time, ... */
	unsigned nr; /* of so many questions */
} asked;

int __wrap_cluster_nodes(struct cluster *c, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
int __wrap_cluster_ask(struct cluster *c, const uint8_t *id, const void *question, size_t len, struct buf *ret);

int __wrap_cluster_nodes(struct cluster *c _unused_, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self)
{
	*ret = asked.w ? malloc(2 * sizeof(**ret)) : NULL;
	*ret_nr = asked.w ? 2 : 0;
	*ret_self = 0;
	if (asked.w) {
		(*ret)[0] = (struct cluster_node){ .name = "here" };
		memcpy((*ret)[0].id, engine_store_id(asked.w->fs[HERE]->engine), CLUSTER_ID_LEN);
		(*ret)[1] = asked.w->owner;
	}
	return 0;
}

int __wrap_cluster_ask(struct cluster *c _unused_, const uint8_t *id, const void *question, size_t len, struct buf *ret)
{
	struct question q;

	asked.nr++;
	if (asked.is_silent)
		return -ETIMEDOUT;
	assert_int_equal(question_decode(question, len, &q), 0);
	assert_memory_equal(id, asked.w->owner.id, CLUSTER_ID_LEN);
	if (asked.before && q.kind == asked.kind) {
		void (*before)(struct replica_pair * w) = asked.before;

		asked.before = NULL;
		before(asked.w);
	}
	return answers_give(asked.answers, question, len, ret);
}

static int look(struct replica_pair *w, enum question_kind kind, void (*before)(struct replica_pair *w), uint64_t *ret_top)
{
	char path[] = "job/step";
	struct peer_list_seal s = { .ino = w->s.ino, .sealed_ns = w->s.sealed_ns, .name = "other", .path = path };
	struct peer_list *o;
	int r;

	memcpy(s.store, w->owner.id, sizeof(s.store));
	memcpy(s.holder, w->owner.id, sizeof(s.holder));
	asked = (struct asked){ .w = w, .kind = kind, .before = before };
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &asked.answers), 0);
	assert_int_equal(peer_list_new(w->fs[HERE], &o), 0);
	r = peer_list_open(o, &s, ret_top);
	peer_list_free(o);
	answers_free(asked.answers);
	asked = (struct asked){ 0 };
	return r;
}

static void keep(struct replica_pair *w)
{
	assert_int_equal(take_as(w, NS_REPLICA_KEPT), 0);
}

static void keep_again(struct replica_pair *w)
{
	pair_seal_again(w, "added");
	keep(w);
}

static void a_reader_sees_what_is_kept_while_it_is_being_kept(void **state)
{
	struct replica_pair *w = *state;
	uint64_t top = 0;
	struct ns_replica c;

	assert_int_equal(look(w, QUESTION_CATALOG, keep, &top), 0); /* before his copy is made, ... */
	assert_int_equal(pair_replica(w, &c), top);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(pair_nr_notes(w), 1);
	pair_expect_whole(w);
	assert_int_equal(nodes_drop_replica(w->fs[HERE], top), 0);
	assert_int_equal(look(w, QUESTION_HOLD, keep, &top), 0); /* and behind it */
	assert_int_equal(pair_replica(w, &c), top);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	pair_expect_whole(w);
	asked.w = w; /* so that what was only looked at could be had again */
	assert_int_equal(view_trim(w->fs[HERE]->view), 0);
	asked.w = NULL;
}

/* It is unsealed, sealed, and kept, before he has what he wanted: he drops that, and not what is kept. */
static void what_is_kept_again_stays_when_a_reader_is_too_late(void **state)
{
	struct replica_pair *w = *state;
	struct ns_replica c;
	uint64_t top;

	assert_int_equal(look(w, QUESTION_HOLD, keep_again, &top), -ENOENT);
	pair_replica(w, &c);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(pair_nr_notes(w), 1);
	pair_expect_whole(w);
	pair_seal_again(w, "more");
	assert_int_equal(look(w, QUESTION_HOLD, pair_unseal, &top), -ENOENT); /* of another one */
	assert_int_equal(pair_nr_notes(w), 1);
	assert_int_not_equal(copy_in_state(w, NS_REPLICA_KEPT), 0);
}

static unsigned nr_asked_for_seals(struct replica_pair *w, struct peer_list *o)
{
	_cleanup_(peer_list_seals_release) struct peer_list_seals seals = { 0 };
	unsigned before = asked.nr;

	assert_int_equal(peer_list_seals(o, w->owner.id, &seals), 0);
	assert_int_equal(seals.nr, 1); /* of what is kept here */
	return asked.nr - before;
}

static void a_silent_node_is_not_asked_for_each_name(void **state)
{
	struct replica_pair *w = *state;
	struct peer_list *o;

	keep(w);
	assert_int_equal(peer_list_new(w->fs[HERE], &o), 0);
	asked = (struct asked){ .w = w, .is_silent = true };
	assert_int_equal(nr_asked_for_seals(w, o), 1);
	assert_int_equal(nr_asked_for_seals(w, o), 0);
	peer_list_forget(o);
	assert_int_equal(nr_asked_for_seals(w, o), 0);
	asked.is_silent = false; /* which is found some time, and then it is asked as ever */
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &asked.answers), 0);
	while (nr_asked_for_seals(w, o) == 0)
		usleep(1000);
	peer_list_forget(o);
	assert_int_equal(nr_asked_for_seals(w, o), 1);
	peer_list_free(o);
	answers_free(asked.answers);
	asked = (struct asked){ 0 };
}

static void a_directory_with_the_name_of_the_view_keeps_it(void **state)
{
	struct replica_pair *w = *state;
	struct view *v = w->fs[HERE]->view;
	uint64_t own;

	assert_non_null(v);
	w->fs[HERE]->view = NULL; /* as in a version that had none */
	own = pair_make(w->fs[HERE], NS_ROOT_INO, VIEW_NAME, S_IFDIR | 0700, NULL);
	w->fs[HERE]->view = v;
	pair_unmount(w, HERE);
	pair_mount(w, HERE);
	assert_null(w->fs[HERE]->view);
	assert_int_equal(pair_look_up(w->fs[HERE], NS_ROOT_INO, VIEW_NAME), own);
	assert_int_equal(names_rename(w->fs[HERE], NS_ROOT_INO, VIEW_NAME, NS_ROOT_INO, "mine", 0), 0);
	pair_unmount(w, HERE);
	pair_mount(w, HERE);
	assert_non_null(w->fs[HERE]->view);
	assert_int_equal(names_rmdir(w->fs[HERE], NS_ROOT_INO, VIEW_NAME), -EROFS);
}

int main(void)
{
#define with_stores(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)
	const struct CMUnitTest tests[] = {
		with_stores(what_is_kept_stays_when_a_reader_looks),
		with_stores(what_its_node_drops_goes_with_what_was_looked_at),
		with_stores(a_reader_in_a_replica_goes_on_when_it_is_kept),
		with_stores(a_reader_sees_what_is_kept_while_it_is_being_kept),
		with_stores(what_is_kept_again_stays_when_a_reader_is_too_late),
		with_stores(a_silent_node_is_not_asked_for_each_name),
		with_stores(a_directory_with_the_name_of_the_view_keeps_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
