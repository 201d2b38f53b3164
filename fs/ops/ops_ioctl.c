#include "client/ioctl.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/background/collect.h"
#include "fs/cluster_hooks.h"
#include "fs/control/delta.h"
#include "fs/posix/file.h"
#include "fs/seal/freeze.h"
#include "fs/posix/inode.h"
#include "fs/control/inquiry.h"
#include "fs/fuse_loop.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "fs/posix/permission.h"
#include "fs/background/scrubber.h"
#include "fs/seal/seal.h"
#include "store/engine.h"

/* Every argument starts with its size and version. */
struct head {
	uint32_t size, version;
};

static int check_argument(const void *in, size_t in_len, size_t want)
{
	struct head h;

	if (in_len < want)
		return -EINVAL;
	memcpy(&h, in, sizeof(h));
	return h.size == want && h.version == CKPTFS_IOC_VERSION ? 0 : -EINVAL;
}

static void ioctl_handle(fuse_req_t req, struct file *f, const void *in)
{
	struct ckptfs_handle arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = file_handle(fs_of(req), f, &arg.handle);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

/* Size after an ioctl that may have extended the file, which the kernel does not notice by itself. */
static struct notify_growth growth_since(struct file *f, const struct ns_content *before)
{
	struct notify_growth g = { 0 };
	struct ns_content now;

	content_stat(f->content, &now);
	if (now.size > before->size && content_read(f->content, &g.last, 1, now.size - 1) == 1)
		g.size = now.size;
	return g;
}

static void ioctl_clone(fuse_req_t req, struct file *f, const void *in)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct notify_growth growth;
	struct ns_content before;
	struct ckptfs_clone arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	content_stat(f->content, &before);
	r = file_clone_handle(fs_of(req), arg.from, arg.from_off, f, arg.to_off, arg.len, &caller, &arg.done);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	if (r > 0)
		notify_attributes_changed(loop_notify(), f->inode->ino);
	growth = growth_since(f, &before);
	notify_then_reply_ioctl(loop_notify(), req, f->inode->ino, arg.to_off, arg.done, growth, &arg, sizeof(arg));
}

static void ioctl_compare(fuse_req_t req, struct file *f, const void *in)
{
	struct content_sameness same;
	struct ckptfs_compare arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = file_compare_handle(fs_of(req), f, arg.with, arg.off, arg.len, &same);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	arg.equal_end = same.equal_end;
	arg.differ_end = same.differ_end;
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
}

static void ioctl_stat(fuse_req_t req, struct file *f, const void *in)
{
	struct content_info info;
	struct ckptfs_stat arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	/* a fingerprint requires read access */
	r = (f->flags & O_ACCMODE) == O_WRONLY ? -EBADF : content_info(f->content, &info);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	arg.file_size = info.size;
	arg.mapped = info.mapped;
	arg.extents = info.extents;
	arg.frames = info.frames;
	arg.durable = info.durable;
	arg.reserved = 0;
	memset(arg.fingerprint, 0, sizeof(arg.fingerprint));
	fp_encode(info.fingerprint, arg.fingerprint);
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
}

static int gc_command(fuse_req_t req, uint64_t holder, const struct ckptfs_gc *arg)
{
	struct gc_conf conf = {
		.delete = arg->flags & CKPTFS_GC_DELETE,
		.place = arg->flags & CKPTFS_GC_PLACE,
		.move_below = arg->move_below,
		.budget_ns = arg->budget_ns,
		.rate = arg->rate,
	};
	struct fs *fs = fs_of(req);

	if (arg->command > CKPTFS_GC_STOP || arg->flags & ~(CKPTFS_GC_DELETE | CKPTFS_GC_PLACE | CKPTFS_GC_LOCAL) ||
	    arg->move_below > 100)
		return -EINVAL;
	if (arg->command == CKPTFS_GC_STATUS)
		return 0;
	if (!ops_may_command(req))
		return -EPERM;
	if (arg->command == CKPTFS_GC_START)
		return fs->read_only && conf.delete ?
			       -EROFS :
			       collect_start(fs->collect, &conf, arg->flags & CKPTFS_GC_LOCAL, holder);
	collect_stop(fs->collect);
	return 0;
}

static void gc_tell(struct fs *fs, struct ckptfs_gc *arg)
{
	struct collect_status s;

	collect_status(fs->collect, &s);
	arg->running = s.task.running;
	arg->error = -s.task.error;
	arg->complete = s.report.complete;
	arg->run = s.task.run;
	arg->packs = s.report.nr_packs;
	arg->packs_total = s.report.nr_packs_total;
	arg->frames = s.report.nr_frames;
	arg->recipes = s.report.nr_recipes;
	arg->live_bytes = s.report.live_bytes;
	arg->live_chunks = s.report.live_chunks;
	arg->dead_bytes = s.report.dead_bytes;
	arg->dead_chunks = s.report.dead_chunks;
	arg->freed_bytes = s.report.freed_bytes;
	arg->freed_chunks = s.report.freed_chunks;
	arg->removed_packs = s.report.nr_removed;
	arg->moved_packs = s.report.nr_moved_packs;
	arg->moved_bytes = s.report.moved_bytes;
	arg->placed_files = s.report.nr_placed;
	arg->placed_bytes = s.report.placed_bytes;
	static_assert((int)COLLECT_ALONE == CKPTFS_GC_ALONE && (int)COLLECT_WAITING == CKPTFS_GC_WAITING &&
			      (int)COLLECT_NO_AGENT == CKPTFS_GC_NO_AGENT && (int)COLLECT_MISSING == CKPTFS_GC_MISSING &&
			      (int)COLLECT_FAILED == CKPTFS_GC_FAILED && (int)COLLECT_TOGETHER == CKPTFS_GC_TOGETHER,
		      "told as it is");
	arg->cluster = s.together;
	arg->cluster_error = -s.cluster.error;
	arg->cluster_kept_bytes = s.cluster.kept_bytes;
	arg->cluster_kept_chunks = s.cluster.nr_kept;
	arg->cluster_given_up_bytes = s.cluster.dropped_bytes;
	arg->cluster_given_up_chunks = s.cluster.nr_dropped;
	memcpy(arg->cluster_missing, s.cluster.missing, sizeof(arg->cluster_missing));
}

static void ioctl_gc(fuse_req_t req, uint64_t holder, const void *in)
{
	struct ckptfs_gc arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = gc_command(req, holder, &arg);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	gc_tell(fs_of(req), &arg);
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
}

static int scrub_command(fuse_req_t req, uint64_t holder, const struct ckptfs_scrub *arg)
{
	struct scrub_conf conf = {
		.restart = arg->flags & CKPTFS_SCRUB_RESTART,
		.budget_ns = arg->budget_ns,
		.rate = arg->rate,
	};
	struct fs *fs = fs_of(req);

	if (arg->command > CKPTFS_SCRUB_STOP || arg->flags & ~CKPTFS_SCRUB_RESTART)
		return -EINVAL;
	if (arg->command == CKPTFS_SCRUB_STATUS)
		return 0;
	if (!ops_may_command(req))
		return -EPERM;
	if (arg->command == CKPTFS_SCRUB_START)
		return scrubber_start(fs->scrubber, &conf, holder);
	scrubber_stop(fs->scrubber);
	return 0;
}

static void scrub_tell(struct fs *fs, struct ckptfs_scrub *arg)
{
	struct scrubber_status s;

	scrubber_status(fs->scrubber, &s);
	arg->running = s.task.running;
	arg->error = -s.task.error;
	arg->complete = s.report.complete;
	arg->named = s.report.is_named;
	arg->run = s.task.run;
	arg->frames = s.report.nr_frames;
	arg->chunks = s.report.nr_chunks;
	arg->bytes = s.report.bytes;
	arg->read_bytes = s.report.read_bytes;
	arg->round_bytes = s.report.round_bytes;
	arg->total_bytes = s.report.total_bytes;
	arg->damaged = s.report.nr_damaged;
	arg->tables = s.report.nr_tables;
	arg->mended = s.report.nr_mended;
	arg->unused = s.report.nr_unused;
	arg->left = s.report.nr_left;
	arg->files = s.report.nr_files;
	arg->lost_bytes = s.report.lost_bytes;
	arg->hits = s.nr_hits;
	memset(arg->doing, 0, sizeof(arg->doing));
	snprintf(arg->doing, sizeof(arg->doing), "%s", s.report.doing ? s.report.doing : "");
}

static void ioctl_scrub(fuse_req_t req, uint64_t holder, const void *in)
{
	struct ckptfs_scrub arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = scrub_command(req, holder, &arg);
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	scrub_tell(fs_of(req), &arg);
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
}

static void ioctl_scrub_hit(fuse_req_t req, const void *in)
{
	struct ckptfs_scrub_hit arg;
	struct scrubber_hit hit;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = ops_may_command(req) ? scrubber_hit(fs_of(req)->scrubber, arg.run, arg.number, &hit) : -EPERM;
	if (r < 0) {
		ops_reply(req, r);
		return;
	}
	arg.inode = hit.ino;
	arg.off = hit.off;
	arg.len = hit.len;
	memset(arg.path, 0, sizeof(arg.path));
	snprintf(arg.path, sizeof(arg.path), "%s", hit.path ? hit.path : "");
	free(hit.path);
	fuse_reply_ioctl(req, 0, &arg, sizeof(arg));
}

static int check_inode(struct fs *fs, struct caller *caller, uint64_t ino, unsigned want)
{
	struct ns_inode in;
	int r;

	if (permission_operator(caller->cred))
		return 0;
	rwlock_lock_shared(&fs->names);
	r = attr_load(fs, ino, &in);
	r = r > 0 ? permission_check(fs, caller, &in, want) : r < 0 ? r : -ENOENT;
	rwlock_unlock_shared(&fs->names);
	return r;
}

/*
 * The caller must be allowed to read every file of the directory: the shared part of a file reveals something about its
 * bytes.
 */
static int check_all(struct fs *fs, struct caller *caller, uint64_t dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = permission_operator(caller->cred) ? 0 : ns_readdir_open(fs->db, dir, 0, &it);

	while (it && r == 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0)
		r = d.type == DT_REG ? check_inode(fs, caller, d.ino, R_OK) : 0;
	return r;
}

/* Find a name and return its position in the directory; "": all names. */
static int find_name(struct fs *fs, struct caller *caller, uint64_t dir, const char *name,
		     struct exclusive_name *ret)
{
	struct ns_dirent d = { .cookie = 0 };
	int r = check_inode(fs, caller, dir, R_OK | X_OK); /* as for ls -l */

	if (r < 0)
		return r;
	if (name[0] == '\0') {
		r = check_all(fs, caller, dir);
	} else {
		rwlock_lock_shared(&fs->names);
		r = ns_find(fs->db, fs->key, dir, name, &d);
		rwlock_unlock_shared(&fs->names);
		r = r == 0 ? -ENOENT : r < 0 || d.type != DT_REG ? MIN(r, 0) : check_inode(fs, caller, d.ino, R_OK);
	}
	if (r == 0)
		*ret = (struct exclusive_name){ dir, d.cookie };
	return r;
}

static int exclusive_add(fuse_req_t req, uint64_t dir, const struct ckptfs_exclusive *arg)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct fs *fs = fs_of(req);
	struct exclusive_name name;
	int r;

	if (strnlen(arg->name, sizeof(arg->name)) == sizeof(arg->name))
		return -EINVAL;
	r = find_name(fs, &caller, dir, arg->name, &name);
	return r < 0 ? r : inquiry_add(fs->inquiries, arg->question, name);
}

static bool may_know_of(struct caller *caller, enum fp_domain_kind kind, uint32_t id)
{
	if (permission_operator(caller->cred))
		return true;
	return kind == FP_OF_USER ? caller->cred->uid == id : permission_in_group(caller, id);
}

static int exclusive_owner(fuse_req_t req, enum fp_domain_kind kind, const struct ckptfs_exclusive *arg)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);

	if (!may_know_of(&caller, kind, arg->id))
		return -EPERM;
	return inquiry_add_owner(fs_of(req)->inquiries, arg->question, (struct fp_domain){ kind, arg->id });
}

static int exclusive_tell(struct fs *fs, struct ckptfs_exclusive *arg)
{
	struct inquiry_status s = { 0 };
	int r = inquiry_status(fs->inquiries, arg->question, &s);

	if (r < 0)
		return r;
	arg->running = s.running;
	arg->error = ops_errno(s.error);
	arg->files = s.report.nr_files;
	arg->file_size = s.report.size;
	arg->mapped = s.report.mapped;
	arg->linked_files = s.report.nr_linked;
	arg->chunks = s.report.nr_chunks;
	arg->bytes = s.report.bytes;
	arg->exclusive_chunks = s.report.exclusive_chunks;
	arg->exclusive_bytes = s.report.exclusive_bytes;
	arg->exclusive_stored = s.report.exclusive_stored;
	arg->damaged = s.report.nr_damaged;
	arg->frames = s.report.nr_frames;
	arg->frames_done = s.report.nr_frames_done;
	arg->recipes = s.report.nr_recipes;
	arg->built = s.report.nr_built;
	return 0;
}

static int exclusive_command(fuse_req_t req, uint64_t dir, struct ckptfs_exclusive *arg)
{
	struct fs *fs = fs_of(req);

	switch (arg->command) {
	case CKPTFS_EXCLUSIVE_BEGIN:
		return inquiry_begin(fs->inquiries, fuse_req_ctx(req)->uid, ops_may_command(req), &arg->question);
	case CKPTFS_EXCLUSIVE_ADD:
		return exclusive_add(req, dir, arg);
	case CKPTFS_EXCLUSIVE_USER:
		return exclusive_owner(req, FP_OF_USER, arg);
	case CKPTFS_EXCLUSIVE_GROUP:
		return exclusive_owner(req, FP_OF_GROUP, arg);
	case CKPTFS_EXCLUSIVE_RUN:
		return inquiry_start(fs->inquiries, arg->question);
	case CKPTFS_EXCLUSIVE_STATUS:
		return exclusive_tell(fs, arg);
	case CKPTFS_EXCLUSIVE_END:
		return inquiry_end(fs->inquiries, arg->question);
	default:
		return -EINVAL;
	}
}

static void ioctl_exclusive(fuse_req_t req, fuse_ino_t dir, const void *in)
{
	struct ckptfs_exclusive arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = exclusive_command(req, dir, &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

static int owners_tell(fuse_req_t req, struct ckptfs_owners *arg)
{
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct engine_owner v[CKPTFS_OWNERS_MAX];
	enum fp_domain_kind kind = arg->kind;
	size_t nr;
	int r;

	static_assert(CKPTFS_OWNER_GROUP == (int)FP_OF_GROUP && CKPTFS_OWNER_USER == (int)FP_OF_USER, "told as it is");
	if (arg->kind != CKPTFS_OWNER_GROUP && arg->kind != CKPTFS_OWNER_USER)
		return -EINVAL;
	r = engine_owners(fs_of(req)->engine, kind, arg->from, v, ARRAY_SIZE(v), &nr);
	if (r < 0)
		return r;
	memset(arg->v, 0, sizeof(arg->v));
	arg->nr = 0;
	for (size_t i = 0; i < nr; i++)
		if (may_know_of(&caller, kind, v[i].id))
			arg->v[arg->nr++] = (struct ckptfs_owner){ v[i].id, 0, v[i].nr_files, v[i].size, v[i].mapped };
	arg->more = nr == ARRAY_SIZE(v);
	arg->from = nr > 0 ? (uint64_t)v[nr - 1].id + 1 : arg->from;
	return 0;
}

static void ioctl_owners(fuse_req_t req, const void *in)
{
	struct ckptfs_owners arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = owners_tell(req, &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

/* The reply to an ioctl that has created or removed a name, which the kernel may have cached. */
struct name_reply {
	struct loop_drop drop;
	fuse_req_t req;
	int r;
	size_t len;
	uint8_t arg[];
};

static void name_dropped(struct loop_drop *d, bool is_answered)
{
	struct name_reply *n = container_of(d, struct name_reply, drop);

	if (is_answered)
		fuse_reply_none(n->req); /* only frees it */
	else
		ops_reply_ioctl(n->req, n->r, n->arg, n->len);
	free(n);
}

static void drop_name_then_reply(fuse_req_t req, uint64_t dir, const char *name, int r, const void *arg, size_t len)
{
	struct name_reply *n = malloc(sizeof(*n) + len);

	if (n) {
		*n = (struct name_reply){ .drop.done = name_dropped, .req = req, .r = r, .len = len };
		if (len > 0)
			memcpy(n->arg, arg, len);
	}
	if (n && loop_drop_name(&n->drop, dir, name) == 0)
		return;
	free(n);
	ops_reply(req, -ENOMEM);
}

static void ioctl_delta_begin(fuse_req_t req, struct file *f, const void *in)
{
	struct ckptfs_delta_begin arg;
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = delta_begin(fs_of(req), f, arg.number, arg.parent, &caller);
	ops_reply_ioctl(req, r, NULL, 0);
}

static void ioctl_delta_commit(fuse_req_t req, struct file *f, const void *in)
{
	struct ckptfs_delta_commit arg;
	struct cred cred = ops_cred(req);
	_cleanup_(caller_release) struct caller caller = caller_of(&cred);
	struct delta_commit how;
	struct delta_made made;
	struct fs *fs;
	int r;

	memcpy(&arg, in, sizeof(arg));
	if (arg.flags & ~(CKPTFS_DELTA_SYNC | CKPTFS_DELTA_VERIFY)) {
		ops_reply(req, -EINVAL);
		return;
	}
	how = (struct delta_commit){
		.sync = arg.flags & CKPTFS_DELTA_SYNC,
		.verify = arg.flags & CKPTFS_DELTA_VERIFY,
	};
	memcpy(how.key, arg.key, sizeof(how.key));
	r = delta_commit(fs_of(req), f, &how, &caller, &made);
	if (r < 0) {
		/*
		 * Elsewhere -EBADMSG is damage in the store and becomes EIO; here the caller's delta object is
		 * malformed.
		 */
		if (r == -EBADMSG)
			fuse_reply_err(req, EBADMSG);
		else
			ops_reply(req, r);
		return;
	}
	arg.inode = made.ino;
	arg.file_size = made.size;
	memset(arg.key, 0, sizeof(arg.key));
	r = arg.flags & CKPTFS_DELTA_SYNC ? engine_sync(fs_of(req)->engine) : 0;
	fs = fs_of(req);
	drop_name_then_reply(req, made.dir, made.name, r, &arg, sizeof(arg));
	delta_tidy(fs, &made);
}

static void ioctl_delta_abort(fuse_req_t req, struct file *f)
{
	struct ns_content before;
	int r;

	content_stat(f->content, &before);
	r = delta_abort(f);
	if (r < 0)
		ops_reply(req, r);
	else
		notify_then_reply_ioctl(loop_notify(), req, f->inode->ino, 0, before.size, (struct notify_growth){ 0 },
					NULL, 0);
}

/*
 * Any caller with a directory of the node directory view open may list it. With a replica open, callers other than
 * operators see only that replica.
 */
static int next_of_node(fuse_req_t req, uint64_t dir, uint64_t after, struct ckptfs_seal *arg, struct ns_seal *seal,
			struct buf *path)
{
	struct fs *fs = fs_of(req);
	uint64_t own;
	int r;

	if (!fs->hooks)
		return -ENODATA;
	r = ops_may_command(req) ? 0 : fs->hooks->replica_of(fs, dir, &own, &seal->sealed_ns);
	if (r < 0 || (r > 0 && after >= own))
		return MIN(r, 0);
	return fs->hooks->next_seal(fs, dir, r > 0 ? own - 1 : after, &arg->inode, &seal->sealed_ns, path);
}

/* Its sealed directories are on this node only. -ENODATA: not sealed */
static int not_in_cluster(struct fs *fs, uint64_t dir)
{
	struct ns_seal seal;
	int r = ns_get_seal(fs->db, dir, &seal);

	return r < 0 ? r : r > 0 ? -EOPNOTSUPP : -ENODATA;
}

static int seal_command(fuse_req_t req, uint64_t dir, struct ckptfs_seal *arg, struct buf *path)
{
	struct cred cred = ops_cred(req);
	struct fs *fs = fs_of(req);
	uint64_t after = arg->inode;
	struct ns_seal seal = { 0 };
	uint32_t facts = 0;
	int r;

	if (arg->flags != 0)
		return -EINVAL;
	if (view_is(dir) && (arg->command == CKPTFS_SEAL_SEAL || arg->command == CKPTFS_SEAL_UNSEAL))
		return -EROFS;
	arg->inode = dir;
	switch (arg->command) {
	case CKPTFS_SEAL_SEAL:
		r = seal_directory(fs, dir, &cred, &seal, path);
		break;
	case CKPTFS_SEAL_UNSEAL:
		r = seal_undo(fs, dir, &cred, path);
		if (r == -EROFS && !fs->read_only && fs->hooks)
			r = fs->hooks->abandon(fs, dir, &cred, path);
		break;
	case CKPTFS_SEAL_NEXT:
		r = seal_next(fs, after, cred.uid, &arg->inode, &seal, path);
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	case CKPTFS_SEAL_OF_NODE:
		r = next_of_node(req, dir, after, arg, &seal, path);
		facts = CKPTFS_SEAL_ELSEWHERE;
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	case CKPTFS_SEAL_CHECK:
		r = fs->hooks ? fs->hooks->replica_of(fs, dir, &arg->inode, &seal.sealed_ns) : 0;
		facts = r > 0 ? CKPTFS_SEAL_ELSEWHERE : 0;
		r = r == 0 ? seal_check(fs, dir, cred.uid, &seal, arg->root_now) : MIN(r, 0);
		break;
	case CKPTFS_SEAL_STATE:
		r = fs->hooks ? fs->hooks->protect_state(fs, dir) : not_in_cluster(fs, dir);
		break;
	case CKPTFS_SEAL_COLLECTED:
		r = fs->hooks ? fs->hooks->gather_state(fs, dir) : not_in_cluster(fs, dir);
		break;
	case CKPTFS_SEAL_COPY:
		r = !ops_may_command(req) ? -EPERM :
		    fs->hooks		  ? fs->hooks->next_replica(fs, after, &arg->inode, path) :
					    0;
		r = r > 0 ? 0 : r == 0 ? -ENOENT : r;
		break;
	default:
		return -EINVAL;
	}
	arg->sealed_ns = seal.sealed_ns;
	arg->files = seal.files;
	arg->directories = seal.directories;
	arg->bytes = seal.bytes;
	arg->new_bytes = seal.new_bytes;
	arg->uid = seal.uid;
	arg->facts = facts | (seal.has_root ? CKPTFS_SEAL_HAS_ROOT : 0);
	memcpy(arg->root, seal.root, sizeof(arg->root));
	if (arg->command == CKPTFS_SEAL_NEXT && r == 0 && fs->hooks && fs->hooks->protect_state(fs, arg->inode) == 0)
		arg->facts |= CKPTFS_SEAL_PROTECTED;
	return r;
}

/* The kernel has the removed name cached; notify it. */
static void ioctl_seal_remove(fuse_req_t req, fuse_ino_t dir, const struct ckptfs_seal *arg)
{
	struct seal_removal how = { .sealed_ns = arg->sealed_ns, .owner = arg->uid };
	struct cred cred = ops_cred(req);
	struct seal_removed gone;
	int r = -EINVAL;

	gone.dir = 0;
	if (arg->flags == 0)
		r = view_is(dir) ? -EROFS : seal_remove(fs_of(req), dir, &cred, &how, &gone);
	if (gone.dir == 0) {
		ops_reply_ioctl(req, r, NULL, 0);
		return;
	}
	notify_attributes_changed(loop_notify(), dir);
	drop_name_then_reply(req, gone.dir, gone.name, r, NULL, 0);
}

/* The argument is returned on failure too: `path` is what the error is about. */
static void ioctl_seal(fuse_req_t req, fuse_ino_t dir, const void *in)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ckptfs_seal arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	if (arg.command == CKPTFS_SEAL_REMOVE) {
		ioctl_seal_remove(req, dir, &arg);
		return;
	}
	r = seal_command(req, dir, &arg, &path);
	memset(arg.path, 0, sizeof(arg.path));
	if (path.len > 0)
		memcpy(arg.path, path.data, MIN(path.len, sizeof(arg.path) - 1));
	fuse_reply_ioctl(req, r < 0 ? -ops_errno(r) : 0, &arg, sizeof(arg));
}

static int cluster_command(fuse_req_t req, struct ckptfs_cluster *arg)
{
	struct fs *fs = fs_of(req);

	if (arg->flags != 0)
		return -EINVAL;
	if (!ops_may_command(req))
		return -EPERM;
	if (arg->command != CKPTFS_CLUSTER_STATUS && arg->command != CKPTFS_CLUSTER_HEAL &&
	    arg->command != CKPTFS_CLUSTER_FORGET)
		return -EINVAL;
	if (arg->command == CKPTFS_CLUSTER_FORGET && !memchr(arg->node, '\0', sizeof(arg->node)))
		return -EINVAL;
	if (fs->hooks)
		return fs->hooks->command(fs, arg);
	if (arg->command != CKPTFS_CLUSTER_STATUS)
		return -EOPNOTSUPP;
	*arg = (struct ckptfs_cluster){
		.size = arg->size, .version = arg->version, .command = arg->command, .flags = CKPTFS_CLUSTER_ALONE
	};
	return 0;
}

static void ioctl_cluster(fuse_req_t req, const void *in)
{
	struct ckptfs_cluster arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = cluster_command(req, &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

static void ioctl_unprotected(fuse_req_t req, const void *in)
{
	struct fs *fs = fs_of(req);
	struct ckptfs_unprotected arg;
	int r = -EPERM;

	memcpy(&arg, in, sizeof(arg));
	if (ops_may_command(req))
		r = fs->hooks ? fs->hooks->unprotected(fs, &arg) : -ENOENT;
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

static int mount_command(fuse_req_t req, struct ckptfs_mount *arg)
{
	uint32_t known = arg->command == CKPTFS_MOUNT_FLAGS ? CKPTFS_MOUNT_READ_ONLY | CKPTFS_MOUNT_NOATIME : 0;
	struct stat ns;

	if (arg->command > CKPTFS_MOUNT_FLAGS || arg->flags & ~known)
		return -EINVAL;
	if (!ops_may_command(req))
		return -EPERM;
	if (stat("/proc/self/ns/mnt", &ns) < 0)
		return -errno;
	arg->mount_namespace = ns.st_ino;
	if (arg->command == CKPTFS_MOUNT_FLAGS)
		return fs_set_flags(fs_of(req), arg->flags & CKPTFS_MOUNT_READ_ONLY, arg->flags & CKPTFS_MOUNT_NOATIME);
	fs_of(req)->end_when_detached = arg->command == CKPTFS_MOUNT_END;
	return 0;
}

static void ioctl_mount(fuse_req_t req, const void *in)
{
	struct ckptfs_mount arg;
	int r;

	memcpy(&arg, in, sizeof(arg));
	r = mount_command(req, &arg);
	ops_reply_ioctl(req, r, &arg, sizeof(arg));
}

/* Flags as shown by lsattr(1). */
static void ioctl_getflags(fuse_req_t req, fuse_ino_t ino)
{
	struct ns_inode in = { 0 };
	int r = view_is(ino) ? 1 : attr_load(fs_of(req), ino, &in);
	bool is_sealed = in.flags & INODE_SEALED && !freezes_has(fs_of(req)->freezes, ino, NULL);
	unsigned flags = r > 0 && is_sealed ? FS_IMMUTABLE_FL : 0;

	if (r <= 0)
		ops_reply(req, r < 0 ? r : -ENOENT);
	else
		fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
}

static size_t argument_size(unsigned cmd)
{
	switch (cmd) {
	case CKPTFS_IOC_HANDLE:
	case CKPTFS_IOC_CLONE:
	case CKPTFS_IOC_SYNC:
	case CKPTFS_IOC_STAT:
	case CKPTFS_IOC_GC:
	case CKPTFS_IOC_SCRUB:
	case CKPTFS_IOC_SCRUB_HIT:
	case CKPTFS_IOC_EXCLUSIVE:
	case CKPTFS_IOC_DELTA_BEGIN:
	case CKPTFS_IOC_DELTA_COMMIT:
	case CKPTFS_IOC_DELTA_ABORT:
	case CKPTFS_IOC_SEAL:
	case CKPTFS_IOC_COMPARE:
	case CKPTFS_IOC_CLUSTER:
	case CKPTFS_IOC_UNPROTECTED:
	case CKPTFS_IOC_COMPACT:
	case CKPTFS_IOC_COMPACT_FILE:
	case CKPTFS_IOC_COMPACT_ADD:
	case CKPTFS_IOC_COMPACT_RESULT:
	case CKPTFS_IOC_OWNERS:
	case CKPTFS_IOC_VARIABLE:
	case CKPTFS_IOC_MOUNT:
		return _IOC_SIZE(cmd);
	default:
		return 0;
	}
}

/* All others refer to one file. */
static bool is_for_directories(unsigned cmd)
{
	return cmd == CKPTFS_IOC_SYNC || cmd == CKPTFS_IOC_GC || cmd == CKPTFS_IOC_SCRUB ||
	       cmd == CKPTFS_IOC_SCRUB_HIT || cmd == CKPTFS_IOC_EXCLUSIVE || cmd == CKPTFS_IOC_SEAL ||
	       cmd == CKPTFS_IOC_CLUSTER || cmd == CKPTFS_IOC_UNPROTECTED || cmd == CKPTFS_IOC_COMPACT ||
	       cmd == CKPTFS_IOC_COMPACT_ADD || cmd == CKPTFS_IOC_COMPACT_RESULT || cmd == CKPTFS_IOC_OWNERS ||
	       cmd == CKPTFS_IOC_VARIABLE || cmd == CKPTFS_IOC_MOUNT;
}

void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi, unsigned flags,
	      const void *in, size_t in_len, size_t out_len)
{
	size_t size = argument_size(cmd);
	int r = 0;

	(void)arg;
	if (cmd == FS_IOC_GETFLAGS && out_len >= sizeof(unsigned)) {
		ioctl_getflags(req, ino);
		return;
	}
	if (size == 0)
		r = -ENOTTY;
	else
		r = check_argument(in, in_len, size);
	if (r == 0 && flags & FUSE_IOCTL_DIR && !is_for_directories(cmd))
		r = -EISDIR;
	if (r == 0 && !(flags & FUSE_IOCTL_DIR) && (cmd == CKPTFS_IOC_EXCLUSIVE || cmd == CKPTFS_IOC_SEAL))
		r = -ENOTDIR;
	if (r == 0 && !(flags & FUSE_IOCTL_DIR))
		r = file_take_write_error(file_of(fi));
	if (r < 0)
		ops_reply(req, r);
	else if (cmd == CKPTFS_IOC_HANDLE)
		ioctl_handle(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_CLONE)
		ioctl_clone(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_COMPARE)
		ioctl_compare(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_STAT)
		ioctl_stat(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_GC)
		ioctl_gc(req, ops_holder(fi), in);
	else if (cmd == CKPTFS_IOC_SCRUB)
		ioctl_scrub(req, ops_holder(fi), in);
	else if (cmd == CKPTFS_IOC_SCRUB_HIT)
		ioctl_scrub_hit(req, in);
	else if (cmd == CKPTFS_IOC_EXCLUSIVE)
		ioctl_exclusive(req, ino, in);
	else if (cmd == CKPTFS_IOC_SEAL)
		ioctl_seal(req, ino, in);
	else if (cmd == CKPTFS_IOC_CLUSTER)
		ioctl_cluster(req, in);
	else if (cmd == CKPTFS_IOC_UNPROTECTED)
		ioctl_unprotected(req, in);
	else if (cmd == CKPTFS_IOC_COMPACT)
		ioctl_compact(req, ops_holder(fi), in);
	else if (cmd == CKPTFS_IOC_COMPACT_FILE)
		ioctl_compact_file(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_COMPACT_ADD)
		ioctl_compact_add(req, in);
	else if (cmd == CKPTFS_IOC_COMPACT_RESULT)
		ioctl_compact_result(req, in);
	else if (cmd == CKPTFS_IOC_OWNERS)
		ioctl_owners(req, in);
	else if (cmd == CKPTFS_IOC_VARIABLE)
		ioctl_variable(req, in);
	else if (cmd == CKPTFS_IOC_MOUNT)
		ioctl_mount(req, in);
	else if (cmd == CKPTFS_IOC_DELTA_BEGIN)
		ioctl_delta_begin(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_DELTA_COMMIT)
		ioctl_delta_commit(req, file_of(fi), in);
	else if (cmd == CKPTFS_IOC_DELTA_ABORT)
		ioctl_delta_abort(req, file_of(fi));
	else
		ops_sync_all(req, true);
}
