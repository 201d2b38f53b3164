/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/states.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/util.h"
#include "tests/crash/fate.h"
#include "tests/crash/image.h"

struct object {
	bool is_dir, ordered;
	struct image synced;
	uint64_t synced_hash; /* valid while nothing is pending */
	size_t *pending; /* operations since the last sync: on bytes for a file, on names for a directory */
	size_t nr_pending, size_pending;
};

struct name {
	uint32_t dir, obj;
	const char *name; /* the log's */
};

struct names {
	struct name *v;
	size_t nr, size;
};

struct states {
	const struct oplog *log;
	const char *ordered;
	size_t point, nr_pending;
	uint64_t mark_a, mark_b;
	struct object *objs;
	uint32_t nr_objs;
	struct names names; /* synced ones */
};

struct state {
	const struct states *s;
	struct fate *fates; /* of the log's operations up to the point; only those of pending ones are set */
	struct names names;
	struct image *images; /* per object, of files with a name and pending bytes */
	bool *has_image;
	uint64_t hash;
};

static void names_drop(struct names *n, uint32_t dir, const char *name, uint32_t obj)
{
	for (size_t i = 0; i < n->nr; i++)
		if (n->v[i].dir == dir && n->v[i].obj == obj && strcmp(n->v[i].name, name) == 0) {
			n->v[i] = n->v[--n->nr];
			return;
		}
}

static int names_set(struct names *n, uint32_t dir, const char *name, uint32_t obj)
{
	for (size_t i = 0; i < n->nr; i++)
		if (n->v[i].dir == dir && strcmp(n->v[i].name, name) == 0) {
			n->v[i].obj = obj;
			return 0;
		}
	if (n->nr == n->size) {
		size_t size = n->size ? 2 * n->size : 64;
		struct name *v = realloc(n->v, size * sizeof(*v));

		if (!v)
			return -ENOMEM;
		n->v = v;
		n->size = size;
	}
	n->v[n->nr++] = (struct name){ dir, obj, name };
	return 0;
}

/* An unlink or rename whose earlier half was lost finds another object under the name, and leaves it alone. */
static int names_apply(struct names *n, const struct op *op)
{
	switch (op->kind) {
	case OP_UNLINK:
		names_drop(n, op->dir, op->name, op->obj);
		return 0;
	case OP_RENAME:
		names_drop(n, op->dir, op->name, op->obj);
		return names_set(n, op->new_dir, op->new_name, op->obj);
	default:
		return names_set(n, op->dir, op->name, op->obj);
	}
}

static int bytes_apply(struct image *m, const struct op *op, const struct fate *f)
{
	switch (op->kind) {
	case OP_TRUNCATE:
		return f->kind == FATE_DROP ? 0 : image_resize(m, op->len);
	case OP_ALLOCATE:
		if (f->kind == FATE_DROP || op->off + op->len <= m->size)
			return 0;
		return image_resize(m, op->off + op->len);
	case OP_PUNCH:
		return f->kind == FATE_DROP ? 0 : image_punch(m, op->off, op->len);
	default:
		return fate_write(f, m, op->data, op->len, op->off);
	}
}

static int object_get(struct states *s, uint32_t obj, struct object **ret)
{
	if (obj >= s->nr_objs) {
		struct object *objs = realloc(s->objs, (obj + 1) * sizeof(*objs));

		if (!objs)
			return -ENOMEM;
		memset(objs + s->nr_objs, 0, (obj + 1 - s->nr_objs) * sizeof(*objs));
		s->objs = objs;
		s->nr_objs = obj + 1;
	}
	*ret = &s->objs[obj];
	return 0;
}

static int object_add_pending(struct states *s, struct object *o, size_t op)
{
	if (o->nr_pending == o->size_pending) {
		size_t size = o->size_pending ? 2 * o->size_pending : 16;
		size_t *pending = realloc(o->pending, size * sizeof(*pending));

		if (!pending)
			return -ENOMEM;
		o->pending = pending;
		o->size_pending = size;
	}
	o->pending[o->nr_pending++] = op;
	s->nr_pending++;
	return 0;
}

static int object_sync(struct states *s, struct object *o)
{
	static const struct fate kept = { .kind = FATE_KEEP };
	int r = 0;

	for (size_t i = 0; r == 0 && i < o->nr_pending; i++) {
		const struct op *op = &s->log->ops[o->pending[i]];

		r = o->is_dir ? names_apply(&s->names, op) : bytes_apply(&o->synced, op, &kept);
	}
	s->nr_pending -= o->nr_pending;
	o->nr_pending = 0;
	if (!o->is_dir)
		o->synced_hash = image_hash(&o->synced);
	return r;
}

static int step(struct states *s)
{
	const struct op *op = &s->log->ops[s->point];
	struct object *o, *dir;
	int r;

	if (op->kind == OP_MARK) {
		s->mark_a = op->off;
		s->mark_b = op->len;
		s->point++;
		return 0;
	}
	r = object_get(s, op->obj, &o); /* directories named by it are older and have lower numbers */
	if (r < 0)
		return r;
	dir = &s->objs[op->kind == OP_RENAME ? op->new_dir : op->dir];
	switch (op->kind) {
	case OP_MKDIR:
	case OP_CREATE:
		o->is_dir = op->kind == OP_MKDIR;
		o->ordered = dir->ordered || (o->is_dir && strcmp(op->name, s->ordered) == 0);
		o->synced_hash = image_hash(&o->synced);
		r = object_add_pending(s, dir, s->point);
		break;
	case OP_LINK:
	case OP_UNLINK:
	case OP_RENAME:
		r = object_add_pending(s, dir, s->point);
		break;
	case OP_SYNC:
		r = object_sync(s, o);
		break;
	default:
		r = object_add_pending(s, o, s->point);
		break;
	}
	s->point++;
	return r;
}

static void states_reset(struct states *s)
{
	for (uint32_t i = 0; i < s->nr_objs; i++) {
		image_release(&s->objs[i].synced);
		free(s->objs[i].pending);
	}
	free(s->objs);
	free(s->names.v);
	*s = (struct states){ .log = s->log, .ordered = s->ordered };
}

int states_new(const struct oplog *log, const char *ordered, struct states **ret)
{
	struct states *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->log = log;
	s->ordered = ordered;
	*ret = s;
	return states_seek(s, 0);
}

void states_free(struct states *s)
{
	if (s)
		states_reset(s);
	free(s);
}

int states_seek(struct states *s, size_t point)
{
	struct object *top;
	int r;

	if (point < s->point || !s->objs) {
		states_reset(s);
		r = object_get(s, 0, &top);
		if (r < 0)
			return r;
		top->is_dir = true;
	}
	while (s->point < point && s->point < s->log->nr) {
		r = step(s);
		if (r < 0)
			return r;
	}
	return 0;
}

size_t states_nr_pending(const struct states *s)
{
	return s->nr_pending;
}

void states_mark(const struct states *s, uint64_t *ret_a, uint64_t *ret_b)
{
	*ret_a = s->mark_a;
	*ret_b = s->mark_b;
}

static int make_names(struct state *st)
{
	const struct states *s = st->s;
	size_t size = s->names.nr + s->nr_pending + 1;

	st->names.v = malloc(size * sizeof(*st->names.v));
	if (!st->names.v)
		return -ENOMEM;
	st->names.size = size;
	st->names.nr = s->names.nr;
	if (s->names.nr > 0)
		memcpy(st->names.v, s->names.v, s->names.nr * sizeof(*st->names.v));
	for (uint32_t i = 0; i < s->nr_objs; i++)
		for (size_t k = 0; s->objs[i].is_dir && k < s->objs[i].nr_pending; k++) {
			size_t op = s->objs[i].pending[k];
			int r = st->fates[op].kind == FATE_DROP ? 0 : names_apply(&st->names, &s->log->ops[op]);

			if (r < 0)
				return r;
		}
	return 0;
}

static int make_image(struct state *st, uint32_t obj)
{
	const struct object *o = &st->s->objs[obj];
	int r;

	r = image_copy(&o->synced, &st->images[obj]);
	if (r < 0)
		return r;
	st->has_image[obj] = true;
	for (size_t k = 0; r == 0 && k < o->nr_pending; k++)
		r = bytes_apply(&st->images[obj], &st->s->log->ops[o->pending[k]], &st->fates[o->pending[k]]);
	return r;
}

/* The bytes of every file that has a name, and the hash of it all: a sum, because names are in no order. */
static int make_images(struct state *st)
{
	for (size_t i = 0; i < st->names.nr; i++) {
		const struct name *n = &st->names.v[i];
		const struct object *o = &st->s->objs[n->obj];
		uint64_t parts[3] = { n->dir, o->is_dir, 0 };

		if (!o->is_dir && o->nr_pending > 0 && !st->has_image[n->obj]) {
			int r = make_image(st, n->obj);

			if (r < 0)
				return r;
		}
		if (!o->is_dir)
			parts[2] = st->has_image[n->obj] ? image_hash(&st->images[n->obj]) : o->synced_hash;
		st->hash += XXH3_64bits_withSeed(n->name, strlen(n->name), XXH3_64bits(parts, sizeof(parts)));
	}
	return 0;
}

int states_make(struct states *s, uint64_t seed, unsigned variant, struct state **ret)
{
	_cleanup_(state_freep) struct state *st = calloc(1, sizeof(*st));
	struct fate_rng rng = fate_rng(seed, s->point, variant);
	int r;

	if (!st)
		return -ENOMEM;
	st->s = s;
	st->fates = calloc(s->point + 1, sizeof(*st->fates));
	st->images = calloc(s->nr_objs, sizeof(*st->images));
	st->has_image = calloc(s->nr_objs, sizeof(*st->has_image));
	if (!st->fates || !st->images || !st->has_image)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->nr_objs; i++) {
		const struct object *o = &s->objs[i];

		if (o->nr_pending > 0)
			fate_choose(&rng, variant, o->is_dir, o->ordered, o->pending, o->nr_pending, st->fates);
	}
	r = make_names(st);
	if (r == 0)
		r = make_images(st);
	if (r < 0)
		return r;
	*ret = TAKE(st);
	return 0;
}

void state_free(struct state *st)
{
	if (!st)
		return;
	for (uint32_t i = 0; st->has_image && i < st->s->nr_objs; i++)
		if (st->has_image[i])
			image_release(&st->images[i]);
	free(st->images);
	free(st->has_image);
	free(st->fates);
	free(st->names.v);
	free(st);
}

uint64_t state_hash(const struct state *st)
{
	return st->hash;
}

static int store_dir(const struct state *st, uint32_t dir, int fd)
{
	for (size_t i = 0; i < st->names.nr; i++) {
		const struct name *n = &st->names.v[i];
		const struct object *o = &st->s->objs[n->obj];
		int r;

		if (n->dir != dir)
			continue;
		if (o->is_dir) {
			_cleanup_(closep) int sub = -1;

			if (mkdirat(fd, n->name, 0700) < 0)
				return -errno;
			sub = openat(fd, n->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (sub < 0)
				return -errno;
			r = store_dir(st, n->obj, sub);
		} else {
			r = image_store(st->has_image[n->obj] ? &st->images[n->obj] : &o->synced, fd, n->name);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int state_store(const struct state *st, const char *dir)
{
	_cleanup_(closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : store_dir(st, 0, fd);
}

void state_describe(const struct state *st, FILE *to)
{
	for (uint32_t i = 0; i < st->s->nr_objs; i++) {
		const struct object *o = &st->s->objs[i];

		for (size_t k = 0; k < o->nr_pending; k++)
			fprintf(to, "  %8zu %s: %s\n", o->pending[k], op_text(&st->s->log->ops[o->pending[k]]).s,
				fate_text(&st->fates[o->pending[k]]).s);
	}
}
