/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "tests/crash/tree.h"

void model_release(struct model *m)
{
	for (size_t i = 0; i < MODEL_NODES; i++)
		free(m->nodes[i].data);
	*m = (struct model){ 0 };
}

struct model_node *model_find(struct model *m, const char *path)
{
	for (size_t i = 0; i < m->nr_names; i++)
		if (strcmp(m->names[i].path, path) == 0)
			return m->names[i].node;
	return NULL;
}

static int add_name(struct model *m, const char *path, struct model_node *node)
{
	size_t i = m->nr_names;

	if (i == MODEL_NAMES)
		return -ENOSPC;
	for (; i > 0 && strcmp(m->names[i - 1].path, path) > 0; i--) /* sorted, as the list is */
		m->names[i] = m->names[i - 1];
	memcpy(m->names[i].path, path, WORKLOAD_PATH);
	m->names[i].node = node;
	m->nr_names++;
	return 0;
}

static void drop_name(struct model *m, const char *path)
{
	for (size_t i = 0; i < m->nr_names; i++)
		if (strcmp(m->names[i].path, path) == 0) {
			memmove(&m->names[i], &m->names[i + 1], (m->nr_names - i - 1) * sizeof(m->names[0]));
			m->nr_names--;
			return;
		}
}

static void drop_link(struct model_node *node)
{
	if (--node->nlink == 0) {
		free(node->data);
		*node = (struct model_node){ 0 };
	}
}

static int create(struct model *m, const char *path, uint32_t mode, const char *target)
{
	for (size_t i = 0; i < MODEL_NODES; i++) {
		struct model_node *n = &m->nodes[i];

		if (n->nlink > 0)
			continue;
		*n = (struct model_node){ .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1 };
		memcpy(n->target, target, sizeof(n->target));
		return add_name(m, path, n);
	}
	return -ENOSPC;
}

static int resize(struct model_node *n, uint64_t size)
{
	uint8_t *data = realloc(n->data, size + 1);

	if (!data)
		return -ENOMEM;
	if (size > n->size)
		memset(data + n->size, 0, size - n->size);
	n->data = data;
	n->size = size;
	return 0;
}

/* Changes of bytes. They set the time of change, but for an allocation that changes nothing. */
static int apply_bytes(struct model *m, struct model_node *n, const struct work *op)
{
	uint64_t off = op->kind == WORK_APPEND ? n->size : op->off, end;
	struct model_node *from;
	int r = 0;

	if (op->kind != WORK_ALLOCATE || off + op->len > n->size)
		n->mtime_ns = TREE_TIME_NOW;
	switch (op->kind) {
	case WORK_TRUNCATE:
		return resize(n, op->len);
	case WORK_PUNCH:
		if (op->off < n->size)
			memset(n->data + op->off, 0, MIN(op->len, n->size - op->off));
		return 0;
	default:
		break;
	}
	end = op->kind == WORK_PATCH ? off + (WORK_RANGES - 1) * WORK_RANGES_TO + op->len : off + op->len;
	if (end > n->size)
		r = resize(n, end);
	if (r < 0)
		return r;
	if (op->kind == WORK_PATCH) {
		from = model_find(m, op->other);
		for (unsigned i = 0; i < WORK_RANGES; i++)
			memcpy(n->data + off + i * WORK_RANGES_TO, from->data + op->other_off + i * WORK_RANGES_FROM,
			       op->len);
	} else if (op->kind == WORK_CLONE) {
		from = model_find(m, op->other);
		memmove(n->data + off, from->data + op->other_off, op->len);
	} else if (op->kind != WORK_ALLOCATE) {
		work_bytes(op->seed, off, op->len, n->data + off);
	}
	return 0;
}

int model_apply(struct model *m, const struct work *op)
{
	struct model_node *n = model_find(m, op->path), *old = model_find(m, op->other);

	switch (op->kind) {
	case WORK_CREATE:
		return create(m, op->path, S_IFREG | op->mode, op->value);
	case WORK_MKDIR:
		return create(m, op->path, S_IFDIR | 0755, op->value);
	case WORK_SYMLINK:
		return create(m, op->path, S_IFLNK | 0777, op->value);
	case WORK_LINK:
		n->nlink++;
		return add_name(m, op->other, n);
	case WORK_RENAME:
		if (n == old)
			return 0;
		if (old) {
			drop_name(m, op->other);
			drop_link(old);
		}
		drop_name(m, op->path);
		return add_name(m, op->other, n);
	case WORK_UNLINK:
		drop_name(m, op->path);
		drop_link(n);
		return 0;
	case WORK_OWNER:
		n->mode = (n->mode & S_IFMT) | op->mode;
		n->uid = op->uid;
		return 0;
	case WORK_XATTR:
		memcpy(n->xattr, op->value, sizeof(n->xattr));
		return 0;
	case WORK_MTIME:
		n->mtime_ns = op->mtime_ns;
		return 0;
	case WORK_SYNC:
	case WORK_COLLECT:
	case WORK_COMPACT:
		return 0;
	default:
		return apply_bytes(m, n, op);
	}
}

int model_list(const struct model *m, struct buf *ret)
{
	for (size_t i = 0; i < m->nr_names; i++) {
		const struct model_node *n = m->names[i].node;

		tree_line_add(
			&(struct tree_line){
				.name = m->names[i].path,
				.mode = n->mode,
				.nlink = n->nlink,
				.uid = n->uid,
				.size = n->size,
				.hash = tree_hash(n->data, n->size),
				.mtime_ns = n->mtime_ns,
				.target = S_ISLNK(n->mode) ? n->target : NULL,
				.xattr = n->xattr[0] ? n->xattr : NULL,
			},
			ret);
	}
	buf_add_u8(ret, 0);
	return buf_error(ret);
}
