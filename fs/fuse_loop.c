/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/fuse_loop.h"

#include <assert.h>
#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/cluster_hooks.h"
#include "fs/control/control.h"
#include "fs/fs.h"
#include "fs/long_requests.h"
#include "fs/ops/name_drops.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "fs/ops/ops_flush.h"
#include "fs/ops/ops_ioctl.h"
#include "fs/posix/file.h"
#include "fs/seal/freeze.h"
#include "fs/seal/reaper.h"
#include "store/engine.h"

#define MIN_READY 2u /* threads not in a long request: as many as there are CPUs, within these limits */
#define MAX_READY 32u
#define MAX_THREADS 256u /* more than the three limits on long requests together */
#define LONG_OF_USER_MIN 2u /* long requests of a user at a time: as many as there are CPUs, within these limits */
#define LONG_OF_USER_MAX 8u
#define QUEUED_MAX 1024u /* long requests of a user: a few KiB each */
#define WAKE_SIGNAL SIGUSR2
#define HUGE_PAGE ((size_t)2 << 20) /* of a read buffer; see docs/decisions/restore.md, "Huge pages for replies" */
#define PATIENCE_NS 2000000000u /* for threads blocked in the kernel when the loop stops */

/* Header and arguments of a write: everything before its payload. */
#define WRITE_FRONT (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
static_assert(WRITE_FRONT == 80 && WRITE_FRONT <= ENGINE_BUFFER_FRONT, "kernel ABI");

#define OPEN_KILL_SUIDGID 1u /* of struct fuse_open_in; not in every header */

/* Features requested here because libfuse does not request them, or not in every version. */
#define EXTRA_FEATURES ((uint32_t)(FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV_V2))

struct worker {
	struct loop *loop;
	struct notify_thread thread;
	struct engine_buffer *buffer; /* NULL after the engine has taken it */
	bool may_receive; /* counted in loop.nr_receiving */
	struct job *job; /* work of the request to do after its reply */
	void *read_buffer; /* allocated on first use */
	const struct fuse_in_header *in; /* the current request */
	uint32_t opcode; /* of the current request */
	uint64_t start_ns; /* of the current request; 0: it will be answered later */
	uint32_t init_flags; /* of INIT: features that the kernel offers */
	bool has_place; /* the request is one of fs/long_requests.h */
	bool has_flushed; /* the request was held until the kernel had written back the data it depends on */
	bool kills_setid;
	bool is_frozen, is_interrupted; /* the request must be served again */
	bool needs_place; /* likewise, in a place of tier_requests */
};

struct loop {
	/* Constant. */
	struct fuse_session *se;
	struct fs *fs;
	struct notify *notify;
	struct name_drops *names;
	struct flush *flush; /* NULL: no writeback cache */
	int fd, event_fd;

	struct long_requests *long_requests; /* constant, as is the thread that serves thawed requests */
	struct long_requests *locking_requests; /* constant; see queue_of() */
	struct long_requests *tier_requests; /* constant: reads of dropped files, which wait for the tier */
	struct notify_thread thaw_thread;
	bool has_thaw_thread;
	atomic_bool stop, answers, ended;
	atomic_uint nr_long; /* threads in a request that may take long */
	unsigned nr_ready; /* number of threads wanted in addition; constant */

	struct mutex late_lock; /* leaf */
	struct cond late_cond;
	/* requests of loop_reply_later() that are not answered yet */
	unsigned nr_late GUARDED_BY(late_lock);

	struct mutex lock; /* leaf */
	struct worker *worker[MAX_THREADS] GUARDED_BY(lock);
	atomic_uint nr; /* changed under lock */

	/* Threads that hold a buffer to receive requests, or are about to: at most half of the engine's buffers. The others
	 * are for data on its way to packs; if threads that wait for one of these held all buffers, they would wait forever. */
	unsigned max_receiving; /* constant */
	unsigned nr_receiving GUARDED_BY(lock);
	struct cond may_receive; /* with lock */
};

static _Thread_local struct worker *self;

static const char *const request_names[CONTROL_REQUESTS] = {
	[FUSE_LOOKUP] = "lookup",
	[FUSE_FORGET] = "forget",
	[FUSE_GETATTR] = "getattr",
	[FUSE_SETATTR] = "setattr",
	[FUSE_READLINK] = "readlink",
	[FUSE_SYMLINK] = "symlink",
	[FUSE_MKNOD] = "mknod",
	[FUSE_MKDIR] = "mkdir",
	[FUSE_UNLINK] = "unlink",
	[FUSE_RMDIR] = "rmdir",
	[FUSE_RENAME] = "rename",
	[FUSE_LINK] = "link",
	[FUSE_OPEN] = "open",
	[FUSE_READ] = "read",
	[FUSE_WRITE] = "write",
	[FUSE_STATFS] = "statfs",
	[FUSE_RELEASE] = "release",
	[FUSE_FSYNC] = "fsync",
	[FUSE_SETXATTR] = "setxattr",
	[FUSE_GETXATTR] = "getxattr",
	[FUSE_LISTXATTR] = "listxattr",
	[FUSE_REMOVEXATTR] = "removexattr",
	[FUSE_FLUSH] = "flush",
	[FUSE_INIT] = "init",
	[FUSE_OPENDIR] = "opendir",
	[FUSE_READDIR] = "readdir",
	[FUSE_RELEASEDIR] = "releasedir",
	[FUSE_FSYNCDIR] = "fsyncdir",
	[FUSE_ACCESS] = "access",
	[FUSE_CREATE] = "create",
	[FUSE_INTERRUPT] = "interrupt",
	[FUSE_IOCTL] = "ioctl",
	[FUSE_BATCH_FORGET] = "batch_forget",
	[FUSE_FALLOCATE] = "fallocate",
	[FUSE_READDIRPLUS] = "readdirplus",
	[FUSE_RENAME2] = "rename2",
	[FUSE_LSEEK] = "lseek",
	[FUSE_COPY_FILE_RANGE] = "copy_file_range",
	[FUSE_TMPFILE] = "tmpfile",
	[OPS_STATX] = "statx",
};

struct engine_buffer **loop_buffer(void)
{
	return &self->buffer;
}

struct job **loop_job(void)
{
	return &self->job;
}

void loop_reply_later(struct loop_late_reply *ret)
{
	struct loop *l = self->loop;

	*ret = (struct loop_late_reply){ .loop = l, .start_ns = self->start_ns, .opcode = self->opcode };
	self->start_ns = 0;
	mutex_lock(&l->late_lock);
	l->nr_late++;
	mutex_unlock(&l->late_lock);
}

void loop_answered(struct loop_late_reply *late)
{
	struct loop *l = late->loop;

	control_count(l->fs->control, late->opcode, monotonic_ns() - late->start_ns);
	mutex_lock(&l->late_lock);
	if (--l->nr_late == 0)
		cond_signal(&l->late_cond);
	mutex_unlock(&l->late_lock);
}

void *loop_read_buffer(void)
{
	if (!self->read_buffer) {
		if (posix_memalign(&self->read_buffer, HUGE_PAGE, HUGE_PAGE) != 0)
			self->read_buffer = NULL;
		else
			madvise(self->read_buffer, HUGE_PAGE, MADV_HUGEPAGE); /* without one it is only slower */
	}
	return self->read_buffer;
}

bool loop_kills_setid(void)
{
	return self->kills_setid;
}

struct notify *loop_notify(void)
{
	return self->loop->notify;
}

static void name_dropped(void *arg)
{
	struct loop_drop *d = arg;

	d->done(d, long_request_release(d->loop->long_requests, d->held));
}

int loop_drop_name(struct loop_drop *d, uint64_t dir, const char *name)
{
	const struct fuse_in_header *in = self->in;
	int r;

	d->loop = self->loop;
	d->held = long_request_hold(d->loop->long_requests, in);
	if (!d->held)
		return -ENOMEM;
	r = name_drops_add(d->loop->names, in->uid, in->uid == 0 || in->uid == geteuid(), dir, name, name_dropped, d);
	if (r < 0)
		long_request_release(d->loop->long_requests, d->held);
	return r;
}

/* For other changes the kernel holds the lock of a file or directory meanwhile. */
bool loop_serve_again(bool is_interrupted)
{
	if (self->opcode != FUSE_OPEN && self->opcode != FUSE_TMPFILE && self->opcode != FUSE_IOCTL)
		return false;
	self->is_frozen = true;
	self->is_interrupted = is_interrupted;
	return true;
}

bool loop_may_wait(void)
{
	return self->has_place;
}

bool loop_serve_in_place(void)
{
	self->needs_place = !self->has_place;
	return self->needs_place;
}

static void signal_event(struct loop *l)
{
	uint64_t one = 1;
	ssize_t n _unused_ = write(l->event_fd, &one, sizeof(one));
}

/* Add features to libfuse's reply to INIT, as far as the kernel supports them, and record which there are. */
static void extend_init(struct worker *w, struct fuse_init_out *out)
{
	uint32_t extra = EXTRA_FEATURES & w->init_flags;
	struct control_paths paths = {
		.writeback = out->flags & FUSE_WRITEBACK_CACHE,
		.killpriv = extra & FUSE_HANDLE_KILLPRIV_V2,
		.parallel_dirs = extra & FUSE_PARALLEL_DIROPS,
	};

	out->flags |= extra;
	control_set_paths(w->loop->fs->control, &paths);
}

static ssize_t session_writev(int fd, struct iovec *iov, int count, _unused_ void *userdata)
{
	if (self && self->opcode == FUSE_INIT && count == 2 && iov[1].iov_len == sizeof(struct fuse_init_out))
		extend_init(self, iov[1].iov_base);
	return writev(fd, iov, count);
}

static ssize_t session_read(int fd, void *p, size_t len, _unused_ void *userdata)
{
	return read(fd, p, len);
}

/* Read flags that libfuse does not pass on. */
static void note_request(struct worker *w, const struct fuse_in_header *in)
{
	const void *arg = in + 1;

	w->in = in;
	w->opcode = in->opcode;
	switch (in->opcode) {
	case FUSE_WRITE:
		w->kills_setid = ((const struct fuse_write_in *)arg)->write_flags & FUSE_WRITE_KILL_SUIDGID;
		break;
	case FUSE_SETATTR:
		w->kills_setid = ((const struct fuse_setattr_in *)arg)->valid & FATTR_KILL_SUIDGID;
		break;
	case FUSE_OPEN:
		w->kills_setid = ((const struct fuse_open_in *)arg)->open_flags & OPEN_KILL_SUIDGID;
		break;
	case FUSE_INIT:
		w->init_flags = ((const struct fuse_init_in *)arg)->flags;
		break;
	default:
		w->kills_setid = true; /* the kernel does not say: drop unless the caller has CAP_FSETID */
	}
}

static int add_thread(struct loop *l);

/* Requests that wait for the disk or for data in flight: others must not wait behind them. */
static bool takes_long(const struct loop *l, const struct fuse_in_header *in)
{
	const void *arg = in + 1;

	switch (in->opcode) {
	case FUSE_WRITE: /* the thread may have to run the commit */
		return file_is_synchronous((int)((const struct fuse_write_in *)arg)->flags);
	case FUSE_READ:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_SETATTR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case FUSE_LSEEK:
	case FUSE_IOCTL:
	case FUSE_READDIR: /* these search through names that were removed */
	case FUSE_READDIRPLUS:
	case FUSE_RMDIR:
		return true;
	case FUSE_CREATE:
	case FUSE_TMPFILE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_SYMLINK:
	case FUSE_UNLINK:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
		return l->fs->sync;
	default:
		return false;
	}
}

static bool ioctl_is_long(unsigned number)
{
	const struct ioctl_entry *e = ioctl_find(number);

	return e && e->is_long;
}

/*
 * Requests that may take seconds need a place (fs/long_requests.h). NULL: not this one.
 *
 * For some requests the kernel holds the lock of a file or a directory, and other users wait for it: those of the
 * directory, and those of a directory from which the file is being removed. Such a request must not be queued behind
 * clones and seals, so these have places of their own. LSEEK and COPY_FILE_RANGE are short instead: content_seek(),
 * content_clone_some().
 */
static struct long_requests *queue_of(struct loop *l, const struct fuse_in_header *in, size_t len)
{
	static const char names[] = "user.ckptfs.";
	const char *arg = (const char *)(in + 1);
	size_t arg_len = len - sizeof(*in);
	bool is_long = false, locks = false;

	switch (in->opcode) {
	case FUSE_IOCTL:
		is_long = arg_len >= sizeof(struct fuse_ioctl_in) &&
			  ioctl_is_long(((const struct fuse_ioctl_in *)arg)->cmd);
		break;
	case FUSE_GETXATTR:
		is_long = arg_len >= sizeof(struct fuse_getxattr_in) + sizeof(names) &&
			  memcmp(arg + sizeof(struct fuse_getxattr_in), names, sizeof(names) - 1) == 0;
		break;
	case FUSE_SETATTR:
		locks = arg_len >= sizeof(struct fuse_setattr_in) &&
			((const struct fuse_setattr_in *)arg)->valid & FATTR_SIZE && file_is_large(l->fs, in->nodeid);
		break;
	case FUSE_FALLOCATE:
		locks = file_is_large(l->fs, in->nodeid);
		break;
	case FUSE_LOOKUP:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		locks = view_is(in->nodeid); /* other nodes are asked */
		break;
	default:
		break;
	}
	return is_long ? l->long_requests : locks ? l->locking_requests : NULL;
}

static void long_begin(struct loop *l)
{
	if (++l->nr_long + l->nr_ready > l->nr)
		add_thread(l);
}

static void process_request(struct worker *w, struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	struct loop *l = w->loop;
	bool is_long = takes_long(l, in) || w->has_place;

	if (is_long)
		long_begin(l);
	if (in->opcode == FUSE_TMPFILE)
		ops_tmpfile(l->fs, l->fd, in, buf->size);
	else if (in->opcode == OPS_STATX)
		ops_statx(l->fs, l->fd, in);
	else
		fuse_session_process_buf(l->se, buf);
	if (is_long)
		l->nr_long--;
}

/*
 * The thread that received the bytes also stores them, after its reply: they are in the caches of its processor, and no
 * other thread has to be woken. At most as many threads as processors do this while buffers are free: more would spread
 * the bytes over more buffers than fit in the caches (4 writers of a checkpoint equal to the previous one: 5.4 GB/s with
 * 2 threads on 2 processors, 5.0 with 8).
 */
static void run_job(struct worker *w)
{
	struct loop *l = w->loop;

	if (!w->job)
		return;
	if (l->nr_long >= l->nr_ready) {
		job_queue(TAKE(w->job));
		return;
	}
	long_begin(l);
	job_run(TAKE(w->job));
	l->nr_long--;
}

void loop_run_job(void)
{
	run_job(self);
}

/* Decode the data that will probably be read next, while the reader processes what it has got. */
static void read_ahead(struct loop *l)
{
	long_begin(l);
	engine_read_ahead(l->fs->engine);
	l->nr_long--;
}

static void note_answers(struct loop *l)
{
	if (l->answers)
		return;
	l->answers = true;
	signal_event(l);
}

static void serve(struct worker *w, const void *p, size_t len, uint64_t start_ns)
{
	struct loop *l = w->loop;
	struct fuse_buf buf = { .size = len, .mem = (void *)p };
	const struct fuse_in_header *in = p;
	uint64_t nr_thaws = long_requests_nr_thaws(l->long_requests);
	uint32_t opcode = in->opcode;

	w->start_ns = start_ns;
	w->is_frozen = false;
	w->needs_place = false;
	note_request(w, in);
	if (opcode != FUSE_INIT) /* INIT has been answered, even if that thread has not returned from its write(2) yet */
		note_answers(l);
	process_request(w, &buf);
	if (w->is_frozen) {
		long_request_park(l->long_requests, in, len, nr_thaws, w->is_interrupted);
		return;
	}
	if (w->needs_place)
		return;
	if (w->start_ns != 0)
		control_count(l->fs->control, opcode, monotonic_ns() - w->start_ns);
	if (opcode == FUSE_INIT && !fuse_session_exited(l->se))
		note_answers(l);
	run_job(w);
	if (opcode == FUSE_READ)
		read_ahead(l);
}

static void receive_begin(struct worker *w)
{
	struct loop *l = w->loop;

	if (w->may_receive)
		return;
	mutex_lock(&l->lock);
	while (l->nr_receiving == l->max_receiving && !l->stop)
		cond_wait(&l->may_receive, &l->lock);
	l->nr_receiving++;
	w->may_receive = true;
	mutex_unlock(&l->lock);
}

static void receive_end(struct worker *w)
{
	struct loop *l = w->loop;

	engine_buffer_put(l->fs->engine, TAKE(w->buffer));
	if (!w->may_receive)
		return;
	mutex_lock(&l->lock);
	l->nr_receiving--;
	w->may_receive = false;
	cond_signal(&l->may_receive);
	mutex_unlock(&l->lock);
}

/* Serve this one, if it may run now, and then those that were waiting for it. */
static void serve_long(struct worker *w, struct long_requests *all, const struct fuse_in_header *in, size_t len)
{
	struct long_request *r = NULL;

	if (long_request_begin(all, in, len, &r))
		receive_end(w); /* its bytes were copied */
	while (r) {
		cancel_set(&r->cancel);
		w->has_place = true;
		serve(w, r->bytes, r->len, r->start_ns);
		w->has_place = false;
		cancel_set(NULL);
		r = long_request_end(all, r);
	}
}

/* false: it is none of the long requests. */
static bool interrupt(struct loop *l, const struct fuse_in_header *in, size_t len)
{
	uint64_t unique;

	if (len < sizeof(*in) + sizeof(struct fuse_interrupt_in))
		return false;
	unique = ((const struct fuse_interrupt_in *)(in + 1))->unique;
	return long_requests_interrupt(l->long_requests, unique) ||
	       long_requests_interrupt(l->locking_requests, unique) || long_requests_interrupt(l->tier_requests, unique);
}

static void dispatch(struct worker *w, const struct fuse_in_header *in, size_t len)
{
	struct long_requests *queue = queue_of(w->loop, in, len);

	w->needs_place = false; /* as the request before this one left it, if that was queued */
	if (in->opcode == FUSE_INTERRUPT && interrupt(w->loop, in, len))
		return;
	if (!w->has_flushed && flush_take(w->loop->flush, in, len))
		return;
	if (queue)
		serve_long(w, queue, in, len);
	else
		serve(w, in, len, monotonic_ns());
	if (w->needs_place)
		serve_long(w, w->loop->tier_requests, in, len);
}

/* Called by a thread of ops/ops_flush.c. */
static void serve_flushed(void *userdata, void *p, size_t len)
{
	struct worker w = { .loop = userdata, .has_flushed = true };

	self = &w;
	dispatch(&w, p, len);
	self = NULL;
}

static void *run_thawed(void *userdata)
{
	struct loop *l = userdata;
	struct worker w = { .loop = l, .has_flushed = true };
	struct long_requests *all = l->long_requests;
	struct long_request *r;

	self = &w;
	while ((r = long_request_take_thawed(all))) {
		dispatch(&w, r->bytes, r->len);
		long_request_end(all, r);
	}
	free(w.read_buffer);
	notify_thread_end(&l->thaw_thread);
	return NULL;
}

static void end_loop(struct loop *l)
{
	l->ended = true;
	signal_event(l);
}

/* Serve one request. 0: continue, <0: the thread ends. */
static int turn(struct worker *w)
{
	struct loop *l = w->loop;
	uint8_t *p;
	ssize_t n;
	int r;

	receive_begin(w);
	if (l->stop)
		return 0;
	if (!w->buffer) {
		r = engine_buffer_get(l->fs->engine, &w->buffer);
		if (r < 0)
			return log_errno(r, "request buffer");
	}
	p = w->buffer->data - WRITE_FRONT;
	n = read(l->fd, p, WRITE_FRONT + ENGINE_BUFFER_SIZE);
	if (n < 0) {
		if (errno == EINTR || errno == EAGAIN || errno == ENOENT) /* ENOENT: aborted while being read */
			return 0;
		return errno == ENODEV ? -ENODEV : log_errno(-errno, "requests: cannot read from the kernel");
	}
	if ((size_t)n < sizeof(struct fuse_in_header)) {
		log_error("requests: the kernel sent %zd bytes", n);
		return -EIO;
	}
	dispatch(w, (const struct fuse_in_header *)(const void *)p, (size_t)n);
	return fuse_session_exited(l->se) ? -ENODEV : 0;
}

static void *run(void *userdata)
{
	struct worker *w = userdata;
	struct loop *l = w->loop;
	sigset_t wake;
	int r = 0;

	sigemptyset(&wake);
	sigaddset(&wake, WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
	self = w;
	while (r == 0 && !l->stop)
		r = turn(w);
	if (r < 0)
		end_loop(l);
	receive_end(w);
	free(TAKE(w->read_buffer));
	notify_thread_end(&w->thread);
	return NULL;
}

static int start_thread(struct loop *l) REQUIRES(l->lock)
{
	struct worker *w;
	int r;

	if (l->nr == MAX_THREADS || l->stop)
		return 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->loop = l;
	r = pthread_create(&w->thread.thread, NULL, run, w);
	if (r != 0) {
		free(w);
		return -r;
	}
	l->worker[l->nr++] = w;
	control_set_threads(l->fs->control, l->nr);
	return 0;
}

static int add_thread(struct loop *l)
{
	int r;

	mutex_lock(&l->lock);
	r = start_thread(l);
	mutex_unlock(&l->lock);
	return r < 0 ? log_errno(r, "requests: cannot start another thread") : 0;
}

static unsigned nr_ready(void)
{
	unsigned nr = MIN(nr_processors(), MAX_READY);

	return MAX(nr, MIN_READY);
}

/* Exists only to interrupt read(2). */
static void on_wake(_unused_ int signal)
{
}

/* Errors are ignored: a name that the kernel has not cached needs no drop. */
static void drop_name(void *userdata, uint64_t dir, const char *name)
{
	struct loop *l = userdata;

	fuse_lowlevel_notify_inval_entry(l->se, dir, name, strlen(name));
}

/* Of the node directory view. An unused name that stays costs memory only. */
static void drop_view_name(void *userdata, uint64_t dir, const char *name)
{
	struct loop *l = userdata;

	name_drops_add(l->names, NAME_DROPS_OF_DAEMON, false, dir, name, NULL, NULL);
}

static void link_changed(void *userdata, uint64_t ino)
{
	notify_attributes_changed(userdata, ino);
}

static void thawed(void *userdata)
{
	long_requests_thaw(userdata);
}

int loop_new(struct fuse_session *se, struct fs *fs, struct loop **ret)
{
	static const struct fuse_custom_io io = { .writev = session_writev, .read = session_read };
	unsigned cpus = MIN(nr_processors(), LONG_OF_USER_MAX);
	const struct long_requests_conf conf = { MAX(cpus, LONG_OF_USER_MIN), QUEUED_MAX };
	struct sigaction wake = { .sa_handler = on_wake };
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	mutex_init(&l->lock);
	mutex_init(&l->late_lock);
	cond_init(&l->late_cond);
	cond_init(&l->may_receive);
	l->se = se;
	l->fs = fs;
	l->fd = fuse_session_fd(se);
	l->nr_ready = nr_ready();
	l->max_receiving = MIN(engine_nr_buffers(fs->engine) / 2, MAX_THREADS);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->event_fd < 0 ? -errno : 0;
	if (r == 0)
		r = fuse_session_custom_io(se, &io, l->fd);
	if (r == 0)
		r = long_requests_new(l->fd, &conf, &l->long_requests);
	if (r == 0)
		r = long_requests_new(l->fd, &conf, &l->locking_requests);
	if (r == 0)
		r = long_requests_new(l->fd, &conf, &l->tier_requests);
	if (r == 0)
		r = notify_new(se, &l->notify);
	if (r == 0)
		r = name_drops_new(drop_name, l, &l->names);
	if (r == 0)
		r = flush_new(se, fs, serve_flushed, l, long_requests_nr_places(l->long_requests), &l->flush);
	if (r < 0) {
		loop_free(l);
		return r;
	}
	if (fs->hooks)
		fs->hooks->set_invalidate(fs, drop_view_name, l);
	reaper_set_changed(fs->reaper, link_changed, l->notify);
	freezes_set_thawed(fs->freezes, thawed, l->long_requests);
	sigaction(WAKE_SIGNAL, &wake, NULL);
	control_name_requests(fs->control, request_names);
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	flush_free(l->flush);
	name_drops_free(l->names);
	notify_free(l->notify);
	long_requests_free(l->tier_requests);
	long_requests_free(l->locking_requests);
	long_requests_free(l->long_requests);
	if (l->event_fd >= 0)
		close(l->event_fd);
	cond_release(&l->may_receive);
	cond_release(&l->late_cond);
	mutex_release(&l->late_lock);
	mutex_release(&l->lock);
	free(l);
}

int loop_start(struct loop *l)
{
	int r = 0;

	for (unsigned i = 0; i < l->nr_ready && r == 0; i++)
		r = add_thread(l);
	if (r == 0)
		r = -pthread_create(&l->thaw_thread.thread, NULL, run_thawed, l);
	l->has_thaw_thread = r == 0;
	return r;
}

int loop_event_fd(struct loop *l)
{
	return l->event_fd;
}

bool loop_answers(struct loop *l)
{
	return l->answers;
}

bool loop_ended(struct loop *l)
{
	return l->ended;
}

/* A signal may arrive just before the read(2) that it should interrupt, so it is sent until the thread has ended. */
static bool join(struct worker *w, uint64_t until_ns)
{
	if (!notify_thread_join(&w->thread, WAKE_SIGNAL, until_ns))
		return false;
	free(w);
	return true;
}

bool loop_stop(struct loop *l)
{
	uint64_t until_ns = monotonic_ns() + PATIENCE_NS;
	bool all = true;
	unsigned nr;

	if (l->fs->hooks)
		l->fs->hooks->set_invalidate(l->fs, NULL, NULL);
	reaper_set_changed(l->fs->reaper, NULL, NULL);
	freezes_set_thawed(l->fs->freezes, NULL, NULL);
	long_requests_stop(l->long_requests);
	long_requests_stop(l->locking_requests);
	long_requests_stop(l->tier_requests);
	if (l->has_thaw_thread)
		all &= notify_thread_join(&l->thaw_thread, 0, until_ns);
	l->has_thaw_thread = false;
	if (l->flush)
		all &= flush_stop(l->flush, until_ns); /* first, for the same reason; it may also answer requests */
	all &= notify_stop(l->notify, until_ns); /* first: it may wait for pages that only one of our requests fills */
	all &= name_drops_stop(l->names, until_ns);
	l->stop = true;
	mutex_lock(&l->lock);
	nr = l->nr; /* none is started after this */
	cond_broadcast(&l->may_receive);
	mutex_unlock(&l->lock);
	for (unsigned i = 0; i < nr; i++)
		all &= join(l->worker[i], until_ns);
	l->nr = 0;
	mutex_lock(&l->late_lock);
	while (l->nr_late > 0)
		cond_wait(&l->late_cond, &l->late_lock);
	mutex_unlock(&l->late_lock);
	return all;
}
