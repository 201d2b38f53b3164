/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the parts of permissions.c share: kinds of files, directories and callers, each way to the bytes of a file or to a
 * name, and what is counted.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/ioctl.h"

enum { OWNER = 1001, NAMED = 1003, MASKED = 1004, DENIED = 1005, OTHER = 1006, CAPABLE = 1007 };
enum { GROUP = 2001, NAMED_GROUP = 2005, OWN_GROUP = 2999 };
enum { A_USER_OBJ = 1, A_USER = 2, A_GROUP_OBJ = 4, A_GROUP = 8, A_MASK = 16, A_OTHER = 32 };

#define CONTENT 4096

struct ace {
	unsigned tag, perm, id;
};

struct kind {
	const char *name;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	const char *list; /* extended attribute; NULL: no list */
	struct ace acl[8];
};

#define LIST(group, mask, other)                                                              \
	{                                                                                     \
		{ A_USER_OBJ, 6, 0 }, { A_USER, 4, NAMED }, { A_USER, 6, MASKED }, { A_USER, 0, DENIED }, \
		{ A_GROUP_OBJ, group, 0 }, { A_GROUP, 4, NAMED_GROUP }, { A_MASK, mask, 0 }, { A_OTHER, other, 0 } \
	}
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

extern const struct kind files[10], dirs[9];

/* FS_IMMUTABLE_FL on another filesystem */
bool is_sealed(const struct kind *dir);

struct caller_kind {
	const char *name;
	uid_t uid;
	gid_t gid, groups[2];
	size_t nr_groups;
	unsigned capability; /* in effect, besides none; 0 (CAP_CHOWN): none */
	bool has_all; /* capabilities */
	bool in_user_namespace;
};

extern const struct caller_kind callers[15];

/* What a caller was told, as errno. The first ones by the kernel. */
enum way {
	OPEN,
	CREATE,
	LIST_DIR, /* R_OK|X_OK of the directory */
	OWNS, /* chmod of a directory */
	MAY_WRITE, /* W_OK of that */
	UNLINK,
	XATTR, /* of the directory */
	KERNEL,
	DELTA = KERNEL, /* from the file */
	DELTA_OLDER, /* from another one that all may read, with bytes of the file */
	DELTA_NEW, /* from nothing */
	EXCLUSIVE_NAME,
	EXCLUSIVE_ALL,
	CLONE,
	COPY,
	FINGERPRINT,
	COMPARE,
	STAT,
	KEEP, /* retention rule of the directory */
	LIST_USER, /* the owner by OWNERS, and no other that is not the caller's */
	LIST_GROUP,
	EXCLUSIVE_USER,
	EXCLUSIVE_GROUP,
	SEAL,
	CHECK,
	NEXT,
	SEAL_STATE,
	SEAL_GATHERED,
	TIER_OF_MOUNT,
	TIER_OF_DIRECTORY, /* on a descriptor of it */
	TIER_BY_NUMBER, /* on another one */
	UNSEAL,
	RMDIR, /* by the kernel */
	REMOVE,
	LIST_NODES, /* by the kernel */
	CHANGE_NODES,
	NEXT_REPLICA,
	NR_WAYS
};
extern const char *const way_names[NR_WAYS];

/* Shared with the child. */
struct answers {
	int outcome[NR_WAYS];
};
extern struct answers *shared;

extern bool is_unseen;
extern unsigned nr_checks, nr_granted, nr_failed;

_Noreturn void fail(const char *what, const char *of);
#define MUST(call, of) ((call) < 0 ? fail(#call, of) : (void)0)
#define ARGUMENT(type, ...) ((struct type){ .size = sizeof(struct type), .version = CKPTFS_IOC_VERSION, __VA_ARGS__ })

/* --- what there is --- */

void set_list(const char *path, const struct kind *k);
void make_so(const char *path, const struct kind *k);
void make_file(const char *path, const struct kind *k);
/* Version `number`, with the content of version 1, after versions 1 to `parent`: an unnamed file of `dir`. */
int stage(const char *dir, uint32_t number, uint32_t parent);

/* --- the ways: 0 or errno --- */

int outcome(long r);
int make_version(int staged, uint32_t number, uint32_t parent);
/* ADD a name, or USER or GROUP. */
int ask_exclusive(int dir, enum ckptfs_exclusive_command command, uint32_t id, const char *name);
int clone_to(int to, const char *path);
int compare_with(int fd, const char *path);
int stat_of(const char *path);
int copy_to(int to, const char *path);
int seal(int dir, enum ckptfs_seal_command command);
/* As CHECK; for NEXT, EPERM if the directory itself is not listed. */
int check_seal(int dir, enum ckptfs_seal_command command);
int may_write(int dir);
/* Figures of the tier, and of the sealed directory with this inode number, 0: none. */
int ask_tier(int fd, uint64_t inode);

/* --- callers --- */

/* Runs fn(arg) as this caller, who leaves what he was told in `shared`. */
void as_caller(const struct caller_kind *c, void (*fn)(void *), void *arg);
void ask_seal(void *dir_fd); /* SEAL, and what the kernel permits there */

/* Compares what `shared` has with `want`. `is_certain`: also of a daemon that cannot see the caller. */
void expect(const char *of, const struct caller_kind *c, enum way way, int want, bool is_certain);

/* --- permissions_own.c, permissions_nodes.c --- */

void try_owners(const char *mnt);
void try_seals(const char *mnt);
void try_removals(const char *mnt);
void try_tier(const char *mnt); /* which has one */
void try_control(const char *mnt);
void make_all(const char *top);
void try_replicas(const char *view, const char *plain, const char *mnt);
