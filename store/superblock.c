/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/superblock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine.h"

#define KEYFILE_MIN 32
#define KEYFILE_MAX 65536
#define LOCK_NS 200000000 /* to wait for the lock */
#define LOCK_STEP_NS 5000000

int superblock_decode(const void *p, size_t len, struct superblock *ret)
{
	const struct superblock_disk *d = p;
	struct superblock sb;

	if (len < sizeof(*d) || memcmp(d->magic, SUPERBLOCK_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (crc32c(d, offsetof(struct superblock_disk, crc32c)) != le32_get(d->crc32c))
		return -EBADMSG;
	if (le32_get(d->version) != SUPERBLOCK_VERSION || (le32_get(d->incompat) & ~SUPERBLOCK_INCOMPAT_KNOWN))
		return -EOPNOTSUPP;
	sb.hash = (enum fp_kind)le32_get(d->hash);
	if (!fp_kind_valid(sb.hash))
		return -EOPNOTSUPP;
	memcpy(sb.store_id, d->store_id, sizeof(sb.store_id));
	memcpy(sb.secret, d->secret, sizeof(sb.secret));
	sb.created_ns = le64_get(d->created_ns);
	sb.flags = le32_get(d->flags);
	sb.incompat = le32_get(d->incompat);
	if (superblock_domains(&sb) >= NR_FP_DOMAIN_KINDS)
		return -EOPNOTSUPP;
	*ret = sb;
	return 0;
}

void superblock_encode(const struct superblock *sb, struct superblock_disk *ret)
{
	struct superblock_disk d = { 0 };

	memcpy(d.magic, SUPERBLOCK_MAGIC, sizeof(d.magic));
	d.version = le32_put(SUPERBLOCK_VERSION);
	d.incompat = le32_put(sb->incompat);
	d.hash = le32_put(sb->hash);
	memcpy(d.store_id, sb->store_id, sizeof(d.store_id));
	memcpy(d.secret, sb->secret, sizeof(d.secret));
	d.created_ns = le64_put(sb->created_ns);
	d.flags = le32_put(sb->flags);
	d.crc32c = le32_put(crc32c(&d, offsetof(struct superblock_disk, crc32c)));
	*ret = d;
}

static int random_bytes(void *p, size_t len)
{
	ssize_t n = getrandom(p, len, 0);

	return n == (ssize_t)len ? 0 : log_errno(n < 0 ? -errno : -EIO, "cannot get random bytes");
}

/* The cluster key is derived from all bytes of the key file by hashing. */
static int read_keyfile(const char *path, uint8_t ret[FP_KEY_LEN])
{
	_cleanup_(closep) int fd = io_open(AT_FDCWD, path, O_RDONLY, 0);
	_cleanup_(freep) uint8_t *bytes = malloc(KEYFILE_MAX + 1);
	static const uint8_t no_secret[FP_KEY_LEN];
	struct fp_key condenser;
	struct stat st;
	ssize_t n;

	if (!bytes)
		return -ENOMEM;
	if (fd < 0)
		return log_errno(fd, "cluster key %s: cannot open", path);
	if (fstat(fd, &st) == 0 && st.st_mode & (S_IRGRP | S_IROTH))
		log_warning("cluster key %s: readable by users other than its owner, who could impersonate a node; chmod 600 it",
			    path);
	n = io_pread(fd, bytes, KEYFILE_MAX + 1, 0);
	if (n < 0)
		return log_errno((int)n, "cluster key %s: cannot read", path);
	if (n < KEYFILE_MIN || n > KEYFILE_MAX)
		return log_cause(-EINVAL,
				 "cluster key %s: has %zd bytes, must have %d to %d random ones; head -c 32 /dev/urandom makes them",
				 path, n, KEYFILE_MIN, KEYFILE_MAX);
	fp_key_init(&condenser, FP_SHA256, no_secret);
	for (size_t i = 0; i < FP_KEY_LEN; i += FP_KEY_LEN / 4) {
		struct fp f;

		bytes[n < KEYFILE_MAX ? n : KEYFILE_MAX] = (uint8_t)i; /* four different digests of the same file */
		f = fp_of(&condenser, bytes, (size_t)n + 1);
		memcpy(ret + i, &f.lo, FP_KEY_LEN / 4);
	}
	return 0;
}

static int superblock_make(const struct engine_conf *conf, struct superblock *ret)
{
	struct superblock sb = { .hash = conf->hash ? (enum fp_kind)conf->hash : FP_CLMUL, .created_ns = now_ns() };
	int r;

	if (conf->dedup > 0)
		sb.flags |= (uint32_t)(conf->dedup - 1) << SUPERBLOCK_DOMAIN_SHIFT;
	r = random_bytes(sb.store_id, sizeof(sb.store_id));
	if (r < 0)
		return r;
	if (conf->cluster) {
		sb.flags |= SUPERBLOCK_CLUSTER;
		r = read_keyfile(conf->cluster, sb.secret);
	} else {
		r = random_bytes(sb.secret, sizeof(sb.secret));
	}
	if (r < 0)
		return r;
	*ret = sb;
	return 0;
}

static int superblock_write(int root, const struct superblock *sb)
{
	_cleanup_(closep) int fd = io_open(root, "superblock.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct superblock_disk d[2];
	int r;

	if (fd < 0)
		return fd;
	superblock_encode(sb, &d[0]);
	d[1] = d[0];
	r = io_pwrite(fd, d, sizeof(d), 0);
	if (r < 0)
		return r;
	r = io_sync(fd);
	if (r < 0)
		return r;
	r = io_rename(root, "superblock.tmp", root, "superblock");
	if (r < 0)
		return r;
	return io_sync_dir(root);
}

/* `p`: an intact superblock that superblock_decode() does not support. */
static int refuse_version(const char *path, const void *p)
{
	const struct superblock_disk *d = p;
	uint32_t unknown = le32_get(d->incompat) & ~SUPERBLOCK_INCOMPAT_KNOWN;

	if (le32_get(d->version) != SUPERBLOCK_VERSION)
		return log_cause(-EOPNOTSUPP, "store %s: has format version %" PRIu32 ", this ckptfs reads version %u only",
				 path, le32_get(d->version), SUPERBLOCK_VERSION);
	if (unknown)
		return log_cause(-EOPNOTSUPP, "store %s: has features 0x%" PRIx32 " of a later version; use a newer ckptfs",
				 path, unknown);
	return log_cause(-EOPNOTSUPP, "store %s: has a hash= or dedup= of a later version; use a newer ckptfs", path);
}

/* If either copy is of another version, the store is refused: the other copy may be the remains of an older state. */
static int superblock_read(int fd, const char *path, struct superblock *ret)
{
	uint8_t copies[2][SUPERBLOCK_SIZE];
	struct superblock sb[2] = { 0 };
	ssize_t n = io_pread(fd, copies, sizeof(copies), 0);
	int r, r2;

	if (n < 0)
		return log_errno((int)n, "store %s: cannot read its superblock", path);
	if ((size_t)n < sizeof(copies))
		memset((uint8_t *)copies + n, 0, sizeof(copies) - (size_t)n);
	r = superblock_decode(copies[0], SUPERBLOCK_SIZE, &sb[0]);
	r2 = superblock_decode(copies[1], SUPERBLOCK_SIZE, &sb[1]);
	if (r == -EOPNOTSUPP || r2 == -EOPNOTSUPP)
		return refuse_version(path, r == -EOPNOTSUPP ? copies[0] : copies[1]);
	if (r < 0 && r2 < 0)
		return log_cause(-EBADMSG, "store %s: both copies of the superblock are damaged", path);
	if (r < 0)
		log_warning("store %s: first copy of the superblock is damaged, the second is used", path);
	*ret = sb[r < 0];
	return 0;
}

/* Refuse to create a store in a directory that holds anything but the leftovers of an interrupted creation. */
static int check_may_create(int root, const char *path)
{
	static const char *const ours[] = { ".", "..", "lost+found", "superblock.tmp", "packs", "journal", "index", "tier" };
	int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *de;
	int r = 0;
	DIR *dir;

	if (fd < 0)
		return log_errno(-errno, "store %s: cannot list", path);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (de = readdir(dir))) {
		bool known = false;

		for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
			known = known || strcmp(de->d_name, ours[i]) == 0;
		if (!known)
			r = log_cause(-EEXIST,
				      "store %s: holds '%s' and no superblock: not a ckptfs store, and not empty; "
				      "give a new or empty directory",
				      path, de->d_name);
	}
	closedir(dir);
	return r;
}

static const char *const store_folders[] = { "packs", "journal", "index" };

static int make_dir(int root, const char *path, const char *name)
{
	int r = io_mkdir(root, name, 0700);

	return r < 0 && r != -EEXIST ? log_errno(r, "store %s: cannot make %s", path, name) : 0;
}

static int store_create(int root, const char *path, const struct engine_conf *conf)
{
	struct superblock sb;
	int r;

	r = check_may_create(root, path);
	if (r < 0)
		return r;
	r = superblock_make(conf, &sb);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(store_folders); i++) {
		r = make_dir(root, path, store_folders[i]);
		if (r < 0)
			return r;
	}
	/* Directory entries first: a superblock implies that these directories exist. */
	r = io_sync_dir(root);
	if (r == 0)
		r = superblock_write(root, &sb);
	return r < 0 ? log_errno(r, "store %s: cannot write its superblock", path) : 0;
}

static int open_dir(int root, const char *path, const char *name, int *ret)
{
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return log_errno(-errno, "store %s: cannot open %s/", path, name);
	*ret = fd;
	return 0;
}

/* Create the directory and make its name durable, so that data acknowledged later cannot vanish with it. */
static int make_root(const char *path)
{
	_cleanup_(closep) int parent = -1;
	int fd, r;

	if (mkdir(path, 0700) < 0)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = parent < 0 ? -errno : io_sync_dir(parent);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* Is this a file that a store has beside its superblock and folders? */
static bool is_beside(const char *name)
{
	return strncmp(name, "reserve", strlen("reserve")) == 0 || strcmp(name, "room.tmp") == 0 ||
	       strcmp(name, "superblock.tmp") == 0;
}

/* Remove all files of a folder, or only those that `is_one` accepts. */
static void remove_files(int root, const char *name, bool (*is_one)(const char *))
{
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!dir) {
		closep(&fd);
		return;
	}
	while ((de = readdir(dir)))
		if (!is_one || is_one(de->d_name))
			unlinkat(fd, de->d_name, 0); /* fails for directories, which are not ours */
	closedir(dir);
}

void store_remove_new(int root, const char *path, bool removes_directory)
{
	remove_files(root, ".", is_beside); /* without these it is a store still */
	if ((unlinkat(root, "superblock", 0) < 0 && errno != ENOENT) || io_sync_dir(root) < 0)
		return;
	remove_files(root, "index/ingest", NULL);
	unlinkat(root, "index/ingest", AT_REMOVEDIR);
	remove_files(root, "tier", NULL); /* of a flusher, which found chunks of other stores in a tier */
	unlinkat(root, "tier", AT_REMOVEDIR);
	for (size_t i = 0; i < ARRAY_SIZE(store_folders); i++) {
		remove_files(root, store_folders[i], NULL);
		unlinkat(root, store_folders[i], AT_REMOVEDIR);
	}
	if (removes_directory)
		rmdir(path);
}

static int open_root(const char *path, const struct engine_conf *conf, struct store_dirs *d)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && !conf->read_only) {
		fd = make_root(path);
		if (fd < 0)
			return log_errno(fd, "store %s: cannot create", path);
		d->made = true;
	}
	if (fd < 0 && errno == ENOTDIR)
		return log_cause(-ENOTDIR, "store %s: not a directory; give the directory of a store", path);
	if (fd < 0 && errno == ENOENT)
		return log_cause(-ENOENT, "store %s: No such file or directory; give the directory of a store", path);
	if (fd < 0)
		return log_errno(-errno, "store %s: cannot open", path);
	d->root = fd;
	return 0;
}

static int is_frozen(int fd)
{
	struct statvfs st;

	return fstatvfs(fd, &st) < 0 ? -errno : !!(st.f_flag & ST_RDONLY);
}

/* Processes that wait for a store to be closed, and mounts that are about to find out that it is in use, lock it for a
 * moment. */
static int take_lock(int fd)
{
	uint64_t until = monotonic_ns() + LOCK_NS;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (monotonic_ns() >= until)
			return -EBUSY;
		nanosleep(&(struct timespec){ .tv_nsec = LOCK_STEP_NS }, NULL);
	}
	return 0;
}

static int open_locked(struct store_dirs *d, const char *path, const struct engine_conf *conf)
{
	int r;

	d->lock = io_open(d->root, "superblock", conf->read_only ? O_RDONLY : O_RDWR, 0);
	if (d->lock == -ENOENT && !conf->read_only) {
		r = store_create(d->root, path, conf);
		if (r < 0)
			return r;
		d->created = true;
		d->lock = io_open(d->root, "superblock", O_RDWR, 0);
	}
	if (d->lock == -ENOENT)
		return log_cause(-ENOENT, "store %s: has no superblock: not a ckptfs store; give the directory of one",
				 path);
	if (d->lock < 0)
		return log_errno(d->lock, "store %s: cannot open its superblock", path);
	r = take_lock(d->lock);
	if (r < 0)
		return log_errno(r, "store %s: in use by another mount or tool", path);
	return superblock_read(d->lock, path, &d->sb);
}

static int check_options(const struct store_dirs *d, const char *path, const struct engine_conf *conf)
{
	static const char *const domains[NR_FP_DOMAIN_KINDS] = { "global", "group", "user" };
	uint8_t secret[FP_KEY_LEN];
	int r;

	if (conf->hash && (enum fp_kind)conf->hash != d->sb.hash)
		return log_cause(-EINVAL, "store %s: made with another hash=, which cannot be changed", path);
	if (conf->dedup && (enum fp_domain_kind)(conf->dedup - 1) != superblock_domains(&d->sb))
		return log_cause(-EINVAL, "store %s: made with dedup=%s, which cannot be changed; use another store",
				 path, domains[superblock_domains(&d->sb)]);
	if (!conf->cluster)
		return 0;
	r = read_keyfile(conf->cluster, secret);
	if (r < 0)
		return r;
	if (memcmp(secret, d->sb.secret, sizeof(secret)) != 0)
		return log_cause(-EINVAL, "store %s: made with%s, which cannot be changed; use another store", path,
				 d->sb.flags & SUPERBLOCK_CLUSTER ? " another cluster= key" : "out cluster=");
	return 0;
}

int store_dirs_open(const char *path, const struct engine_conf *conf, struct store_dirs *ret)
{
	_cleanup_(store_dirs_release) struct store_dirs d = STORE_DIRS_NONE;
	int r;

	r = open_root(path, conf, &d);
	if (r < 0)
		return r;
	r = is_frozen(d.root);
	if (r < 0)
		return log_errno(r, "store %s: cannot look at its filesystem", path);
	d.frozen = r;
	r = open_locked(&d, path, conf);
	if (r < 0 && d.made && !d.created)
		store_remove_new(d.root, path, true);
	if (r < 0)
		return r;
	r = check_options(&d, path, conf);
	if (r < 0)
		return r;
	r = open_dir(d.root, path, "packs", &d.packs);
	if (r < 0)
		return r;
	r = open_dir(d.root, path, "journal", &d.journal);
	if (r < 0)
		return r;
	*ret = d;
	d = STORE_DIRS_NONE;
	return 0;
}

void store_dirs_release(struct store_dirs *d)
{
	int fds[] = { d->packs, d->journal, d->root, d->lock };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*d = STORE_DIRS_NONE;
}
