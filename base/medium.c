/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/medium.h"

#include <errno.h>
#include <stddef.h>
#include <sys/vfs.h>

#include "base/log.h"
#include "base/util.h"

/* linux/magic.h does not have all of them. */
static const struct {
	uint32_t magic;
	enum medium_kind kind;
	const char *type;
} known[] = {
	{ 0x01021994, MEDIUM_MEMORY, "tmpfs" },	  { 0x858458f6, MEDIUM_MEMORY, "ramfs" },
	{ 0x00006969, MEDIUM_NETWORK, "nfs" },	  { 0xff534d42, MEDIUM_NETWORK, "cifs" },
	{ 0xfe534d42, MEDIUM_NETWORK, "smb2" },	  { 0x0bd00bd0, MEDIUM_NETWORK, "lustre" },
	{ 0x47504653, MEDIUM_NETWORK, "gpfs" },	  { 0x00c36400, MEDIUM_NETWORK, "ceph" },
	{ 0x19830326, MEDIUM_NETWORK, "beegfs" }, { 0x01021997, MEDIUM_NETWORK, "9p" },
	{ 0x5346414f, MEDIUM_NETWORK, "afs" },	  { 0x20030528, MEDIUM_NETWORK, "pvfs2" },
	{ 0x01161970, MEDIUM_NETWORK, "gfs2" },	  { 0x7461636f, MEDIUM_NETWORK, "ocfs2" },
	{ 0x65735546, MEDIUM_FUSE, "fuse" },	  { 0x0000ef53, MEDIUM_DISK, "ext4" },
	{ 0x58465342, MEDIUM_DISK, "xfs" },	  { 0x9123683e, MEDIUM_DISK, "btrfs" },
	{ 0x2fc12fc1, MEDIUM_DISK, "zfs" },	  { 0xf2f52010, MEDIUM_DISK, "f2fs" },
	{ 0x794c7630, MEDIUM_DISK, "overlay" },
};

int medium_of(const char *path, struct medium *ret)
{
	struct medium m = { .kind = MEDIUM_DISK, .type = "" };
	struct statfs st;

	if (statfs(path, &st) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].magic == (uint32_t)st.f_type) {
			m.kind = known[i].kind;
			m.type = known[i].type;
		}
	m.size = (uint64_t)st.f_blocks * (uint64_t)st.f_bsize;
	m.available = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
	*ret = m;
	return 0;
}

const char *medium_caution(enum medium_kind kind)
{
	switch (kind) {
	case MEDIUM_MEMORY:
		return "in memory: all of it is lost when this machine stops; use a directory on a disk to keep it";
	case MEDIUM_NETWORK:
		return "a network filesystem: synced data is as durable as its server makes it, and nothing prevents a second "
		       "mount on another node where flock(2) is local to a node; a local disk is faster and safe";
	case MEDIUM_FUSE:
		return "a FUSE filesystem: synced data is as durable as its daemon makes it; a local disk is faster and safe";
	default:
		return NULL;
	}
}

void medium_log_caution(const char *store, const struct medium *m)
{
	const char *text = medium_caution(m->kind);

	if (text)
		log_warning("store %s: lies on %s, %s", store, m->type, text);
}
