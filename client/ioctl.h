/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ioctls on files of a ckptfs mount. Every argument starts with its size and version, so that it can be extended: the
 * caller sets them, the daemon refuses unknown ones (EINVAL). On other filesystems they fail with ENOTTY. Requests that
 * change a file need a descriptor open for writing (EBADF).
 *
 * Requests whose duration depends on the size of a file, a directory or the store are limited to a few at a time for
 * each user; further ones are queued (EAGAIN: 1024 requests of this user are queued). A signal that ends the process
 * cancels them; a signal with a handler does not. EINTR: the daemon is ending.
 *
 * Installed as <ckptfs/ioctl.h>; programs need no library for it. C and C++.
 */
#pragma once

#include <linux/ioctl.h>
#include <stdint.h>

#define CKPTFS_IOC_TYPE 'K'
#define CKPTFS_IOC_VERSION 1

/*
 * A number that identifies this open file in other requests while it stays open: descriptors cannot be passed through
 * FUSE. The file must be open for reading (EBADF).
 */
struct ckptfs_handle {
	uint32_t size, version;
	uint64_t handle; /* out */
};

/*
 * Shares bytes with another open file of the same mount instead of copying them. Ranges may be unaligned; in one file
 * they must not overlap (EINVAL). This file must not have been opened with O_APPEND (EBADF); an O_APPEND that
 * fcntl(F_SETFL) sets or clears later makes no difference, because the kernel does not send it. Changes in mapped pages
 * of the source count after msync(). Where both descriptors are available, copy_file_range(2) does the same and checks
 * the O_APPEND of the moment. On a mount with `writeback` the kernel keeps the old modification time; futimens(2) sets
 * it.
 */
struct ckptfs_clone {
	uint32_t size, version;
	uint64_t from; /* handle of the source; ESTALE when it has been closed */
	uint64_t from_off, to_off;
	uint64_t len; /* 0: to the end of the source */
	uint64_t done; /* out: bytes shared */
};

/*
 * Compares this file with another one of the same mount by their chunks, without reading bytes. From `off` on they are
 * equal up to equal_end, and may differ from there up to differ_end; both are at most off + len, and may be less to
 * bound the time of one request. Both must be open for reading (EBADF). Bytes behind the end of a file count as zeros.
 * Changes in mapped pages count after msync().
 */
struct ckptfs_compare {
	uint32_t size, version;
	uint64_t with; /* handle of the other one; ESTALE when it has been closed */
	uint64_t off, len;
	uint64_t equal_end, differ_end; /* out */
};

/* Makes all changes of the mount durable. On any descriptor. */
struct ckptfs_sync {
	uint32_t size, version;
};

/*
 * The mount as a whole, for root and the mounting user (EPERM). On any directory.
 * CKPTFS_MOUNT_END: when the mount is gone from the daemon's mount namespace, the daemon makes everything durable and
 * ends, even if other namespaces still contain the mount: every request there then fails (ENOTCONN). Without it the
 * daemon serves them until the last of them is gone. CKPTFS_MOUNT_STAY cancels it.
 * CKPTFS_MOUNT_FLAGS: the daemon's part of a remount. With CKPTFS_MOUNT_READ_ONLY the daemon refuses every change
 * (EROFS), and all earlier changes are durable when it returns (EBUSY: a collection or compaction is running); without
 * it, changes are allowed again (EROFS: the store was mounted read-only). With CKPTFS_MOUNT_NOATIME reads do not update
 * access times.
 */
enum ckptfs_mount_command { CKPTFS_MOUNT_STAY, CKPTFS_MOUNT_END, CKPTFS_MOUNT_FLAGS };
#define CKPTFS_MOUNT_READ_ONLY 1u
#define CKPTFS_MOUNT_NOATIME 2u
struct ckptfs_mount {
	uint32_t size, version;
	uint32_t command, flags; /* flags: of CKPTFS_MOUNT_FLAGS; otherwise 0 */
	uint64_t mount_namespace; /* out: the daemon's; the inode of /proc/PID/ns/mnt */
};

/* Statistics of one regular file; the extended attribute user.ckptfs.stat has these and more as JSON. */
struct ckptfs_stat {
	uint32_t size, version;
	uint64_t file_size, mapped; /* out, bytes */
	uint64_t extents, frames; /* out; frames: distinct frames that a full read accesses */
	uint8_t fingerprint[16]; /* out: equal for equal content in one store */
	uint32_t durable; /* out: 1: everything written is committed */
	uint32_t reserved;
};

/*
 * Garbage collection: starts a collection (EBUSY while one is running), reports the progress of the last one, or stops
 * it; its work so far is kept, and the next one continues there. On any directory of the mount; starting and stopping
 * is for root and the mounting user (EPERM). It also stops when the descriptor that it was started on is closed.
 */
enum ckptfs_gc_command { CKPTFS_GC_STATUS, CKPTFS_GC_START, CKPTFS_GC_STOP };
#define CKPTFS_GC_DELETE 1u /* flag: free the garbage found, not only count it */
#define CKPTFS_GC_LOCAL 4u /* flag: collect on this node only, even if other nodes of its cluster are connected */
#define CKPTFS_GC_PLACE 2u /* flag, with CKPTFS_GC_DELETE: defragment the newest files */

struct ckptfs_gc {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t budget_ns; /* time limit; 0: none */
	uint64_t rate; /* bytes of packs to read and write per second; 0: unlimited */
	uint32_t move_below; /* percent: packs with less live data are emptied; 0: none */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete; /* all packs were examined */
	uint64_t run; /* which collection of this mount; 0: there was none */
	uint64_t packs, packs_total, frames, recipes; /* examined */
	uint64_t live_bytes, live_chunks, dead_bytes, dead_chunks; /* found */
	uint64_t freed_bytes, freed_chunks, removed_packs, moved_packs, moved_bytes; /* done */
	uint64_t placed_files, placed_bytes;
	uint32_t cluster; /* enum ckptfs_gc_cluster: collection of chunks that are pinned for other nodes */
	int32_t cluster_error; /* errno if it failed */
	/* on all nodes: chunks that stay pinned; chunks unpinned because no node refers to them, which each node
	 * frees */
	uint64_t cluster_pinned_bytes, cluster_pinned_chunks, cluster_unpinned_bytes, cluster_unpinned_chunks;
	char cluster_missing[64]; /* name of a missing node */
	uint64_t dead_disk; /* disk space of dead_bytes, as far as it is freed without moving other chunks */
};
enum ckptfs_gc_cluster {
	CKPTFS_GC_LOCAL_ONLY, /* not requested, or there is no cluster */
	CKPTFS_GC_WAITING, /* for the other nodes */
	CKPTFS_GC_NO_AGENT,
	CKPTFS_GC_MISSING, /* a node that may refer to chunks of others is not connected: nothing was unpinned */
	CKPTFS_GC_FAILED, /* before the end; some chunks may have been unpinned */
	CKPTFS_GC_TOGETHER, /* complete on all nodes */
};

/*
 * Scrub: verifies all chunks in packs against their fingerprints. Starts a scrub (EBUSY while one is running), reports
 * the progress of the last one, or stops it; the next one continues there unless CKPTFS_SCRUB_RESTART is set. On any
 * directory of the mount; starting and stopping is for root and the mounting user (EPERM). It also stops when the
 * descriptor that it was started on is closed.
 */
enum ckptfs_scrub_command { CKPTFS_SCRUB_STATUS, CKPTFS_SCRUB_START, CKPTFS_SCRUB_STOP };
#define CKPTFS_SCRUB_RESTART 1u /* flag: start from the beginning */

struct ckptfs_scrub {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t budget_ns; /* time limit; 0: none */
	uint64_t rate; /* bytes of packs to read per second; 0: unlimited */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete; /* everything was checked, by this scrub and the ones that it continues */
	uint32_t named; /* the affected files were searched */
	uint64_t run; /* which scrub of this mount; 0: there was none */
	uint64_t frames, chunks, bytes, read_bytes; /* checked; read_bytes: from the disk */
	uint64_t round_bytes, total_bytes; /* checked including the scrubs that it continues, of about total_bytes */
	uint64_t damaged, tables; /* chunks; tables, headers and packs */
	uint64_t repaired, unused, left; /* of both: repaired, unreferenced, not repaired */
	uint64_t files, lost_bytes; /* files with damaged bytes, and how many bytes */
	uint64_t hits; /* number of results of CKPTFS_IOC_SCRUB_HIT */
	char doing[32];
};

/* Damaged bytes of a file, found by the last scrub. ENOENT: no more, or another scrub has started. For root and the
 * mounting user (EPERM). */
struct ckptfs_scrub_hit {
	uint32_t size, version;
	uint64_t run, number; /* in: of which scrub, and which of its hits, from 0 */
	uint64_t inode, off, len; /* out */
	char path[4096]; /* out: from the mountpoint; empty: it has no name */
};

/*
 * Computes the space that deleting some names would free. A query is created, filled with names, run, polled until it
 * is done, and ended; it is dropped if it is not polled for half a minute. On directories of the mount, open for
 * reading.
 *
 *   BEGIN   sets `question` (EBUSY: this user has 4, or all ordinary users have 12; 4 more are reserved for root)
 *   ADD     adds `name` of this directory; "": all names in it, without subdirectories. EACCES: the caller may not read
 *           a file. E2BIG: the queries of this user have 262144 names, or those of all ordinary users 393216; 131072
 *           more are reserved for root
 *   USER    instead of names: all files owned by user `id`; GROUP: of group `id`. EPERM: not the caller's, and
 *           the caller is neither root nor the mounting user
 *   RUN     starts it, or queues it: three are computed at a time, one of each ordinary user, and one place is reserved
 *           for root
 *   STATUS  running, error and results, which are of one moment after RUN when it has ended. `error` is EACCES if the
 *           caller of RUN may not list a directory, or read a file, that it counts; E2BIG if there are more than 524288
 *           names, or 2097152 files of a user or group; for root and the mounting user 8388608, or 33554432
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
	uint64_t files, file_size, mapped; /* files that would be deleted, their bytes, and those without holes */
	uint64_t linked_files; /* files that would remain: they have other names */
	uint64_t chunks, bytes; /* distinct chunks that the deleted files refer to */
	uint64_t exclusive_chunks, exclusive_bytes; /* of these, not referred to by other files: would be freed */
	uint64_t exclusive_stored; /* disk space that this returns, if no other chunk is moved */
	uint64_t damaged; /* unreadable frames, which are not counted */
	uint64_t frames, frames_done, recipes; /* progress: frames found, frames examined, recipes read */
	uint64_t built; /* recipes read to build the back-references that an older store lacks */
};

/*
 * Owners of files: users or groups, by ascending number, from `from` on, in portions; on any directory of the mount.
 * Root and the mounting user see everyone; others see themselves and their groups. EXCLUSIVE computes what each of them
 * could free.
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
	uint32_t nr; /* out: entries of v */
	uint64_t from; /* in; out: where to continue */
	uint32_t more; /* out: there may be more */
	uint32_t reserved;
	struct ckptfs_owner v[CKPTFS_OWNERS_MAX];
};

/*
 * Deltas: the next version of a lineage. A lineage is a directory, and its versions are its files 000001, 000002, ...
 * The changes against an earlier version are written as a delta object (docs/format.md) into an unnamed staging file of
 * that directory (O_TMPFILE|O_WRONLY, or O_CREAT|O_EXCL and unlink(2)), and committed from there: then LINEAGE/NNNNNN
 * exists, complete, and durable if requested. Nothing is visible before that, and nothing remains if the staging file
 * is closed or its process dies. All three are called on the staging file.
 *
 *   BEGIN   starts version `number` with parent `parent` (0: none). ENOENT: no such parent; EEXIST: the version exists;
 *           EINVAL: number is not above parent, or the file was opened by name; EALREADY: already started; EBADF: not
 *           open for writing; EACCES, EPERM, EROFS: as for COMMIT
 *   COMMIT  EBADMSG: the object is damaged, inconsistent or does not match its fingerprint; EOPNOTSUPP: it has a later
 *           version of the format; EINVAL: it has another number or parent, or BEGIN is missing; ESTALE: a version that
 *           it refers to was removed or truncated; EACCES: the caller may not read one, or may not create files in the
 *           directory now; EPERM: the directory is sealed; ENOENT: it was removed; EROFS; EFBIG: the tables have more
 *           than 256 MiB, or more than half of the mount's `dirty`; EEXIST: the version exists by now; EALREADY:
 *           already committed; ENOSPC; EDQUOT. After an error nothing has changed, and the object may be rewritten. The
 *           version gets the owner, group, mode and extended attributes of the staging file
 *   ABORT   discards the version and truncates the staging file; BEGIN may be called again. On a mount with
 *           `writeback`, truncate it to 0 before writing again: there the kernel maintains its size
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
 * Sealed directories: a directory with its content becomes durable, then immutable, and is listed; all or nothing. On
 * the directory itself; NEXT on any directory of the mount.
 *
 *   SEAL    for the owner of all its content, and root (EPERM), if its owner may write to it (EACCES). EALREADY: it is
 *           sealed, and durable. EEXIST: it is in a sealed directory, or contains one. EBUSY: a file in it is open for
 *           writing, or has several names while a removed checkpoint is being erased. E2BIG: too much content.
 *           ENAMETOOLONG: too deep for a path. EROFS. `path`: the entry that caused the error, if any
 *   UNSEAL  for its owner and root (EPERM). EREMOTE: it was dropped (DROP). ENODATA: not sealed; `path`: the sealed
 *           directory that contains it, if any, "." is the mountpoint. For the replica in .ckptfs/nodes of a directory sealed by a forgotten node: all
 *           connected nodes drop their replicas, and `path` is that node's name. EBUSY: the node is connected;
 *           EHOSTDOWN: not all nodes have forgotten it; ENOLINK: no agent; EAGAIN: another process is doing the same;
 *           EROFS: it is within such a directory; EREMOTEIO, ETIMEDOUT: `path` is a node that has not confirmed it
 *   REMOVE  atomically and durably removes a sealed directory with its content; the next collection frees the space.
 *           For root, and for a user that owns all of it and may write to its parent directory (EPERM, EACCES). In:
 *           sealed_ns, only if it was sealed then (ESTALE), 0: any; uid, not 0: only if that user owns all of it and
 *           its parent directory (EPERM). ENODATA: not sealed. EBUSY: it is being sealed, or is the mountpoint. EROFS
 *   DROP    erases the bytes of its files in the store, after a check that the tier beneath it has them (mount option
 *           tier=). Names, attributes and root stay, and reads get the bytes from the tier; the next collection frees the
 *           space. For root, and the user that sealed it (EPERM). In: sealed_ns, as for REMOVE. EALREADY: it was dropped
 *           before. EAGAIN: it is not in the tier. EBUSY: it is the newest one that its user has sealed in its parent
 *           directory, or is being sealed or unsealed. EOPNOTSUPP: the mount has no tier, or is part of a cluster. EIO:
 *           the tier does not answer, or has something else; see the log. ENODATA, ESTALE, EROFS as for REMOVE
 *   NEXT    the sealed directory with the next inode number after `inode`, 0: the first. ENOENT: no more. Root and the
 *           mounting user see all, others their own
 *   STATE   0: another node has a complete replica. EAGAIN: not yet. EOPNOTSUPP: protect=none. ENODATA: not sealed.
 *           ENOTCONN: no agent; EHOSTUNREACH: no node on another host; EHOSTDOWN: the nodes with the replica are not
 *           connected and may be lost; others: error of the last attempt. More may be added
 *   GATHERED  the same for compact_group=: 0: it is on the gathering nodes of this node's group and, unless this
 *           node is one of them, released here. EOPNOTSUPP: the option is not set
 *   COPY    the replica on this node with the next inode number after `inode`, as NEXT; `path` is relative to
 *           .ckptfs/nodes. For root and the mounting user (EPERM)
 *   OF_NODE in .ckptfs/nodes/NAME or below: the directory sealed by that node with the next inode number there after
 *           `inode`, 0: the first. Only `inode`, `sealed_ns` and `path` are set, and the fact CKPTFS_SEAL_REMOTE.
 *           ENOENT: no more; ENODATA: not in the node directory view; ENOTUNIQ: it is .ckptfs or .ckptfs/nodes. On a
 *           sealed one, root and the mounting user see all that its node has sealed, others only that one
 *   CHECK   the seal, and its root computed again from the current metadata: EIO, or a different root, is damage. For
 *           the users that see it with NEXT (EPERM). ENODATA: not sealed. File content is not read; every read verifies
 *           it against the fingerprints that the root covers. On a replica, as OF_NODE, for all: it is complete, and
 *           the root is not known. Dropped: the root is computed from what the tier has, of files that stayed here as
 *           well, and names and attributes here are not compared with it
 */
enum ckptfs_seal_command {
	CKPTFS_SEAL_SEAL,
	CKPTFS_SEAL_UNSEAL,
	CKPTFS_SEAL_NEXT,
	CKPTFS_SEAL_CHECK,
	CKPTFS_SEAL_STATE,
	CKPTFS_SEAL_GATHERED,
	CKPTFS_SEAL_REPLICA,
	CKPTFS_SEAL_OF_NODE,
	CKPTFS_SEAL_REMOVE,
	CKPTFS_SEAL_DROP
};
#define CKPTFS_SEAL_HAS_ROOT 1u /* fact: `new_bytes` and `root` are set; not for replicas */
#define CKPTFS_SEAL_PROTECTED 2u /* fact, of NEXT: another node has a complete replica */
#define CKPTFS_SEAL_REMOTE 4u /* fact: sealed by another node */
#define CKPTFS_SEAL_DROPPED 16u /* fact, of NEXT and CHECK: bytes of its files are in the tier alone */
/* fact: the mount is of a tier by itself. `inode` is a number for NEXT, and `new_bytes` is 0 */
#define CKPTFS_SEAL_OF_TIER 8u

struct ckptfs_seal {
	uint32_t size, version;
	uint32_t command, flags; /* flags: 0 */
	uint64_t inode; /* out: of the directory */
	int64_t sealed_ns; /* out, as all below: time of sealing, since 1970; strictly increasing */
	uint64_t files, directories, bytes; /* including itself; files: all that are not directories, each once */
	uint64_t new_bytes; /* stored bytes that nothing else referred to when it was sealed */
	uint32_t uid; /* of the user that sealed it */
	uint32_t facts; /* CKPTFS_SEAL_HAS_ROOT, CKPTFS_SEAL_PROTECTED, ... */
	uint8_t root[32]; /* when it was sealed; over names, attributes and content (docs/format.md) */
	uint8_t root_now[32]; /* CHECK */
	char path[4096]; /* relative to the mountpoint; "": the mountpoint, or not set */
};

/*
 * The cluster, for root and the mounting user (EPERM). EOPNOTSUPP: the store is not part of a cluster.
 *
 *   STATUS  statistics
 *   REPAIR    considers nodes that are not connected now as lost, and re-replicates what they had. ENOTCONN: no agent. It
 *           starts soon, and has ended when `repaired` of STATUS is at least `number`; it pauses while there is no agent
 *   FORGET  node `node` will not come back: unpins the chunks kept for it. ENOENT: unknown node; EBUSY: it is connected
 */
enum ckptfs_cluster_command { CKPTFS_CLUSTER_STATUS, CKPTFS_CLUSTER_REPAIR, CKPTFS_CLUSTER_FORGET };

#define CKPTFS_CLUSTER_NO_AGENT 1u /* no agent is connected */

struct ckptfs_cluster {
	uint32_t size, version;
	uint32_t command, flags; /* flags: 0; out: those above */
	char node[64]; /* FORGET: its name, with a final NUL */
	uint64_t number; /* out: of the re-replication started by REPAIR */
	uint64_t repaired; /* out, as all below: re-replications ended */
	uint64_t sealed, protected_dirs; /* sealed directories; those with a replica on another node */
	uint64_t copies; /* replicas of lost nodes' directories that REPAIR has sent to another node */
	uint64_t chunks, bytes; /* sent to other nodes since the mount */
	int32_t error; /* errno of the last directory that could not be replicated; 0: none */
	uint32_t is_busy;
};

/* A directory that could not be replicated in the last attempt, including REPAIR: number 0, 1, ... until ENOENT; at most
 * 64 are listed. For the same users. */
struct ckptfs_unprotected {
	uint32_t size, version;
	uint32_t number;
	int32_t error; /* out, as all below: an errno. EIO: no connected node has all of it */
	char node[64]; /* that sealed it */
	char path[4096]; /* relative to its mountpoint */
};

/*
 * The tier beneath the store (mount option tier=), and one sealed directory: the one with inode number `inode`; 0:
 * none. On any descriptor of the mount, for all users; figures of a directory for root, the mounting user and the one
 * that sealed it (EPERM), and on a descriptor of the directory for all. EOPNOTSUPP: the mount has no tier; ENODATA: it
 * is not sealed.
 */
enum ckptfs_tier_state {
	CKPTFS_TIER_CONNECTING,
	CKPTFS_TIER_IDLE, /* all checkpoints that can be read are flushed */
	CKPTFS_TIER_FLUSHING,
	CKPTFS_TIER_RETRYING, /* soon, after a failure */
	CKPTFS_TIER_STOPPED /* until the next mount */
};
#define CKPTFS_TIER_HAS 1u /* fact: the directory is complete and durable in the tier */
#define CKPTFS_TIER_REMOVED 4u /* fact: retention has removed the directory from the tier; it is not flushed again */
#define CKPTFS_TIER_CHECKING 8u /* fact: the daemon is still looking for removed checkpoints: repeat with `check` */
#define CKPTFS_TIER_KNOWN 2u /* fact: the tier was listed since the mount; else in_tier is 0 */
#define CKPTFS_TIER_CHECK UINT64_MAX
struct ckptfs_tier {
	uint32_t size, version;
	uint64_t inode;
	uint64_t check; /* in: 0: answer from memory; CKPTFS_TIER_CHECK: look for removed ones first. Out: to repeat */
	uint32_t state; /* out, as all below: enum ckptfs_tier_state */
	uint32_t facts; /* CKPTFS_TIER_HAS, CKPTFS_TIER_REMOVED, CKPTFS_TIER_KNOWN, CKPTFS_TIER_CHECKING */
	int32_t error; /* errno of the current failure; 0: none */
	int32_t directory_error; /* errno of the last attempt to read the directory; 0: none */
	uint64_t sealed, in_tier; /* sealed directories, except REMOVED ones; those known to be in the tier */
	uint64_t waiting_bytes, left_ns; /* of files that are not in the tier; time left for them, 0: unknown */
	uint64_t bytes, flushed_bytes; /* of files of the directory */
	uint64_t directory_left_ns; /* with the directories flushed before it; 0: unknown */
	char where[256]; /* URL of the tier; cut if it is longer */
	char reason[256]; /* why checkpoints are not flushed; "": no problem */
};

/*
 * Recoding: stores variables of files together, coded by their type. A plan is created, filled with files and
 * variables, started, and polled until it is done. One at a time: EBUSY while another plan is being filled or runs, or
 * during a collection; ESTALE for a plan that is not the last. A plan that is idle for half a minute may be replaced,
 * and it ends when the descriptor that it was created on is closed: a killed command leaves none running. For root and
 * the mounting user (EPERM), on any descriptor of the mount.
 *
 *   BEGIN   sets `plan`
 *   START   ends CKPTFS_IOC_COMPACT_FILE and _ADD; EROFS unless it is a dry run
 *   STATUS  running, error and statistics
 *   STOP    stops soon; the work so far is kept, and the next plan does the rest. Before START the plan is dropped
 *   PAUSE   suspends background compaction until RESUME. EOPNOTSUPP: the mount has none. Both need no plan
 */
enum ckptfs_compact_command {
	CKPTFS_COMPACT_STATUS,
	CKPTFS_COMPACT_BEGIN,
	CKPTFS_COMPACT_START,
	CKPTFS_COMPACT_STOP,
	CKPTFS_COMPACT_PAUSE,
	CKPTFS_COMPACT_RESUME,
};
#define CKPTFS_COMPACT_EXIT_BUSY 75 /* exit status of ckptfs-compact --background: a plan or a collection is running */
#define CKPTFS_COMPACT_DRY_RUN 1u /* flag of START: only compute the result */
#define CKPTFS_COMPACT_CHAIN_FORCED 2u /* flag of START: code steps against each other, whatever reads then cost */
enum ckptfs_compact_order {
	CKPTFS_COMPACT_WHOLE, /* a variable of one file after the other */
	CKPTFS_COMPACT_TURNS, /* `block` bytes of each file in turn */
	CKPTFS_COMPACT_BEST, /* whichever is smaller, for each variable */
};

struct ckptfs_compact {
	uint32_t size, version;
	uint32_t command, flags;
	uint64_t plan; /* of all but BEGIN */
	uint32_t order; /* START, as the three below */
	uint32_t cpu_ms; /* CPU time per GB; 0: no limit */
	uint64_t block, rate; /* rate: bytes of packs to read and write per second; 0: unlimited */
	uint32_t running; /* out, as all below */
	int32_t error; /* errno of one that failed, or 0 */
	uint32_t complete;
	uint32_t chain; /* in, START: steps that are coded against each other, 0 to 15; out: 0 */
	uint64_t variables; /* done */
	uint64_t plain; /* bytes examined */
	uint64_t coded, before, after; /* bytes coded now; their stored size before (approximately) and after */
	uint64_t kept, known; /* unchanged bytes: would not get smaller; were coded before */
	uint64_t code_ns; /* CPU time */
	uint64_t freed, written; /* disk bytes freed and allocated; set when it has ended */
};

/* Adds a file to the plan. On its descriptor, open for reading. */
struct ckptfs_compact_file {
	uint32_t size, version;
	uint64_t plan;
	uint32_t file; /* out: its number */
	uint32_t reserved;
};

#define CKPTFS_COMPACT_EXTENTS 512
#define CKPTFS_COMPACT_BEGINS 1u /* flag: starts a variable; otherwise continues the last one, without its shape */
#define CKPTFS_COMPACT_ROUNDED 2u /* with BEGINS: 16-bit floats, rounded from the variable that `before` names */
struct ckptfs_compact_add {
	uint32_t size, version;
	uint64_t plan;
	uint32_t flags;
	uint32_t type; /* of the elements (docs/format.md section 12) */
	uint32_t parts, row, plane; /* components of an element; elements per row, and per plane; 0: none */
	uint32_t nr; /* extents */
	/* with BEGINS: Group/Variable_Datatype_Class, with a final NUL, at most 1024 bytes before it */
	char key[1028];
	/* with BEGINS: 1 + the number, in this plan, of the same variable in the previous step; 0: none */
	uint32_t before;
	struct ckptfs_compact_extent {
		uint32_t file, reserved;
		uint64_t off, len;
	} extent[CKPTFS_COMPACT_EXTENTS]; /* one file after the other, each in the variable's order */
};

/* The result for a variable, after the plan has ended. ENOENT: no such variable, or it still runs. */
struct ckptfs_compact_result {
	uint32_t size, version;
	uint64_t plan, variable; /* in: its number, from 0 */
	uint64_t plain, coded, before, after, kept, known, code_ns; /* out, as above */
	uint32_t turns; /* out: enum ckptfs_compact_order that was used */
	uint32_t reserved;
	char coder[88]; /* out: its stages; "": nothing was coded */
};

/*
 * Cumulative results for the variables of this store, in the order of their keys. ENOENT: no more. For root and the
 * mounting user (EPERM), on any descriptor.
 */
struct ckptfs_variable {
	uint32_t size, version;
	uint64_t number; /* in: 0: the first; else the one after `key`. Out: incremented, for the next call */
	uint64_t coded, before, after, code_ns; /* out, as above */
	uint64_t last_ns; /* out: time of the last recoding, since 1970 */
	uint32_t turns; /* out: enum ckptfs_compact_order that was used last */
	uint32_t reserved;
	char type[8], coder[88]; /* out: of the last recoding */
	char key[1032]; /* in: see number; out: its key, "": bytes outside variables */
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
#define CKPTFS_IOC_TIER _IOWR(CKPTFS_IOC_TYPE, 30, struct ckptfs_tier)
#define CKPTFS_IOC_MOUNT _IOWR(CKPTFS_IOC_TYPE, 40, struct ckptfs_mount)
