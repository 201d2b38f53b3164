/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Catalogs that make a replica: damaged and wrong ones leave nothing, and a node sends its own on request. */
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

#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/nodes/answers.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "store/catalog/catalog_format.h"
#include "tests/unit/mpi-agent/daemon/replica/replica_pair.h"

#define FAR (UINT64_C(1) << 59)

static void a_catalog_that_is_cut_or_changed_leaves_nothing(void **state)
{
	struct replica_pair *w = *state;
	struct pair_reading r = { .p = w->catalog.data, .step = SIZE_MAX };
	uint8_t *changed = malloc(w->catalog.len + 1);
	size_t step = MAX(w->catalog.len / 97, (size_t)1);

	memcpy(changed, w->catalog.data, w->catalog.len);
	for (r.len = 0; r.len < w->catalog.len; r.len += step, r.at = 0)
		assert_int_equal(pair_take_bytes(w, &r), -EBADMSG);
	r.p = changed;
	r.len = w->catalog.len;
	for (size_t i = 0; i < w->catalog.len; i += step) {
		changed[i] ^= 0x41;
		r.at = 0;
		assert_true(pair_take_bytes(w, &r) < 0);
		changed[i] ^= 0x41;
	}
	changed[w->catalog.len] = 0; /* and something behind its end */
	r = (struct pair_reading){ .p = changed, .len = w->catalog.len + 1, .step = SIZE_MAX };
	assert_int_equal(pair_take_bytes(w, &r), -EBADMSG);
	r = (struct pair_reading){ .p = changed, .len = w->catalog.len - 1, .step = SIZE_MAX, .error = -ETIMEDOUT };
	assert_int_equal(pair_take_bytes(w, &r), -ETIMEDOUT);
	pair_expect_nothing(w);
	free(changed);
}

static void another_catalog_than_was_said_is_refused(void **state)
{
	struct replica_pair *w = *state;
	struct nodes_seal right = w->s;

	w->s.ino++;
	assert_int_equal(pair_take(w), -EBADMSG);
	w->s = right;
	w->s.sealed_ns--;
	assert_int_equal(pair_take(w), -EBADMSG);
	w->s = right;
	w->s.from.id[3] ^= 1;
	assert_int_equal(pair_take(w), -EBADMSG);
	w->s = right;
	memcpy(w->s.from.id, engine_store_id(w->fs[HERE]->engine), CLUSTER_ID_LEN);
	assert_int_equal(pair_take(w), -EINVAL);
	w->s = right;
	for (const char *const *bad = (const char *const[]){ "/", "/a", "a/", "a//b", "..", "a/./b", NULL }; *bad; bad++) {
		w->s.path = *bad;
		assert_int_equal(pair_take(w), -EINVAL);
	}
	w->s = right;
	for (const char *const *bad = (const char *const[]){ "", "a/b", ".", "..", NULL }; *bad; bad++) {
		snprintf(w->s.from.name, sizeof(w->s.from.name), "%s", *bad);
		assert_int_equal(pair_take(w), -EINVAL);
	}
	w->s = right;
	pair_expect_nothing(w);
}

/* A catalog of our own making: a top, and what `rec` says. */
static int take_made_up(struct replica_pair *w, const struct catalog_record *rec, unsigned nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct catalog_record top = { .type = CATALOG_INODE, .in.mode = S_IFDIR | 0755 };
	struct catalog_head head = { .ino = w->s.ino, .sealed_ns = w->s.sealed_ns };
	struct catalog_writer writer = { 0 };

	memcpy(head.store, w->s.from.id, sizeof(head.store));
	catalog_head_encode(&head, &b);
	catalog_record_encode(&writer, &top, &b);
	for (unsigned i = 0; i < nr; i++)
		catalog_record_encode(&writer, &rec[i], &b);
	catalog_end_encode(&writer, &b);
	return pair_take_bytes(w, &(struct pair_reading){ .p = b.data, .len = b.len, .step = SIZE_MAX });
}

static void what_a_liar_reports_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf odd = BUF_EMPTY, far = BUF_EMPTY;
	struct replica_pair *w = *state;
	struct catalog_record twice[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFIFO | 0600 },
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFDIR | 0700 },
	};
	struct catalog_record attribute[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFIFO | 0600 },
		{ .type = CATALOG_XATTR, .name = "unknown.name", .data = "x", .len = 1 },
	};
	struct catalog_record chunk[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFREG | 0600, .size = 100 },
		{ .type = CATALOG_PIECES },
	};
	struct catalog_record sparse[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFREG | 0600, .size = FAR },
		{ .type = CATALOG_PIECES },
	};
	struct ns_replica c;
	struct stat st;

	/* no chunk is as long as that */
	catalog_piece_encode(&(struct content_piece){ { 1, 2 }, 70001, 5, 100 }, &odd);
	chunk[1].data = odd.data;
	chunk[1].len = odd.len;
	assert_int_equal(take_made_up(w, twice, 2), -EBADMSG);
	assert_int_equal(take_made_up(w, attribute, 2), -EBADMSG);
	assert_int_equal(take_made_up(w, chunk, 2), -EBADMSG);
	pair_expect_nothing(w);
	catalog_piece_encode(&(struct content_piece){ .len = FAR }, &far); /* takes no time */
	sparse[1].data = far.data;
	sparse[1].len = far.len;
	assert_int_equal(take_made_up(w, sparse, 2), 0);
	assert_int_equal(names_lookup(w->fs[HERE], pair_replica(w, &c), "a", &st), 0);
	assert_int_equal(st.st_size, FAR);
	names_forget(w->fs[HERE], &(struct names_forget){ st.st_ino, 1 }, 1);
}

static int give(struct answers *a, const struct question *q, struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	question_encode(q, &b);
	do {
		buf_clear(ret);
		r = answers_give(a, b.data, b.len, ret);
	} while (r == -EINPROGRESS);
	return r;
}

static void a_directory_is_reported_and_pinned(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct replica_pair *w = *state;
	struct question q = { .kind = QUESTION_CATALOG, .ino = w->top, .sealed_ns = w->seal.sealed_ns };
	struct engine_stats before, after;
	struct answers *a;
	const void *p;
	bool is_last;
	size_t len;

	memcpy(q.store, w->s.from.id, sizeof(q.store));
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &a), 0);
	q.off = 100;
	assert_int_equal(give(a, &q, &b), 0);
	assert_int_equal(answer_catalog_decode(b.data, b.len, &is_last, &p, &len), 0);
	assert_true(is_last);
	assert_int_equal(len, w->catalog.len - 100);
	assert_memory_equal(p, w->catalog.data + 100, len);
	q.off = w->catalog.len + 1;
	assert_int_equal(give(a, &q, &b), -EINVAL);
	engine_stats(w->fs[OTHER]->engine, &before);
	q.kind = QUESTION_HOLD;
	q.off = 0;
	assert_int_equal(give(a, &q, &b), 0);
	engine_stats(w->fs[OTHER]->engine, &after);
	assert_int_equal(before.pinned_bytes, 0);
	assert_int_equal(after.pinned_bytes, after.stored_bytes); /* all there is lies in that directory */
	q.sealed_ns++;
	assert_int_equal(give(a, &q, &b), -ENODATA);
	q.sealed_ns--;
	pair_unseal(w);
	assert_int_equal(give(a, &q, &b), -ENODATA);
	q.kind = QUESTION_CATALOG;
	assert_int_equal(give(a, &q, &b), -ENODATA); /* though it has been told before */
	assert_int_equal(answers_give(a, "what?", 5, &b), -EOPNOTSUPP);
	answers_free(a);
}

int main(void)
{
#define with_stores(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)
	const struct CMUnitTest tests[] = {
		with_stores(a_catalog_that_is_cut_or_changed_leaves_nothing),
		with_stores(another_catalog_than_was_said_is_refused),
		with_stores(what_a_liar_reports_is_refused),
		with_stores(a_directory_is_reported_and_pinned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
