#include "fs/loop.h"

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
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/control.h"
#include "fs/fs.h"
#include "fs/ops/notify.h"
#include "fs/ops/ops.h"
#include "fs/view.h"
#include "store/engine/engine.h"

#define MIN_READY 2u /* threads that are not in something long: as many as there are CPUs, within these limits */
#define MAX_READY 4u
#define MAX_THREADS 16u
#define WAKE_SIGNAL SIGUSR2
#define WAKE_AGAIN_NS 5000000

/* Header and arguments of a write: what lies before its payload. */
#define WRITE_FRONT (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
static_assert(WRITE_FRONT == 80 && WRITE_FRONT <= ENGINE_BUFFER_FRONT, "kernel ABI");

#define OPEN_KILL_SUIDGID 1u /* of struct fuse_open_in; not in every header */

/* Features asked for here because libfuse does not (or not in every version). */
#define EXTRA_FEATURES ((uint32_t)(FUSE_PARALLEL_DIROPS | FUSE_HANDLE_KILLPRIV_V2))

struct worker {
	struct loop *loop;
	pthread_t thread;
	struct engine_buffer *buffer; /* NULL after the engine has taken it */
	struct job *later; /* what the request leaves to be done after its answer */
	void *read_buffer; /* made when first needed */
	uint32_t opcode; /* of the request being worked on */
	uint64_t start_ns; /* of it; 0: it will be answered later */
	uint32_t init_flags; /* of INIT: what the kernel offers */
	bool kills_setid;
	atomic_bool done;
};

struct loop {
	/* Constant. */
	struct fuse_session *se;
	struct fs *fs;
	struct notify *notify;
	struct notify *names; /* of directories of other nodes, which may wait for these */
	int fd, event_fd;

	atomic_bool stop, answers, ended;
	atomic_uint nr_long; /* threads in a request that may take long */
	unsigned nr_ready; /* threads there should be besides; constant */

	struct mutex later_lock; /* leaf */
	struct cond later_cond;
	unsigned nr_later GUARDED_BY(later_lock); /* requests to be answered by whoever gets to it */

	struct mutex lock; /* leaf */
	struct worker *worker[MAX_THREADS] GUARDED_BY(lock);
	atomic_uint nr; /* changed under lock */
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

struct job **loop_later(void)
{
	return &self->later;
}

void loop_answer_later(struct loop_later *ret)
{
	struct loop *l = self->loop;

	*ret = (struct loop_later){ .loop = l, .start_ns = self->start_ns, .opcode = self->opcode };
	self->start_ns = 0;
	mutex_lock(&l->later_lock);
	l->nr_later++;
	mutex_unlock(&l->later_lock);
}

void loop_answered(struct loop_later *later)
{
	struct loop *l = later->loop;

	control_count(l->fs->control, later->opcode, monotonic_ns() - later->start_ns);
	mutex_lock(&l->later_lock);
	if (--l->nr_later == 0)
		cond_signal(&l->later_cond);
	mutex_unlock(&l->later_lock);
}

void *loop_read_buffer(void)
{
	if (!self->read_buffer && posix_memalign(&self->read_buffer, 4096, ENGINE_BUFFER_SIZE) != 0)
		self->read_buffer = NULL;
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

static void tell(struct loop *l)
{
	uint64_t one = 1;
	ssize_t n _unused_ = write(l->event_fd, &one, sizeof(one));
}

/* Add features to libfuse's answer to INIT, as far as the kernel has them, and note which there are. */
static void extend_init(struct worker *w, struct fuse_init_out *out)
{
	uint32_t extra = EXTRA_FEATURES & w->init_flags;
	struct control_paths paths = {
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

/* Flags that libfuse does not hand on. */
static void look_at(struct worker *w, const struct fuse_in_header *in)
{
	const void *arg = in + 1;

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
		w->kills_setid = in->uid != 0; /* the kernel does not say, so by the rule of thumb */
	}
}

static int add_thread(struct loop *l);

/* Requests that wait for the disk or for data on its way: the others must not wait behind them. */
static bool takes_long(uint32_t opcode)
{
	switch (opcode) {
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
	case FUSE_IOCTL:
		return true;
	default:
		return false;
	}
}

static void long_begin(struct loop *l)
{
	if (++l->nr_long + l->nr_ready > l->nr)
		add_thread(l);
}

static void answer(struct worker *w, struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;
	struct loop *l = w->loop;
	bool is_long = takes_long(in->opcode);

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
 * Whoever took bytes in also stores them, after its answer: they are in its processor's caches, and nobody has to be
 * woken. As many as there are processors: more would spread the bytes over more buffers than the caches hold (4
 * writers of a checkpoint equal to the last: 5.4 GB/s with 2 at it on 2 processors, 5.0 with 8).
 */
static void work_later(struct worker *w)
{
	struct loop *l = w->loop;

	if (l->nr_long >= l->nr_ready) {
		job_queue(TAKE(w->later));
		return;
	}
	long_begin(l);
	job_run(TAKE(w->later));
	l->nr_long--;
}

/* Decode what is likely read next, while the reader is busy with what he has got. */
static void read_ahead(struct loop *l)
{
	long_begin(l);
	engine_read_ahead(l->fs->engine);
	l->nr_long--;
}

static void serve(struct worker *w, void *p, size_t len)
{
	struct loop *l = w->loop;
	struct fuse_buf buf = { .size = len, .mem = p };
	const struct fuse_in_header *in = p;
	uint32_t opcode = in->opcode;

	w->start_ns = monotonic_ns();
	look_at(w, in);
	answer(w, &buf);
	if (w->start_ns != 0)
		control_count(l->fs->control, opcode, monotonic_ns() - w->start_ns);
	if (opcode == FUSE_INIT && !fuse_session_exited(l->se)) {
		l->answers = true;
		tell(l);
	}
	if (w->later)
		work_later(w);
	if (opcode == FUSE_READ)
		read_ahead(l);
}

static void end(struct loop *l)
{
	l->ended = true;
	tell(l);
}

/* One request. 0: go on, <0: the thread ends. */
static int turn(struct worker *w)
{
	struct loop *l = w->loop;
	uint8_t *p;
	ssize_t n;
	int r;

	if (!w->buffer) {
		r = engine_buffer_get(l->fs->engine, &w->buffer);
		if (r < 0)
			return log_errno(r, "request buffer");
	}
	p = w->buffer->data - WRITE_FRONT;
	n = read(l->fd, p, WRITE_FRONT + ENGINE_BUFFER_SIZE);
	if (n < 0) {
		if (errno == EINTR || errno == EAGAIN || errno == ENOENT) /* ENOENT: given up while we read it */
			return 0;
		return errno == ENODEV ? -ENODEV : log_errno(-errno, "requests: cannot read from the kernel");
	}
	if ((size_t)n < sizeof(struct fuse_in_header)) {
		log_error("requests: the kernel sent %zd bytes", n);
		return -EIO;
	}
	serve(w, p, (size_t)n);
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
		end(l);
	engine_buffer_put(l->fs->engine, TAKE(w->buffer));
	free(TAKE(w->read_buffer));
	w->done = true;
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
	r = pthread_create(&w->thread, NULL, run, w);
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
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < (long)MIN_READY ? MIN_READY : MIN((unsigned)cpus, MAX_READY);
}

/* Only there to make read(2) return. */
static void on_wake(_unused_ int signal)
{
}

static void drop_name(void *userdata, uint64_t dir, const char *name)
{
	notify_drop_name(userdata, dir, name);
}

int loop_new(struct fuse_session *se, struct fs *fs, struct loop **ret)
{
	static const struct fuse_custom_io io = { .writev = session_writev, .read = session_read };
	struct sigaction wake = { .sa_handler = on_wake };
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	mutex_init(&l->lock);
	mutex_init(&l->later_lock);
	cond_init(&l->later_cond);
	l->se = se;
	l->fs = fs;
	l->fd = fuse_session_fd(se);
	l->nr_ready = nr_ready();
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->event_fd < 0 ? -errno : 0;
	if (r == 0)
		r = fuse_session_custom_io(se, &io, l->fd);
	if (r == 0)
		r = notify_new(se, &l->notify);
	if (r == 0)
		r = notify_new(se, &l->names);
	if (r < 0) {
		loop_free(l);
		return r;
	}
	view_set_unlook(fs->view, drop_name, l->names);
	sigaction(WAKE_SIGNAL, &wake, NULL);
	control_name_requests(fs->control, request_names);
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	notify_free(l->names);
	notify_free(l->notify);
	if (l->event_fd >= 0)
		close(l->event_fd);
	cond_release(&l->later_cond);
	mutex_release(&l->later_lock);
	mutex_release(&l->lock);
	free(l);
}

int loop_start(struct loop *l)
{
	int r = 0;

	for (unsigned i = 0; i < l->nr_ready && r == 0; i++)
		r = add_thread(l);
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

/* A signal may come just before the read(2) it should interrupt, so it is sent until the thread is through. */
static void join(struct worker *w)
{
	while (!w->done) {
		pthread_kill(w->thread, WAKE_SIGNAL);
		nanosleep(&(struct timespec){ .tv_nsec = WAKE_AGAIN_NS }, NULL);
	}
	pthread_join(w->thread, NULL);
	free(w);
}

void loop_stop(struct loop *l)
{
	unsigned nr;

	view_set_unlook(l->fs->view, NULL, NULL);
	notify_stop(l->notify); /* first, as it may wait for pages that only a request of ours fills */
	notify_stop(l->names);
	l->stop = true;
	mutex_lock(&l->lock);
	nr = l->nr; /* none is started after this */
	mutex_unlock(&l->lock);
	for (unsigned i = 0; i < nr; i++)
		join(l->worker[i]);
	l->nr = 0;
	mutex_lock(&l->later_lock);
	while (l->nr_later > 0)
		cond_wait(&l->later_cond, &l->later_lock);
	mutex_unlock(&l->later_lock);
}
