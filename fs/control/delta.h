/*
 * Deltas: the next version of a lineage, from its parent and a delta object.
 *
 * A lineage is a directory, and its versions are the files 000001, 000002, ... in it, each complete and like any other
 * file. A producer makes a file without a name in that directory (O_TMPFILE), says which version it is to become
 * (delta_begin()), writes the object into it (gpu/delta_format.h), and commits. The staging file is the producer's:
 * when it goes, by close or because the process died, all that was written to it goes.
 *
 * Committing. Only the order makes it safe:
 *   1. read the header and the tables, check them, find parent and sources      crash or error: nothing has changed
 *   2. a new file without a name: a clone of the parent, with the regions       crash: an orphan, removed at the next
 *      that the object names pointed elsewhere, or written                      mount; error: removed now
 *   3. compare its fingerprint with the object's, if asked for
 *   4. flush it, then give it its name, as link(2) does                         COMMIT POINT
 *   5. the caller syncs, if asked to; after an error the version is there as any file whose fsync failed
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/leaf_hash.h"

struct file;
struct fs;
struct who;

#define DELTA_NAME_LEN 11 /* of a version: ten digits at most, and a NUL */

/*
 * `f` becomes the staging file of version `number`, made from `parent` (0: from nothing). -EBADF: not open for writing;
 * -EINVAL: the directory it was made in is not known, or number is not above parent; -ENOENT: there is no
 * such parent; -EEXIST: there is such a version; -EALREADY: begun before.
 */
int delta_begin(struct fs *fs, struct file *f, uint32_t number, uint32_t parent);
/* Not begun any more, and empty. -EINVAL: it was not begun. */
int delta_abort(struct file *f);

struct delta_commit {
	bool sync; /* the caller syncs afterwards */
	bool verify; /* read all of the new version and compare it with the object's fingerprint */
	uint8_t key[LEAF_KEY_LEN]; /* of the lineage, for `verify` */
};

struct delta_made {
	uint64_t dir, ino, size;
	char name[DELTA_NAME_LEN];
};

/*
 * -EINVAL: not begun, or the object is for another version or parent; -EALREADY: committed before; -EBUSY: another
 * commit of it is under way; -EBADMSG: the object is damaged, lies, or does not give what its fingerprint says;
 * -EOPNOTSUPP: of a later version of the format; -ESTALE: the parent or another version that it refers to is gone or
 * shorter; -EACCES: `who` may not read one; -EFBIG: tables of more than DELTA_TABLES_MAX; -EEXIST: there is such a
 * version by now; -ENOENT: the directory is gone. After an error it may be written anew and tried again.
 */
#define DELTA_TABLES_MAX MiB(256)
int delta_commit(struct fs *fs, struct file *f, const struct delta_commit *how, const struct who *who,
		 struct delta_made *ret);
void delta_tidy(struct fs *fs, const struct delta_made *made); /* after the answer: work that nobody waits for */
