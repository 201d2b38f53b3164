/*
 * ioctls on files of a ckptfs mount. Every argument starts with its size and version, so that it can grow: a caller
 * sets them, the daemon refuses what it does not know (EINVAL). A kernel that does not have ckptfs under the
 * descriptor says ENOTTY. What changes a file needs a descriptor open for writing (EBADF).
 *
 * Installed as <ckptfs/ioctl.h>; programs need no library for it. C and C++.
 */
#pragma once

#include <linux/ioctl.h>
#include <stdint.h>

#define CKPTFS_IOC_TYPE 'K'
#define CKPTFS_IOC_VERSION 1

/*
 * A number that stands for this open file in other calls, while it stays open. A descriptor itself cannot travel
 * through FUSE, and whoever has this number has had the file open for reading (else EBADF).
 */
struct ckptfs_handle {
	uint32_t size, version;
	uint64_t handle; /* out */
};

/*
 * Share bytes with another open file of the same mount instead of copying them. Ranges may be unaligned; in one file
 * they must not overlap (EINVAL). Mapped pages of the source that were changed count after msync(). Where both
 * descriptors are at hand, copy_file_range(2) does the same.
 */
struct ckptfs_clone {
	uint32_t size, version;
	uint64_t from; /* handle of the source; ESTALE when it has been closed */
	uint64_t from_off, to_off;
	uint64_t len; /* 0: to the end of the source */
	uint64_t done; /* out: bytes shared */
};

/*
 * Where this file and another one of the same mount have the same bytes, as far as that is known without reading them.
 * From `off` on they are equal up to equal_end, from there up to differ_end they may differ; both at most off + len, or
 * less for much at once. What is told are bytes that either is open to read (else EBADF). Behind the end of a file are
 * zeros. Mapped pages that were changed count after msync().
 */
struct ckptfs_compare {
	uint32_t size, version;
	uint64_t with; /* handle of the other one; ESTALE when it has been closed */
	uint64_t off, len;
	uint64_t equal_end, differ_end; /* out */
};

/* Make everything that was changed on the mount durable. On any descriptor. */
struct ckptfs_sync {
	uint32_t size, version;
};

/* Figures about one regular file; the same and more, as JSON, are in the extended attribute user.ckptfs.stat. */
struct ckptfs_stat {
	uint32_t size, version;
	uint64_t file_size, mapped; /* out, bytes */
	uint64_t extents, frames; /* out; frames: places that a full read visits */
	uint8_t fingerprint[16]; /* out: equal for equal content in one store */
	uint32_t durable; /* out: 1: everything written is committed */
	uint32_t reserved;
};

/*
 * Collect garbage: start a collection (EBUSY while one is running), ask how far the last one has come, or stop it;
 * what it has done so far is kept, and the next one goes on from there. On any directory of the mount; starting and
 * stopping is for root and whoever runs the mount (EPERM). It stops, too, when the descriptor that it was started on is
 * closed.
 */
enum ckptfs_gc_command { CKPTFS_GC_STATUS, CKPTFS_GC_START, CKPTFS_GC_STOP };
#define CKPTFS_GC_DELETE 1u /* flag: give back what is found, not only count it */
#define CKPTFS_GC_LOCAL 4u /* flag: of this node alone, though others of its cluster are there */
#define CKPTFS_GC_PLACE 2u /* flag, with the other: bring what is scattered of the newest files together */

struct ckptfs_gc {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t budget_ns; /* 0: until it is done */
	uint64_t rate; /* bytes of packs to read and write per second; 0: unlimited */
	uint32_t move_below; /* percent: packs with less live in them are emptied; 0: none */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete; /* all packs were looked at */
	uint64_t run; /* which collection of this mount; 0: there was none */
	uint64_t packs, packs_total, frames, recipes; /* looked at */
	uint64_t live_bytes, live_chunks, dead_bytes, dead_chunks; /* found */
	uint64_t freed_bytes, freed_chunks, removed_packs, moved_packs, moved_bytes; /* done */
	uint64_t placed_files, placed_bytes;
	uint32_t cluster; /* enum ckptfs_gc_cluster: of what nodes have lent to each other */
	int32_t cluster_error; /* errno of one that failed */
	/* on all nodes: what others refer to; what nobody does any more, which each node frees */
	uint64_t cluster_kept_bytes, cluster_kept_chunks, cluster_given_up_bytes, cluster_given_up_chunks;
	char cluster_missing[64]; /* a node */
};
enum ckptfs_gc_cluster {
	CKPTFS_GC_ALONE, /* not asked for, or there is no cluster */
	CKPTFS_GC_WAITING, /* for the others */
	CKPTFS_GC_NO_AGENT,
	CKPTFS_GC_MISSING, /* a node is away that may refer to what others have: nothing was given up */
	CKPTFS_GC_FAILED, /* before the end; perhaps some was given up */
	CKPTFS_GC_TOGETHER,
};

/*
 * Scrub: compare what the packs have with its fingerprints. Start one (EBUSY while one is running), ask how far the
 * last one has come, or stop it; the next one goes on from there unless told to begin anew. On any directory of the
 * mount; starting and stopping is for root and whoever runs the mount (EPERM). It stops, too, when the descriptor that
 * it was started on is closed.
 */
enum ckptfs_scrub_command { CKPTFS_SCRUB_STATUS, CKPTFS_SCRUB_START, CKPTFS_SCRUB_STOP };
#define CKPTFS_SCRUB_RESTART 1u /* flag: at the beginning, wherever the last one stopped */

struct ckptfs_scrub {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t budget_ns; /* 0: until it is done */
	uint64_t rate; /* bytes of packs to read per second; 0: unlimited */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete; /* everything has been looked at, by this one and those that it went on with */
	uint32_t named; /* files that are hit were looked for */
	uint64_t run; /* which scrub of this mount; 0: there was none */
	uint64_t frames, chunks, bytes, read_bytes; /* looked at; read_bytes from the disk */
	uint64_t round_bytes, total_bytes; /* with those that it went on with, of about so many */
	uint64_t damaged, tables; /* chunks; tables, headers and packs */
	uint64_t mended, unused, left; /* of both */
	uint64_t files, lost_bytes; /* that miss bytes, and how many */
	uint64_t hits; /* that CKPTFS_IOC_SCRUB_HIT can tell */
	char doing[32];
};

/* Bytes of a file that the last scrub found to be damaged. ENOENT: no more, or another scrub has begun. For root and
 * whoever runs the mount (EPERM). */
struct ckptfs_scrub_hit {
	uint32_t size, version;
	uint64_t run, number; /* in: of which scrub, and which of its hits, from 0 */
	uint64_t inode, off, len; /* out */
	char path[4096]; /* out: from the mountpoint; empty: it has no name */
};

/*
 * What would deleting some names free? A question is begun, gets its names, is run, is asked about until it is done,
 * and ended; one that nobody asks about for half a minute is given up. All on directories, open for reading, of the
 * mount.
 *
 *   BEGIN   question is set (EBUSY: too many at once)
 *   ADD     the name `name` of this directory; "": all names in it, but not what is in directories below. EACCES: a file that
 *           the caller may not read
 *   USER    instead of names, all files whose owner is `id`; GROUP: whose group. EPERM: of somebody else, and the caller is not
 *           root, nor has mounted
 *   RUN
 *   STATUS  running, error and figures; in the end as of the moment of RUN
 *   END
 */
enum ckptfs_exclusive_command {
	CKPTFS_EXCLUSIVE_BEGIN,
	CKPTFS_EXCLUSIVE_ADD,
	CKPTFS_EXCLUSIVE_RUN,
	CKPTFS_EXCLUSIVE_STATUS,
	CKPTFS_EXCLUSIVE_END,
	CKPTFS_EXCLUSIVE_USER,
	CKPTFS_EXCLUSIVE_GROUP,
};

struct ckptfs_exclusive {
	uint32_t size, version;
	uint32_t command, id; /* id: of USER and GROUP */
	uint64_t question;
	char name[256]; /* with its final NUL */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint64_t files, file_size, mapped; /* files that would be gone, their bytes, and those without holes */
	uint64_t linked_files; /* that would not: they have other names */
	uint64_t chunks, bytes; /* distinct ones that those files refer to */
	uint64_t exclusive_chunks, exclusive_bytes; /* of these, what nobody else refers to: what would be free */
	uint64_t exclusive_stored; /* what that takes as it is stored: less where compressed */
	uint64_t damaged; /* frames that cannot be read: what is in them is not counted */
	uint64_t frames, frames_done, recipes; /* how far it has come: found, looked at, read */
	uint64_t built; /* recipes read first, because the store is of a version before it could answer this */
};

/*
 * Who has files: users, or groups, by ascending numbers, from `from` on, some at a time; on any directory of the mount.
 * Root, and who has mounted, is told of all; others of themselves and their groups. What of it would be free without
 * them EXCLUSIVE tells.
 */
enum ckptfs_owner_kind { CKPTFS_OWNER_GROUP = 1, CKPTFS_OWNER_USER = 2 };
#define CKPTFS_OWNERS_MAX 128

struct ckptfs_owner {
	uint32_t id, reserved;
	uint64_t files, file_size, mapped; /* their bytes, and those without holes */
};

struct ckptfs_owners {
	uint32_t size, version;
	uint32_t kind;
	uint32_t nr; /* out: told in v */
	uint64_t from; /* in; out: where to go on */
	uint32_t more; /* out: there may be */
	uint32_t reserved;
	struct ckptfs_owner v[CKPTFS_OWNERS_MAX];
};

/*
 * Deltas: the next version of a lineage. A lineage is a directory, and its versions are the files 000001, 000002, ...
 * in it. What one has changed against an earlier one is written as a delta object (docs/format.md) into a file that was
 * made in that directory and has no name (O_TMPFILE|O_WRONLY, or O_CREAT|O_EXCL and unlink(2)), and committed from
 * there: then LINEAGE/NNNNNN is there, whole, and durable if asked for. Before that nothing is to be seen, and when the
 * staging file is closed or its process dies, nothing is left. All three on the staging file.
 *
 *   BEGIN   version `number` is to be made from `parent` (0: from nothing). ENOENT: there is no such parent; EEXIST: there
 *           is that version; EINVAL: number is not above parent, or the file was not made in a directory but opened;
 *           EALREADY: begun before; EBADF: not open for writing
 *   COMMIT  EBADMSG: the object is damaged, lies about itself or does not give what its fingerprint says; EOPNOTSUPP: it is
 *           of a later version of the format; EINVAL: it is of another number or parent, or nothing was begun; ESTALE: a
 *           version that it refers to is gone or has become shorter; EACCES: one may not be read by the caller; EFBIG:
 *           its tables have more than 256 MiB; EEXIST: somebody else has made that version; EALREADY: committed before;
 *           ENOSPC. After an error nothing has changed, and the object may be written anew
 *   ABORT   what was begun is forgotten and the staging file emptied; it may be begun again
 */
struct ckptfs_delta_begin {
	uint32_t size, version;
	uint32_t number, parent;
};

#define CKPTFS_DELTA_SYNC 1u /* flag: durable when it returns */
#define CKPTFS_DELTA_VERIFY 2u /* flag: compare all bytes of the new version with the fingerprint in the object */

struct ckptfs_delta_commit {
	uint32_t size, version;
	uint32_t flags, reserved;
	uint8_t key[32]; /* of the lineage, to verify with */
	uint64_t inode, file_size; /* out: of the new version */
};

struct ckptfs_delta_abort {
	uint32_t size, version;
};

/*
 * Sealed directories: one with all that is below it is made durable, then immutable, and listed; all or nothing. On the
 * directory itself, NEXT on any of the mount.
 *
 *   SEAL    for the owner of everything in it, and root (EPERM), if its owner may write to it (EACCES). EALREADY: it
 *           is sealed, and durable. EEXIST: it lies in a sealed one, or has something sealed in it. EBUSY: a file in it
 *           is open for writing. E2BIG: too much in it. ENAMETOOLONG: too deep for a path. EROFS. Where it is about
 *           something in it, `path` is that
 *   UNSEAL  for its owner and root (EPERM). ENODATA: it is not sealed; if it lies in one that is, `path` is that,
 *           "." the mountpoint. Of one that another node has sealed, in .ckptfs/nodes, and which was forgotten: all nodes
 *           that take part drop their copies, and `path` is that node's name. EBUSY: it takes part; EHOSTDOWN: not all
 *           have forgotten it; ENOLINK: no agent is there; EAGAIN: somebody else does the same; EROFS: it is no such
 *           directory, but lies in one; EREMOTEIO, ETIMEDOUT: `path` is a node that has not said that its copy is gone
 *   NEXT    the sealed directory behind `inode`, 0: the first; in the order of inodes. ENOENT: no more. Root and whoever
 *           runs the mount see all, others their own
 *   STATE   0: another node of the cluster has all of it, too. EAGAIN: not yet. EOPNOTSUPP: it is not to, protect=none. ENODATA: it is not sealed.
 *           ENOTCONN: no agent is there; EHOSTUNREACH: no node is on another host; EHOSTDOWN: who has it does not take part, and may be lost; others: what the last attempt came to. There will be more
 *   COLLECTED  the same of compact_group=: 0, the collectors of this node's group have it, and what was here is not any more, unless it is one of them. EOPNOTSUPP: without that option
 *   COPY    of directories of other nodes that this one has, all of them, the one behind `inode`, as NEXT: `path` is from .ckptfs/nodes on. For root and whoever runs the mount (EPERM)
 *   OF_NODE in .ckptfs/nodes/NAME, or of a directory that lies there: what that node has sealed, the one behind `inode`,
 *           0: the first, in the order of its inodes there. Only `inode`, `sealed_ns` and `path` are known, and
 *           CKPTFS_SEAL_ELSEWHERE is one of the facts. ENOENT: no more; ENODATA: the directory is not one of these;
 *           ENOTUNIQ: it is .ckptfs or .ckptfs/nodes. Of a sealed one root and whoever runs the mount are told all that
 *           its node has sealed, others of that alone
 *   CHECK   the seal, and its root made anew from what the store has now: not the same, and something is damaged. For
 *           those whom NEXT tells of it (EPERM). ENODATA: it is not sealed. EIO: something is damaged. Bytes are not
 *           read; reading them compares them with what the root is made of. Of a copy of what another node has sealed, as
 *           OF_NODE, for all: it is there as a whole, and the root is not known
 */
enum ckptfs_seal_command {
	CKPTFS_SEAL_SEAL,
	CKPTFS_SEAL_UNSEAL,
	CKPTFS_SEAL_NEXT,
	CKPTFS_SEAL_CHECK,
	CKPTFS_SEAL_STATE,
	CKPTFS_SEAL_COLLECTED,
	CKPTFS_SEAL_COPY,
	CKPTFS_SEAL_OF_NODE
};
#define CKPTFS_SEAL_HAS_ROOT 1u /* fact: `root` says something; seals of earlier versions have none */
#define CKPTFS_SEAL_PROTECTED 2u /* fact, of NEXT: another node has all of it, too */
#define CKPTFS_SEAL_ELSEWHERE 4u /* fact: another node has sealed it */

struct ckptfs_seal {
	uint32_t size, version;
	uint32_t command, flags; /* flags: 0 */
	uint64_t inode; /* out: of the directory */
	int64_t sealed_ns; /* out, as all below: when; since 1970. Later than all before it, whatever the clock says */
	uint64_t files, directories, bytes; /* in it, and with it; files: all that is no directory, each once */
	uint64_t new_bytes; /* as stored, that nothing else referred to when it was sealed */
	uint32_t uid; /* who sealed it */
	uint32_t facts; /* CKPTFS_SEAL_HAS_ROOT, CKPTFS_SEAL_PROTECTED, CKPTFS_SEAL_ELSEWHERE */
	uint8_t root[32]; /* when it was sealed; over names, attributes and content (docs/format.md) */
	uint8_t root_now[32]; /* CHECK */
	char path[4096]; /* from the mountpoint; "" is that itself, or nothing to tell */
};

/*
 * Other nodes of the cluster, for root and whoever runs the mount (EPERM). EOPNOTSUPP: the store is of none.
 *
 *   STATUS  figures
 *   HEAL    nodes that do not take part now are lost: what they had is to be had by others again. ENOTCONN: no agent is there. It begins soon, and has ended when
 *           `healed` of STATUS is at least `number`; without an agent it waits until there is one
 *   FORGET  the node `node` will not come back: nothing is kept for its sake any more. ENOENT: nobody knows it; EBUSY: it takes part
 */
enum ckptfs_cluster_command { CKPTFS_CLUSTER_STATUS, CKPTFS_CLUSTER_HEAL, CKPTFS_CLUSTER_FORGET };

#define CKPTFS_CLUSTER_ALONE 1u /* no agent is there */

struct ckptfs_cluster {
	uint32_t size, version;
	uint32_t command, flags; /* flags: 0; out: those above */
	char node[64]; /* FORGET: its name, with a final NUL */
	uint64_t number; /* out: of what HEAL has begun */
	uint64_t healed; /* out, as all below: how many have ended */
	uint64_t sealed, protected_dirs; /* directories; those that another node has, too */
	uint64_t copies; /* of what lost nodes have sealed: given to another node by HEAL */
	uint64_t chunks, bytes; /* sent to other nodes since the mount */
	int32_t error; /* an errno, of the last directory that could not be protected; 0: none */
	uint32_t is_busy;
};

/* A directory that could not be protected when it was last looked, also by HEAL: number 0, 1, ... until ENOENT; no more
 * than 64 are known by name. For the same users. */
struct ckptfs_unprotected {
	uint32_t size, version;
	uint32_t number;
	int32_t error; /* out, as all below: an errno. EIO: no node that takes part has all of it */
	char node[64]; /* whose it is */
	char path[4096]; /* from its mountpoint */
};

/*
 * Store variables of files side by side, coded by what they are. A plan is begun, gets files and variables, is run, and
 * asked about until it is done. One at a time: EBUSY while another one is filled or runs, or a collection does; ESTALE
 * of one that is not the last. One that nobody has touched for half a minute gives way, and with the descriptor that it
 * was begun on it ends: a command that is killed leaves none at work. For root and whoever runs the mount (EPERM), on
 * any descriptor of the mount.
 *
 *   BEGIN   plan is set
 *   START   then CKPTFS_IOC_COMPACT_FILE and _ADD are over; EROFS unless it is a dry run
 *   STATUS  running, error and figures
 *   STOP    soon; what has been done stays, and the next plan does the rest. One that has not been started is given up
 *   PAUSE   the mount compacts nothing by itself, and what it is at ends soon, until RESUME. EOPNOTSUPP: it does not anyhow. Both are of no plan,
 *           and tell nothing
 */
enum ckptfs_compact_command {
	CKPTFS_COMPACT_STATUS,
	CKPTFS_COMPACT_BEGIN,
	CKPTFS_COMPACT_START,
	CKPTFS_COMPACT_STOP,
	CKPTFS_COMPACT_PAUSE,
	CKPTFS_COMPACT_RESUME,
};
#define CKPTFS_COMPACT_EXIT_BUSY 75 /* what ckptfs-compact --background tells the daemon by: another one is at it, or a collection */
#define CKPTFS_COMPACT_DRY_RUN 1u /* flag of START: only tell what would become of it */
#define CKPTFS_COMPACT_CHAIN_FORCED 2u /* likewise: steps one against the other, whatever has to be read for each */
enum ckptfs_compact_order {
	CKPTFS_COMPACT_WHOLE, /* of a variable one file behind the other */
	CKPTFS_COMPACT_TURNS, /* `block` bytes of each in turn */
	CKPTFS_COMPACT_BEST, /* whichever is smaller, for each variable */
};

struct ckptfs_compact {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t plan; /* of all but BEGIN */
	uint32_t order; /* START: as the three below */
	uint32_t cpu_ms; /* milliseconds for each GB; 0: no limit */
	uint64_t block, rate; /* rate: bytes of packs to read and write per second; 0: unlimited */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete;
	uint32_t chain; /* in, START: steps that are coded one against the other, 0 to 15; out: 0 */
	uint64_t variables; /* done */
	uint64_t plain; /* bytes looked at */
	uint64_t coded, before, after; /* bytes that are coded now, what they took before, and take now */
	uint64_t kept, known; /* that stay as they are: they would not get smaller; were coded before */
	uint64_t code_ns; /* CPU time */
};

/* A file of the plan: on its descriptor, open for reading. */
struct ckptfs_compact_file {
	uint32_t size, version;
	uint64_t plan;
	uint32_t file; /* out: its number */
	uint32_t reserved;
};

#define CKPTFS_COMPACT_EXTENTS 512
#define CKPTFS_COMPACT_BEGINS 1u /* flag: a variable begins; else the last one goes on, and its shape has been told */
#define CKPTFS_COMPACT_ROUNDED 2u /* with that one: of 16-bit floats, which were rounded from the variable that `before` names */
struct ckptfs_compact_add {
	uint32_t size, version;
	uint64_t plan;
	uint32_t flags;
	uint32_t type; /* of the elements (docs/format.md section 12) */
	/* of an element that lie side by side; elements from row to row, and plane to plane; 0: none */
	uint32_t parts, row, plane;
	uint32_t nr; /* extents */
	/* of a variable that begins: Group/Variable_Datatype_Class, with a final NUL, at most 1024 bytes before it */
	char key[1028];
	/* likewise: 1 more than the number of the variable of this plan that it was a step before; 0: none */
	uint32_t before;
	struct ckptfs_compact_extent {
		uint32_t file, reserved;
		uint64_t off, len;
	} extent[CKPTFS_COMPACT_EXTENTS]; /* those of one file after the other, each in the variable's order */
};

/* What became of a variable, once the plan has been run. ENOENT: there is none, or it still runs. */
struct ckptfs_compact_result {
	uint32_t size, version;
	uint64_t plan, variable; /* in: number of it, from 0 */
	uint64_t plain, coded, before, after, kept, known, code_ns; /* out, as above */
	uint32_t turns; /* out: enum ckptfs_compact_order that was taken */
	uint32_t reserved;
	char coder[88]; /* out: its steps; "": nothing was coded */
};

/*
 * What became of variables of this store, ever, one after the other by their keys. ENOENT: no more. For root and
 * whoever runs the mount (EPERM), on any descriptor.
 */
struct ckptfs_variable {
	uint32_t size, version;
	uint64_t number; /* in: 0: the first; else the one behind `key`. Out: one more, so that asking again goes on */
	uint64_t coded, before, after, code_ns; /* out, as above */
	uint64_t last_ns; /* out: the last time, since 1970 */
	uint32_t turns; /* out: enum ckptfs_compact_order that was taken last */
	uint32_t reserved;
	char type[8], coder[88]; /* out, as of the last time */
	char key[1032]; /* in: see number; out: its own, "": bytes of no variable */
};

#define CKPTFS_IOC_HANDLE _IOWR(CKPTFS_IOC_TYPE, 1, struct ckptfs_handle)
#define CKPTFS_IOC_CLONE _IOWR(CKPTFS_IOC_TYPE, 2, struct ckptfs_clone)
#define CKPTFS_IOC_SYNC _IOW(CKPTFS_IOC_TYPE, 3, struct ckptfs_sync)
#define CKPTFS_IOC_STAT _IOWR(CKPTFS_IOC_TYPE, 4, struct ckptfs_stat)
#define CKPTFS_IOC_GC _IOWR(CKPTFS_IOC_TYPE, 5, struct ckptfs_gc)
#define CKPTFS_IOC_SCRUB _IOWR(CKPTFS_IOC_TYPE, 6, struct ckptfs_scrub)
#define CKPTFS_IOC_SCRUB_HIT _IOWR(CKPTFS_IOC_TYPE, 7, struct ckptfs_scrub_hit)
#define CKPTFS_IOC_EXCLUSIVE _IOWR(CKPTFS_IOC_TYPE, 8, struct ckptfs_exclusive)
#define CKPTFS_IOC_DELTA_BEGIN _IOW(CKPTFS_IOC_TYPE, 9, struct ckptfs_delta_begin)
#define CKPTFS_IOC_DELTA_COMMIT _IOWR(CKPTFS_IOC_TYPE, 10, struct ckptfs_delta_commit)
#define CKPTFS_IOC_DELTA_ABORT _IOW(CKPTFS_IOC_TYPE, 11, struct ckptfs_delta_abort)
#define CKPTFS_IOC_SEAL _IOWR(CKPTFS_IOC_TYPE, 12, struct ckptfs_seal)
#define CKPTFS_IOC_COMPARE _IOWR(CKPTFS_IOC_TYPE, 13, struct ckptfs_compare)
#define CKPTFS_IOC_CLUSTER _IOWR(CKPTFS_IOC_TYPE, 20, struct ckptfs_cluster)
#define CKPTFS_IOC_UNPROTECTED _IOWR(CKPTFS_IOC_TYPE, 21, struct ckptfs_unprotected)
#define CKPTFS_IOC_COMPACT _IOWR(CKPTFS_IOC_TYPE, 24, struct ckptfs_compact)
#define CKPTFS_IOC_COMPACT_FILE _IOWR(CKPTFS_IOC_TYPE, 25, struct ckptfs_compact_file)
#define CKPTFS_IOC_COMPACT_ADD _IOW(CKPTFS_IOC_TYPE, 26, struct ckptfs_compact_add)
#define CKPTFS_IOC_COMPACT_RESULT _IOWR(CKPTFS_IOC_TYPE, 27, struct ckptfs_compact_result)
#define CKPTFS_IOC_OWNERS _IOWR(CKPTFS_IOC_TYPE, 28, struct ckptfs_owners)
#define CKPTFS_IOC_VARIABLE _IOWR(CKPTFS_IOC_TYPE, 29, struct ckptfs_variable)
