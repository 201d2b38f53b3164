/* SPDX-License-Identifier: BSD-3-Clause */
/* Interposed functions (interpose.h): processes, the machine, time, and System V IPC. */
#include "client/interpose/interpose.h"

#include <grp.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/client.h"

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
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
{
	return RESULT(pid, at, NEXT(posix_spawn)(at, path, actions, attributes, argv, envp));
}

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
		 const posix_spawnattr_t *attributes, char *const argv[], char *const envp[])
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

int capget(cap_user_header_t header, cap_user_data_t data);
int capget(cap_user_header_t header, cap_user_data_t data)
{
	size_t nr = header->version == _LINUX_CAPABILITY_VERSION_1 ? _LINUX_CAPABILITY_U32S_1 : _LINUX_CAPABILITY_U32S_3;

	return RESULT(header, at, RESULTS(data, nr * sizeof(*data), data_at, NEXT(capget)(at, data_at)));
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

/* --- the type and length of `p` vary: the longest possible range is opened --- */

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

	/* for the largest set of semaphores */
	return OPENED(ckptfs_touch(p, UINT16_MAX * sizeof(short)), NEXT(semctl)(id, number, command, p));
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

/* --- time: usually without a system call, but not on every machine and for every clock --- */

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

/* --- variants for programs compiled with -D_FORTIFY_SOURCE --- */

int __getgroups_chk(int nr, gid_t *groups, size_t room);

int __getgroups_chk(int nr, gid_t *groups, size_t room)
{
	return nr > 0 && (size_t)nr * sizeof(*groups) > room ? NEXT(__getgroups_chk)(nr, groups, room) :
							       getgroups(nr, groups);
}
