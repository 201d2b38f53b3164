/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as a question of another mount, as a list of sealed directories, and as a part of a catalog: refused, or
 * what encodes to the same bytes again. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "mpi-agent/daemon/nodes/question_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void expect_same(const struct buf *b, const uint8_t *p, size_t len)
{
	assert(buf_error(b) < 0 || (b->len == len && (len == 0 || memcmp(b->data, p, len) == 0)));
}

static void try_question(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct question q;

	if (question_decode(p, len, &q) < 0)
		return;
	question_encode(&q, &b);
	expect_same(&b, p, len);
}

static void try_list(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct cursor c = cursor_of(p, len);
	uint64_t seals_after, replicas_after;
	struct answer_seal t;
	int r;

	if (answer_head_decode(&c, &seals_after, &replicas_after) < 0)
		return;
	answer_head_encode(seals_after, replicas_after, &b);
	while ((r = answer_seal_next(&c, &t)) > 0)
		answer_seal_encode(&t, &b);
	if (r == 0)
		expect_same(&b, p, len);
}

static void try_catalog(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const void *part;
	bool is_last;
	size_t n;

	if (answer_catalog_decode(p, len, &is_last, &part, &n) < 0)
		return;
	answer_catalog_encode(is_last, part, n, &b);
	expect_same(&b, p, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	try_question(p, len);
	try_list(p, len);
	try_catalog(p, len);
	return 0;
}
