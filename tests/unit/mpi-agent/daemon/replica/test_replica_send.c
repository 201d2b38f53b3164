/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What is sealed goes to another node (replica_world.h). */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/seal/seal_catalog.h"
#include "store/catalog/catalog_format.h"
#include "fs/fs.h"
#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/replica/protect.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "index/guards.h"
#include "mpi-agent/wire/link_format.h"
#include "tests/content_sync.h"
#include "tests/unit/mpi-agent/daemon/replica/replica_world.h"
#include "tests/unit/fs/rig.h"

static void what_is_sealed_is_with_the_partner(void **state)
{
	struct replica_world *w = *state;
	struct protect_status s;

	replica_agent_comes(w);
	assert_int_equal(replica_state_of(w), -ENODATA);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_expect_copy(w);
	do
		protect_status(w->fs[HERE]->protect, &s);
	while (s.is_busy);
	assert_int_equal(s.nr_sealed, 1);
	assert_int_equal(s.nr_protected, 1);
	assert_in_range(s.bytes, REPLICA_BYTES, REPLICA_BYTES + REPLICA_BYTES / 50);

	/* Sealed again with one more file of the same: next to nothing is sent. */
	replica_unseal(w);
	replica_write_file(w, w->top, "more", MiB(1));
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_expect_copy(w);
	protect_status(w->fs[HERE]->protect, &s);
	assert_in_range(s.bytes, REPLICA_BYTES, REPLICA_BYTES + REPLICA_BYTES / 25);
}

static uint64_t sealed_ns(struct replica_world *w, uint64_t dir)
{
	struct ns_seal s;

	assert_int_equal(ns_get_seal(w->fs[HERE]->db, dir, &s), 1);
	return (uint64_t)s.sealed_ns;
}

static void await_unprotected_since(struct replica_world *w, uint64_t ns)
{
	struct protect_status s;

	do {
		sched_yield();
		protect_status(w->fs[HERE]->protect, &s);
	} while (s.unprotected_since_ns != ns || s.is_busy);
}

static void seal_other(struct replica_world *w, uint64_t dir)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	assert_int_equal(seal_directory(w->fs[HERE], dir, &replica_owner, &s, &culprit), 0);
}

/* With an agent or without. */
static void the_oldest_seal_without_a_replica_is_known(void **state)
{
	struct names_new n = { .mode = S_IFDIR | 0700 };
	struct replica_world *w = *state;
	struct stat st;

	await_unprotected_since(w, 0);
	assert_int_equal(names_make(w->fs[HERE], NS_ROOT_INO, "other", &n, &replica_owner, &st), 0);
	replica_seal(w);
	await_unprotected_since(w, sealed_ns(w, w->top));
	seal_other(w, st.st_ino);
	await_unprotected_since(w, sealed_ns(w, w->top));
	replica_unseal(w);
	await_unprotected_since(w, sealed_ns(w, st.st_ino));
	replica_seal(w);
	await_unprotected_since(w, sealed_ns(w, st.st_ino)); /* that of the first was renewed */
	replica_agent_comes(w);
	await_unprotected_since(w, 0);
	replica_agent_goes(w);
	await_unprotected_since(w, 0); /* the other node still has them */
	replica_unseal(w);
	replica_seal(w);
	await_unprotected_since(w, sealed_ns(w, w->top));
	replica_agent_comes(w);
	await_unprotected_since(w, 0);
}

static void without_an_agent_it_waits(void **state)
{
	struct replica_world *w = *state;

	replica_seal(w);
	assert_int_equal(replica_state_of(w), -ENOTCONN);
	replica_agent_comes(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_expect_copy(w);
}

static void a_node_on_the_same_host_is_no_partner(void **state)
{
	struct replica_world *w = *state;

	w->nodes[PARTNER].host = w->nodes[HERE].host;
	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), -EHOSTUNREACH);
	assert_int_equal(w->nr_messages, 0);
}

/* Whatever message is the last one. The partner has all of it or nothing, and what comes later makes up for it. */
static void agents_may_go_at_any_message(void **state)
{
	struct replica_world *w = *state;
	unsigned last = 0;

	for (w->lose_at = 1; last == 0; w->lose_at++) {
		replica_agent_comes(w);
		replica_seal(w);
		last = replica_await_end(w) ? w->lose_at : 0;
		replica_agent_goes(w);
		assert_int_equal(replica_nr_copies(w), last > 0);
		if (last == 0) {
			replica_unseal(w); /* so that there is something to be dropped, perhaps */
			replica_write_file(w, w->top, (char[]){ (char)('a' + w->lose_at), '\0' },
					   REPLICA_BYTES - 4096 * w->lose_at);
		}
	}
	assert_in_range(last, 5, 60);
	replica_expect_copy(w);
}

static void an_error_of_the_partner_is_reported_and_tried_again(void **state)
{
	static const int errors[] = { -ENOSPC, -EDQUOT }; /* by turns, so that it is seen which agent's it is */
	struct replica_world *w = *state;
	int r, before = 0;

	replica_seal(w);
	do {
		w->error = errors[w->fail_at++ % 2];
		replica_agent_comes(w);
		r = replica_await_state_after(w, before);
		assert_true(r == 0 || r == w->error);
		assert_int_equal(replica_nr_copies(w), r == 0);
		replica_agent_goes(w);
		before = w->error;
	} while (r < 0);
	assert_true(w->fail_at > 3);
	replica_expect_copy(w);
}

static void what_was_collected_meanwhile_is_sent_again(void **state)
{
	struct replica_world *w = *state;

	w->collect_at_copy = true;
	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	assert_false(w->collect_at_copy);
	replica_expect_copy(w);
	rig_collect(w->fs[PARTNER]); /* unpinned there; but the replica has it */
	replica_expect_copy(w);
}

#define REFERRED 10u

/* A file here is made of pages that the partner has; this node has been told that another one does. */
static void refer(struct replica_world *w, struct content_piece pieces[REFERRED])
{
	struct cluster_node other = { .name = "other" };
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct cluster_chunk chunks[REFERRED];
	uint8_t bytes[REFERRED][4096];
	struct content *c;
	struct stat st;

	memcpy(other.id, w->nodes[OTHER].store_id, sizeof(other.id));
	for (unsigned i = 0; i < REFERRED; i++) {
		memset(bytes[i], (int)i + 1, sizeof(bytes[i]));
		chunks[i] = (struct cluster_chunk){ fp_of(w->fs[PARTNER]->key, bytes[i], sizeof(bytes[i])),
						    sizeof(bytes[i]), bytes[i] };
		pieces[i] = (struct content_piece){ .fp = chunks[i].fp,
						    .chunk_len = sizeof(bytes[i]),
						    .len = sizeof(bytes[i]) };
	}
	assert_int_equal(engine_cluster_keep(w->fs[PARTNER]->engine, chunks, REFERRED), 0);
	assert_int_equal(names_make(w->fs[HERE], w->top, "referred", &n, &replica_owner, &st), 0);
	assert_int_equal(content_open(w->fs[HERE]->engine, st.st_ino, &c), 0);
	assert_int_equal(
		engine_cluster_refer(w->fs[HERE]->engine, &(struct cluster_run){ c, 0, REFERRED }, 1, pieces, &other), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
}

static unsigned nr_here(struct replica_world *w, const struct content_piece pieces[REFERRED])
{
	uint8_t bytes[4096];
	unsigned nr = 0;

	for (unsigned i = 0; i < REFERRED; i++)
		nr += engine_cluster_chunk(w->fs[HERE]->engine, pieces[i].fp, pieces[i].chunk_len, bytes) == 1;
	return nr;
}

static void protect_referred(struct replica_world *w, int other_says)
{
	w->other_says = other_says;
	w->nr_asked = 0;
	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_agent_goes(w);
	assert_int_equal(w->nr_asked, REFERRED);
	replica_expect_copy(w);
}

static void a_node_that_is_said_to_have_a_chunk_is_asked(void **state)
{
	struct content_piece pieces[REFERRED];
	struct replica_world *w = *state;

	w->nr_nodes = NR_NODES;
	refer(w, pieces);
	protect_referred(w, LINK_IS_HERE);
	assert_int_equal(nr_here(w, pieces), 0);
	replica_unseal(w);
	protect_referred(w, -EBUSY);
	assert_int_equal(nr_here(w, pieces), REFERRED);
}

/* It has a replica of a directory, perhaps; its chunks are with the partner, which would have been the only one. */
static void a_node_that_only_refers_to_a_chunk_does_not_count(void **state)
{
	struct content_piece pieces[REFERRED];
	struct replica_world *w = *state;

	w->nr_nodes = NR_NODES;
	refer(w, pieces);
	protect_referred(w, LINK_ON_PEERS);
	assert_int_equal(nr_here(w, pieces), REFERRED);
}

static bool has_note(struct replica_world *w)
{
	struct guard g;

	return guard_get(w->fs[HERE]->db, w->top, &g) > 0;
}

static void what_is_unsealed_is_dropped_there(void **state)
{
	struct replica_world *w = *state;

	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_unseal(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(replica_nr_copies(w), 0);

	/* Also later, when none was connected. */
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	replica_agent_goes(w);
	replica_unseal(w);
	assert_int_equal(replica_nr_copies(w), 1);
	assert_true(has_note(w));
	replica_agent_comes(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(replica_nr_copies(w), 0);
}

static struct protect_status repair(struct replica_world *w)
{
	struct protect_status s;
	uint64_t number;

	assert_int_equal(protect_repair(w->fs[HERE]->protect, &number), 0);
	do {
		sched_yield();
		protect_status(w->fs[HERE]->protect, &s);
	} while (s.nr_repaired < number);
	return s;
}

static void repairing_gives_the_partner_what_it_has_lost(void **state)
{
	const struct nodes_origin from = { .name = "here" };
	struct replica_world *w = *state;
	struct nodes_origin origin = from;

	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	memcpy(origin.id, w->nodes[HERE].store_id, sizeof(origin.id));
	for (int collects = 0; collects < 2; collects++) { /* while nodes collect together it takes a second try */
		assert_int_equal(nodes_drop(w->fs[PARTNER], &origin, w->top, INT64_MAX), 0);
		w->collect_at_copy = collects;
		assert_int_equal(repair(w).nr_protected, 1);
		replica_expect_copy(w);
	}
}

static ssize_t read_catalog(void *userdata, void *buf, size_t len)
{
	struct cursor *c = userdata;
	size_t n = MIN(len, (size_t)(c->end - c->p));

	memcpy(buf, c->p, n);
	c->p += n;
	return (ssize_t)n;
}

/* Node "other", which is lost, has sealed "theirs", a directory of that number: a copy of it. */
static void take_copy(struct replica_world *w, unsigned to, uint64_t ino)
{
	_cleanup_(buf_release) struct buf catalog = BUF_EMPTY, head = BUF_EMPTY;
	struct nodes_seal s = { .from.name = "other", .path = "theirs", .ino = ino };
	struct cluster_node other = { .name = "other" };
	struct catalog_head theirs = { .ino = ino };
	struct ns_seal sealed;
	struct cursor c;

	assert_int_equal(ns_get_seal(w->fs[PARTNER]->db, ino, &sealed), 1);
	assert_int_equal(catalog_write(w->fs[PARTNER], ino, &(struct catalog_sink){ replica_add, &catalog }), 0);
	s.sealed_ns = theirs.sealed_ns = sealed.sealed_ns;
	memcpy(s.from.id, w->nodes[OTHER].store_id, sizeof(s.from.id));
	memcpy(theirs.store, s.from.id, sizeof(theirs.store));
	catalog_head_encode(&theirs, &head);
	memcpy(catalog.data, head.data, head.len);
	c = cursor_of(catalog.data, catalog.len);
	memcpy(other.id, s.from.id, sizeof(other.id));
	assert_int_equal(nodes_take(w->fs[to], &s, &(struct nodes_source){ read_catalog, &c }, &other, NULL), 0);
}

/* A replica of it is here, and its chunks with the partner, if that serves them. */
static uint64_t take_replica_of_other(struct replica_world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct cluster_node other = { .name = "other" };
	struct names_new dir = { .mode = S_IFDIR | 0700 };
	struct fs *there = w->fs[PARTNER];
	struct ns_seal sealed;
	struct stat st;

	assert_int_equal(names_make(there, NS_ROOT_INO, "theirs", &dir, &replica_owner, &st), 0);
	replica_write_bytes(there, st.st_ino, "file", "of the lost node", 16);
	assert_int_equal(seal_directory(there, st.st_ino, &replica_owner, &sealed, &culprit), 0);
	take_copy(w, HERE, st.st_ino);
	memcpy(other.id, w->nodes[OTHER].store_id, sizeof(other.id));
	assert_int_equal(engine_cluster_register_peers(w->fs[HERE]->engine, &other, 1), 0);
	return st.st_ino;
}

/* Its node is back, seals it again, and sends that to the partner itself. */
static void seal_peers_again(struct replica_world *w, uint64_t ino)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal sealed;

	assert_int_equal(seal_undo(w->fs[PARTNER], ino, &replica_owner, &culprit), 0);
	assert_int_equal(seal_directory(w->fs[PARTNER], ino, &replica_owner, &sealed, &culprit), 0);
	take_copy(w, PARTNER, ino);
}

static int64_t kept_of_partner(struct replica_world *w)
{
	struct ns_replica c;
	uint64_t top;

	assert_int_equal(replica_nr_copies(w), 1);
	assert_int_equal(nodes_next(w->fs[PARTNER], 0, &top, &c), 1);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	return c.sealed_ns;
}

/* This node has re-replicated it, and learns later that its replica is to be dropped: that seal exists no more. */
static void what_was_repaired_is_dropped_and_not_what_is_newer(void **state)
{
	struct replica_world *w = *state;
	struct nodes_origin from = { .name = "other" };
	uint64_t ino = take_replica_of_other(w), after;
	int64_t repaired, latest;
	struct guard g;

	memcpy(from.id, w->nodes[OTHER].store_id, sizeof(from.id));
	for (int seals_again = 0; seals_again < 2; seals_again++) {
		replica_agent_comes(w);
		assert_int_equal(repair(w).nr_rereplicated, 1 + seals_again);
		replica_agent_goes(w);
		repaired = kept_of_partner(w);
		if (seals_again)
			seal_peers_again(w, ino);
		latest = kept_of_partner(w);
		assert_true(seals_again ? latest > repaired : latest == repaired);
		assert_int_equal(nodes_drop(w->fs[HERE], &from, ino, INT64_MAX), 0);
		replica_agent_comes(w);
		while (guard_next(w->fs[HERE]->db, 0, &after, &g) > 0)
			sched_yield();
		replica_agent_goes(w);
		if (!seals_again) {
			assert_int_equal(replica_nr_copies(w), 0);
			take_copy(w, HERE, ino);
		}
	}
	assert_int_equal(kept_of_partner(w), latest);
}

/* Nor does an older seal that this node has take its place. */
static void what_is_repaired_late_does_not_take_the_place_of_what_is_newer(void **state)
{
	struct replica_world *w = *state;
	uint64_t ino = take_replica_of_other(w);
	int64_t latest;

	seal_peers_again(w, ino);
	latest = kept_of_partner(w);
	replica_agent_comes(w);
	assert_int_equal(repair(w).error, 0);
	assert_int_equal(kept_of_partner(w), latest);
}

static void what_no_node_has_any_more_is_reported_by_name(void **state)
{
	struct replica_world *w = *state;
	struct protect *p = w->fs[HERE]->protect;
	struct protect_failure f;
	struct protect_status s;

	take_replica_of_other(w);
	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	w->no_node_serves = true;
	s = repair(w);
	assert_int_equal(s.nr_protected, 1); /* the others are re-replicated */
	assert_int_equal(s.error, -EIO);
	assert_int_equal(protect_failed(p, 0, &f), 1);
	assert_int_equal(f.error, -EIO);
	assert_string_equal(f.node, "other");
	assert_string_equal(f.path, "theirs");
	assert_int_equal(protect_failed(p, 1, &f), 0);

	assert_int_equal(protect_forget(p, "other"), 0);
	assert_int_equal(repair(w).error, 0); /* it is not waited for any more */
	assert_int_equal(protect_failed(p, 0, &f), 0);
	w->no_node_serves = false;
	assert_int_equal(repair(w).nr_rereplicated, 1); /* and if a node should have it after all it is protected */
}

/* What the partner covers, of the one file that all directories here are made of. */
static void expect_covered(struct replica_world *w, bool is_whole)
{
	struct stripes_figures f;

	assert_int_equal(stripes_figures(w->fs[PARTNER]->stripes, &f), 0);
	if (is_whole) /* its last chunk may be here as the end of an older parity */
		assert_in_range(f.covered_bytes, REPLICA_BYTES - 123, REPLICA_BYTES + 4096);
	assert_true(f.parity_bytes >= f.covered_bytes); /* of one node alone parity is a copy */
}

static void parity_may_be_cut_off_at_any_message(void **state)
{
	struct replica_world *w = *state;
	unsigned last = 0;
	bool held = false;

	for (w->lose_at = 1; last == 0; w->lose_at++) {
		replica_agent_comes(w);
		replica_seal(w);
		last = replica_await_end(w) ? w->lose_at : 0;
		replica_agent_goes(w);
		expect_covered(w, last > 0);
		held |= last == 0 && replica_nr_copies(w) > 0; /* a copy that is not covered yet does not count */
		if (last == 0)
			replica_unseal(w);
	}
	assert_true(held);
	assert_in_range(last, 5, 60);
	assert_int_equal(replica_nr_copies(w), 1);
}

static void parity_goes_with_the_seal(void **state)
{
	struct stripes_figures f;
	struct replica_world *w = *state;

	replica_agent_comes(w);
	replica_seal(w);
	assert_int_equal(replica_await_state(w), 0);
	expect_covered(w, true);
	rig_collect(w->fs[PARTNER]); /* the catalog; neither parity nor what is pinned here */
	expect_covered(w, true);
	replica_unseal(w);
	while (has_note(w))
		sched_yield();
	assert_int_equal(replica_nr_copies(w), 0);
	assert_int_equal(stripes_figures(w->fs[PARTNER]->stripes, &f), 0);
	assert_int_equal(f.nr, 0);
}

int main(void)
{
#define with_world(name) cmocka_unit_test_setup_teardown(name, replica_set_up, replica_tear_down)
	const struct CMUnitTest tests[] = {
		with_world(what_is_sealed_is_with_the_partner),
		with_world(the_oldest_seal_without_a_replica_is_known),
		with_world(without_an_agent_it_waits),
		with_world(a_node_on_the_same_host_is_no_partner),
		with_world(agents_may_go_at_any_message),
		with_world(an_error_of_the_partner_is_reported_and_tried_again),
		with_world(what_was_collected_meanwhile_is_sent_again),
		with_world(a_node_that_is_said_to_have_a_chunk_is_asked),
		with_world(a_node_that_only_refers_to_a_chunk_does_not_count),
		with_world(what_is_unsealed_is_dropped_there),
		with_world(repairing_gives_the_partner_what_it_has_lost),
		with_world(what_no_node_has_any_more_is_reported_by_name),
		with_world(what_was_repaired_is_dropped_and_not_what_is_newer),
		with_world(what_is_repaired_late_does_not_take_the_place_of_what_is_newer),
		cmocka_unit_test_setup_teardown(parity_may_be_cut_off_at_any_message, replica_set_up_parity,
						replica_tear_down),
		cmocka_unit_test_setup_teardown(parity_goes_with_the_seal, replica_set_up_parity, replica_tear_down),
	};

	/* As the agent's thread has assertions of its own, from which there is no way back into a test. */
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	return cmocka_run_group_tests_name("replica_send", tests, NULL, NULL);
}
