/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Reads the journal's files: one buffer per file of at least 1 MiB, so that small groups share system calls. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "store/journal/journal_internal.h"

#define WINDOW_BYTES MiB(1)

static int check_header(struct journal_window *w, const struct journal *j, enum journal_file_kind kind,
			uint64_t number)
{
	struct journal_file f;
	const uint8_t *p;
	int r;

	r = journal_window_get(w, 0, JOURNAL_BLOCK, &p);
	if (r == 0)
		r = journal_file_decode(p, JOURNAL_BLOCK, &f);
	else if (r != -EBADMSG)
		return r;
	if (r == -EOPNOTSUPP)
		return log_errno(r, "journal %s: written by a later version", w->name.s);
	if (r < 0 || f.kind != kind || f.number != number)
		return log_cause(-EBADMSG, "journal %s: damaged header block; run fsck.ckptfs", w->name.s);
	if (memcmp(f.store_id, j->store_id, sizeof(f.store_id)) != 0)
		return log_cause(-EBADMSG, "journal %s: belongs to another store", w->name.s);
	return 0;
}

int journal_window_open(struct journal_window *w, struct journal *j, enum journal_file_kind kind, uint64_t number,
			int flags)
{
	struct journal_window n = JOURNAL_WINDOW_NONE;
	struct stat st;
	int r;

	n.name = kind == JOURNAL_LOG ? journal_log_name(number) : journal_snap_name(number);
	n.fd = io_open(j->dirfd, n.name.s, flags, 0);
	if (n.fd == -ENOENT)
		return -ENOENT;
	if (n.fd < 0)
		return log_errno(n.fd, "journal %s: cannot open", n.name.s);
	if (fstat(n.fd, &st) < 0)
		r = log_errno(-errno, "journal %s: cannot stat", n.name.s);
	else {
		n.size = (uint64_t)st.st_size;
		r = check_header(&n, j, kind, number);
	}
	if (r < 0) {
		journal_window_release(&n);
		return r;
	}
	*w = n;
	return 0;
}

void journal_window_release(struct journal_window *w)
{
	closep(&w->fd);
	free(w->data);
	free(w->records);
	*w = JOURNAL_WINDOW_NONE;
}

int journal_window_get(struct journal_window *w, uint64_t off, size_t len, const uint8_t **ret)
{
	size_t want;
	ssize_t n;

	if (off > w->size || len > w->size - off)
		return -EBADMSG;
	if (off >= w->off && off - w->off <= w->len && len <= w->len - (size_t)(off - w->off)) {
		*ret = w->data + (off - w->off);
		return 0;
	}
	want = (size_t)MIN(WINDOW_BYTES, w->size - off);
	want = MAX(want, len);
	if (want > w->room) {
		uint8_t *data = malloc(want);

		if (!data)
			return -ENOMEM;
		free(w->data);
		w->data = data;
		w->room = want;
	}
	w->len = 0;
	n = io_pread(w->fd, w->data, want, off);
	if (n < 0)
		return log_errno((int)n, "journal %s: cannot read %zu bytes at %" PRIu64, w->name.s, want, off);
	if ((size_t)n < len)
		return log_errno(-EIO, "journal %s: shrinks while it is read", w->name.s);
	w->off = off;
	w->len = (size_t)n;
	*ret = w->data;
	return 0;
}

int journal_window_header(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret)
{
	struct journal_group g;
	const uint8_t *p;
	int r;

	r = journal_window_get(w, off, sizeof(struct journal_group_disk), &p);
	if (r == 0)
		r = journal_group_header_decode(p, sizeof(struct journal_group_disk), &g);
	if (r == -EBADMSG)
		return 0;
	if (r == -EOPNOTSUPP)
		return log_errno(r, "journal %s: group at %" PRIu64 " written by a later version", w->name.s, off);
	if (r < 0)
		return r;
	if (memcmp(g.store_id, j->store_id, sizeof(g.store_id)) != 0)
		return 0;
	*ret = g;
	return 1;
}

int journal_window_group(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			 const void **ret_payload)
{
	struct journal_group g;
	uint64_t bytes;
	const uint8_t *p;
	int r;

	r = journal_window_header(w, j, off, &g);
	if (r <= 0)
		return r;
	bytes = journal_group_bytes(g.payload_len); /* checked against the file size before memory is allocated */
	r = journal_window_get(w, off, (size_t)bytes, &p);
	if (r == 0)
		r = journal_group_decode(p, (size_t)bytes, &g, ret_payload);
	if (r == -EBADMSG)
		return 0;
	if (r < 0)
		return r;
	*ret = g;
	return 1;
}

int journal_window_records(struct journal_window *w, const struct journal *j, uint64_t off, struct journal_group *ret,
			   const void **ret_records)
{
	struct journal_group g;
	const void *payload;
	int r;

	r = journal_window_group(w, j, off, &g, &payload);
	if (r <= 0)
		return r;
	free(w->records);
	w->records = NULL;
	if (g.flags & JOURNAL_GROUP_ZSTD) {
		w->records = malloc(g.records_len);
		if (!w->records)
			return -ENOMEM;
		r = journal_payload_decompress(&g, payload, w->records);
		if (r < 0)
			return r == -EBADMSG ? 0 : r;
		payload = w->records;
	}
	*ret = g;
	*ret_records = payload;
	return 1;
}
