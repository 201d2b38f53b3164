/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Archives of arrays: numpy's .npz, each entry an .npy; and the output of torch.save(): PREFIX/data.pkl, a pickle with
 * tensors, and PREFIX/data/KEY, their storages. If a tensor covers its whole storage, the shape is known; else the
 * storage becomes a variable with the name of the first tensor in it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/classify/formats.h"
#include "store/classify/pickle.h"
#include "store/classify/zip.h"

#define PATH_ROOM 900
#define DEPTH_MAX 32

struct storage {
	const char *key; /* behind "data/" */
	size_t key_len;
	uint64_t off, len;
	bool done; /* already added */
};

struct torch {
	struct typed *to;
	struct pickle pickle;
	struct storage *storage; /* sorted by key */
	size_t nr;
};

static int by_key(const void *left, const void *right)
{
	const struct storage *a = left, *b = right;
	int r = memcmp(a->key, b->key, MIN(a->key_len, b->key_len));

	return r ? r : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

/* "torch\nFloatStorage" */
static int set_type(struct typed_array *a, const struct pickle_node *class)
{
	static const struct {
		const char *name;
		char kind;
		unsigned bytes;
	} types[] = { { "Double", 'f', 8 },   { "Float", 'f', 4 },	  { "Half", 'f', 2 },
		      { "BFloat16", 'B', 2 }, { "Long", 'i', 8 },	  { "Int", 'i', 4 },
		      { "Short", 'i', 2 },    { "Char", 'i', 1 },	  { "Byte", 'u', 1 },
		      { "Bool", 'b', 1 },     { "ComplexFloat", 'c', 8 }, { "ComplexDouble", 'c', 16 } };
	char name[32];

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		int n = snprintf(name, sizeof(name), "torch\n%sStorage", types[i].name);

		if (class->len == (size_t)n && memcmp(class->text, name, class->len) == 0)
			return typed_array_set_type(a, types[i].kind, types[i].bytes, false);
	}
	return -EOPNOTSUPP;
}

/* Use the sizes of the tensor if it covers the whole storage; else the storage has one dimension. */
static void set_shape(const struct torch *t, const struct pickle_node *tensor, uint64_t nr, struct typed_array *a)
{
	const struct pickle_node *offset = pickle_child(&t->pickle, tensor, 1),
				 *sizes = pickle_child(&t->pickle, tensor, 2);
	uint64_t product = 1;

	a->nr_dims = 0;
	if (sizes && sizes->kind == PICKLE_LIST && offset && offset->kind == PICKLE_INT && offset->number == 0)
		for (uint32_t at = sizes->first; at > 0; at = t->pickle.node[at].next) {
			const struct pickle_node *n = &t->pickle.node[at];

			if (n->kind != PICKLE_INT || n->number < 0 || a->nr_dims == TYPED_DIMS_MAX ||
			    __builtin_mul_overflow(product, (uint64_t)n->number, &product)) {
				product = nr + 1;
				break;
			}
			a->dim[a->nr_dims++] = (uint64_t)n->number;
		}
	if (product == nr && a->nr_dims > 0)
		return;
	a->nr_dims = 1;
	a->dim[0] = nr;
}

static int add_tensor(struct torch *t, const struct pickle_node *tensor, const char *path, size_t path_len)
{
	const struct pickle_node *id = pickle_child(&t->pickle, tensor, 0), *class, *key, *nr;
	struct storage want, *s;
	struct typed_array a = { 0 };
	uint64_t bytes;

	if (!id || id->kind != PICKLE_STORAGE)
		return 0;
	class = pickle_child(&t->pickle, id, 1);
	key = pickle_child(&t->pickle, id, 2);
	nr = pickle_child(&t->pickle, id, 4);
	if (!class || class->kind != PICKLE_GLOBAL || !key || key->kind != PICKLE_TEXT || !nr ||
	    nr->kind != PICKLE_INT || nr->number < 0)
		return -EBADMSG;
	want = (struct storage){ .key = key->text, .key_len = key->len };
	s = t->nr > 0 ? bsearch(&want, t->storage, t->nr, sizeof(*s), by_key) : NULL;
	if (!s)
		return -EBADMSG;
	if (s->done || set_type(&a, class) < 0)
		return 0;
	s->done = true;
	set_shape(t, tensor, (uint64_t)nr->number, &a);
	if (typed_array_bytes(&a, &bytes) < 0 || bytes != s->len)
		return -EBADMSG;
	return typed_add_array(t->to, path, path_len, &a, s->off, s->len);
}

/* Append a name to a path of `len` bytes. Returns the new length. */
static size_t add_name(char path[PATH_ROOM], size_t len, const struct pickle_node *name, unsigned number)
{
	int n;

	if (name && name->kind == PICKLE_TEXT)
		n = snprintf(path + len, PATH_ROOM - len, "%s%.*s", len > 0 ? "/" : "",
			     (int)MIN(name->len, (size_t)PATH_ROOM), name->text);
	else
		n = snprintf(path + len, PATH_ROOM - len, "%s%lld", len > 0 ? "/" : "",
			     name && name->kind == PICKLE_INT ? (long long)name->number : (long long)number);
	len += n > 0 ? (size_t)n : 0;
	return MIN(len, (size_t)PATH_ROOM - 1);
}

static int walk(struct torch *t, const struct pickle_node *node, char path[PATH_ROOM], size_t len, unsigned depth)
{
	const struct pickle_node *all = t->pickle.node;
	unsigned number = 0;
	int r = 0;

	if (node->kind == PICKLE_TENSOR)
		return add_tensor(t, node, path, len);
	if (depth == DEPTH_MAX || (node->kind != PICKLE_DICT && node->kind != PICKLE_LIST))
		return 0;
	for (uint32_t at = node->first; at > 0 && r == 0; at = all[at].next) {
		const struct pickle_node *name = NULL;

		if (node->kind == PICKLE_DICT) {
			name = &all[at];
			at = name->next;
			if (at == 0)
				return -EBADMSG;
		}
		r = walk(t, &all[at], path, add_name(path, len, name, number++), depth + 1);
	}
	return r;
}

/* PREFIX/data/KEY */
static bool is_storage(const struct zip_entry *e, size_t prefix)
{
	return e->name_len > prefix + 5 && memcmp(e->name + prefix, "data/", 5) == 0;
}

static int list_storages(const struct zip_iter *entries, size_t prefix, struct torch *t)
{
	struct zip_iter it = *entries;
	struct zip_entry e;
	size_t room = 0;
	int r;

	while ((r = zip_next(&it, &e)) > 0) {
		if (!is_storage(&e, prefix))
			continue;
		if (t->nr == TYPED_VARIABLES_MAX)
			return -E2BIG;
		if (t->nr == room) {
			struct storage *more = reallocarray(t->storage, room = MAX(2 * room, (size_t)64), sizeof(*more));

			if (!more)
				return -ENOMEM;
			t->storage = more;
		}
		t->storage[t->nr++] =
			(struct storage){ e.name + prefix + 5, e.name_len - prefix - 5, e.off, e.len, false };
	}
	if (t->nr > 0)
		qsort(t->storage, t->nr, sizeof(*t->storage), by_key);
	return r;
}

static int add_torch(const uint8_t *p, const struct zip_iter *entries, const struct zip_entry *pkl, struct typed *ret)
{
	struct torch t = { .to = ret };
	char path[PATH_ROOM] = "";
	int r;

	r = list_storages(entries, pkl->name_len - strlen("data.pkl"), &t);
	if (r == 0)
		r = pickle_parse(p + pkl->off, (size_t)pkl->len, &t.pickle);
	if (r == 0)
		r = walk(&t, &t.pickle.node[t.pickle.root], path, 0, 0);
	pickle_release(&t.pickle);
	free(t.storage);
	return r < 0 ? r : 1;
}

static bool ends_with(const struct zip_entry *e, const char *word)
{
	size_t n = strlen(word);

	return e->name_len >= n && memcmp(e->name + e->name_len - n, word, n) == 0;
}

int format_zip(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct zip_iter entries, it;
	struct zip_entry e;
	bool known = false;
	int r;

	r = zip_open(p, len, &entries);
	if (r <= 0)
		return r;
	for (it = entries; (r = zip_next(&it, &e)) > 0;) {
		if (e.len > 0 && ends_with(&e, "/data.pkl"))
			return add_torch(p, &entries, &e, ret);
		if (e.len == 0 || !ends_with(&e, ".npy"))
			continue;
		r = npy_add(p, e.off, e.len, e.name, e.name_len - 4, ret);
		if (r < 0)
			return r;
		known |= r > 0;
	}
	return r < 0 ? r : known;
}
