/*
 * Functions of the C library through which the kernel writes results: interpose.h tells why something is put before them. Those are not here whose results the
 * C library itself writes, from where the kernel has put them: statvfs(3), sigwait(3), tcgetattr(3), timer_create(2).
 */
#include "client/interpose.h"

#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "client/ckptfs.h"
#include "client/client.h"

/* --- files --- */

int stat(const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(stat)(path, at));
}

int lstat(const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(lstat)(path, at));
}

int fstat(int fd, struct stat *st)
{
	return RESULT(st, at, NEXT(fstat)(fd, at));
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return RESULT(st, at, NEXT(fstatat)(dir, path, at, flags));
}

int stat64(const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(stat64)(path, at));
}

int lstat64(const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(lstat64)(path, at));
}

int fstat64(int fd, struct stat64 *st)
{
	return RESULT(st, at, NEXT(fstat64)(fd, at));
}

int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	return RESULT(st, at, NEXT(fstatat64)(dir, path, at, flags));
}

int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	return RESULT(st, at, NEXT(statx)(dir, path, flags, mask, at));
}

int statfs(const char *path, struct statfs *st)
{
	return RESULT(st, at, NEXT(statfs)(path, at));
}

int fstatfs(int fd, struct statfs *st)
{
	return RESULT(st, at, NEXT(fstatfs)(fd, at));
}

int statfs64(const char *path, struct statfs64 *st)
{
	return RESULT(st, at, NEXT(statfs64)(path, at));
}

int fstatfs64(int fd, struct statfs64 *st)
{
	return RESULT(st, at, NEXT(fstatfs64)(fd, at));
}

/* What programs call that were linked before 2021. */
int __xstat(int version, const char *path, struct stat *st);
int __lxstat(int version, const char *path, struct stat *st);
int __fxstat(int version, int fd, struct stat *st);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstat64(int version, int fd, struct stat64 *st);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);

int __xstat(int version, const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(__xstat)(version, path, at));
}

int __lxstat(int version, const char *path, struct stat *st)
{
	return RESULT(st, at, NEXT(__lxstat)(version, path, at));
}

int __fxstat(int version, int fd, struct stat *st)
{
	return RESULT(st, at, NEXT(__fxstat)(version, fd, at));
}

int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags)
{
	return RESULT(st, at, NEXT(__fxstatat)(version, dir, path, at, flags));
}

int __xstat64(int version, const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__xstat64)(version, path, at));
}

int __lxstat64(int version, const char *path, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__lxstat64)(version, path, at));
}

int __fxstat64(int version, int fd, struct stat64 *st)
{
	return RESULT(st, at, NEXT(__fxstat64)(version, fd, at));
}

int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags)
{
	return RESULT(st, at, NEXT(__fxstatat64)(version, dir, path, at, flags));
}

/* --- names --- */

ssize_t readlink(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(readlink)(path, at, len));
}

ssize_t readlinkat(int dir, const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(readlinkat)(dir, path, at, len));
}

char *getcwd(char *p, size_t len)
{
	if (!p)
		return NEXT(getcwd)(p, len); /* it allocates */
	len = MIN(len, (size_t)LOAN_MAX);
	return RESULTS(p, len, at, NEXT(getcwd)(at, len)) ? p : NULL;
}

int ttyname_r(int fd, char *p, size_t len)
{
	len = MIN(len, (size_t)LOAN_MAX);
	return RESULTS(p, len, at, NEXT(ttyname_r)(fd, at, len));
}

ssize_t getdents64(int fd, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(getdents64)(fd, at, len));
}

ssize_t getxattr(const char *path, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(getxattr)(path, name, at, len));
}

ssize_t lgetxattr(const char *path, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(lgetxattr)(path, name, at, len));
}

ssize_t fgetxattr(int fd, const char *name, void *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(fgetxattr)(fd, name, at, len));
}

ssize_t listxattr(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(listxattr)(path, at, len));
}

ssize_t llistxattr(const char *path, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(llistxattr)(path, at, len));
}

ssize_t flistxattr(int fd, char *p, size_t len)
{
	return BUFFER(p, len, at, NEXT(flistxattr)(fd, at, len));
}

int name_to_handle_at(int dir, const char *path, struct file_handle *handle, int *mount, int flags)
{
	return RESULTS(handle, sizeof(*handle) + handle->handle_bytes, at,
		       RESULT(mount, mount_at, NEXT(name_to_handle_at)(dir, path, at, mount_at, flags)));
}

/* --- offsets that go on --- */

ssize_t sendfile(int to, int from, off_t *off, size_t len)
{
	return RESULT(off, at, NEXT(sendfile)(to, from, at, len));
}

ssize_t sendfile64(int to, int from, off64_t *off, size_t len)
{
	return RESULT(off, at, NEXT(sendfile64)(to, from, at, len));
}

ssize_t splice(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	return RESULT(from_off, from_at, RESULT(to_off, to_at, NEXT(splice)(from, from_at, to, to_at, len, flags)));
}

ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	return RESULT(from_off, from_at, RESULT(to_off, to_at, NEXT(copy_file_range)(from, from_at, to, to_at, len, flags)));
}

/* --- what `p` is, and how long, depends: as much is opened as it can be --- */

#define TAKE_ARGUMENT(last)                     \
	({                                      \
		va_list _args;                  \
		void *_p;                       \
		va_start(_args, last);          \
		_p = va_arg(_args, void *);     \
		va_end(_args);                  \
		_p;                             \
	})

int ioctl(int fd, unsigned long request, ...)
{
	void *p = TAKE_ARGUMENT(request);
	size_t len = MAX((size_t)_IOC_SIZE(request), (size_t)256); /* older numbers do not tell */

	return OPENED(ckptfs_touch(p, len), NEXT(ioctl)(fd, request, p));
}

int fcntl(int fd, int command, ...)
{
	void *p = TAKE_ARGUMENT(command);

	return OPENED(ckptfs_touch(p, sizeof(struct flock)), NEXT(fcntl)(fd, command, p));
}

int fcntl64(int fd, int command, ...)
{
	void *p = TAKE_ARGUMENT(command);

	return OPENED(ckptfs_touch(p, sizeof(struct flock64)), NEXT(fcntl64)(fd, command, p));
}

int prctl(int option, ...)
{
	unsigned long a[4];
	va_list args;

	va_start(args, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(args, unsigned long);
	va_end(args);
	return OPENED(ckptfs_touch((void *)a[0], 64), NEXT(prctl)(option, a[0], a[1], a[2], a[3]));
}

int semctl(int id, int number, int command, ...)
{
	void *p = TAKE_ARGUMENT(command);

	return OPENED(ckptfs_touch(p, UINT16_MAX * sizeof(short)), NEXT(semctl)(id, number, command, p)); /* of all of the set */
}

int shmctl(int id, int command, struct shmid_ds *p)
{
	return OPENED(ckptfs_touch(p, 256), NEXT(shmctl)(id, command, p));
}

int msgctl(int id, int command, struct msqid_ds *p)
{
	return OPENED(ckptfs_touch(p, 256), NEXT(msgctl)(id, command, p));
}

int mincore(void *p, size_t len, unsigned char *state)
{
	return OPENED(ckptfs_touch(state, len / client.page_size + 1), NEXT(mincore)(p, len, state));
}

/* Threads of the C library write, later: no checkpoint is to be taken until then. */
int aio_read(struct aiocb *a)
{
	return OPENED((ckptfs_touch(a, sizeof(*a)), ckptfs_touch((void *)a->aio_buf, a->aio_nbytes)), NEXT(aio_read)(a));
}

int aio_read64(struct aiocb64 *a)
{
	return OPENED((ckptfs_touch(a, sizeof(*a)), ckptfs_touch((void *)a->aio_buf, a->aio_nbytes)), NEXT(aio_read64)(a));
}

/* --- descriptors and sockets --- */

int pipe(int fds[2])
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(pipe)(at));
}

int pipe2(int fds[2], int flags)
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(pipe2)(at, flags));
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
	return RESULTS(fds, 2 * sizeof(*fds), at, NEXT(socketpair)(domain, type, protocol, at));
}

int accept(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(accept)(fd, at, at_len));
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *len, int flags)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(accept4)(fd, at, at_len, flags));
}

int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(getsockname)(fd, at, at_len));
}

int getpeername(int fd, __SOCKADDR_ARG address, socklen_t *len)
{
	struct sockaddr *p = address.__sockaddr__;

	return ADDRESS(p, len, at, at_len, NEXT(getpeername)(fd, at, at_len));
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	return ADDRESS(value, len, at, at_len, NEXT(getsockopt)(fd, level, name, at, at_len));
}

/* --- waiting for descriptors --- */

int poll(struct pollfd *fds, nfds_t nr, int timeout)
{
	return RESULTS(fds, nr * sizeof(*fds), at, NEXT(poll)(at, nr, timeout));
}

int ppoll(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(fds, nr * sizeof(*fds), at, NEXT(ppoll)(at, nr, timeout, mask));
}

/* The kernel looks at as many words as `nr` descriptors take, which programs may have more of than fd_set. */
static size_t set_bytes(int nr)
{
	return nr > 0 ? ((size_t)nr + 63) / 64 * 8 : 0;
}

#define SETS(nr, read, write, except, call)                                            \
	RESULTS(read, set_bytes(nr), read_at,                                          \
		RESULTS(write, set_bytes(nr), write_at, RESULTS(except, set_bytes(nr), except_at, call)))

int select(int nr, fd_set *read, fd_set *write, fd_set *except, struct timeval *timeout)
{
	return SETS(nr, read, write, except, RESULT(timeout, at, NEXT(select)(nr, read_at, write_at, except_at, at)));
}

int pselect(int nr, fd_set *read, fd_set *write, fd_set *except, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return SETS(nr, read, write, except, NEXT(pselect)(nr, read_at, write_at, except_at, timeout, mask));
}

static size_t event_bytes(int nr)
{
	return nr > 0 ? (size_t)nr * sizeof(struct epoll_event) : 0;
}

int epoll_wait(int fd, struct epoll_event *events, int nr, int timeout)
{
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_wait)(fd, at, nr, timeout));
}

int epoll_pwait(int fd, struct epoll_event *events, int nr, int timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_pwait)(fd, at, nr, timeout, mask));
}

int epoll_pwait2(int fd, struct epoll_event *events, int nr, const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t room;

	mask = interpose_mask(mask, &room);
	return RESULTS(events, event_bytes(nr), at, NEXT(epoll_pwait2)(fd, at, nr, timeout, mask));
}

/* --- processes --- */

pid_t wait(int *status)
{
	return RESULT(status, at, NEXT(wait)(at));
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	return RESULT(status, at, NEXT(waitpid)(pid, at, options));
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
	return RESULT(status, at, RESULT(usage, usage_at, NEXT(wait3)(at, options, usage_at)));
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	return RESULT(status, at, RESULT(usage, usage_at, NEXT(wait4)(pid, at, options, usage_at)));
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	return RESULT(info, at, NEXT(waitid)(type, id, at, options));
}

int getrusage(__rusage_who_t who, struct rusage *usage)
{
	return RESULT(usage, at, NEXT(getrusage)(who, at));
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
	return RESULT(limit, at, NEXT(getrlimit)(resource, at));
}

int getrlimit64(__rlimit_resource_t resource, struct rlimit64 *limit)
{
	return RESULT(limit, at, NEXT(getrlimit64)(resource, at));
}

int prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit, struct rlimit *old)
{
	return RESULT(old, at, NEXT(prlimit)(pid, resource, limit, at));
}

int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *limit, struct rlimit64 *old)
{
	return RESULT(old, at, NEXT(prlimit64)(pid, resource, limit, at));
}

clock_t times(struct tms *times_)
{
	return RESULT(times_, at, NEXT(times)(at));
}

/* The C library writes the process's number while it has all signals blocked. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		char *const argv[], char *const envp[])
{
	return RESULT(pid, at, NEXT(posix_spawn)(at, path, actions, attributes, argv, envp));
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
		 char *const argv[], char *const envp[])
{
	return RESULT(pid, at, NEXT(posix_spawnp)(at, file, actions, attributes, argv, envp));
}

int getgroups(int nr, gid_t *groups)
{
	return RESULTS(groups, nr > 0 ? (size_t)nr * sizeof(*groups) : 0, at, NEXT(getgroups)(nr, at));
}

int getresuid(uid_t *real, uid_t *effective, uid_t *saved)
{
	return RESULT(real, a, RESULT(effective, b, RESULT(saved, c, NEXT(getresuid)(a, b, c))));
}

int getresgid(gid_t *real, gid_t *effective, gid_t *saved)
{
	return RESULT(real, a, RESULT(effective, b, RESULT(saved, c, NEXT(getresgid)(a, b, c))));
}

int sched_getparam(pid_t pid, struct sched_param *param)
{
	return RESULT(param, at, NEXT(sched_getparam)(pid, at));
}

int sched_getaffinity(pid_t pid, size_t len, cpu_set_t *set)
{
	return RESULTS(set, len, at, NEXT(sched_getaffinity)(pid, len, at));
}

int pthread_getaffinity_np(pthread_t thread, size_t len, cpu_set_t *set)
{
	return RESULTS(set, len, at, NEXT(pthread_getaffinity_np)(thread, len, at));
}

int pthread_getname_np(pthread_t thread, char *name, size_t len)
{
	len = MIN(len, (size_t)LOAN_MAX);
	return RESULTS(name, len, at, NEXT(pthread_getname_np)(thread, at, len));
}

int sched_rr_get_interval(pid_t pid, struct timespec *interval)
{
	return RESULT(interval, at, NEXT(sched_rr_get_interval)(pid, at));
}

int getcpu(unsigned *cpu, unsigned *node)
{
	return RESULT(cpu, at, RESULT(node, node_at, NEXT(getcpu)(at, node_at)));
}

int uname(struct utsname *name)
{
	return RESULT(name, at, NEXT(uname)(at));
}

int sysinfo(struct sysinfo *info)
{
	return RESULT(info, at, NEXT(sysinfo)(at));
}

int mq_getattr(mqd_t queue, struct mq_attr *attr)
{
	return RESULT(attr, at, NEXT(mq_getattr)(queue, at));
}

int mq_setattr(mqd_t queue, const struct mq_attr *attr, struct mq_attr *old)
{
	return RESULT(old, at, NEXT(mq_setattr)(queue, attr, at));
}

/* --- time: without the kernel, as a rule, but not on every machine, nor for every clock --- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	return RESULT(now, at, NEXT(clock_gettime)(clock, at));
}

int clock_getres(clockid_t clock, struct timespec *resolution)
{
	return RESULT(resolution, at, NEXT(clock_getres)(clock, at));
}

int timespec_get(struct timespec *now, int base)
{
	return RESULT(now, at, NEXT(timespec_get)(at, base));
}

int gettimeofday(struct timeval *now, void *zone)
{
	return RESULT(now, at, NEXT(gettimeofday)(at, zone));
}

int nanosleep(const struct timespec *duration, struct timespec *left)
{
	return RESULT(left, at, NEXT(nanosleep)(duration, at));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *duration, struct timespec *left)
{
	return RESULT(left, at, NEXT(clock_nanosleep)(clock, flags, duration, at));
}

int getitimer(__itimer_which_t which, struct itimerval *now)
{
	return RESULT(now, at, NEXT(getitimer)(which, at));
}

int setitimer(__itimer_which_t which, const struct itimerval *next, struct itimerval *old)
{
	return RESULT(old, at, NEXT(setitimer)(which, next, at));
}

int timer_gettime(timer_t timer, struct itimerspec *now)
{
	return RESULT(now, at, NEXT(timer_gettime)(timer, at));
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *next, struct itimerspec *old)
{
	return RESULT(old, at, NEXT(timer_settime)(timer, flags, next, at));
}

int timerfd_gettime(int fd, struct itimerspec *now)
{
	return RESULT(now, at, NEXT(timerfd_gettime)(fd, at));
}

int timerfd_settime(int fd, int flags, const struct itimerspec *next, struct itimerspec *old)
{
	return RESULT(old, at, NEXT(timerfd_settime)(fd, flags, next, at));
}

int adjtimex(struct timex *t)
{
	return RESULT(t, at, NEXT(adjtimex)(at));
}

int ntp_adjtime(struct timex *t)
{
	return RESULT(t, at, NEXT(ntp_adjtime)(at));
}

int clock_adjtime(clockid_t clock, struct timex *t)
{
	return RESULT(t, at, NEXT(clock_adjtime)(clock, at));
}

/* --- signals --- */

int sigpending(sigset_t *set)
{
	return RESULT(set, at, NEXT(sigpending)(at));
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	return RESULT(info, at, NEXT(sigtimedwait)(set, at, timeout));
}

int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
	return RESULT(info, at, NEXT(sigwaitinfo)(set, at));
}

/* A stack for handlers, ours among them: the kernel could not write to it when it is closed. */
int sigaltstack(const stack_t *stack, stack_t *old)
{
	if (stack && !(stack->ss_flags & SS_DISABLE) && track_mprotect_may_close(stack->ss_sp, stack->ss_size) &&
	    track_mprotect_has(stack->ss_sp, stack->ss_size)) {
		log_error("checkpoints: a stack for handlers at %p is in a region, which is tracked by mprotect(2)", stack->ss_sp);
		errno = EINVAL;
		return -1;
	}
	return RESULT(old, at, NEXT(sigaltstack)(stack, at));
}

/* --- the same for programs that were compiled with checks of lengths (-D_FORTIFY_SOURCE) --- */

ssize_t __readlink_chk(const char *path, char *p, size_t len, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *p, size_t len, size_t room);
char *__getcwd_chk(char *p, size_t len, size_t room);
int __ttyname_r_chk(int fd, char *p, size_t len, size_t room);
int __getgroups_chk(int nr, gid_t *groups, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t nr, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask, size_t room);

ssize_t __readlink_chk(const char *path, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__readlink_chk)(path, p, len, room) : readlink(path, p, len);
}

ssize_t __readlinkat_chk(int dir, const char *path, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__readlinkat_chk)(dir, path, p, len, room) : readlinkat(dir, path, p, len);
}

char *__getcwd_chk(char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__getcwd_chk)(p, len, room) : getcwd(p, len);
}

int __ttyname_r_chk(int fd, char *p, size_t len, size_t room)
{
	return len > room ? NEXT(__ttyname_r_chk)(fd, p, len, room) : ttyname_r(fd, p, len);
}

int __getgroups_chk(int nr, gid_t *groups, size_t room)
{
	return nr > 0 && (size_t)nr * sizeof(*groups) > room ? NEXT(__getgroups_chk)(nr, groups, room) : getgroups(nr, groups);
}

int __poll_chk(struct pollfd *fds, nfds_t nr, int timeout, size_t room)
{
	return nr > room / sizeof(*fds) ? NEXT(__poll_chk)(fds, nr, timeout, room) : poll(fds, nr, timeout);
}

int __ppoll_chk(struct pollfd *fds, nfds_t nr, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	return nr > room / sizeof(*fds) ? NEXT(__ppoll_chk)(fds, nr, timeout, mask, room) : ppoll(fds, nr, timeout, mask);
}
