/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Keys and values of the view and of the fingerprint table, as bytes. docs/format.md changes with this.
 *
 * Every key of the view starts with a table letter; numbers in keys are big-endian so that they sort.
 *
 *   'I' ino                 -> struct inode_value_disk                 attributes (all inodes)
 *   'C' ino                 -> struct content_value_disk               size, data times, mapped bytes (regular files)
 *   'D' parent cookie       -> struct dirent_value_disk, name          one name in a directory
 *   'L' ino                 -> target                                  symbolic link
 *   'X' ino name            -> value                                   extended attribute
 *   'O' ino                 -> (empty)                                 no name left, still open: removed at mount
 *   'S' ino                 -> struct seal_value_disk                  a directory that was sealed with all below it
 *   'N' ino                 -> struct copy_value_disk, name, path       replica of a directory sealed by another node
 *   'G' ino                 -> struct guard_value_disk, two names      holders of replicas of a directory sealed here
 *   'A' ino                 -> struct away_value_disk                  its bytes are in a tier alone
 *   'R' ino segment         -> [layer] extents (recipes.h)             1 MiB of a file
 *   'P' number              -> [layer] extents (recipes.h)             a layer: extents that files have in common
 *   'F' [pack [frame]]      -> freed chunks (freed.h)                  totals, whole packs, chunks of a frame
 *   'E' [pack frame]        -> pinned and remote chunks (pin_table.h)     totals, nodes (pack 0), chunks of a frame
 *   'B' pack frame ino seg  -> (empty)                                 back-reference of a frame (backref_table.h)
 *   'M' name                -> meta (engine's)                         commit number, pack marks, next inode ...
 *
 * A directory entry's cookie is its place in readdir order: (keyed hash of the name) << 4 | n, 63 bits,
 * where n distinguishes names of equal hash. Cookies below 16 are "." and "..".
 *
 * Fingerprint table: key = first 8 bytes of the fingerprint as on disk, value = 6 bytes: pack << 20 | block
 * (little-endian, 48 bits), block = logical offset / 4096. Short on purpose: a hit is checked against the full
 * fingerprint in the pack's own table, and 14 bytes per 4 KiB page keep the index under 0.5 % of the data.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"

enum view_table {
	VIEW_INODE = 'I',
	VIEW_CONTENT = 'C',
	VIEW_DIRENT = 'D',
	VIEW_SYMLINK = 'L',
	VIEW_XATTR = 'X',
	VIEW_ORPHAN = 'O',
	VIEW_SEAL = 'S',
	VIEW_REPLICA = 'N',
	VIEW_GUARD = 'G',
	VIEW_AWAY = 'A',
	VIEW_RECIPE = 'R',
	VIEW_LAYER = 'P', /* sorts before 'R': a scan of the view reads layers first */
	VIEW_FREED = 'F',
	VIEW_SHARE = 'E',
	VIEW_BACKREF = 'B',
	VIEW_META = 'M',
};

struct inode_value_disk {
	struct le32 mode, nlink, uid, gid;
	struct le64 rdev;
	struct le64 atime_ns, mtime_ns, ctime_ns, btime_ns; /* two's complement */
	struct le64 parent; /* directories: of ".."; else 0 */
	struct le32 flags, reserved;
};
static_assert(sizeof(struct inode_value_disk) == 72, "on disk");

struct content_value_disk {
	struct le64 size, mapped;
	struct le64 mtime_ns, ctime_ns;
};
static_assert(sizeof(struct content_value_disk) == 32, "on disk");

struct dirent_value_disk {
	struct le64 ino;
	uint8_t type; /* DT_* */
	/* name follows, 1 to 255 bytes, to the end of the value */
};
static_assert(sizeof(struct dirent_value_disk) == 9, "on disk");

struct seal_value_disk {
	uint8_t version, flags, reserved[2]; /* flags: SEAL_COMPLETE; others: refuse */
	struct le32 uid; /* of the user that sealed it */
	struct le64 sealed_ns; /* two's complement */
	struct le64 files, directories, bytes; /* including itself; files: all that are not directories, each once */
	/* until it is complete, zeros */
	struct le64 new_bytes;
	uint8_t root[32];
};
#define SEAL_COMPLETE 1u
static_assert(sizeof(struct seal_value_disk) == 80, "on disk");

struct away_value_disk {
	uint8_t version, flags, reserved[2]; /* flags: AWAY_ERASED; others: refuse */
	struct le32 index; /* of the inode in the catalog of the manifest; 0: the sealed directory */
	struct le64 number; /* of the manifest */
	uint8_t check[32]; /* SHA-256 of the manifest behind its head */
};
#define AWAY_ERASED 1u
static_assert(sizeof(struct away_value_disk) == 48, "on disk");

struct copy_value_disk {
	uint8_t version, state; /* enum ns_replica_state */
	uint8_t name_len; /* 1 to 63 */
	uint8_t slots; /* how many << 4, at most 7; and which; 0: none */
	uint8_t store[16]; /* that sealed it */
	struct le64 ino, sealed_ns; /* there; two's complement */
	/* with slots the store id of the sender (16), then the node's name and the path follow, to the end of the
	 * value */
};
static_assert(sizeof(struct copy_value_disk) == 36, "on disk");

struct guard_value_disk {
	uint8_t version, state; /* enum guard_state */
	uint8_t holder_len, origin_len; /* of names: 1 to 63 */
	uint8_t holder[16], origin[16];
	struct le64 ino, sealed_ns; /* with the origin; two's complement */
	/* the holder's name and the origin's follow; how many more holders (1, 0 to 6), of each its id (16), the length
	 * of its name (1) and that */
};
static_assert(sizeof(struct guard_value_disk) == 52, "on disk");

struct freed_value_disk {
	uint8_t version, flags; /* bit 0: punched; others: refuse */
	struct le64 gone[4];
};
static_assert(sizeof(struct freed_value_disk) == 34, "on disk");

struct share_value_disk {
	uint8_t version, flags; /* bit 0: settled; others: refuse */
	struct le64 pinned[4], remote[4];
	/* if settled, for each bit of `remote` a byte, how many nodes have it, and their numbers, each a varint */
};
static_assert(sizeof(struct share_value_disk) == 66, "on disk");

#define FINGERPRINT_KEY_LEN 8
#define FINGERPRINT_VALUE_LEN 6
#define FINGERPRINT_BLOCK_BITS 20
