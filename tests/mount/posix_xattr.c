/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Extended attributes and POSIX ACLs, the latter in their raw form (linux/posix_acl_xattr.h). */
#include "posix.h"

#include <endian.h>
#include <linux/capability.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

enum { USER_OBJ = 1, A_USER = 2, GROUP_OBJ = 4, A_GROUP = 8, MASK = 16, OTHER_OBJ = 32 };

struct ace {
	unsigned tag, perm, id;
};

struct raw_acl {
	struct posix_acl_xattr_header head;
	struct posix_acl_xattr_entry e[16];
};

static size_t acl_encode(struct raw_acl *raw, const struct ace *a, unsigned n)
{
	unsigned i;

	raw->head.a_version = htole32(POSIX_ACL_XATTR_VERSION);
	for (i = 0; i < n; i++)
		raw->e[i] = (struct posix_acl_xattr_entry){
			.e_tag = htole16(a[i].tag), .e_perm = htole16(a[i].perm),
			.e_id = htole32(a[i].id ? a[i].id : (uint32_t)-1),
		};
	return sizeof(raw->head) + n * sizeof(raw->e[0]);
}

static int acl_set(const char *path, const char *name, const struct ace *a, unsigned n)
{
	struct raw_acl raw;
	size_t len = acl_encode(&raw, a, n);

	return setxattr(path, name, &raw, len, 0);
}

static void acl_expect(const char *path, const char *name, const struct ace *a, unsigned n, int line)
{
	struct raw_acl raw, got;
	size_t len = acl_encode(&raw, a, n);
	ssize_t r = getxattr(path, name, &got, sizeof(got));

	if (r != (ssize_t)len)
		check_fail(line, "%s of %s has %zd bytes, expected %zu", name, path, r, len);
	if (memcmp(&raw, &got, len) != 0)
		check_fail(line, "%s of %s has other entries", name, path);
}

#define NR(a) (sizeof(a) / sizeof((a)[0]))
#define SET(path, name, a) OK(acl_set(path, name, a, NR(a)))
#define EXPECT(path, name, a) acl_expect(path, name, a, NR(a), __LINE__)

static mode_t mode_of(const char *path)
{
	return lstat_of(path).st_mode & 07777;
}

CHECK(xattr_set_get_replace_remove)
{
	char got[64];

	put_file("f", "x");
	FAILS(ENODATA, getxattr("f", "user.a", got, sizeof(got)));
	OK(setxattr("f", "user.a", "one", 3, 0));
	EQUAL(getxattr("f", "user.a", got, sizeof(got)), 3);
	TRUE(memcmp(got, "one", 3) == 0);
	OK(setxattr("f", "user.a", "other", 5, 0));
	EQUAL(getxattr("f", "user.a", NULL, 0), 5);
	FAILS(ERANGE, getxattr("f", "user.a", got, 4));
	FAILS(EEXIST, setxattr("f", "user.a", "x", 1, XATTR_CREATE));
	FAILS(ENODATA, setxattr("f", "user.b", "x", 1, XATTR_REPLACE));
	OK(setxattr("f", "user.a", "y", 1, XATTR_REPLACE));
	OK(setxattr("f", "user.b", "", 0, XATTR_CREATE));
	EQUAL(getxattr("f", "user.b", got, sizeof(got)), 0);
	OK(removexattr("f", "user.a"));
	FAILS(ENODATA, removexattr("f", "user.a"));
	FAILS(ENODATA, getxattr("f", "user.a", got, sizeof(got)));
	FAILS(EOPNOTSUPP, setxattr("f", "nosuch.a", "x", 1, 0));
	FAILS(EINVAL, setxattr("f", "user.", "x", 1, 0));
	FAILS(EINVAL, getxattr("f", "user.", got, sizeof(got)));
	FAILS(EINVAL, removexattr("f", "user."));
}

CHECK(xattr_list_names_each_once)
{
	char list[1024], *p;
	ssize_t n;
	bool a = false, b = false, c = false;

	put_file("f", "x");
	EQUAL(listxattr("f", list, sizeof(list)), 0);
	OK(setxattr("f", "user.a", "1", 1, 0));
	OK(setxattr("f", "user.b", "2", 1, 0));
	OK(setxattr("f", "trusted.c", "3", 1, 0));
	n = OK(listxattr("f", NULL, 0));
	EQUAL(n, 7 + 7 + 10);
	FAILS(ERANGE, listxattr("f", list, n - 1));
	EQUAL(listxattr("f", list, n), n);
	for (p = list; p < list + n; p += strlen(p) + 1) {
		a |= strcmp(p, "user.a") == 0;
		b |= strcmp(p, "user.b") == 0;
		c |= strcmp(p, "trusted.c") == 0;
	}
	TRUE(a && b && c);
}

CHECK(xattr_sizes)
{
	static char value[70000], got[70000], name[300];
	size_t lens[] = { 1, 100, 3000, 16000, 65536 };
	unsigned i;

	put_file("f", "x");
	fill(value, sizeof(value), 5);
	for (i = 0; i < NR(lens); i++) {
		if (setxattr("f", "user.v", value, lens[i], 0) < 0) {
			if (on_fuse() || lens[i] <= 3000 || errno != ENOSPC)
				OK(-1);
			continue;
		}
		EQUAL(getxattr("f", "user.v", got, sizeof(got)), lens[i]);
		TRUE(memcmp(got, value, lens[i]) == 0);
	}
	FAILS(E2BIG, setxattr("f", "user.v", value, 65537, 0));
	memset(name, 'x', sizeof(name));
	memcpy(name, "user.", 5);
	name[255] = 0;
	OK(setxattr("f", name, "v", 1, 0));
	EQUAL(getxattr("f", name, got, sizeof(got)), 1);
	name[255] = 'x', name[256] = 0;
	FAILS(ERANGE, setxattr("f", name, "v", 1, 0));
}

CHECK(xattr_on_each_kind_of_object)
{
	OK(mkdir("d", 0755));
	OK(setxattr("d", "user.a", "x", 1, 0));
	OK(symlink("d", "s"));
	FAILS(EPERM, lsetxattr("s", "user.a", "x", 1, 0));
	OK(lsetxattr("s", "trusted.a", "x", 1, 0));
	EQUAL(lgetxattr("s", "trusted.a", NULL, 0), 1);
	FAILS(ENODATA, getxattr("s", "trusted.a", NULL, 0));
	OK(mkfifo("p", 0644));
	FAILS(EPERM, setxattr("p", "user.a", "x", 1, 0));
	OK(setxattr("p", "trusted.a", "x", 1, 0));
	OK(setxattr("d", "security.test", "x", 1, 0));
	EQUAL(getxattr("d", "security.test", NULL, 0), 1);
}

CHECK(xattr_permissions)
{
	put_file("f", "x");
	OK(chmod("f", 0644));
	OK(setxattr("f", "user.a", "x", 1, 0));
	OK(setxattr("f", "trusted.a", "x", 1, 0));
	AS(USER, USER) {
		char list[256];

		EQUAL(getxattr("f", "user.a", NULL, 0), 1);
		FAILS(EACCES, setxattr("f", "user.a", "y", 1, 0));
		FAILS(EACCES, removexattr("f", "user.a"));
		FAILS(ENODATA, getxattr("f", "trusted.a", NULL, 0));
		FAILS(EPERM, setxattr("f", "trusted.a", "y", 1, 0));
		FAILS(EPERM, setxattr("f", "security.a", "y", 1, 0));
		if (!on_fuse()) /* the kernel does not filter what a FUSE filesystem lists */
			EQUAL(listxattr("f", list, sizeof(list)), 7);
	}
	OK(chmod("f", 0600));
	AS(USER, USER) {
		FAILS(EACCES, getxattr("f", "user.a", NULL, 0));
	}
	OK(mkdir("d", 0755));
	OK(chmod("d", 01777));
	AS(USER, USER) {
		FAILS(EPERM, setxattr("d", "user.a", "x", 1, 0));
	}
}

CHECK(xattr_follows_the_inode)
{
	put_file("f", "x");
	OK(setxattr("f", "user.a", "x", 1, 0));
	OK(link("f", "g"));
	EQUAL(getxattr("g", "user.a", NULL, 0), 1);
	OK(rename("f", "h"));
	EQUAL(getxattr("h", "user.a", NULL, 0), 1);
	OK(unlink("h"));
	OK(unlink("g"));
	put_file("f", "x");
	FAILS(ENODATA, getxattr("f", "user.a", NULL, 0));
}

CHECK(xattr_hundred_on_one_file)
{
	char name[32], got[32];
	int i;

	put_file("f", "x");
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "user.%d", i);
		OK(setxattr("f", name, name, strlen(name), 0));
	}
	for (i = 0; i < 100; i += 2) {
		snprintf(name, sizeof(name), "user.%d", i);
		OK(removexattr("f", name));
	}
	for (i = 1; i < 100; i += 2) {
		snprintf(name, sizeof(name), "user.%d", i);
		EQUAL(getxattr("f", name, got, sizeof(got)), strlen(name));
		TRUE(memcmp(got, name, strlen(name)) == 0);
	}
}

CHECK(file_capabilities_go_with_a_write)
{
	struct vfs_cap_data cap = { .magic_etc = htole32(VFS_CAP_REVISION_2), .data[0].permitted = htole32(1 << 10) };
	int fd;

	put_file("f", "x");
	OK(setxattr("f", "security.capability", &cap, XATTR_CAPS_SZ_2, 0));
	EQUAL(getxattr("f", "security.capability", &cap, sizeof(cap)), XATTR_CAPS_SZ_2);
	fd = OK(open("f", O_RDWR));
	EQUAL(write(fd, "y", 1), 1);
	FAILS(ENODATA, getxattr("f", "security.capability", NULL, 0));
	OK(setxattr("f", "security.capability", &cap, XATTR_CAPS_SZ_2, 0));
	OK(chown("f", USER, USER));
	FAILS(ENODATA, getxattr("f", "security.capability", NULL, 0));
}

CHECK(acl_grants_and_mode_shows_the_mask)
{
	static const struct ace acl[] = { { USER_OBJ, 6, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 0, 0 },
					  { MASK, 6, 0 },     { OTHER_OBJ, 0, 0 } };

	put_file("f", "x");
	OK(chmod("f", 0600));
	AS(USER, USER) {
		FAILS(EACCES, open("f", O_RDONLY));
	}
	SET("f", ACCESS, acl);
	EXPECT("f", ACCESS, acl);
	EQUAL(mode_of("f"), 0660);
	AS(USER, USER) {
		OK(open("f", O_RDWR));
	}
	AS(OTHER, OTHER) {
		FAILS(EACCES, open("f", O_RDONLY));
	}
}

CHECK(acl_group_entry_grants)
{
	static const struct ace acl[] = { { USER_OBJ, 6, 0 }, { GROUP_OBJ, 0, 0 }, { A_GROUP, 4, OTHER },
					  { MASK, 7, 0 },     { OTHER_OBJ, 0, 0 } };

	put_file("f", "x");
	SET("f", ACCESS, acl);
	AS(USER, OTHER) {
		OK(open("f", O_RDONLY));
		FAILS(EACCES, open("f", O_RDWR));
	}
	AS(USER, USER) {
		FAILS(EACCES, open("f", O_RDONLY));
	}
}

CHECK(acl_chmod_changes_the_mask)
{
	static const struct ace before[] = { { USER_OBJ, 6, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 4, 0 },
					     { MASK, 6, 0 },	 { OTHER_OBJ, 0, 0 } };
	static const struct ace after[] = { { USER_OBJ, 7, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 4, 0 },
					    { MASK, 4, 0 },	{ OTHER_OBJ, 1, 0 } };

	put_file("f", "x");
	SET("f", ACCESS, before);
	OK(chmod("f", 0741));
	EXPECT("f", ACCESS, after);
	AS(USER, USER) {
		OK(open("f", O_RDONLY));
		FAILS(EACCES, open("f", O_WRONLY));
	}
}

CHECK(acl_equal_to_a_mode_becomes_the_mode)
{
	static const struct ace extended[] = { { USER_OBJ, 6, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 4, 0 },
					       { MASK, 6, 0 },	   { OTHER_OBJ, 0, 0 } };
	static const struct ace minimal[] = { { USER_OBJ, 7, 0 }, { GROUP_OBJ, 5, 0 }, { OTHER_OBJ, 1, 0 } };

	put_file("f", "x");
	SET("f", ACCESS, extended);
	SET("f", ACCESS, minimal);
	EQUAL(mode_of("f"), 0751);
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
	SET("f", ACCESS, extended);
	OK(removexattr("f", ACCESS));
	FAILS(ENODATA, getxattr("f", ACCESS, NULL, 0));
	EQUAL(mode_of("f"), 0660);
}

CHECK(acl_default_is_inherited)
{
	static const struct ace def[] = { { USER_OBJ, 7, 0 }, { A_USER, 7, USER }, { GROUP_OBJ, 5, 0 },
					  { MASK, 7, 0 },     { OTHER_OBJ, 0, 0 } };
	static const struct ace file[] = { { USER_OBJ, 6, 0 }, { A_USER, 7, USER }, { GROUP_OBJ, 5, 0 },
					   { MASK, 6, 0 },     { OTHER_OBJ, 0, 0 } };

	OK(mkdir("d", 0755));
	SET("d", DEFAULT, def);
	EQUAL(mode_of("d"), 0755);
	umask(077); /* does not count where a default ACL is */
	OK(close(OK(open("d/f", O_CREAT | O_RDWR, 0666))));
	OK(mkdir("d/e", 0777));
	EXPECT("d/f", ACCESS, file);
	EQUAL(mode_of("d/f"), 0660);
	FAILS(ENODATA, getxattr("d/f", DEFAULT, NULL, 0));
	EXPECT("d/e", DEFAULT, def);
	EXPECT("d/e", ACCESS, def);
	EQUAL(mode_of("d/e"), 0770);
	OK(mknod("d/n", S_IFREG | 0666, 0));
	EXPECT("d/n", ACCESS, file);
	OK(symlink("x", "d/s"));
	FAILS(EOPNOTSUPP, lsetxattr("d/s", ACCESS, def, sizeof(def), 0));
	AS(USER, USER) {
		OK(open("d/f", O_RDWR));
	}
	OK(removexattr("d", DEFAULT));
	OK(close(OK(open("d/g", O_CREAT | O_RDWR, 0666))));
	FAILS(ENODATA, getxattr("d/g", ACCESS, NULL, 0));
	EQUAL(mode_of("d/g"), 0600);
}

CHECK(acl_minimal_default_sets_the_mode)
{
	static const struct ace def[] = { { USER_OBJ, 7, 0 }, { GROUP_OBJ, 7, 0 }, { OTHER_OBJ, 5, 0 } };

	OK(mkdir("d", 0755));
	SET("d", DEFAULT, def);
	umask(077);
	OK(close(OK(open("d/f", O_CREAT | O_RDWR, 0666))));
	EQUAL(mode_of("d/f"), 0664);
	FAILS(ENODATA, getxattr("d/f", ACCESS, NULL, 0));
}

CHECK(acl_tmpfile_inherits)
{
	static const struct ace def[] = { { USER_OBJ, 7, 0 }, { A_USER, 7, USER }, { GROUP_OBJ, 5, 0 },
					  { MASK, 7, 0 },     { OTHER_OBJ, 0, 0 } };
	struct stat st;
	int fd;

	OK(mkdir("d", 0755));
	SET("d", DEFAULT, def);
	fd = OK(open("d", O_TMPFILE | O_RDWR, 0666));
	OK(fstat(fd, &st));
	EQUAL(st.st_mode & 07777, 0660);
	EQUAL(fgetxattr(fd, ACCESS, NULL, 0), sizeof(struct posix_acl_xattr_header) +
						      NR(def) * sizeof(struct posix_acl_xattr_entry));
}

CHECK(acl_errors)
{
	static const struct ace no_mask[] = { { USER_OBJ, 6, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 4, 0 },
					      { OTHER_OBJ, 0, 0 } };
	static const struct ace good[] = { { USER_OBJ, 6, 0 }, { A_USER, 6, USER }, { GROUP_OBJ, 4, 0 },
					   { MASK, 6, 0 },     { OTHER_OBJ, 0, 0 } };

	put_file("f", "x");
	FAILS(EINVAL, acl_set("f", ACCESS, no_mask, NR(no_mask)));
	FAILS(EINVAL, setxattr("f", ACCESS, "x", 1, 0));
	FAILS(EACCES, acl_set("f", DEFAULT, good, NR(good)));
	OK(chown("f", USER, USER));
	AS(OTHER, OTHER) {
		FAILS(EPERM, acl_set("f", ACCESS, good, NR(good)));
	}
	AS(USER, USER) {
		SET("f", ACCESS, good);
	}
}

CHECK(acl_set_by_non_member_drops_setgid)
{
	static const struct ace acl[] = { { USER_OBJ, 7, 0 }, { A_USER, 7, OTHER }, { GROUP_OBJ, 5, 0 },
					  { MASK, 7, 0 },     { OTHER_OBJ, 0, 0 } };

	put_file("f", "x");
	OK(chown("f", USER, OTHER));
	OK(chmod("f", 02755));
	AS(USER, USER) {
		SET("f", ACCESS, acl);
	}
	EQUAL(mode_of("f"), 0770);
}
