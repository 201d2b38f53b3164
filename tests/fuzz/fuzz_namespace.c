/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decoders of attributes and names. Each sees every input; there is one encoding of every value, so what is
 * accepted must encode to the same bytes again.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/namespace_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void expect_same(const struct buf *b, const uint8_t *p, size_t len)
{
	assert(buf_error(b) < 0 || (b->len == len && memcmp(b->data, p, len) == 0));
}

static void try_inode(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_inode in;

	if (ns_inode_decode(5, p, len, &in) < 0)
		return;
	assert(in.ino == 5);
	ns_inode_encode(&in, &b);
	expect_same(&b, p, len);
}

static void try_content(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_content c;

	if (ns_content_decode(p, len, &c) < 0)
		return;
	assert(c.size <= INT64_MAX);
	ns_content_encode(&c, &b);
	expect_same(&b, p, len);
}

static void try_dirent(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_dirent d;

	assert(ns_dirent_decode(15, p, len, &d) < 0);
	if (ns_dirent_decode(16, p, len, &d) < 0)
		return;
	assert(d.ino != 0 && d.cookie == 16 && d.name_len > 0 && strlen(d.name) == d.name_len);
	assert(!strchr(d.name, '/') && strcmp(d.name, ".") != 0 && strcmp(d.name, "..") != 0);
	ns_dirent_encode(&d, &b);
	expect_same(&b, p, len);
}

static void try_seal(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_seal s;

	if (ns_seal_decode(p, len, &s) < 0)
		return;
	ns_seal_encode(&s, &b);
	expect_same(&b, p, len);
}

static void try_copy(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_replica c;

	if (ns_replica_decode(p, len, &c) < 0)
		return;
	assert(c.name[0] && strlen(c.name) <= NS_NODE_NAME_MAX && strlen(c.path) <= NS_PATH_MAX && c.path[0] != '/');
	ns_replica_encode(&c, &b);
	expect_same(&b, p, len);
}

static void try_away(const uint8_t *p, size_t len)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct ns_away a;

	if (ns_away_decode(p, len, &a) < 0)
		return;
	assert(a.number > 0 && (a.index == 0 || !a.is_erased));
	ns_away_encode(&a, &b);
	expect_same(&b, p, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	try_inode(p, len);
	try_content(p, len);
	try_dirent(p, len);
	try_seal(p, len);
	try_copy(p, len);
	try_away(p, len);
	return 0;
}
