/*
 * What a node had sealed that will not come back. Others have copies of it (fs/nodes.h), and nobody is left there to
 * unseal it; so whoever might have may do that here.
 */
#pragma once

#include <stdint.h>

struct buf;
struct fs;
struct who;

/*
 * Of the copy with this top, those of all nodes that take part are dropped, this one's last. What chunks are no longer
 * needed is found by the next collections. *node gets the name of the node that had it, or of the one that keeps its
 * copy.
 *
 * -EROFS: it is not the top of a copy. -EPERM: by its owner or root. -EBUSY: its node takes part, and can unseal it.
 * -EHOSTDOWN: it was not said that its node will not come back (protect_forget()). -ETIMEDOUT, or another node's error:
 * that one has not said that its copy is gone, and all is as it was here.
 */
int abandon_copy(struct fs *fs, uint64_t top, const struct who *who, struct buf *node);
