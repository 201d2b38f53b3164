/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/diff/diff_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"

#define READ_BYTES DIFF_UNIT_MAX

struct side {
	const char *path;
	int fd;
	uint64_t size;
	uint8_t *buf;
};

struct comparison {
	struct side a, b;
	uint64_t unit;
	uint64_t handle; /* of b; 0: not on one ckptfs mount */
	uint64_t done; /* everything before this offset has been compared */
	uint64_t start, end; /* range that differs, not yet reported; none if end <= start */
	const struct diff_sink *to;
	struct diff_result result;
	const char *culprit;
};

static void comparison_release(struct comparison *c)
{
	closep(&c->a.fd);
	closep(&c->b.fd);
	free(c->a.buf);
	free(c->b.buf);
}

static int side_open(struct comparison *c, struct side *s)
{
	struct stat st;

	c->culprit = s->path;
	s->fd = open_plain_noatime(AT_FDCWD, s->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	s->size = (uint64_t)st.st_size;
	s->buf = malloc(READ_BYTES);
	return s->buf ? 0 : -ENOMEM;
}

/* --- reporting --- */

static void report_range(struct comparison *c)
{
	if (c->end <= c->start)
		return;
	c->result.nr_ranges++;
	c->result.bytes += c->end - c->start;
	c->to->range(c->to->userdata, c->start, c->end - c->start);
}

static void add_range(struct comparison *c, uint64_t start, uint64_t end)
{
	if (c->end > c->start && c->end == start) {
		c->end = end;
		return;
	}
	report_range(c);
	c->start = start;
	c->end = end;
}

/* --- reading --- */

static int read_side(struct comparison *c, struct side *s, uint64_t off, size_t len)
{
	ssize_t n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pread(s->fd, s->buf + at, len - at, (off_t)(off + at));
		if (n <= 0) {
			c->culprit = s->path;
			return n < 0 ? -errno : -ESTALE; /* truncated meanwhile */
		}
	}
	return 0;
}

/* `off` is the start of a unit; `end` is the end of a unit or of the shorter file. */
static int compare_bytes(struct comparison *c, uint64_t off, uint64_t end)
{
	size_t len;
	int r = 0;

	for (; off < end && r == 0; off += len) {
		len = (size_t)MIN(end - off, READ_BYTES);
		r = read_side(c, &c->a, off, len);
		if (r == 0)
			r = read_side(c, &c->b, off, len);
		c->result.read_bytes += len;
		if (r == 0 && interrupted())
			r = -ECANCELED;
		if (r < 0 || memcmp(c->a.buf, c->b.buf, len) == 0)
			continue;
		for (size_t at = 0, n; at < len; at += n) {
			n = (size_t)MIN(len - at, c->unit);
			if (memcmp(c->a.buf + at, c->b.buf + at, n) != 0)
				add_range(c, off + at, off + at + n);
		}
	}
	return r;
}

/* --- comparing without reading --- */

static void find_handle(struct comparison *c)
{
	struct ckptfs_handle h = { .size = sizeof(h), .version = CKPTFS_IOC_VERSION };
	struct stat a, b;

	if (fstat(c->a.fd, &a) == 0 && fstat(c->b.fd, &b) == 0 && a.st_dev == b.st_dev &&
	    ioctl(c->b.fd, CKPTFS_IOC_HANDLE, &h) == 0)
		c->handle = h.handle;
}

/* Offset of the next byte of data. */
static uint64_t data_from(const struct side *s, uint64_t off, uint64_t end)
{
	off_t at = lseek(s->fd, (off_t)off, SEEK_DATA);

	if (at < 0)
		return errno == ENXIO ? end : off;
	return MIN((uint64_t)at, end);
}

/* Skips holes that both files have: they may be huge. */
static uint64_t next_data(const struct comparison *c, uint64_t off, uint64_t end)
{
	uint64_t a = data_from(&c->a, off, end), b = data_from(&c->b, off, end);

	return MIN(a, b);
}

static int compare_extents(struct comparison *c, uint64_t end)
{
	struct ckptfs_compare arg = { .size = sizeof(arg), .version = CKPTFS_IOC_VERSION, .with = c->handle };
	uint64_t off = 0, from, to;
	int r = 0;

	while ((off = next_data(c, off, end)) < end && r == 0) {
		arg.off = off;
		arg.len = end - off;
		c->culprit = c->a.path;
		if (ioctl(c->a.fd, CKPTFS_IOC_COMPARE, &arg) < 0)
			return -errno;
		if (arg.differ_end <= off && arg.equal_end <= off)
			return -EIO;
		from = MAX(round_down(arg.equal_end, c->unit), c->done);
		to = MIN(round_up(arg.differ_end, c->unit), end);
		if (arg.differ_end > arg.equal_end && from < to) {
			r = compare_bytes(c, from, to);
			c->done = to;
		}
		off = MAX(arg.equal_end, arg.differ_end);
	}
	return r;
}

int diff_files(const char *a, const char *b, uint64_t unit, const struct diff_sink *to, struct diff_result *ret,
	       const char **culprit)
{
	_cleanup_(comparison_release) struct comparison c = {
		.a = { .path = a, .fd = -1 }, .b = { .path = b, .fd = -1 }, .unit = unit, .to = to
	};
	uint64_t common = 0;
	int r = side_open(&c, &c.a);

	if (r == 0)
		r = side_open(&c, &c.b);
	if (r == 0) {
		find_handle(&c);
		common = MIN(c.a.size, c.b.size);
		r = c.handle != 0 ? compare_extents(&c, common) : compare_bytes(&c, 0, common);
	}
	if (r < 0) {
		*culprit = c.culprit;
		return r;
	}
	if (c.a.size != c.b.size)
		add_range(&c, common, MAX(c.a.size, c.b.size));
	report_range(&c);
	c.result.size_a = c.a.size;
	c.result.size_b = c.b.size;
	c.result.by_extents = c.handle != 0;
	*ret = c.result;
	return 0;
}
