/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What depends on the owner of a file: lists of owners, seals, their state in a tier, and the removal of sealed directories. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "permissions_rig.h"

/* --- owners --- */

struct asking {
	const struct caller_kind *caller;
	int dir;
};

static bool is_own(const struct caller_kind *caller, enum ckptfs_owner_kind kind, uint32_t id)
{
	bool is_one = caller->uid == 0 || id == (kind == CKPTFS_OWNER_USER ? caller->uid : caller->gid);

	for (size_t i = 0; kind == CKPTFS_OWNER_GROUP && i < caller->nr_groups; i++)
		is_one |= caller->groups[i] == id;
	return is_one;
}

/* 0: `id` is listed; EPERM: it is not. EINVAL: others are that are not for the caller. */
static int list_owners(const struct asking *a, enum ckptfs_owner_kind kind, uint32_t id)
{
	struct ckptfs_owners arg = ARGUMENT(ckptfs_owners, .kind = kind);
	int r = EPERM;

	do {
		MUST(ioctl(a->dir, CKPTFS_IOC_OWNERS, &arg), "owners");
		for (uint32_t i = 0; i < arg.nr; i++)
			r = !is_own(a->caller, kind, arg.v[i].id) ? EINVAL : arg.v[i].id == id && r == EPERM ? 0 : r;
	} while (arg.more);
	return r;
}

static void ask_owners(void *arg)
{
	const struct asking *a = arg;
	int *t = shared->outcome;

	t[LIST_USER] = list_owners(a, CKPTFS_OWNER_USER, OWNER);
	t[LIST_GROUP] = list_owners(a, CKPTFS_OWNER_GROUP, GROUP);
	t[EXCLUSIVE_USER] = ask_exclusive(a->dir, CKPTFS_EXCLUSIVE_USER, OWNER, "");
	t[EXCLUSIVE_GROUP] = ask_exclusive(a->dir, CKPTFS_EXCLUSIVE_GROUP, GROUP, "");
}

void try_owners(const char *mnt)
{
	int fd = open(mnt, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
		const struct caller_kind *caller = &callers[c];
		int user = is_own(caller, CKPTFS_OWNER_USER, OWNER) ? 0 : EPERM,
		    group = is_own(caller, CKPTFS_OWNER_GROUP, GROUP) ? 0 : EPERM;

		as_caller(caller, ask_owners, &(struct asking){ caller, fd });
		expect(mnt, caller, LIST_USER, user, true);
		expect(mnt, caller, LIST_GROUP, group, caller->uid == 0 || caller->gid == GROUP);
		expect(mnt, caller, EXCLUSIVE_USER, user, true);
		expect(mnt, caller, EXCLUSIVE_GROUP, group, caller->uid == 0 || caller->gid == GROUP);
	}
	close(fd);
}

static uint64_t number_of(int fd)
{
	struct stat st;

	MUST(fstat(fd, &st), "number");
	return st.st_ino;
}

/* --- seals --- */

/* For all, on a mount without other nodes and without a tier. */
static void ask_states(void *arg)
{
	int dir = *(int *)arg, *t = shared->outcome;

	t[SEAL_STATE] = seal(dir, CKPTFS_SEAL_STATE);
	t[SEAL_GATHERED] = seal(dir, CKPTFS_SEAL_GATHERED);
	t[TIER_OF_MOUNT] = ask_tier(dir, 0);
	t[TIER_OF_DIRECTORY] = ask_tier(dir, number_of(dir));
}

static void expect_states(const char *path, const struct caller_kind *caller, bool is_sealed)
{
	expect(path, caller, SEAL_STATE, is_sealed ? EOPNOTSUPP : ENODATA, true);
	expect(path, caller, SEAL_GATHERED, is_sealed ? EOPNOTSUPP : ENODATA, true);
	expect(path, caller, TIER_OF_MOUNT, EOPNOTSUPP, true);
	expect(path, caller, TIER_OF_DIRECTORY, EOPNOTSUPP, true);
}

static void ask_sealed(void *arg)
{
	int dir = *(int *)arg, *t = shared->outcome;

	t[CHECK] = check_seal(dir, CKPTFS_SEAL_CHECK);
	t[NEXT] = check_seal(dir, CKPTFS_SEAL_NEXT);
}

static void ask_unseal(void *arg)
{
	shared->outcome[UNSEAL] = seal(*(int *)arg, CKPTFS_SEAL_UNSEAL);
}

void try_seals(const char *mnt)
{
	static const struct kind kinds[] = { { "rwx", 0755, OWNER, GROUP, NULL, {{ 0 }} },
					     { "r-x", 0555, OWNER, GROUP, NULL, {{ 0 }} } };

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			const struct caller_kind *caller = &callers[c];
			char path[PATH_MAX], file[PATH_MAX + 8];
			int fd, owns, *t = shared->outcome;

			snprintf(path, sizeof(path), "%s/seal.%zu.%zu", mnt, k, c);
			snprintf(file, sizeof(file), "%s/file", path);
			MUST(mkdir(path, 0700), path);
			make_file(file, &files[0]);
			make_so(path, &kinds[k]);
			fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			as_caller(caller, ask_states, &fd);
			expect_states(path, caller, false);
			as_caller(caller, ask_seal, &fd);
			owns = t[OWNS];
			expect(path, caller, SEAL, owns ? owns : t[MAY_WRITE], !caller->capability && caller->uid != 0);
			if (t[SEAL] != 0) {
				MUST(fchmod(fd, 0755), path);
				as_caller(&callers[0], ask_seal, &fd);
			}
			if (t[SEAL] != 0)
				fail("the owner cannot seal", path);
			as_caller(caller, ask_sealed, &fd);
			expect(path, caller, CHECK, caller->uid == 0 || caller->uid == OWNER ? 0 : EPERM, true);
			expect(path, caller, NEXT, caller->uid == 0 || caller->uid == OWNER ? 0 : EPERM, true);
			as_caller(caller, ask_states, &fd);
			expect_states(path, caller, true);
			as_caller(caller, ask_unseal, &fd);
			expect(path, caller, UNSEAL, owns, !caller->capability && caller->uid != 0);
			close(fd);
		}
}

/* --- the tier --- */

struct tiered {
	int dir, elsewhere;
	uint64_t inode;
};

static void ask_tiered(void *arg)
{
	const struct tiered *a = arg;
	int *t = shared->outcome;

	t[TIER_OF_MOUNT] = ask_tier(a->elsewhere, 0);
	t[TIER_OF_DIRECTORY] = ask_tier(a->dir, a->inode);
	t[TIER_BY_NUMBER] = ask_tier(a->elsewhere, a->inode);
}

/* A directory by its number: for root, the mounting user and the one that sealed it; of a descriptor of it, for all. */
void try_tier(const char *mnt)
{
	static const struct kind kinds[] = { { "open", 0755, OWNER, GROUP, NULL, {{ 0 }} },
					     { "closed", 0700, OWNER, GROUP, NULL, {{ 0 }} } };

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		char path[PATH_MAX], other[PATH_MAX];
		struct tiered a;

		snprintf(path, sizeof(path), "%s/%s", mnt, kinds[k].name);
		snprintf(other, sizeof(other), "%s/other.%s", mnt, kinds[k].name);
		MUST(mkdir(path, 0700), path);
		make_so(path, &kinds[k]);
		make_file(other, &files[0]); /* any descriptor of the mount will do */
		a.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		a.elsewhere = open(k == 0 ? mnt : other, O_RDONLY | O_CLOEXEC);
		if (a.dir < 0 || a.elsewhere < 0)
			fail("cannot open", path);
		a.inode = number_of(a.dir);
		as_caller(&callers[0], ask_tiered, &a);
		expect(path, &callers[0], TIER_OF_DIRECTORY, ENODATA, true);
		expect(path, &callers[0], TIER_BY_NUMBER, ENODATA, true);
		as_caller(&callers[0], ask_seal, &a.dir);
		if (shared->outcome[SEAL] != 0)
			fail("the owner cannot seal", path);
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			const struct caller_kind *caller = &callers[c];

			as_caller(caller, ask_tiered, &a);
			expect(path, caller, TIER_OF_MOUNT, 0, true);
			expect(path, caller, TIER_OF_DIRECTORY, 0, true);
			expect(path, caller, TIER_BY_NUMBER, caller->uid == 0 || caller->uid == OWNER ? 0 : EPERM, true);
		}
		close(a.dir);
		close(a.elsewhere);
	}
}

/* --- removal --- */

struct removing {
	char empty[PATH_MAX];
	int fd; /* of a sealed directory beside it, of the same owner */
};

static void ask_remove(void *arg)
{
	const struct removing *r = arg;

	shared->outcome[RMDIR] = outcome(rmdir(r->empty));
	shared->outcome[REMOVE] = seal(r->fd, CKPTFS_SEAL_REMOVE);
}

/* A sealed directory is removed by those that own all of it, if the kernel lets them remove a directory there. */
static void try_removal(const char *dir, const struct caller_kind *caller, uid_t owner, uid_t owner_below)
{
	char path[PATH_MAX + 8], file[PATH_MAX + 16];
	bool owns = caller->uid == 0 ? caller->has_all || owner == 0 : caller->uid == owner && owner == owner_below;
	struct removing r;

	snprintf(r.empty, sizeof(r.empty), "%.4000s/empty", dir);
	snprintf(path, sizeof(path), "%s/sealed", dir);
	snprintf(file, sizeof(file), "%s/file", path);
	MUST(mkdir(r.empty, 0755), r.empty);
	MUST(mkdir(path, 0755), path);
	make_file(file, &files[0]);
	MUST(chown(file, owner_below, GROUP), file);
	MUST(chown(r.empty, owner, GROUP), r.empty);
	MUST(chown(path, owner, GROUP), path);
	r.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (seal(r.fd, CKPTFS_SEAL_SEAL) != 0)
		fail("cannot seal", path);
	as_caller(caller, ask_remove, &r);
	if (caller->uid == 0)
		expect(path, caller, REMOVE, shared->outcome[RMDIR] ? shared->outcome[RMDIR] : owns ? 0 : EPERM, true);
	else
		expect(path, caller, REMOVE, !owns ? EPERM : shared->outcome[RMDIR], true);
	if ((shared->outcome[REMOVE] == 0) != (access(path, F_OK) < 0))
		fail("is there, or gone, against what was said", path);
	if (shared->outcome[REMOVE] != 0 && seal(r.fd, CKPTFS_SEAL_REMOVE) != 0)
		fail("cannot remove", path);
	close(r.fd);
	if (shared->outcome[RMDIR] != 0)
		MUST(rmdir(r.empty), r.empty);
}

void try_removals(const char *mnt)
{
	for (size_t d = 0; d < ARRAY_SIZE(dirs); d++) {
		char dir[PATH_MAX];

		if (is_sealed(&dirs[d])) /* nothing is removed in it */
			continue;
		snprintf(dir, sizeof(dir), "%s/removals.%s", mnt, dirs[d].name);
		MUST(mkdir(dir, 0700), dir);
		make_so(dir, &dirs[d]);
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			uid_t uid = callers[c].uid;

			if (callers[c].in_user_namespace) /* its capabilities do not count here (fs/posix/permission.c) */
				continue;
			try_removal(dir, &callers[c], uid, uid);
			try_removal(dir, &callers[c], uid, OWNER);
			try_removal(dir, &callers[c], OWNER, OWNER);
		}
	}
}
