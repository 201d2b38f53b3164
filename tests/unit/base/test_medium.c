/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Kinds of filesystems, as statfs(2) tells them, and what a mount or ckptfs-init warns of on each. */
#include <errno.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/medium.h"
#include "base/util.h"

static struct statfs answer;
static int answer_errno;

/* The name is one or the other, by how long offsets are. */
int __wrap_statfs(const char *path, struct statfs *ret);
int __wrap_statfs64(const char *path, struct statfs *ret);

int __wrap_statfs(const char *path, struct statfs *ret)
{
	assert_string_equal(path, "/store");
	if (answer_errno != 0) {
		errno = answer_errno;
		return -1;
	}
	*ret = answer;
	return 0;
}

int __wrap_statfs64(const char *path, struct statfs *ret)
{
	return __wrap_statfs(path, ret);
}

static char said[1024];

static void keep(void *userdata _unused_, enum log_level level, const char *line)
{
	assert_int_equal(level, LOG_LEVEL_WARNING);
	assert_string_equal(said, ""); /* one line */
	snprintf(said, sizeof(said), "%s", line);
}

/* What is warned of on a filesystem with that number, "": nothing; its kind and type. */
static const char *warning(long magic, enum medium_kind kind, const char *type)
{
	struct medium m;

	answer = (struct statfs){ .f_type = magic };
	assert_int_equal(medium_of("/store", &m), 0);
	assert_int_equal(m.kind, kind);
	assert_string_equal(m.type, type);
	said[0] = '\0';
	log_to_function(keep, NULL);
	medium_log_caution("/store", &m);
	log_to_stderr();
	return said;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' lacks '%s'", text, part);
}

static void a_network_filesystem_says_what_is_and_is_not_promised(void **state _unused_)
{
	static const struct {
		long magic;
		const char *type;
	} network[] = {
		{ NFS_SUPER_MAGIC, "nfs" },
		{ 0x0bd00bd0, "lustre" },
		{ 0x47504653, "gpfs" }, /* "GPFS" */
		{ 0x00c36400, "ceph" },
		{ 0x19830326, "beegfs" },
		{ (long)0xff534d42, "cifs" },
		{ (long)(int32_t)0xff534d42, "cifs" }, /* where a long has 32 bits, it has a sign */
		{ V9FS_MAGIC, "9p" },
		{ OCFS2_SUPER_MAGIC, "ocfs2" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(network); i++) {
		const char *text = warning(network[i].magic, MEDIUM_NETWORK, network[i].type);
		char begin[64];

		snprintf(begin, sizeof(begin), "store /store: lies on %s, a network filesystem: ", network[i].type);
		has(text, begin);
		has(text, "synced data is as durable as its server makes it");
		has(text, "nothing prevents a second mount on another node where flock(2) is local to a node");
		has(text, "a local disk is faster and safe");
	}
}

static void memory_is_lost_with_the_machine(void **state _unused_)
{
	has(warning(TMPFS_MAGIC, MEDIUM_MEMORY, "tmpfs"),
	    "store /store: lies on tmpfs, in memory: all of it is lost when this machine stops");
	has(warning(RAMFS_MAGIC, MEDIUM_MEMORY, "ramfs"), "lies on ramfs, in memory");
}

static void another_fuse_filesystem_promises_what_its_daemon_does(void **state _unused_)
{
	has(warning(FUSE_SUPER_MAGIC, MEDIUM_FUSE, "fuse"),
	    "store /store: lies on fuse, a FUSE filesystem: synced data is as durable as its daemon makes it");
}

static void nothing_is_said_of_a_disk(void **state _unused_)
{
	assert_string_equal(warning(EXT4_SUPER_MAGIC, MEDIUM_DISK, "ext4"), "");
	assert_string_equal(warning(XFS_SUPER_MAGIC, MEDIUM_DISK, "xfs"), "");
	assert_string_equal(warning(BTRFS_SUPER_MAGIC, MEDIUM_DISK, "btrfs"), "");
	assert_string_equal(warning(OVERLAYFS_SUPER_MAGIC, MEDIUM_DISK, "overlay"), "");
	assert_string_equal(warning(0x12345678, MEDIUM_DISK, ""), ""); /* unknown */
}

static void space_is_counted_in_bytes(void **state _unused_)
{
	struct medium m;

	answer = (struct statfs){
		.f_type = EXT4_SUPER_MAGIC, .f_bsize = 4096, .f_blocks = UINT64_C(1) << 40, .f_bfree = 9, .f_bavail = 7
	};
	assert_int_equal(medium_of("/store", &m), 0);
	assert_true(m.size == UINT64_C(1) << 52);
	assert_true(m.available == UINT64_C(7) * 4096); /* not what is kept for root */
}

static void an_error_is_passed_on(void **state _unused_)
{
	struct medium m = { .size = 5 };

	answer_errno = ESTALE;
	assert_int_equal(medium_of("/store", &m), -ESTALE);
	answer_errno = 0;
	assert_true(m.size == 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_network_filesystem_says_what_is_and_is_not_promised),
		cmocka_unit_test(memory_is_lost_with_the_machine),
		cmocka_unit_test(another_fuse_filesystem_promises_what_its_daemon_does),
		cmocka_unit_test(nothing_is_said_of_a_disk),
		cmocka_unit_test(space_is_counted_in_bytes),
		cmocka_unit_test(an_error_is_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
