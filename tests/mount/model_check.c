/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Comparing the mount with the model.
 *
 * What is on the mount is read into a second tree, nodes named alike (by inode number), and both are turned into keys
 * and values. After an orderly remount they must be equal. After a crash the mount must be in a state that the log
 * tells of: the one after step k, for a k not before the last acknowledged fsync; the step k + 1 may be there in parts
 * if it was more than one request. And between trees: a step that was over before another one began cannot be lost
 * while that other one survives.
 */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- reading the mount ---- */

static uint64_t id_of(const struct tree *t, uint64_t ino, bool *pending_used)
{
	uint32_t i;

	for (i = t->nr_births; i-- > 0;)
		if (t->births[i].ino == ino)
			return t->births[i].id;
	if (t->pending && !*pending_used) {
		*pending_used = true;
		return t->pending;
	}
	return 1ull << 63 | ino; /* without an owner */
}

static int node_of_ino(const struct tree *t, uint64_t ino)
{
	int i;

	for (i = 0; i < NR_NODES; i++)
		if (t->node[i].type != NODE_NONE && t->node[i].ino == ino)
			return i;
	return -1;
}

static int load_file(struct tree *t, int n, int dirfd, const char *name, uint64_t size)
{
	uint64_t done = 0;
	ssize_t r;
	int fd;

	if (size > FILE_MAX_SIZE) {
		fprintf(stderr, "%s: %llu bytes, more than ever written\n", name, (unsigned long long)size);
		return -EFBIG;
	}
	fd = openat(dirfd, name, O_RDONLY);
	if (fd < 0)
		return -errno;
	while (done < size && (r = pread(fd, data_of(t, n) + done, size - done, done)) != 0) {
		if (r < 0) {
			r = -errno;
			close(fd);
			return r;
		}
		done += r;
	}
	close(fd);
	t->node[n].size = done;
	return done == size ? 0 : -EIO;
}

static void load_xattrs(struct node *x, int fd)
{
	char name[32], value[PAGE];
	ssize_t r;
	int i;

	for (i = 0; i < NR_XATTRS; i++) {
		snprintf(name, sizeof(name), "user.m%d", i);
		r = fgetxattr(fd, name, value, sizeof(value));
		x->xattr[i] = r < 0 ? 0 : hash(value, r);
	}
}

static int load_node(struct tree *t, int n, int dirfd, const char *name, const struct stat *st)
{
	struct node *x = &t->node[n];
	int fd, r = 0;

	x->ino = st->st_ino;
	x->mode = st->st_mode & 07777;
	x->uid = st->st_uid;
	x->gid = st->st_gid;
	x->nlink = st->st_nlink;
	x->mtime_ns = st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec;
	x->attributes = hash((uint64_t[]){ st->st_ino, st->st_mode, st->st_nlink, st->st_uid, st->st_gid, st->st_size,
					   st->st_blocks, st->st_mtim.tv_sec, st->st_mtim.tv_nsec, st->st_ctim.tv_sec,
					   st->st_ctim.tv_nsec }, 11 * sizeof(uint64_t));
	if (x->type == NODE_SYMLINK)
		return readlinkat(dirfd, name, x->target, sizeof(x->target) - 1) < 0 ? -errno : 0;
	if (x->type == NODE_FIFO)
		return 0;
	fd = openat(dirfd, name, O_RDONLY);
	if (fd < 0)
		return -errno;
	load_xattrs(x, fd);
	close(fd);
	if (x->type == NODE_FILE)
		r = load_file(t, n, dirfd, name, st->st_size);
	return r;
}

static enum node_type type_of(mode_t mode)
{
	return S_ISDIR(mode) ? NODE_DIR : S_ISLNK(mode) ? NODE_SYMLINK : S_ISFIFO(mode) ? NODE_FIFO : NODE_FILE;
}

static int load_dent(struct tree *from, struct tree *t, int dir, int dirfd, const char *name, bool *pending_used,
		     int *ret)
{
	struct stat st;
	int i, n, r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	n = node_of_ino(t, st.st_ino);
	if (n < 0) {
		n = node_new(t, type_of(st.st_mode), 0);
		if (n < 0)
			return -EOVERFLOW;
		t->node[n].id = id_of(from, st.st_ino, pending_used);
		r = load_node(t, n, dirfd, name, &st);
		if (r < 0)
			return r;
	}
	for (i = 0; i < NR_DENTS && t->dent[i].node >= 0; i++)
		;
	if (i == NR_DENTS)
		return -EOVERFLOW;
	t->dent[i] = (struct dent){ .dir = dir, .node = n };
	snprintf(t->dent[i].name, NAME_SIZE, "%s", name);
	*ret = n;
	return 0;
}

static int load_dir(struct tree *from, struct tree *t, int dir, int dirfd, bool *pending_used)
{
	DIR *d = fdopendir(dirfd); /* takes dirfd */
	struct dirent *e;
	int r = 0, n = 0, fd;

	while (r == 0 && (errno = 0, e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = load_dent(from, t, dir, dirfd, e->d_name, pending_used, &n);
		if (r < 0) {
			fprintf(stderr, "%s: cannot be read: %s\n", e->d_name, strerror(-r));
		} else if (t->node[n].type == NODE_DIR) {
			fd = openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY);
			r = fd < 0 ? -errno : load_dir(from, t, n, fd, pending_used);
		}
	}
	if (r == 0)
		r = -errno;
	closedir(d);
	return r;
}

/* Read the directory of `from` into ret, which gets the ids of `from`. */
int tree_load(struct tree *from, int rootfd, struct tree *ret)
{
	bool pending_used = false;
	struct stat st;
	int fd;

	tree_clear(ret);
	fd = openat(rootfd, from->name, O_RDONLY | O_DIRECTORY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	node_new(ret, NODE_DIR, 0);
	ret->node[0].id = from->node[0].id;
	load_node(ret, 0, rootfd, from->name, &st);
	return load_dir(from, ret, 0, fd, &pending_used);
}

/* ---- keys and values ---- */

struct slot {
	struct key key; /* kind 0: free */
	uint64_t model, mount;
};

struct table {
	struct slot *slots;
	uint32_t size, used;
	uint64_t nr_different;
};

static struct slot *slot_of(struct table *table, struct key key)
{
	uint64_t h = mix(mix(mix(1, key.id), key.sub), key.kind);

	for (;; h++) {
		struct slot *s = &table->slots[h & (table->size - 1)];

		if (s->key.kind == key.kind && s->key.id == key.id && s->key.sub == key.sub)
			return s;
		if (s->key.kind)
			continue;
		if (++table->used > table->size / 4 * 3)
			abort();
		s->key = key;
		return s;
	}
}

static bool equal(const struct slot *s)
{
	return s->model == s->mount || (s->key.kind == KEY_MTIME && s->model == 0);
}

static void table_set_model(struct table *table, const struct delta *d)
{
	struct slot *s = slot_of(table, d->key);

	table->nr_different -= !equal(s);
	s->model = d->value;
	table->nr_different += !equal(s);
}

static struct table table_new(const struct tree *mount, uint32_t nr_deltas)
{
	struct table table = { .size = 1024 };
	uint32_t i;

	while (table.size < (mount->nr_deltas + nr_deltas) * 2)
		table.size *= 2;
	table.slots = calloc(table.size, sizeof(*table.slots));
	for (i = 0; i < mount->nr_deltas; i++) {
		struct slot *s = slot_of(&table, mount->deltas[i].key);

		s->mount = mount->deltas[i].value;
		table.nr_different += !equal(s);
	}
	return table;
}

/* A path for a node, from whichever tree has it. */
static void describe(const struct tree *t, uint64_t id, char *ret, size_t size)
{
	int i;

	snprintf(ret, size, "node %llu", (unsigned long long)id);
	if (id == t->node[0].id)
		snprintf(ret, size, ".");
	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0 && t->node[t->dent[i].node].id == id)
			path_of(t, t->dent[i].dir, t->dent[i].name, ret, size);
}

static void print_differences(struct tree *t, struct tree *mount, const struct table *table)
{
	static const char *const kinds[] = { "", "name", "attributes", "size", "mtime", "xattr", "page" };
	char a[4096], b[4096];
	uint32_t i, n = 0;

	for (i = 0; i < table->size && n < 20; i++) {
		const struct slot *s = &table->slots[i];

		if (s->key.kind == 0 || equal(s))
			continue;
		describe(t, s->key.id, a, sizeof(a));
		describe(mount, s->key.id, b, sizeof(b));
		printf("  %s: %s %llx is %llx on the mount (%s), %llx in the model (%s)\n", t->name,
		       kinds[s->key.kind], (unsigned long long)s->key.sub, (unsigned long long)s->mount, b,
		       (unsigned long long)s->model, a);
		n++;
	}
}

/* ---- after an orderly remount ---- */

static struct tree *scratch(void)
{
	static struct tree *t;

	if (!t)
		t = tree_new("scratch");
	return t;
}

static bool check_attributes(struct tree *t, struct tree *mount)
{
	char path[4096];
	bool good = true;
	int i, n;

	for (i = 0; i < NR_NODES; i++) {
		struct node *x = &t->node[i];

		n = x->type == NODE_NONE ? -1 : node_of_ino(mount, x->ino);
		if (n < 0 || x->attributes == mount->node[n].attributes)
			continue;
		describe(t, x->id, path, sizeof(path));
		printf("not ok %s/%s: stat is not what it was before the remount\n", t->name, path);
		good = false;
	}
	return good;
}

bool check_exact(struct tree *t, int rootfd, bool same_attributes)
{
	struct tree *mount = scratch();
	struct table table;
	bool good = true;
	uint32_t i;
	int r, n;

	log_reset(t);
	r = tree_load(t, rootfd, mount);
	if (r < 0) {
		printf("not ok %s: cannot be read back: %s\n", t->name, strerror(-r));
		return false;
	}
	log_reset(mount);
	table = table_new(mount, t->nr_deltas);
	for (i = 0; i < t->nr_deltas; i++)
		table_set_model(&table, &t->deltas[i]);
	if (table.nr_different) {
		printf("not ok %s: %llu values differ from the model\n", t->name,
		       (unsigned long long)table.nr_different);
		print_differences(t, mount, &table);
		good = false;
	}
	if (same_attributes)
		good &= check_attributes(t, mount);
	for (i = 0; i < NR_NODES; i++)
		if (t->node[i].type != NODE_NONE && (n = node_of_ino(mount, t->node[i].ino)) >= 0)
			t->node[i].attributes = mount->node[n].attributes;
	free(table.slots);
	return good;
}

/* ---- after a crash ---- */

struct survival {
	uint32_t first, last; /* the states that the mount can be in, by the number of steps that they include */
	bool found, torn;
};

static bool between(const struct slot *s, uint64_t after)
{
	uint64_t low = s->model < after ? s->model : after, high = s->model < after ? after : s->model;

	return s->mount >= low && s->mount <= high;
}

/* Is one part of the page as it was before the step, and the other as it was after? Files cut by content are torn
 * anywhere. */
static bool is_torn_page(const struct tree *t, struct tree *mount, const struct step *step, const struct key *key)
{
	const uint8_t *old = kept_bytes(t, step), *new, *got;
	size_t from_old = 0, from_new = 0;
	int n;

	for (n = 0; n < NR_NODES; n++)
		if (mount->node[n].type == NODE_FILE && mount->node[n].id == key->id)
			break;
	if (!old || n == NR_NODES || key->kind != KEY_PAGE || key->id != step->bytes.id ||
	    key->sub < step->bytes.page || key->sub - step->bytes.page >= step->bytes.nr_pages)
		return false;
	old += (key->sub - step->bytes.page) * PAGE;
	new = old + (size_t)step->bytes.nr_pages * PAGE;
	got = data_of(mount, n) + key->sub * PAGE;
	while (from_old < PAGE && got[from_old] == old[from_old])
		from_old++;
	while (from_new < PAGE && got[from_new] == new[from_new])
		from_new++;
	return memcmp(got + from_old, new + from_old, PAGE - from_old) == 0 ||
	       memcmp(got + from_new, old + from_new, PAGE - from_new) == 0;
}

/* Do parts of this step make up all that differs? */
static bool torn_by(struct table *table, const struct tree *t, struct tree *mount, const struct step *step)
{
	uint64_t explained = 0;
	uint32_t i;

	if (!step->may_tear)
		return false;
	for (i = 0; i < step->nr; i++) {
		const struct delta *d = &t->deltas[step->first + i];
		struct slot *s = slot_of(table, d->key);

		if (equal(s))
			continue;
		if (s->mount == d->value || (s->key.kind == KEY_MTIME && d->value == 0) ||
		    (s->key.kind == KEY_SIZE && between(s, d->value)) || is_torn_page(t, mount, step, &d->key))
			explained++;
	}
	return explained == table->nr_different;
}

static void found(struct survival *s, uint32_t nr_steps, bool torn)
{
	if (!s->found)
		s->first = nr_steps;
	s->last = nr_steps;
	s->found = true;
	s->torn = torn;
}

static void apply(struct table *table, const struct tree *t, uint32_t step)
{
	uint32_t i;

	for (i = 0; i < t->steps[step].nr; i++)
		table_set_model(table, &t->deltas[t->steps[step].first + i]);
}

static struct survival find_state(struct tree *t, struct tree *mount)
{
	struct table table = table_new(mount, t->nr_deltas);
	struct survival s = { 0 };
	uint64_t best = UINT64_MAX;
	uint32_t k, synced = 0, best_k = 0;

	for (k = 0; k < t->nr_steps; k++)
		if (t->steps[k].synced)
			synced = k;
	for (k = 0; k < t->nr_steps; k++) {
		apply(&table, t, k);
		if (k < synced)
			continue;
		if (table.nr_different == 0)
			found(&s, k + 1, false);
		else if (k + 1 < t->nr_steps && torn_by(&table, t, mount, &t->steps[k + 1]))
			found(&s, k + 1, true);
		if (table.nr_different < best)
			best = table.nr_different, best_k = k;
	}
	if (!s.found) {
		printf("not ok %s: not a state of its history from step %u of %u on; nearest is after step %u (%s):\n",
		       t->name, synced, t->nr_steps, best_k, t->steps[best_k].op);
		free(table.slots);
		table = table_new(mount, t->nr_deltas);
		for (k = 0; k <= best_k; k++)
			apply(&table, t, k);
		print_differences(t, mount, &table);
	}
	free(table.slots);
	return s;
}

static void adopt(struct tree *t, struct tree *mount)
{
	int i;

	memcpy(t->node, mount->node, sizeof(t->node));
	memcpy(t->dent, mount->dent, sizeof(t->dent));
	for (i = 0; i < NR_NODES; i++) {
		memset(data_of(t, i), 0, FILE_MAX_SIZE);
		if (t->node[i].type == NODE_FILE)
			memcpy(data_of(t, i), data_of(mount, i), t->node[i].size);
		t->node[i].id = t->next_id++;
		t->node[i].mtime_ns = -1;
	}
}

/* A step that survived for sure and began after a lost one had ended? */
static bool check_order(struct tree *const *trees, unsigned nr, const struct survival *s)
{
	bool good = true;
	unsigned i, j;
	uint32_t k;

	for (i = 0; i < nr; i++) {
		for (k = s[i].last; k < trees[i]->nr_steps; k++) {
			const struct step *lost = &trees[i]->steps[k];

			for (j = 0; j < nr; j++) {
				const struct step *kept = &trees[j]->steps[s[j].first - 1];

				if (j == i || lost->nr == 0 || lost->end_ns >= kept->start_ns)
					continue;
				printf("not ok %s: step %u (%s) is lost, "
				       "but step %u (%s) of %s survives, begun %.3f ms later\n",
				       trees[i]->name, k, lost->op, s[j].first - 1, kept->op, trees[j]->name,
				       (kept->start_ns - lost->end_ns) / 1e6);
				good = false;
			}
		}
	}
	return good;
}

bool check_survivors(struct tree *const *trees, unsigned nr, int rootfd)
{
	struct survival *s = calloc(nr, sizeof(*s));
	bool good = true;
	unsigned i;
	int r;

	for (i = 0; i < nr; i++) {
		r = tree_load(trees[i], rootfd, scratch());
		if (r < 0) {
			printf("not ok %s: cannot be read back: %s\n", trees[i]->name, strerror(-r));
			good = false;
			continue;
		}
		log_reset(scratch());
		s[i] = find_state(trees[i], scratch());
		if (s[i].found)
			printf("# %s: %u of %u steps survive%s\n", trees[i]->name, s[i].last, trees[i]->nr_steps,
			       s[i].torn ? " and parts of the next" : "");
		good &= s[i].found;
		adopt(trees[i], scratch());
	}
	good = good && check_order(trees, nr, s);
	free(s);
	return good;
}
