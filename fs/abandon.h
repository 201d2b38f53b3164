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
 * Of the copy with this top, those of all nodes that take part are dropped, this one's last. Which chunks nobody needs
 * any more is found by the next collections. *node gets the name of the node that had it; if another one has not said
 * that its copy is gone, that one's.
 *
 * -EROFS: it is not the top of a copy. -EPERM: by its owner or root. -EBUSY: its node takes part, and can unseal it.
 * -EHOSTDOWN: to this node, or another one, it was not said that it will not come back (protect_forget()). -ENOLINK: no
 * agent is there, so that others would have it still. -EAGAIN: somebody else abandons one; it takes a thread, and others
 * are to have some, too. -EREMOTEIO, -ETIMEDOUT: another node has not said that its copy is gone, which is shown on here;
 * it may go later all the same.
 */
int abandon_copy(struct fs *fs, uint64_t top, const struct who *who, struct buf *node);
