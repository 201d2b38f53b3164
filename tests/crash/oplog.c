/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/oplog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* A saved log is one of these per operation, each followed by its two names (with final NUL) and its data. */
struct op_disk {
	uint32_t kind, obj, dir, new_dir;
	uint64_t off, len;
	uint32_t name_len, new_name_len; /* with the NUL; 0: none */
	uint64_t data_len;
};

static int copy_bytes(const void *from, size_t len, const void *ret)
{
	void *p;

	if (!from)
		return 0;
	p = malloc(len ? len : 1);
	if (!p)
		return -ENOMEM;
	memcpy(p, from, len);
	*(void **)ret = p;
	return 0;
}

int oplog_add(struct oplog *l, const struct op *op)
{
	struct op copy = *op;

	if (l->nr == l->size) {
		size_t size = l->size ? 2 * l->size : 1024;
		struct op *ops = realloc(l->ops, size * sizeof(*ops));

		if (!ops)
			return -ENOMEM;
		l->ops = ops;
		l->size = size;
	}
	if (copy_bytes(op->name, op->name ? strlen(op->name) + 1 : 0, &copy.name) < 0 ||
	    copy_bytes(op->new_name, op->new_name ? strlen(op->new_name) + 1 : 0, &copy.new_name) < 0 ||
	    copy_bytes(op->data, op->len, &copy.data) < 0)
		return -ENOMEM; /* the little that was copied is lost; the recording is over anyway */
	l->ops[l->nr++] = copy;
	return 0;
}

int oplog_save(const struct oplog *l, const char *path)
{
	FILE *f = fopen(path, "we");
	int r = 0;

	if (!f)
		return -errno;
	for (size_t i = 0; i < l->nr; i++) {
		const struct op *o = &l->ops[i];
		struct op_disk d = {
			.kind = o->kind,
			.obj = o->obj,
			.dir = o->dir,
			.new_dir = o->new_dir,
			.off = o->off,
			.len = o->len,
			.name_len = o->name ? (uint32_t)strlen(o->name) + 1 : 0,
			.new_name_len = o->new_name ? (uint32_t)strlen(o->new_name) + 1 : 0,
			.data_len = o->data ? o->len : 0,
		};

		fwrite(&d, sizeof(d), 1, f);
		fwrite(o->name ? o->name : "", 1, d.name_len, f);
		fwrite(o->new_name ? o->new_name : "", 1, d.new_name_len, f);
		fwrite(o->data ? o->data : (const uint8_t *)"", 1, d.data_len, f);
	}
	if (ferror(f))
		r = -EIO;
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	return r;
}

static int load_file(const char *path, uint8_t **ret, size_t *ret_len)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(freep) uint8_t *p = NULL;
	struct stat st;
	size_t done = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	p = malloc((size_t)st.st_size + 1);
	if (!p)
		return -ENOMEM;
	while (done < (size_t)st.st_size) {
		ssize_t n = read(fd, p + done, (size_t)st.st_size - done);

		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		done += (size_t)n;
	}
	*ret = TAKE(p);
	*ret_len = done;
	return 0;
}

/* Bytes of the file that start at *p, which moves on; NULL: none of that length are left. */
static const void *next_bytes(const uint8_t **p, const uint8_t *end, uint64_t len)
{
	const void *q = *p;

	if (len > (uint64_t)(end - *p))
		return NULL;
	*p += len;
	return q;
}

static int load_ops(const uint8_t *p, const uint8_t *end, struct oplog *l)
{
	while (p < end) {
		const void *head = next_bytes(&p, end, sizeof(struct op_disk)), *name, *new_name, *data;
		struct op_disk d;

		if (!head)
			return -EBADMSG;
		memcpy(&d, head, sizeof(d));
		name = next_bytes(&p, end, d.name_len);
		new_name = next_bytes(&p, end, d.new_name_len);
		data = next_bytes(&p, end, d.data_len);
		if (!name || !new_name || !data)
			return -EBADMSG;
		if (l->nr == l->size) {
			size_t size = l->size ? 2 * l->size : 1024;
			struct op *ops = realloc(l->ops, size * sizeof(*ops));

			if (!ops)
				return -ENOMEM;
			l->ops = ops;
			l->size = size;
		}
		l->ops[l->nr++] = (struct op){
			.kind = d.kind,
			.obj = d.obj,
			.dir = d.dir,
			.new_dir = d.new_dir,
			.off = d.off,
			.len = d.len,
			.name = d.name_len ? name : NULL,
			.new_name = d.new_name_len ? new_name : NULL,
			.data = d.kind == OP_WRITE ? data : NULL,
		};
	}
	return 0;
}

int oplog_load(const char *path, struct oplog *ret)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	uint8_t *file = NULL;
	size_t len = 0;
	int r;

	r = load_file(path, &file, &len);
	if (r < 0)
		return r;
	l.file = file;
	r = load_ops(file, file + len, &l);
	if (r < 0)
		return r;
	*ret = l;
	l = OPLOG_EMPTY;
	return 0;
}

void oplog_release(struct oplog *l)
{
	for (size_t i = 0; !l->file && i < l->nr; i++) {
		free((void *)l->ops[i].name);
		free((void *)l->ops[i].new_name);
		free((void *)l->ops[i].data);
	}
	free(l->file);
	free(l->ops);
	*l = OPLOG_EMPTY;
}

const char *op_verb(enum op_kind kind)
{
	static const char *const verbs[] = {
		[OP_CREATE] = "create", [OP_MKDIR] = "mkdir", [OP_LINK] = "link",	  [OP_UNLINK] = "unlink",
		[OP_RENAME] = "rename", [OP_WRITE] = "write", [OP_TRUNCATE] = "truncate", [OP_ALLOCATE] = "allocate",
		[OP_PUNCH] = "punch",	[OP_SYNC] = "sync",   [OP_MARK] = "mark",	  [OP_READ] = "read",
		[OP_OPEN] = "open",
	};

	return verbs[kind];
}

struct op_text op_text(const struct op *o)
{
	struct op_text t;
	int n = snprintf(t.s, sizeof(t.s), "%s %" PRIu32, op_verb(o->kind), o->obj);

	if (o->name)
		n += snprintf(t.s + n, sizeof(t.s) - (size_t)n, " %" PRIu32 "/%.100s", o->dir, o->name);
	if (o->new_name)
		n += snprintf(t.s + n, sizeof(t.s) - (size_t)n, " to %" PRIu32 "/%.100s", o->new_dir, o->new_name);
	if (!o->name && o->kind != OP_SYNC)
		snprintf(t.s + n, sizeof(t.s) - (size_t)n, " off %" PRIu64 " len %" PRIu64, o->off, o->len);
	return t;
}
