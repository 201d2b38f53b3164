/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Of client_api.c: calls of the C library through which the kernel writes to memory, where that has been closed. */
#include "client_api.h"

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define FILLED 0x5a
#define LEN (80 * PAGE)

static uint8_t *p; /* closed, all of it */
static uint8_t *result; /* in it, on two pages */

/* For names that all processes share: several of these programs run at once, with equal process numbers. */
static uint64_t random_number(void)
{
	uint64_t x;

	CHECK(getrandom(&x, sizeof(x), 0) == sizeof(x));
	return x;
}

static void closed(void)
{
	memset(p, FILLED, LEN);
	CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);
	errno = 0;
}

/* `call` gives `wanted`, and has written something; in the end all memory is as the last checkpoint has it, but for
 * that. */
#define CLOSED(call, wanted)                                                                                         \
	do {                                                                                                         \
		long _r;                                                                                             \
		closed();                                                                                            \
		_r = (long)(call);                                                                                   \
		if (_r != (long)(wanted) || api_all_are(p, LEN, FILLED)) {                                           \
			printf("FAILED line %d: %s: %ld (errno: %s)\n", __LINE__, #call, _r, strerror(errno));       \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)
/* The same with something that the kernel reads there as well. */
#define CLOSED_WITH(value, call, wanted)                                                                             \
	do {                                                                                                         \
		memset(p, FILLED, LEN);                                                                              \
		memcpy(result, &(value), sizeof(value));                                                             \
		CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);                                               \
		errno = 0;                                                                                           \
		CHECK((long)(call) == (long)(wanted));                                                               \
	} while (0)

static void of_files(void)
{
	struct stat right, *st = (struct stat *)result;
	struct file_handle *handle = (struct file_handle *)result;
	int fd = open(api_dir, O_RDONLY | O_DIRECTORY), file = open("/proc/self/exe", O_RDONLY);
	struct flock lock = { .l_type = F_WRLCK };
	unsigned none = 0;
	char name[64];

	CHECK(fd >= 0 && file >= 0 && fstat(file, &right) == 0);
	CLOSED(stat("/proc/self/exe", st), 0);
	CHECK(memcmp(st, &right, sizeof(right)) == 0);
	CLOSED(lstat("/", st), 0);
	CLOSED(fstat(file, st), 0);
	CHECK(memcmp(st, &right, sizeof(right)) == 0);
	CLOSED(fstatat(AT_FDCWD, "/", st, 0), 0);
	CLOSED(stat64("/", (struct stat64 *)result), 0);
	CLOSED(lstat64("/", (struct stat64 *)result), 0);
	CLOSED(fstat64(fd, (struct stat64 *)result), 0);
	CLOSED(fstatat64(AT_FDCWD, "/", (struct stat64 *)result, 0), 0);
	CLOSED(statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, (struct statx *)result), 0);
	CLOSED(statfs("/", (struct statfs *)result), 0);
	CLOSED(fstatfs(fd, (struct statfs *)result), 0);
	CLOSED(statfs64("/", (struct statfs64 *)result), 0);
	CLOSED(fstatfs64(fd, (struct statfs64 *)result), 0);
	CLOSED(statvfs("/", (struct statvfs *)result), 0);
	CLOSED(fstatvfs(fd, (struct statvfs *)result), 0);
	/* What older programs call: nothing that can be linked any more. */
	for (int i = 0; i < 2; i++) {
		int (*xstat)(int, const char *, void *) = dlsym(RTLD_DEFAULT, i ? "__xstat64" : "__xstat");
		int (*lxstat)(int, const char *, void *) = dlsym(RTLD_DEFAULT, i ? "__lxstat64" : "__lxstat");
		int (*fxstat)(int, int, void *) = dlsym(RTLD_DEFAULT, i ? "__fxstat64" : "__fxstat");
		int (*fxstatat)(int, int, const char *, void *, int) =
			dlsym(RTLD_DEFAULT, i ? "__fxstatat64" : "__fxstatat");

		CLOSED(xstat(0, "/", result), 0);
		CLOSED(lxstat(0, "/", result), 0);
		CLOSED(fxstat(0, fd, result), 0);
		CLOSED(fxstatat(0, AT_FDCWD, "/", result, 0), 0);
	}
	snprintf(name, sizeof(name), "/tmp/ckptfs-client-api-%" PRIx64, random_number());
	CHECK(symlink("where it leads", name) == 0);
	CLOSED(readlink(name, (char *)result, 100), 14);
	CHECK(memcmp(result, "where it leads", 14) == 0 && result[14] == FILLED);
	CLOSED(readlinkat(AT_FDCWD, name, (char *)result, 100), 14);
	unlink(name);
	CHECK(chdir("/proc") == 0);
	CLOSED(getcwd((char *)result, 100) == (char *)result, true);
	CHECK(strcmp((char *)result, "/proc") == 0);
	CLOSED(getcwd((char *)p, 70 * PAGE) == (char *)p, true);
	CHECK(chdir("/") == 0);
	CLOSED(getdents64(fd, result, 4000) > 0, true);
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	CLOSED(getdirentries64(fd, (char *)result, 4000, (off64_t *)(p + 10 * PAGE)) > 0, true);
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	CLOSED(getdirentries(fd, (char *)result, 4000, (off_t *)(p + 10 * PAGE)) > 0, true);
	CHECK(setxattr(api_dir, "user.name", "value", 5, 0) == 0);
	CLOSED(getxattr(api_dir, "user.name", result, 100), 5);
	CHECK(memcmp(result, "value", 5) == 0);
	CLOSED(lgetxattr(api_dir, "user.name", result, 100), 5);
	CLOSED(fgetxattr(fd, "user.name", result, 100), 5);
	CLOSED(listxattr(api_dir, (char *)result, 100) > 0, true);
	CLOSED(llistxattr(api_dir, (char *)result, 100) > 0, true);
	CLOSED(flistxattr(fd, (char *)result, 100) > 0, true);
	CLOSED_WITH(none, name_to_handle_at(AT_FDCWD, "/proc/self/exe", handle, (int *)(p + 10 * PAGE), 0), -1);
	CHECK((errno == EOVERFLOW && handle->handle_bytes > 0) || errno == EOPNOTSUPP);
	CLOSED_WITH(lock, fcntl(file, F_GETLK, result), 0);
	CHECK(((struct flock *)result)->l_type == F_UNLCK);
	close(fd);
	close(file);
}

static void of_offsets(void)
{
	int from = memfd_create("from", 0), to = memfd_create("to", 0), pipes[2];
	off_t *off = (off_t *)result, begin = 3;

	CHECK(from >= 0 && to >= 0 && pipe(pipes) == 0 && write(from, "0123456789", 10) == 10);
	CLOSED_WITH(begin, sendfile(to, from, off, 4), 4);
	CHECK(*off == 7);
	CLOSED_WITH(begin, sendfile64(to, from, off, 4), 4);
	CHECK(*off == 7);
	CLOSED_WITH(begin, splice(from, off, pipes[1], NULL, 4, 0), 4);
	CHECK(*off == 7);
	CLOSED_WITH(begin, copy_file_range(from, off, to, NULL, 4, 0), 4);
	CHECK(*off == 7);
	CLOSED(vmsplice(pipes[0], &(struct iovec){ result, 4 }, 1, 0), 4);
	CHECK(memcmp(result, "3456", 4) == 0);
	for (int i = 0; i < 2; i++)
		close(pipes[i]);
	close(from);
	close(to);
}

static void of_streams(void)
{
	FILE *f = fopen("/dev/zero", "r");
	struct aiocb *a = calloc(1, sizeof(*a));

	CLOSED(fread(p + 1, 1, LEN - 2, f), LEN - 2);
	CHECK(p[0] == FILLED && api_all_are(p + 1, LEN - 2, 0) && p[LEN - 1] == FILLED);
	CLOSED(fread_unlocked(p, 8, LEN / 8, f), LEN / 8);
	CHECK(api_all_are(p, LEN, 0));
	CLOSED(fgets((char *)result, 100, f) == (char *)result, true);
	CLOSED(fgets_unlocked((char *)result, 100, f) == (char *)result, true);
	fclose(f);
	f = fopen("/dev/zero", "r");
	closed();
	CHECK(setvbuf(f, (char *)p, _IOFBF, 8 * PAGE) == 0);
	CHECK(getc(f) == 0 && !ferror(f));
	fclose(f);
	CLOSED(getrandom(result, 100, 0), 100);
	CLOSED(getentropy(result, 200), 0);
	CLOSED((arc4random_buf(result, 300), 0), 0);
	a->aio_fildes = open("/dev/zero", O_RDONLY);
	a->aio_buf = p;
	a->aio_nbytes = 4 * PAGE;
	closed();
	CHECK(aio_read(a) == 0);
	while (aio_error(a) == EINPROGRESS)
		usleep(100);
	CHECK(aio_return(a) == (ssize_t)(4 * PAGE) && api_all_are(p, 4 * PAGE, 0));
	close(a->aio_fildes);
	free(a);
}

static void of_descriptors(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0ckptfs-client-api" };
	socklen_t *len = (socklen_t *)(p + 20 * PAGE), name_len = sizeof(name);
	int *fds = (int *)result, listening = socket(AF_UNIX, SOCK_STREAM, 0), ends[2], fd;
	struct pollfd readable = { .events = POLLIN };

	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "ckptfs-client-api-%" PRIx64, random_number());
	CLOSED(pipe(fds), 0);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
	CLOSED(pipe2(fds, O_CLOEXEC), 0);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
	CLOSED(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ends[0] = fds[0];
	ends[1] = fds[1];
	CHECK(bind(listening, (struct sockaddr *)&name, name_len) == 0 && listen(listening, 5) == 0);
#define WITH_LEN(value, call, wanted)                                                    \
	do {                                                                             \
		memset(p, FILLED, LEN);                                                  \
		*len = value;                                                            \
		CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);                   \
		errno = 0;                                                               \
		CHECK((call) wanted && *len != FILLED);                                  \
	} while (0)
	WITH_LEN(110, getsockname(listening, (struct sockaddr *)result, len), == 0);
	CHECK(memcmp(result, &name, *len) == 0 && *len > 10);
	for (int i = 0; i < 2; i++) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		CHECK(connect(fd, (struct sockaddr *)&name, name_len) == 0);
		WITH_LEN(110, getpeername(fd, (struct sockaddr *)result, len), == 0);
		CHECK(memcmp(result, &name, *len) == 0);
		if (i == 0)
			WITH_LEN(110, close(accept(listening, (struct sockaddr *)result, len)), == 0);
		else
			WITH_LEN(110, close(accept4(listening, (struct sockaddr *)result, len, 0)), == 0);
		CHECK(*len == 2);
		close(fd);
	}
	WITH_LEN(4, getsockopt(listening, SOL_SOCKET, SO_TYPE, result, len), == 0);
	CHECK(fds[0] == SOCK_STREAM && *len == 4);
	CHECK(write(ends[1], "abc", 3) == 3);
	CLOSED(ioctl(ends[0], FIONREAD, result), 0);
	CHECK(fds[0] == 3);
	readable.fd = ends[0];
	CLOSED_WITH(readable, poll((struct pollfd *)result, 1, -1), 1);
	CHECK(((struct pollfd *)result)->revents == POLLIN);
	CLOSED_WITH(readable, ppoll((struct pollfd *)result, 1, NULL, NULL), 1);
	fd = epoll_create1(0);
	CHECK(epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){ .events = EPOLLIN }) == 0);
	CLOSED(epoll_wait(fd, (struct epoll_event *)result, 100, -1), 1);
	CLOSED(epoll_pwait(fd, (struct epoll_event *)result, 100, -1, NULL), 1);
	CLOSED(epoll_pwait2(fd, (struct epoll_event *)result, 100, NULL, NULL), 1);
	close(fd);
	for (int i = 0; i < 2; i++) {
		fd_set *set = (fd_set *)result;
		struct timeval *timeout = (struct timeval *)(p + 40 * PAGE);

		memset(p, FILLED, LEN);
		FD_ZERO(set);
		FD_SET(ends[0], set);
		FD_SET(listening, set);
		*timeout = (struct timeval){ .tv_sec = 100 };
		CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);
		CHECK((i == 0 ? select(100, set, NULL, NULL, timeout) : pselect(100, set, NULL, NULL, NULL, NULL)) == 1);
		CHECK(FD_ISSET(ends[0], set) && !FD_ISSET(listening, set) && (i == 1 || timeout->tv_sec < 100));
	}
	fd = eventfd(7, 0);
	CLOSED(eventfd_read(fd, (eventfd_t *)result), 0);
	CHECK(*(eventfd_t *)result == 7);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	close(listening);
	fd = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
	ends[0] = open(ptsname(fd), O_RDWR | O_NOCTTY);
	CLOSED(ttyname_r(ends[0], (char *)result, 100), 0);
	CLOSED(ioctl(ends[0], TIOCGWINSZ, result), 0);
	CLOSED(ioctl(ends[0], TCGETS, result), 0);
	CLOSED(tcgetattr(ends[0], (struct termios *)result), 0);
	close(ends[0]);
	close(fd);
}

static void of_messages(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec piece = { (void *)(uintptr_t) "message", 7 };
	struct msghdr send = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	struct msghdr *m = (struct msghdr *)result;
	struct mmsghdr *several = (struct mmsghdr *)result;
	struct cmsghdr *c = CMSG_FIRSTHDR(&send);
	struct { long type; char text[64]; } text = { 1, "text" };
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 1000 };
	char name[64];
	int ends[2], fd, queue;

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(c), &ends[0], sizeof(int));
	CHECK(sendmsg(ends[0], &send, 0) == 7);
	memset(p, FILLED, LEN);
	*(struct iovec *)(p + 9 * PAGE) = (struct iovec){ p + 20 * PAGE - 3, 3 };
	*(struct iovec *)(p + 9 * PAGE + sizeof(piece)) = (struct iovec){ p + 30 * PAGE - 2, 50 };
	*m = (struct msghdr){ .msg_iov = (struct iovec *)(p + 9 * PAGE), .msg_iovlen = 2, .msg_control = p + 40 * PAGE - 8, .msg_controllen = 64 };
	CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);
	CHECK(recvmsg(ends[1], m, 0) == 7);
	CHECK(memcmp(p + 20 * PAGE - 3, "mes", 3) == 0 && memcmp(p + 30 * PAGE - 2, "sage", 4) == 0 &&
	      p[30 * PAGE + 2] == FILLED);
	CHECK(m->msg_controllen >= CMSG_LEN(sizeof(int)) && CMSG_FIRSTHDR(m)->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(m)), sizeof(int));
	CHECK(close(fd) == 0);
	CHECK(write(ends[0], "one", 3) == 3 && write(ends[0], "three", 5) == 5);
	memset(p, FILLED, LEN);
	for (int i = 0; i < 3; i++) {
		((struct iovec *)(p + 9 * PAGE))[i] = (struct iovec){ p + (size_t)(20 + i) * PAGE - 2, 10 };
		several[i] =
			(struct mmsghdr){ .msg_hdr = { .msg_iov = (struct iovec *)(p + 9 * PAGE) + i, .msg_iovlen = 1 } };
	}
	CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);
	CHECK(recvmmsg(ends[1], several, 3, MSG_WAITFORONE, NULL) == 2);
	CHECK(several[0].msg_len == 3 && several[1].msg_len == 5 && memcmp(p + 21 * PAGE - 2, "three", 5) == 0);
	closed();
	for (int i = 0; i < 2; i++)
		several[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &piece, .msg_iovlen = 1 } };
	CHECK(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0);
	CHECK(sendmmsg(ends[0], several, 2, 0) == 2 && several[0].msg_len == 7 && several[1].msg_len == 7);
	for (int i = 0; i < 2; i++)
		CHECK(read(ends[1], p, 100) == 7);
	CHECK(write(ends[0], "longer than that", 16) == 16);
	CLOSED(recv(ends[1], result, 6, MSG_TRUNC), 16);
	CHECK(memcmp(result, "longer", 6) == 0 && result[6] == FILLED);
	CHECK(write(ends[0], "one", 3) == 3);
	CLOSED(read(ends[1], result, 6), 3);
	close(ends[0]);
	close(ends[1]);

	queue = msgget(IPC_PRIVATE, 0600);
	CHECK(queue >= 0 && msgsnd(queue, &text, sizeof(text.text), 0) == 0);
	CLOSED(msgctl(queue, IPC_STAT, (struct msqid_ds *)result), 0);
	CLOSED(msgrcv(queue, result, sizeof(text.text), 0, 0), sizeof(text.text));
	CHECK(memcmp(result, &text, sizeof(text)) == 0);
	msgctl(queue, IPC_RMID, NULL);
	queue = semget(IPC_PRIVATE, 100, 0600);
	CLOSED(semctl(queue, 0, GETALL, result), 0);
	CLOSED(semctl(queue, 0, IPC_STAT, result), 0);
	semctl(queue, 0, IPC_RMID);
	queue = shmget(IPC_PRIVATE, PAGE, 0600);
	CLOSED(shmctl(queue, IPC_STAT, (struct shmid_ds *)result), 0);
	shmctl(queue, IPC_RMID, NULL);

	snprintf(name, sizeof(name), "/ckptfs-%" PRIx64, random_number());
	queue = mq_open(name, O_CREAT | O_RDWR, 0600, &attr);
	if (queue < 0)
		return; /* not in every kernel */
	mq_unlink(name);
	CHECK(mq_send(queue, "first", 5, 3) == 0 && mq_send(queue, "again", 5, 3) == 0);
	CLOSED(mq_receive(queue, (char *)result, 1000, (unsigned *)(p + 10 * PAGE)), 5);
	CHECK(memcmp(result, "first", 5) == 0 && *(unsigned *)(p + 10 * PAGE) == 3);
	CLOSED(mq_timedreceive(queue, (char *)result, 1000, (unsigned *)(p + 10 * PAGE), &(struct timespec){ 0 }), 5);
	CLOSED(mq_getattr(queue, (struct mq_attr *)result), 0);
	CLOSED(mq_setattr(queue, &attr, (struct mq_attr *)result), 0);
	mq_close(queue);
}

static pid_t child_of_status(int status)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(status);
	return pid;
}

int capget(cap_user_header_t header, cap_user_data_t data); /* whose header is of another library */

static void of_processes(void)
{
	int *status = (int *)result;
	struct rusage *usage = (struct rusage *)(p + 10 * PAGE - 8);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	pid_t pid;

#define CHILD(call)                                                             \
	do {                                                                    \
		pid = child_of_status(3);                                       \
		CLOSED(call, pid);                                              \
		CHECK(WIFEXITED(*status) && WEXITSTATUS(*status) == 3);         \
	} while (0)
	CLOSED(posix_spawnp((pid_t *)result, "true", NULL, NULL, (char *[]){ "true", NULL }, environ), 0);
	CHECK(waitpid(*(pid_t *)result, NULL, 0) == *(pid_t *)result);
	CLOSED(posix_spawn((pid_t *)result, "/bin/true", NULL, NULL, (char *[]){ "true", NULL }, environ), 0);
	CHECK(waitpid(*(pid_t *)result, NULL, 0) == *(pid_t *)result);
	CHILD(wait(status));
	CHILD(waitpid(pid, status, 0));
	CHILD(wait3(status, 0, usage));
	CHILD(wait4(pid, status, 0, usage));
	pid = child_of_status(3);
	CLOSED(waitid(P_PID, (id_t)pid, (siginfo_t *)result, WEXITED), 0);
	CHECK(((siginfo_t *)result)->si_pid == pid && ((siginfo_t *)result)->si_status == 3);
	CLOSED(getrusage(RUSAGE_SELF, (struct rusage *)result), 0);
	CLOSED(getrlimit(RLIMIT_NOFILE, (struct rlimit *)result), 0);
	CLOSED(getrlimit64(RLIMIT_NOFILE, (struct rlimit64 *)result), 0);
	CLOSED(prlimit(0, RLIMIT_NOFILE, NULL, (struct rlimit *)result), 0);
	CLOSED(prlimit64(0, RLIMIT_NOFILE, NULL, (struct rlimit64 *)result), 0);
	CLOSED(times((struct tms *)result) != -1, true);
	CHECK(setgroups(2, (gid_t[]){ 0, 7 }) == 0);
	CLOSED(getgroups(100, (gid_t *)result), 2);
	CHECK(setgroups(0, NULL) == 0);
	CLOSED(getresuid((uid_t *)result, (uid_t *)(p + 10 * PAGE), (uid_t *)(p + 20 * PAGE)), 0);
	CLOSED(getresgid((gid_t *)result, (gid_t *)(p + 10 * PAGE), (gid_t *)(p + 20 * PAGE)), 0);
	CHECK(*(gid_t *)result == getgid() && *(gid_t *)(p + 20 * PAGE) == getgid());
	CLOSED_WITH(header, capget((cap_user_header_t)result, (cap_user_data_t)(p + 10 * PAGE - 4)), 0);
	CHECK(((cap_user_header_t)result)->version == header.version &&
	      ((cap_user_data_t)(p + 10 * PAGE - 4))->effective != 0x5a5a5a5a);
	CLOSED(sched_getparam(0, (struct sched_param *)result), 0);
	CLOSED(sched_getaffinity(0, 128, (cpu_set_t *)result), 0);
	CLOSED(pthread_getaffinity_np(pthread_self(), 128, (cpu_set_t *)result), 0);
	CLOSED(pthread_getname_np(pthread_self(), (char *)result, 16), 0);
	CLOSED(sched_rr_get_interval(0, (struct timespec *)result), 0);
	CLOSED(getcpu((unsigned *)result, (unsigned *)(p + 10 * PAGE)), 0);
	CLOSED(uname((struct utsname *)result), 0);
	CLOSED(sysinfo((struct sysinfo *)result), 0);
	CLOSED(prctl(PR_GET_NAME, result), 0);
	CLOSED(mincore(p, 4 * PAGE, p + 10 * PAGE), 0);
	CLOSED(gethostname((char *)result, 100), 0);
}

static void of_clocks(void)
{
	struct itimerval often = { .it_value = { .tv_sec = 1000 } }, never = { 0 };
	struct itimerspec later = { .it_value = { .tv_sec = 1000 } };
	struct timex as_it_is = { 0 };
	timer_t *timer = (timer_t *)result, made;
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	CLOSED(clock_gettime(CLOCK_REALTIME, (struct timespec *)result), 0);
	CLOSED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, (struct timespec *)result), 0); /* which the kernel alone knows */
	CLOSED(clock_getres(CLOCK_THREAD_CPUTIME_ID, (struct timespec *)result), 0);
	CLOSED(timespec_get((struct timespec *)result, TIME_UTC), TIME_UTC);
	CLOSED(gettimeofday((struct timeval *)result, NULL), 0);
	CLOSED(setitimer(ITIMER_REAL, &often, (struct itimerval *)result), 0);
	CLOSED(getitimer(ITIMER_REAL, (struct itimerval *)result), 0);
	CHECK(((struct itimerval *)result)->it_value.tv_sec >= 990);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CLOSED(timer_create(CLOCK_MONOTONIC, &(struct sigevent){ .sigev_notify = SIGEV_NONE }, timer), 0);
	made = *timer;
	CLOSED(timer_settime(made, 0, &later, (struct itimerspec *)result), 0);
	CLOSED(timer_gettime(made, (struct itimerspec *)result), 0);
	CHECK(((struct itimerspec *)result)->it_value.tv_sec >= 990 && timer_delete(made) == 0);
	CLOSED(timerfd_settime(fd, 0, &later, (struct itimerspec *)result), 0);
	CLOSED(timerfd_gettime(fd, (struct itimerspec *)result), 0);
	close(fd);
	CLOSED_WITH(as_it_is, adjtimex((struct timex *)result) >= 0, true);
	CLOSED_WITH(as_it_is, ntp_adjtime((struct timex *)result) >= 0, true);
	CLOSED_WITH(as_it_is, clock_adjtime(CLOCK_REALTIME, (struct timex *)result) >= 0, true);
}

static void on_alarm(int number)
{
	(void)number;
}

static void on_alarm_write(int number)
{
	(void)number;
	result[0]++;
}

/* As a program that waits for one signal does: its handler may write. */
static void waits_with_all_blocked_but_one(void)
{
	struct sigaction action = { .sa_handler = on_alarm_write };
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	sigset_t but_alarm, alarm, before;
	struct epoll_event event;
	int fd = epoll_create1(0);

	sigfillset(&but_alarm);
	sigdelset(&but_alarm, SIGALRM);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(fd >= 0 && sigaction(SIGALRM, &action, NULL) == 0 && sigprocmask(SIG_BLOCK, &alarm, &before) == 0);
	for (int i = 0; i < 4; i++) {
		int r = 0;

		closed();
		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		switch (i) {
		case 0: r = sigsuspend(&but_alarm); break;
		case 1: r = ppoll(NULL, 0, NULL, &but_alarm); break;
		case 2: r = pselect(0, NULL, NULL, NULL, NULL, &but_alarm); break;
		case 3: r = epoll_pwait(fd, &event, 1, -1, &but_alarm); break;
		}
		CHECK(r == -1 && errno == EINTR && result[0] == FILLED + 1);
	}
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && close(fd) == 0);
}

/* However late it was woken. */
static bool is_rest_of(const struct timespec *all, const struct timespec *rest)
{
	return rest->tv_sec > 0 && rest->tv_sec < all->tv_sec;
}

static void of_signals(void)
{
	struct sigaction action = { .sa_handler = on_alarm }, *old = (struct sigaction *)result;
	struct itimerval often = { .it_value = { .tv_usec = 10000 }, .it_interval = { .tv_usec = 10000 } }, never = { 0 };
	struct timespec long_time = { .tv_sec = 100 };
	/* this program has one of its own */
	int (*masks)(int, const sigset_t *, sigset_t *) = dlsym(RTLD_NEXT, "pthread_sigmask");
	sigset_t usr1, before;
	stack_t stack = { .ss_sp = p + 10 * PAGE, .ss_size = 10 * PAGE };

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CLOSED(sigprocmask(SIG_BLOCK, &usr1, (sigset_t *)result), 0);
	CLOSED(masks(SIG_BLOCK, &usr1, (sigset_t *)result), 0);
	CHECK(sigismember((sigset_t *)result, SIGUSR1));
	CLOSED(sigpending((sigset_t *)result), 0);
	raise(SIGUSR1);
	CLOSED(sigtimedwait(&usr1, (siginfo_t *)result, NULL), SIGUSR1);
	CHECK(((siginfo_t *)result)->si_signo == SIGUSR1);
	raise(SIGUSR1);
	CLOSED(sigwaitinfo(&usr1, (siginfo_t *)result), SIGUSR1);
	raise(SIGUSR1);
	CLOSED(sigwait(&usr1, (int *)result), 0);
	CHECK(sigprocmask(SIG_UNBLOCK, &usr1, NULL) == 0);
	CLOSED(sigaction(SIGALRM, &action, old), 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	closed();
	CHECK(nanosleep(&long_time, (struct timespec *)result) == -1 && errno == EINTR &&
	      is_rest_of(&long_time, (struct timespec *)result));
	closed();
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, (struct timespec *)result) == EINTR &&
	      is_rest_of(&long_time, (struct timespec *)result));
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CLOSED(sigaltstack(NULL, (stack_t *)result), 0);
	/* The kernel could not run a handler on a closed stack. */
	if (api_status().tracking == CKPTFS_TRACKING_MPROTECT) {
		CHECK(sigaltstack(&stack, NULL) == -1 && errno == EINVAL);
		stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(sigaltstack(&stack, NULL) == 0 && ckptfs_protect("stack", stack.ss_sp, stack.ss_size) == -EINVAL);
		stack.ss_flags = SS_DISABLE;
		CHECK(sigaltstack(&stack, NULL) == 0 && munmap(stack.ss_sp, 10 * PAGE) == 0);
	}
	/* A program that blocks all signals may still write. */
	sigfillset(&usr1);
	CHECK(sigprocmask(SIG_SETMASK, &usr1, &before) == 0);
	closed();
	result[0] = 1;
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
	waits_with_all_blocked_but_one();
}

static void calls_write_results_to_closed_pages(void)
{
	api_begin(NULL);
	p = ckptfs_malloc("p", LEN);
	result = p + PAGE - 8;
	of_files();
	of_offsets();
	of_streams();
	of_descriptors();
	of_messages();
	of_processes();
	of_clocks();
	of_signals();
	errno = 0;
	CHECK(stat("/", (struct stat *)16) == -1 && errno == EFAULT); /* a mistake of the program's stays one */
	api_end();
}

/* --- while checkpoints are taken --- */

#define NR_MESSAGES 3000

static int storm_ends[2];

static void *send_messages(void *arg)
{
	char message[3000];

	(void)arg;
	for (int i = 0; i < NR_MESSAGES; i++) {
		memset(message, i, sizeof(message));
		memcpy(message, &i, sizeof(i));
		CHECK(send(storm_ends[0], message, sizeof(message), 0) == (ssize_t)sizeof(message));
	}
	return NULL;
}

static void *receive_messages(void *arg)
{
	bool *done = arg;

	for (int i = 0; i < NR_MESSAGES; i++) {
		struct stat *st = (struct stat *)(p + 60 * PAGE - 8);
		uint8_t *to = p + (size_t)(i % 50) * PAGE + 2000;
		int number;

		CHECK(recv(storm_ends[1], to, 2 * PAGE, 0) == 3000);
		memcpy(&number, to, sizeof(number));
		CHECK(number == i && api_all_are(to + sizeof(i), 3000 - sizeof(i), i & 0xff)); /* none was lost */
		CHECK(fstat(storm_ends[1], st) == 0 && S_ISSOCK(st->st_mode));
	}
	__atomic_store_n(done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void messages_arrive_while_checkpoints_are_taken(void)
{
	pthread_t sender, receiver;
	bool done = false;

	api_begin(NULL);
	p = ckptfs_malloc("p", LEN);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, storm_ends) == 0);
	CHECK(pthread_create(&receiver, NULL, receive_messages, &done) == 0);
	CHECK(pthread_create(&sender, NULL, send_messages, NULL) == 0);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		CHECK(ckptfs_checkpoint() == 0);
	CHECK(pthread_join(sender, NULL) == 0 && pthread_join(receiver, NULL) == 0);
	close(storm_ends[0]);
	close(storm_ends[1]);
	api_end();
}

const struct api_test api_calls_tests[] = {
	{ "calls write results to closed pages", calls_write_results_to_closed_pages },
	{ "messages arrive while checkpoints are taken", messages_arrive_while_checkpoints_are_taken },
	{ NULL, NULL },
};
