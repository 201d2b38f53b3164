/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What ckptfs needs of a machine, before anything is mounted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/fp.h"
#include "base/kernel.h"
#include "base/util.h"
#include "tools/doctor/checkup.h"

#define MEMORY_LEAST GiB(1) /* cache= and dirty= of 256 MiB each, what carries requests, and tools */
#define FILES_LEAST 1024

static void check_kernel(struct checkup *c)
{
	struct utsname u;

	if (uname(&u) < 0)
		checkup_found(c, HEALTH_WARNING, "kernel", NULL, "version unknown");
	else if (!kernel_suffices(u.release, KERNEL_MAJOR, KERNEL_MINOR))
		checkup_found(c, HEALTH_CRITICAL, "kernel", "update the kernel",
			      "Linux %s: mounting needs %d.%d or newer", u.release, KERNEL_MAJOR, KERNEL_MINOR);
	else
		checkup_found(c, HEALTHY, "kernel", NULL, "Linux %s", u.release);
}

static void check_processor(struct checkup *c)
{
	static const uint8_t secret[FP_KEY_LEN];
	struct fp_key key;

	fp_key_init(&key, FP_CLMUL, secret);
	if (fp_key_is_slow(&key))
		checkup_found(
			c, HEALTH_WARNING, "processor",
			"create stores with ckptfs init --hash xxh3, or give the virtual machine the host's processor",
			"no carry-less multiplication: fingerprints of hash=clmul are about 20 x slower");
	else
		checkup_found(c, HEALTHY, "processor", NULL, "has carry-less multiplication for fingerprints");
}

static void check_device(struct checkup *c)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		checkup_found(c, HEALTHY, "fuse", NULL, "/dev/fuse can be opened");
	else if (errno == EACCES)
		checkup_found(c, HEALTH_CRITICAL, "fuse", "chmod 666 /dev/fuse, or mount as root",
			      "/dev/fuse is not accessible for this user");
	else if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		checkup_found(c, HEALTH_CRITICAL, "fuse",
			      "modprobe fuse; in a container pass the device, as with --device /dev/fuse",
			      "/dev/fuse is not there");
	else
		checkup_found(c, HEALTH_CRITICAL, "fuse",
			      "in a container allow the device and mounts, as with --device /dev/fuse --cap-add SYS_ADMIN",
			      "/dev/fuse cannot be opened: %s", strerror(errno));
}

/* The first match in PATH. */
static bool find_in_path(const char *name, char ret[PATH_MAX])
{
	const char *path = getenv("PATH");

	while (path && *path) {
		size_t n = strcspn(path, ":");

		if (n > 0 && snprintf(ret, PATH_MAX, "%.*s/%s", (int)n, path, name) < PATH_MAX && access(ret, X_OK) == 0)
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

/* Mounts for users; root needs no helper. */
static void check_fusermount(struct checkup *c)
{
	char path[PATH_MAX];
	struct stat st;

	if (geteuid() == 0)
		return;
	if (!find_in_path("fusermount3", path) || stat(path, &st) < 0)
		checkup_found(c, HEALTH_CRITICAL, "fusermount3", "install the package fuse3",
			      "is not in PATH; users cannot mount without it");
	else if (st.st_uid != 0 || !(st.st_mode & S_ISUID))
		checkup_found(c, HEALTH_CRITICAL, "fusermount3",
			      "ask an administrator to install the package fuse3 again",
			      "%s is not set-user-ID root, so users cannot mount", path);
	else
		checkup_found(c, HEALTHY, "fusermount3", NULL, "%s", path);
}

/* mount(8) looks nowhere else. */
static void check_helper(struct checkup *c)
{
	if (access("/sbin/mount.ckptfs", X_OK) == 0 || access("/usr/sbin/mount.ckptfs", X_OK) == 0)
		checkup_found(c, HEALTHY, "mount(8)", NULL, "finds /sbin/mount.ckptfs");
	else
		checkup_found(c, HEALTHY, "mount(8)", NULL,
			      "does not find mount.ckptfs in /sbin; ckptfs mount works, /etc/fstab does not");
}

static uint64_t read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	uint64_t n = UINT64_MAX;

	if (f && fscanf(f, "%" SCNu64, &n) != 1)
		n = UINT64_MAX; /* "max" */
	if (f)
		fclose(f);
	return n;
}

/* What this process and a daemon that it starts may use: the smallest limit of its control groups (version 2). */
static uint64_t group_limit(void)
{
	char line[PATH_MAX] = "", path[PATH_MAX + 64];
	uint64_t least = UINT64_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");
	char *slash;

	while (f && fgets(line, sizeof(line), f) && strncmp(line, "0::", 3) != 0)
		line[0] = '\0';
	if (f)
		fclose(f);
	line[strcspn(line, "\n")] = '\0';
	for (char *group = line[0] ? line + 3 : NULL; group && *group; *slash = '\0') {
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
		least = MIN(least, read_number(path));
		slash = strrchr(group, '/');
		if (!slash)
			break;
	}
	return MIN(least, read_number("/sys/fs/cgroup/memory.max"));
}

static uint64_t available_memory(void)
{
	char line[256];
	uint64_t kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %" SCNu64, &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib << 10;
}

static void check_memory(struct checkup *c)
{
	static const char action[] = "mount with less, such as -o cache=64M,dirty=64M";
	uint64_t available = available_memory(), limit = group_limit();

	if (limit < MEMORY_LEAST)
		checkup_found(c, HEALTH_WARNING, "memory", action,
			      "this process is limited to %s by its control group; a mount takes up to %s",
			      human_size(limit).s, human_size(MEMORY_LEAST).s);
	else if (available > 0 && available < MEMORY_LEAST)
		checkup_found(c, HEALTH_WARNING, "memory", action, "%s available; a mount takes up to %s",
			      human_size(available).s, human_size(MEMORY_LEAST).s);
	else
		checkup_found(c, HEALTHY, "memory", NULL, "%s available", human_size(available).s);
}

static void check_limits(struct checkup *c)
{
	static const struct {
		int resource;
		const char *name, *option;
		uint64_t least;
	} limits[] = {
		{ RLIMIT_NOFILE, "open files", "-n 1024", FILES_LEAST },
		{ RLIMIT_FSIZE, "size of a file", "-f unlimited", RLIM_INFINITY },
		{ RLIMIT_AS, "address space", "-v unlimited", RLIM_INFINITY },
	};
	struct rlimit l;
	bool all_well = true;
	char action[64];

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (getrlimit(limits[i].resource, &l) < 0 || l.rlim_cur >= limits[i].least)
			continue;
		all_well = false;
		snprintf(action, sizeof(action), "ulimit %s before mounting", limits[i].option);
		checkup_found(c, HEALTH_WARNING, "limits", action, "%s: %" PRIu64, limits[i].name, (uint64_t)l.rlim_cur);
	}
	if (all_well)
		checkup_found(c, HEALTHY, "limits", NULL, "open files, file size and address space suffice");
}

/* Retention by age, and the order of checkpoints of several nodes, depend on it. */
static void check_clock(struct checkup *c)
{
	struct timex t = { .modes = 0 };
	int state = adjtimex(&t);

	if (state < 0)
		checkup_found(c, HEALTHY, "clock", NULL, "whether it is synchronised cannot be read here");
	else if (state == TIME_ERROR || t.status & STA_UNSYNC)
		checkup_found(c, HEALTH_WARNING, "clock",
			      "run chronyd or systemd-timesyncd, on the host of a container or virtual machine",
			      "not synchronised: ages of sealed checkpoints may be wrong");
	else
		checkup_found(c, HEALTHY, "clock", NULL, "synchronised");
}

/* Does `command` end with 0? Its output is dropped. */
static bool succeeds(const char *path, const char *argument)
{
	pid_t child = fork();
	int status, null;

	if (child == 0) {
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++)
			dup2(null, fd);
		execl(path, path, argument, (char *)NULL);
		_exit(127);
	}
	return child > 0 && TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static bool find_agent(char ret[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - sizeof("ckptfs-agent"));

	if (n > 0) {
		ret[n] = '\0';
		strcpy(strrchr(ret, '/') + 1, "ckptfs-agent");
		if (access(ret, X_OK) == 0)
			return true;
	}
	return find_in_path("ckptfs-agent", ret);
}

static void check_cluster(struct checkup *c)
{
	static const char *const launchers[] = { "mpirun", "srun", "flux" };
	char agent[PATH_MAX], launcher[PATH_MAX];
	bool has_launcher = false;

	for (size_t i = 0; i < ARRAY_SIZE(launchers) && !has_launcher; i++)
		has_launcher = find_in_path(launchers[i], launcher);
	if (!CKPTFS_HAVE_CLUSTER)
		checkup_found(c, HEALTHY, "cluster", NULL, "not built in (meson -Dmpi=disabled)");
	else if (!find_agent(agent))
		checkup_found(c, HEALTHY, "cluster", NULL,
			      "ckptfs-agent is not installed; only stores of a cluster need it");
	else if (!succeeds(agent, "--version"))
		checkup_found(c, HEALTH_WARNING, "cluster",
			      "install Open MPI, or put its libraries into LD_LIBRARY_PATH", "%s does not run", agent);
	else if (!has_launcher)
		checkup_found(
			c, HEALTHY, "cluster", NULL,
			"none of mpirun, srun and flux is in PATH to start ckptfs-agent; only stores of a cluster need it");
	else
		checkup_found(c, HEALTHY, "cluster", NULL, "ckptfs-agent is installed, and %s can start it", launcher);
}

void checkup_machine(struct checkup *c)
{
	checkup_about(c, "This machine");
	check_kernel(c);
	check_processor(c);
	check_device(c);
	check_fusermount(c);
	check_helper(c);
	check_memory(c);
	check_limits(c);
	check_clock(c);
	check_cluster(c);
}
