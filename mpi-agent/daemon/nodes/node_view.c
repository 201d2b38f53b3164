/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/nodes/node_view.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "mpi-agent/daemon/cluster.h"
#include "fs/fs.h"
#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/nodes/peer_list.h"
#include "store/remote/cluster_calls.h"

#define FORGET_NS 50000000 /* time for the kernel to forget invalidated names */
#define ENTRIES_MAX (1u << 18) /* synthetic inodes in the lifetime of a mount */
#define UPWARDS "../.." /* from nodes to the root */

enum kind { OF_VIEW, OF_NODES, OF_SELF, OF_NODE };

struct entry {
	enum kind kind;
	uint64_t parent;
	uint8_t id[NS_STORE_ID_LEN]; /* OF_NODE */
	char *path; /* OF_NODE: path in that node; "" is its root */
};

struct view {
	struct fs *fs; /* constant */
	struct peer_list *peer_list;
	struct timespec since;

	struct mutex invalidate_lock; /* outside the lock of fs/ops/notify.h, which is a leaf */
	view_invalidate_fn *invalidate GUARDED_BY(invalidate_lock);
	void *invalidate_userdata GUARDED_BY(invalidate_lock);

	struct mutex lock; /* leaf */
	/* indexed by inode number from VIEW_FIRST_INO on; the first two are .ckptfs and nodes */
	struct entry *v GUARDED_BY(lock);
	size_t nr GUARDED_BY(lock), room GUARDED_BY(lock);
	/* the list view_next_seal() iterates over, sorted by inode on that node */
	uint8_t listed_id[NS_STORE_ID_LEN] GUARDED_BY(lock);
	char listed_name[PEER_LIST_NAME_MAX + 1] GUARDED_BY(lock);
	struct peer_list_seals listed GUARDED_BY(lock);
};

/* --- synthetic inodes --- */

static bool find_entry(struct view *v, enum kind kind, const uint8_t *id, const char *path, size_t path_len,
		       uint64_t *ret) REQUIRES(v->lock)
{
	for (size_t i = 0; i < v->nr; i++) {
		const struct entry *e = &v->v[i];

		if (e->kind == kind && memcmp(e->id, id, sizeof(e->id)) == 0 && strlen(e->path) == path_len &&
		    memcmp(e->path, path, path_len) == 0) {
			*ret = VIEW_FIRST_INO + i;
			return true;
		}
	}
	return false;
}

static int add_entry(struct view *v, const struct entry *e, uint64_t *ret) REQUIRES(v->lock)
{
	struct entry *more;
	char *path;

	if (find_entry(v, e->kind, e->id, e->path, strlen(e->path), ret))
		return 0;
	if (v->nr == ENTRIES_MAX)
		return log_errno(-ENFILE, "%s: more than %u directories of other nodes were looked up", VIEW_NAME,
				 ENTRIES_MAX);
	if (v->nr == v->room) {
		size_t room = MAX(2 * v->room, (size_t)16);

		more = reallocarray(v->v, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		v->v = more;
		v->room = room;
	}
	path = strdup(e->path);
	if (!path)
		return -ENOMEM;
	v->v[v->nr] = *e;
	v->v[v->nr].path = path;
	*ret = VIEW_FIRST_INO + v->nr++;
	return 0;
}

static int add_directory(struct view *v, const struct entry *e, uint64_t *ret)
{
	int r;

	mutex_lock(&v->lock);
	r = add_entry(v, e, ret);
	mutex_unlock(&v->lock);
	return r;
}

/* Copy of an entry. Its path is not freed before the view. */
static int get_entry(struct view *v, uint64_t ino, struct entry *ret)
{
	int r = -ENOENT;

	if (!v)
		return r;
	mutex_lock(&v->lock);
	if (ino - VIEW_FIRST_INO < v->nr) {
		*ret = v->v[ino - VIEW_FIRST_INO];
		r = 0;
	}
	mutex_unlock(&v->lock);
	return r;
}

uint64_t view_parent(struct view *v, uint64_t ino)
{
	struct entry e;

	return get_entry(v, ino, &e) == 0 ? e.parent : 0;
}

int view_stat(struct view *v, uint64_t ino, struct stat *ret)
{
	/*
	 * OF_NODE: directories above a sealed one may not be readable for all users on that node. So their names can be
	 * looked up but not listed.
	 */
	static const mode_t modes[] = {
		[OF_VIEW] = S_IFDIR | 0555, [OF_NODES] = S_IFDIR | 0555, [OF_SELF] = S_IFLNK | 0777, [OF_NODE] = S_IFDIR | 0511
	};
	struct entry e;
	int r = get_entry(v, ino, &e);

	if (r < 0)
		return r;
	*ret = (struct stat){
		.st_ino = ino,
		.st_mode = modes[e.kind],
		.st_nlink = e.kind == OF_SELF ? 1 : 2,
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_size = e.kind == OF_SELF ? (off_t)strlen(UPWARDS) : 0,
		.st_blksize = 4096,
		.st_atim = v->since,
		.st_mtim = v->since,
		.st_ctim = v->since,
	};
	return 0;
}

int view_readlink(struct view *v, uint64_t ino, struct buf *ret)
{
	struct entry e;
	int r = get_entry(v, ino, &e);

	if (r < 0 || e.kind != OF_SELF)
		return r < 0 ? r : -EINVAL;
	buf_add(ret, UPWARDS, strlen(UPWARDS));
	return buf_error(ret);
}

/* --- looking up --- */

bool view_has(const struct view *v, uint64_t dir, const char *name)
{
	return v && (view_is(dir) || (dir == NS_ROOT_INO && name && strcmp(name, VIEW_NAME) == 0));
}

/* If `path` is below `dir`, the position of its next name. */
static const char *below(const char *dir, const char *path)
{
	size_t len = strlen(dir);

	if (len == 0)
		return *path ? path : NULL;
	return strncmp(path, dir, len) == 0 && path[len] == '/' ? path + len + 1 : NULL;
}

/* Find a sealed directory, or a directory above one. If neither exists, the root of a connected node is still found. */
static int find_once(struct view *v, const struct entry *e, bool is_node, uint64_t *ret)
{
	_cleanup_(peer_list_seals_release) struct peer_list_seals seals = { 0 };
	bool leads_on = is_node;
	int r = peer_list_seals(v->peer_list, e->id, &seals);

	for (size_t i = 0; i < seals.nr && r == 0; i++) {
		if (strcmp(seals.v[i].path, e->path) == 0)
			return peer_list_open(v->peer_list, &seals.v[i], ret);
		leads_on |= below(e->path, seals.v[i].path) != NULL;
	}
	return r < 0 ? r : leads_on ? add_directory(v, e, ret) : -ENOENT;
}

/* If absent, it may have been sealed since the last listing: ask again. */
static int look_up_path(struct view *v, const struct entry *e, bool is_node, uint64_t *ret)
{
	int r = find_once(v, e, is_node, ret);

	if (r != -ENOENT)
		return r;
	peer_list_forget(v->peer_list);
	return find_once(v, e, is_node, ret);
}

static int look_up_node(struct view *v, uint64_t dir, const char *name, uint64_t *ret)
{
	struct entry e = { .kind = OF_SELF, .parent = dir, .path = "" };
	char own[CLUSTER_NAME_LEN];
	struct peer_list_node n;
	int r;

	cluster_name(v->fs->cluster, own);
	if (strcmp(name, own) == 0)
		return add_directory(v, &e, ret);
	r = peer_list_find(v->peer_list, name, &n);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	e.kind = OF_NODE;
	memcpy(e.id, n.id, sizeof(e.id));
	return look_up_path(v, &e, true, ret);
}

static int look_up_below(struct view *v, uint64_t dir, const struct entry *e, const char *name, uint64_t *ret)
{
	char path[NS_PATH_MAX + 1];
	struct entry next = *e;
	int len = snprintf(path, sizeof(path), "%s%s%s", e->path, *e->path ? "/" : "", name);

	if (len < 0 || (size_t)len >= sizeof(path))
		return -ENAMETOOLONG;
	next.parent = dir;
	next.path = path;
	return look_up_path(v, &next, false, ret);
}

int view_lookup(struct view *v, uint64_t dir, const char *name, uint64_t *ret)
{
	struct entry e;
	int r;

	if (!view_is(dir)) {
		*ret = VIEW_FIRST_INO + OF_VIEW;
		return 0;
	}
	r = get_entry(v, dir, &e);
	if (r < 0)
		return r;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		*ret = name[1] ? e.parent : dir;
		return 0;
	}
	switch (e.kind) {
	case OF_VIEW:
		*ret = VIEW_FIRST_INO + OF_NODES;
		return strcmp(name, "nodes") == 0 ? 0 : -ENOENT;
	case OF_NODES:
		return look_up_node(v, dir, name, ret);
	case OF_NODE:
		return look_up_below(v, dir, &e, name, ret);
	case OF_SELF:
		break;
	}
	return -ENOTDIR;
}

/* --- listing --- */

struct names {
	struct view *v;
	struct ns_dirent *d;
	size_t nr, room;
};

static int add_name(struct names *l, const char *name, size_t len, uint8_t type)
{
	struct ns_dirent *d;

	if (len > NS_NAME_MAX)
		return 0; /* could not be looked up either */
	if (l->nr == l->room) {
		size_t room = MAX(2 * l->room, (size_t)16);
		struct ns_dirent *more = reallocarray(l->d, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->d = more;
		l->room = room;
	}
	d = &l->d[l->nr++];
	d->type = type;
	d->name_len = (uint8_t)len;
	memcpy(d->name, name, len);
	d->name[len] = '\0';
	d->cookie = d->ino = ns_cookie(l->v->fs->key, name, len);
	return 0;
}

static int add_nodes(struct names *l)
{
	_cleanup_(freep) struct peer_list_node *nodes = NULL;
	char name[PEER_LIST_NAME_MAX + 1];
	size_t nr = 0;
	int r = peer_list_nodes(l->v->peer_list, &nodes, &nr);

	for (size_t i = 0; i < nr && r == 0; i++) {
		peer_list_shown_name(nodes, nr, i, name);
		r = add_name(l, name, strlen(name), DT_DIR);
	}
	cluster_name(l->v->fs->cluster, name);
	return r < 0 || !*name ? r : add_name(l, name, strlen(name), DT_LNK);
}

/* Searched in full: the order of paths may separate names of one directory, as in "a", "a-b", "a/b". */
static bool has_name(const struct names *l, const char *name, size_t len)
{
	for (size_t i = l->nr; i-- > 0;)
		if (l->d[i].name_len == len && memcmp(l->d[i].name, name, len) == 0)
			return true;
	return false;
}

static int add_below(struct names *l, const struct entry *e)
{
	_cleanup_(peer_list_seals_release) struct peer_list_seals seals = { 0 };
	int r = peer_list_seals(l->v->peer_list, e->id, &seals);

	for (size_t i = 0; i < seals.nr && r == 0; i++) {
		const char *name = below(e->path, seals.v[i].path);
		size_t len = name ? strcspn(name, "/") : 0;

		if (name && !has_name(l, name, len))
			r = add_name(l, name, len, DT_DIR);
	}
	return r;
}

static int by_cookie(const void *a, const void *b)
{
	const struct ns_dirent *x = a, *y = b;

	return x->cookie < y->cookie ? -1 : x->cookie > y->cookie;
}

int view_list(struct view *v, uint64_t ino, struct ns_dirent **ret, size_t *ret_nr)
{
	struct names l = { .v = v };
	struct entry e;
	int r = get_entry(v, ino, &e);

	if (r < 0)
		return r;
	if (e.kind == OF_VIEW)
		r = add_name(&l, "nodes", strlen("nodes"), DT_DIR);
	else if (e.kind == OF_NODES)
		r = add_nodes(&l);
	else
		r = e.kind == OF_NODE ? add_below(&l, &e) : -ENOTDIR;
	if (r < 0) {
		free(l.d);
		return r;
	}
	if (l.nr > 0)
		qsort(l.d, l.nr, sizeof(*l.d), by_cookie);
	*ret = l.d;
	*ret_nr = l.nr;
	return 0;
}

int view_next_kept(struct view *v, uint64_t after, uint64_t *ret_top, struct buf *path)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	char name[PEER_LIST_NAME_MAX + 1];
	struct peer_list_node node = { 0 };
	int r = c ? 0 : -ENOMEM;

	while (r == 0 && v && (r = nodes_next(v->fs, after, &after, c)) > 0) {
		if (c->state != NS_REPLICA_KEPT || c->nr_slots > 0) {
			r = 0;
			continue;
		}
		static_assert(sizeof(node.id) == sizeof(c->store) && sizeof(node.name) == sizeof(c->name), "as they are");
		memcpy(node.id, c->store, sizeof(node.id));
		memcpy(node.name, c->name, sizeof(node.name));
		peer_list_long_name(&node, name);
		buf_add(path, name, strlen(name));
		buf_add_u8(path, '/');
		buf_add(path, c->path, strlen(c->path));
		*ret_top = after;
		r = buf_error(path);
		return r < 0 ? r : 1;
	}
	return r;
}

/* The node a directory belongs to: 1/0/<0. */
static int find_node(struct view *v, uint64_t dir, uint8_t id[NS_STORE_ID_LEN])
{
	_cleanup_(freep) struct ns_replica *c = NULL;
	struct entry e;
	int r;

	if (view_is(dir)) {
		r = get_entry(v, dir, &e);
		if (r == 0 && e.kind != OF_NODE)
			r = -ENOTUNIQ;
		if (r == 0)
			memcpy(id, e.id, NS_STORE_ID_LEN);
		return r < 0 ? r : 1;
	}
	c = malloc(sizeof(*c));
	r = c ? ns_get_replica(v->fs->db, dir, c) : -ENOMEM;
	if (r > 0)
		memcpy(id, c->store, NS_STORE_ID_LEN);
	return r;
}

static int shown_name(struct view *v, const uint8_t *id, char ret[PEER_LIST_NAME_MAX + 1])
{
	_cleanup_(freep) struct peer_list_node *nodes = NULL;
	size_t nr = 0;
	int r = peer_list_nodes(v->peer_list, &nodes, &nr);

	for (size_t i = 0; i < nr && r == 0; i++)
		if (memcmp(nodes[i].id, id, NS_STORE_ID_LEN) == 0) {
			peer_list_shown_name(nodes, nr, i, ret);
			return 0;
		}
	return r < 0 ? r : -ENOENT;
}

static int by_ino(const void *a, const void *b)
{
	const struct peer_list_seal *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* The listing is kept from one step to the next, and fetched again at the first one to include recent seals. */
static int list_seals(struct view *v, const uint8_t *id, bool refresh)
{
	struct peer_list_seals seals = { 0 };
	char name[PEER_LIST_NAME_MAX + 1];
	int r;

	mutex_lock(&v->lock);
	refresh |= memcmp(v->listed_id, id, sizeof(v->listed_id)) != 0;
	mutex_unlock(&v->lock);
	if (!refresh)
		return 0;
	peer_list_forget(v->peer_list);
	r = peer_list_seals(v->peer_list, id, &seals);
	if (r == 0)
		r = shown_name(v, id, name);
	if (r < 0) {
		peer_list_seals_release(&seals);
		return r;
	}
	if (seals.nr > 0)
		qsort(seals.v, seals.nr, sizeof(*seals.v), by_ino);
	mutex_lock(&v->lock);
	peer_list_seals_release(&v->listed);
	v->listed = seals;
	memcpy(v->listed_id, id, sizeof(v->listed_id));
	memcpy(v->listed_name, name, sizeof(v->listed_name));
	mutex_unlock(&v->lock);
	return 0;
}

/* The first seal after `after` with a path, including the prefix, that is not too long. 1/0/<0 */
static int find_seal(struct view *v, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns, struct buf *path)
	REQUIRES(v->lock)
{
	static const char nodes[] = VIEW_NAME "/nodes/";
	size_t max = NS_PATH_MAX - strlen(nodes) - strlen(v->listed_name) - 1;
	const struct peer_list_seal *s = v->listed.v, *end = s + v->listed.nr;

	for (; s < end && (s->ino <= after || strlen(s->path) > max); s++)
		;
	if (s == end)
		return 0;
	buf_add(path, nodes, strlen(nodes));
	buf_add(path, v->listed_name, strlen(v->listed_name));
	if (*s->path)
		buf_add_u8(path, '/');
	buf_add(path, s->path, strlen(s->path));
	*ret_ino = s->ino;
	*ret_sealed_ns = s->sealed_ns;
	return buf_error(path) < 0 ? buf_error(path) : 1;
}

int view_next_seal(struct view *v, uint64_t dir, uint64_t after, uint64_t *ret_ino, int64_t *ret_sealed_ns,
		   struct buf *path)
{
	uint8_t id[NS_STORE_ID_LEN];
	int r = v ? find_node(v, dir, id) : 0;

	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	do {
		r = list_seals(v, id, after == 0);
		if (r < 0)
			return r;
		mutex_lock(&v->lock); /* another thread may have listed another node meanwhile */
		r = memcmp(v->listed_id, id, sizeof(id)) == 0 ? find_seal(v, after, ret_ino, ret_sealed_ns, path) :
								-EAGAIN;
		mutex_unlock(&v->lock);
	} while (r == -EAGAIN);
	return r;
}

int view_replica_of(struct view *v, uint64_t top, uint64_t *ret_ino, int64_t *ret_sealed_ns)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	int r = c ? 0 : -ENOMEM;

	if (r == 0 && v && !view_is(top))
		r = ns_get_replica(v->fs->db, top, c);
	if (r > 0 && c->state != NS_REPLICA_KEPT && c->state != NS_REPLICA_CACHED)
		r = 0;
	if (r > 0) {
		*ret_ino = c->ino;
		*ret_sealed_ns = c->sealed_ns;
	}
	return r;
}

void view_set_invalidate(struct view *v, view_invalidate_fn *invalidate, void *userdata)
{
	if (!v)
		return;
	mutex_lock(&v->invalidate_lock);
	v->invalidate = invalidate;
	v->invalidate_userdata = userdata;
	mutex_unlock(&v->invalidate_lock);
}

static void invalidate_name(struct view *v, uint64_t dir, const char *name)
{
	mutex_lock(&v->invalidate_lock);
	if (v->invalidate)
		v->invalidate(v->invalidate_userdata, dir, name);
	mutex_unlock(&v->invalidate_lock);
}

/* Invalidate all names by which it may have been looked up. */
static void invalidate_replica(struct fs *fs, const struct ns_replica *c)
{
	struct view *v = fs->view;
	const char *slash = strrchr(c->path, '/');
	struct peer_list_node n = { 0 };
	char long_name[PEER_LIST_NAME_MAX + 1];
	uint64_t dir;

	if (*c->path) {
		bool is_there;

		mutex_lock(&v->lock);
		is_there = find_entry(v, OF_NODE, c->store, c->path, slash ? (size_t)(slash - c->path) : 0, &dir);
		mutex_unlock(&v->lock);
		if (is_there)
			invalidate_name(v, dir, slash ? slash + 1 : c->path);
		return;
	}
	memcpy(n.id, c->store, sizeof(n.id));
	snprintf(n.name, sizeof(n.name), "%s", c->name);
	peer_list_long_name(&n, long_name);
	invalidate_name(v, VIEW_FIRST_INO + OF_NODES, n.name);
	invalidate_name(v, VIEW_FIRST_INO + OF_NODES, long_name);
}

static void invalidate_below(struct fs *fs, uint64_t dir, const char *name)
{
	invalidate_name(fs->view, dir, name);
}

int view_trim(struct view *v)
{
	return v ? peer_list_trim(v->peer_list) : 0;
}

void view_changed(struct view *v)
{
	if (v)
		peer_list_forget(v->peer_list);
}

void view_abandon(struct view *v, const uint8_t *store, uint64_t ino, bool yes)
{
	if (v)
		peer_list_abandon(v->peer_list, store, ino, yes);
}

bool view_is_abandoned(struct view *v, const uint8_t *store, uint64_t ino)
{
	return v && peer_list_is_abandoned(v->peer_list, store, ino);
}

int view_check(struct view *v)
{
	int r = v ? peer_list_check(v->peer_list) : 0;

	if (r > 0)
		nanosleep(&(struct timespec){ .tv_nsec = FORGET_NS }, NULL);
	return r;
}

/* --- construction --- */

void view_free(struct view *v)
{
	if (!v)
		return;
	peer_list_free(v->peer_list);
	peer_list_seals_release(&v->listed);
	for (size_t i = 0; i < v->nr; i++)
		free(v->v[i].path);
	free(v->v);
	mutex_release(&v->lock);
	mutex_release(&v->invalidate_lock);
	free(v);
}

static int make_first(struct view *v)
{
	uint64_t ino;
	int r = add_directory(v, &(struct entry){ .kind = OF_VIEW, .parent = NS_ROOT_INO, .path = "" }, &ino);

	return r < 0 ? r :
		       add_directory(v, &(struct entry){ .kind = OF_NODES, .parent = VIEW_FIRST_INO, .path = "" }, &ino);
}

int view_new(struct fs *fs, struct view **ret)
{
	struct cluster_identity id;
	struct ns_dirent own;
	struct view *v;
	int r = names_find(fs, NS_ROOT_INO, VIEW_NAME, &own);

	*ret = NULL;
	if (r < 0 || engine_cluster_identity(fs->engine, &id) == 0)
		return MIN(r, 0);
	if (r > 0) {
		log_notice("store: has an entry %s, so files of other nodes are not shown; rename it and mount again",
			   VIEW_NAME);
		return 0;
	}
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->fs = fs;
	mutex_init(&v->lock);
	mutex_init(&v->invalidate_lock);
	clock_gettime(CLOCK_REALTIME, &v->since);
	r = peer_list_new(fs, &v->peer_list);
	if (r == 0)
		r = make_first(v);
	if (r < 0) {
		view_free(v);
		return r;
	}
	fs->replica_gone = invalidate_replica;
	fs->copied_name_gone = invalidate_below;
	*ret = v;
	return 0;
}
