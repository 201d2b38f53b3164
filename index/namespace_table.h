/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names and attributes in the view: typed keys and values. Changes are engine transactions built from the *_encode
 * functions; readers use the ns_get_* functions.
 *
 * All decoders are pure functions of (bytes, length) and trust nothing: -EBADMSG.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"

struct buf;
struct db;
struct db_iter;

#define NS_NAME_MAX 255
#define NS_ROOT_INO 1
#define NS_SEAL_ROOT_LEN 32

struct ns_inode {
	uint64_t ino;
	uint32_t mode, nlink, uid, gid;
	uint64_t rdev;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t parent;
	uint32_t flags;
};

/* Bits of ns_inode.flags. */
enum inode_flags {
	INODE_HAS_XATTRS = 1 << 0, /* some may exist; never set: none do */
	INODE_BEQUEATHS = 1 << 1, /* a directory with a default ACL or settings that new entries inherit */
	INODE_SHARED_HASH = 1 << 2, /* of the root: somewhere in the store two names of a directory share a hash */
	INODE_SEALED = 1 << 3, /* is a sealed directory, or in one: immutable */
	INODE_REPLICA = 1 << 4, /* is the top of a replica, or in one; with INODE_SEALED */
};

struct ns_content {
	uint64_t size, mapped;
	int64_t mtime_ns, ctime_ns;
};

struct ns_dirent {
	uint64_t ino;
	uint64_t cookie;
	uint8_t type; /* DT_* */
	uint8_t name_len;
	char name[NS_NAME_MAX + 1];
};

/* A directory that was sealed with all below it. */
struct ns_seal {
	uint32_t uid; /* of the user that sealed it */
	int64_t sealed_ns;
	uint64_t files, directories, bytes; /* including itself; files: all that are not directories, each once */
	bool is_complete; /* else its root is not known yet: it does not count as sealed (fs/seal/seal.c) */
	uint64_t new_bytes; /* stored bytes that nothing else referred to when it was sealed */
	uint8_t root[NS_SEAL_ROOT_LEN]; /* fs/seal/seal_root.h */
};

/*
 * The bytes of a file are not in this store but in a tier beneath it, in a manifest of this store. The top of a sealed
 * directory has such a record if some of its files have; other directories have none.
 */
struct ns_away {
	uint64_t number; /* of the manifest, at least 1 */
	uint32_t index; /* of the inode in its catalog; 0: the top */
	bool is_erased; /* of a top: the drop is complete, and has erased the bytes of all files with such a record */
	uint8_t check[32]; /* digest of the manifest (store/tier/tier_format.h) */
};

/*
 * A replica of a directory sealed by another node. Its top is a directory of this store without a name, which is its
 * own parent: it cannot be reached from the root.
 */
enum ns_replica_state {
	NS_REPLICA_PARTIAL = 0, /* being made, or on its way out: removed at the next mount */
	NS_REPLICA_KEPT = 1, /* until it is dropped, or a newer one is kept */
	NS_REPLICA_CACHED = 2, /* created by a lookup; may be dropped to free space */
	/* not a replica, but a tree of the same form: parity over chunks of other nodes (mpi-agent/daemon/parity/stripes.h). `store` is this
	 * one, `ino` its number */
	NS_REPLICA_STRIPE = 3,
};
#define NS_REPLICA_SLOTS_MAX 7u
#define NS_STORE_ID_LEN 16u
#define NS_NODE_NAME_MAX 63u
#define NS_PATH_MAX 4095u
struct ns_replica {
	enum ns_replica_state state;
	uint8_t store[NS_STORE_ID_LEN]; /* that sealed it */
	uint64_t ino; /* the directory there */
	int64_t sealed_ns;
	char name[NS_NODE_NAME_MAX + 1]; /* of the node; for people */
	char path[NS_PATH_MAX + 1]; /* from that node's root; "": the root itself */
	/* KEPT: nr_slots nodes have such a replica, and each covers a part of the chunks that only `sender` has. 0: no
	 * parity. */
	uint8_t slot, nr_slots;
	uint8_t sender[NS_STORE_ID_LEN];
};

/* Keys, on the stack. */
struct ns_key {
	uint8_t b[1 + 8 + 8 + NS_NAME_MAX];
	size_t len;
};
struct ns_key ns_key_inode(uint64_t ino);
struct ns_key ns_key_content(uint64_t ino);
int ns_content_key_decode(const void *key, size_t len, uint64_t *ret_ino);
struct ns_key ns_key_dirent(uint64_t parent, uint64_t cookie);
struct ns_key ns_key_dirents(uint64_t parent); /* prefix of all of them */
struct ns_key ns_key_symlink(uint64_t ino);
struct ns_key ns_key_xattr(uint64_t ino, const char *name); /* name at most 255 bytes */
struct ns_key ns_key_xattrs(uint64_t ino);		     /* prefix */
struct ns_key ns_key_orphan(uint64_t ino);
struct ns_key ns_key_seal(uint64_t ino);
struct ns_key ns_key_replica(uint64_t ino);
struct ns_key ns_key_away(uint64_t ino);
struct ns_key ns_key_meta(const char *name);

void ns_inode_encode(const struct ns_inode *in, struct buf *ret);
int ns_inode_decode(uint64_t ino, const void *p, size_t len, struct ns_inode *ret);
void ns_content_encode(const struct ns_content *c, struct buf *ret);
int ns_content_decode(const void *p, size_t len, struct ns_content *ret);
void ns_dirent_encode(const struct ns_dirent *d, struct buf *ret);
void ns_seal_encode(const struct ns_seal *s, struct buf *ret);
int ns_seal_decode(const void *p, size_t len, struct ns_seal *ret);
void ns_away_encode(const struct ns_away *a, struct buf *ret);
int ns_away_decode(const void *p, size_t len, struct ns_away *ret);
void ns_replica_encode(const struct ns_replica *c, struct buf *ret);
int ns_replica_decode(const void *p, size_t len, struct ns_replica *ret);
bool ns_node_name_is_valid(const char *name, size_t len); /* it becomes a name in a directory */
/* names with a slash between them, or nothing; at most NS_PATH_MAX */
bool ns_path_is_valid(const char *path, size_t len);
int ns_dirent_decode(uint64_t cookie, const void *p, size_t len, struct ns_dirent *ret);

/* 1 found, 0 absent, <0. */
int ns_get_inode(struct db *db, uint64_t ino, struct ns_inode *ret);
int ns_get_content(struct db *db, uint64_t ino, struct ns_content *ret);
int ns_get_symlink(struct db *db, uint64_t ino, struct buf *ret);
int ns_get_xattr(struct db *db, uint64_t ino, const char *name, struct buf *ret);
int ns_get_seal(struct db *db, uint64_t ino, struct ns_seal *ret);
int ns_get_meta(struct db *db, const char *name, struct buf *ret); /* a note, by ns_key_meta() */
/* Find a name. Absent (0): ret->cookie is the free cookie at which it can be added. -ENOSPC: 16 names of one hash. */
int ns_find(struct db *db, const struct fp_key *key, uint64_t dir, const char *name, struct ns_dirent *ret);
/*
 * The same with one look-up instead of a search, where no two names of a directory share a hash, which is all but
 * certain to be so: only the first place of the name's hash. Absent: its cookie. -EEXIST: another name is there,
 * ns_find() is due.
 */
int ns_find_first(struct db *db, const struct fp_key *key, uint64_t dir, const char *name, struct ns_dirent *ret);
/* The first place of a name's hash; the name is there or in one of the NS_COOKIES_PER_HASH - 1 that follow. */
#define NS_COOKIES_PER_HASH 16u
uint64_t ns_cookie(const struct fp_key *key, const char *name, size_t len);
/* Is this a place that only a name of an equal hash gets? */
bool ns_cookie_shared(uint64_t cookie);
/* 1: the directory has an entry. */
int ns_has_entries(struct db *db, uint64_t dir);

/* Entries with cookie > after, in cookie order. 1 next, 0 end, <0. */
int ns_readdir_open(struct db *db, uint64_t dir, uint64_t after, struct db_iter **ret);
int ns_readdir_next(struct db_iter *it, struct ns_dirent *ret);
void ns_readdir_close(struct db_iter *it); /* NULL is fine */
static inline void ns_readdir_closep(struct db_iter **it)
{
	ns_readdir_close(*it);
}
/* Names of extended attributes, each with its final NUL, appended to *ret. */
int ns_list_xattrs(struct db *db, uint64_t ino, struct buf *ret);
/* What the extended attributes of an inode take; stops counting above `max_bytes`. */
struct ns_xattr_sum {
	size_t names; /* bytes of the names, each with its final NUL */
	size_t bytes; /* of names and values */
};
int ns_sum_xattrs(struct db *db, uint64_t ino, size_t max_bytes, struct ns_xattr_sum *ret);
/* Inodes without a name, in order, from `after` + 1. 1 next in *ret, 0 none, <0. */
int ns_next_orphan(struct db *db, uint64_t after, uint64_t *ret);
/* The same for sealed directories. */
int ns_next_seal(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_seal *ret);
int ns_get_away(struct db *db, uint64_t ino, struct ns_away *ret);
/* -EBADMSG with a new *ret_ino: its record is damaged, and others may follow. */
int ns_next_away(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_away *ret);
/* And for tops of copies, in any state. */
int ns_get_replica(struct db *db, uint64_t ino, struct ns_replica *ret);
int ns_next_replica(struct db *db, uint64_t after, uint64_t *ret_ino, struct ns_replica *ret);
