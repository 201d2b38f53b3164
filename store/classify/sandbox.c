/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/util.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "say which architecture system calls are numbered for"
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
/* If the number matches, return ALLOW; else skip that line. */
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), RETURN(SECCOMP_RET_ALLOW)

/*
 * The system calls that libc and libhdf5 need for computing. Open files can be used: the user's file, read-only, and
 * the pipe. Memory can be mapped, but not from a new file, since none can be opened. Everything else fails with EPERM.
 * abort() does not need to send a signal, as it falls back to an illegal instruction; permission to send signals would
 * include sending them to other processes.
 */
static struct sock_filter filter[] = {
	LOAD(arch),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
	RETURN(SECCOMP_RET_KILL_PROCESS),
	LOAD(nr),
#ifdef __x86_64__ /* the same numbers with this bit set are those of x32 */
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
	RETURN(SECCOMP_RET_KILL_PROCESS),
#endif
	ALLOW(__NR_read),
	ALLOW(__NR_write),
	ALLOW(__NR_close),
	ALLOW(__NR_lseek),
	ALLOW(__NR_fstat),
	ALLOW(__NR_mmap),
	ALLOW(__NR_munmap),
	ALLOW(__NR_mremap),
	ALLOW(__NR_madvise),
	ALLOW(__NR_brk),
	ALLOW(__NR_futex),
	ALLOW(__NR_getpid),
	ALLOW(__NR_gettid),
	ALLOW(__NR_rt_sigprocmask),
	ALLOW(__NR_rt_sigreturn),
	ALLOW(__NR_sigaltstack), /* for AddressSanitizer at exit */
	ALLOW(__NR_getcwd), /* libhdf5 asks for the working directory, but opens nothing there */
	ALLOW(__NR_clock_gettime),
	ALLOW(__NR_getrandom),
	ALLOW(__NR_exit),
	ALLOW(__NR_exit_group),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
};

static int limit(int what, uint64_t most)
{
	struct rlimit l = { .rlim_cur = most, .rlim_max = most };

	return setrlimit((__rlimit_resource_t)what, &l) < 0 ? -errno : 0;
}

/* AddressSanitizer maps terabytes of memory without using them. */
#if defined(__SANITIZE_ADDRESS__)
#define MEMORY_LIMITED 0
#elif defined(__has_feature)
#define MEMORY_LIMITED (!__has_feature(address_sanitizer))
#else
#define MEMORY_LIMITED 1
#endif

int sandbox_enter(uint64_t memory_bytes, unsigned cpu_seconds)
{
	struct sock_fprog program = { .len = (unsigned short)ARRAY_SIZE(filter), .filter = filter };
	int r;

	r = MEMORY_LIMITED ? limit(RLIMIT_AS, memory_bytes) : 0;
	if (r == 0)
		r = limit(RLIMIT_CPU, cpu_seconds);
	if (r == 0)
		r = limit(RLIMIT_FSIZE, 0);
	if (r == 0)
		r = limit(RLIMIT_CORE, 0);
	if (r == 0)
		r = limit(RLIMIT_NOFILE, 0);
	if (r < 0)
		return r;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		return -errno;
	return 0;
}
