/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/track_uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/own_fd.h"
#include "client/lib/track.h"

/* Bypasses the ioctl() of interpose_descriptors.c, which takes client.lock. */
static int bare_ioctl(int fd, unsigned long request, void *p)
{
	return (int)syscall(SYS_ioctl, fd, request, p);
}

/* Defined here because the headers of some distributions are older than their kernels. */
#define FEATURE_WP UINT64_C(1) /* UFFD_FEATURE_PAGEFAULT_FLAG_WP */
#define FEATURE_WP_SHARED (UINT64_C(1) << 12) /* UFFD_FEATURE_WP_HUGETLBFS_SHMEM */
#define FEATURE_WP_UNPOPULATED (UINT64_C(1) << 13)
#define FEATURE_WP_ASYNC (UINT64_C(1) << 15)
#define IOC_NEW _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW, on /dev/userfaultfd */

struct scan_range { /* struct page_region */
	uint64_t start, end, categories;
};
struct scan { /* struct pm_scan_arg */
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN _IOWR('f', 16, struct scan) /* PAGEMAP_SCAN */
#define SCAN_WRITTEN (UINT64_C(1) << 1) /* PAGE_IS_WRITTEN */
#define SCAN_RANGES 64 /* on the stack of the thread that requests a checkpoint */

static int uffd = -1, stop_fd = -1, pagemap = -1;
static pthread_t thread;
static bool has_thread;

/* --- ranges --- */

static int write_protect(void *p, size_t len, bool closed)
{
	struct uffdio_writeprotect w = {
		.range = { .start = (uintptr_t)p, .len = len },
		.mode = closed ? UFFDIO_WRITEPROTECT_MODE_WP : 0, /* 0 also wakes waiting threads */
	};
	int r;

	do
		r = bare_ioctl(uffd, UFFDIO_WRITEPROTECT, &w);
	while (r < 0 && errno == EAGAIN); /* mappings are being changed concurrently */
	return r < 0 ? -errno : 0;
}

static int uffd_open(void *p, size_t len)
{
	return write_protect(p, len, false);
}

static int uffd_close(void *p, size_t len)
{
	return write_protect(p, len, true);
}

static int uffd_attach(struct region *r)
{
	struct uffdio_register reg = {
		.range = { .start = (uintptr_t)r->start, .len = (size_t)r->nr_pages * client.page_size },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (r->nr_pages == 0)
		return 0;
	if (bare_ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
		return -errno;
	if (reg.ioctls & UINT64_C(1) << _UFFDIO_WRITEPROTECT)
		return 0;
	bare_ioctl(uffd, UFFDIO_UNREGISTER, &reg.range);
	return -EOPNOTSUPP;
}

static void uffd_detach(struct region *r)
{
	struct uffdio_range range = { .start = (uintptr_t)r->start, .len = (size_t)r->nr_pages * client.page_size };

	/* This removes the write protection, too. */
	if (r->nr_pages > 0 && bare_ioctl(uffd, UFFDIO_UNREGISTER, &range) < 0)
		log_warning("region %s: cannot unregister from userfaultfd: %s", r->name, strerror(errno));
}

const struct track track_uffd = {
	.name = "userfaultfd",
	.attach = uffd_attach,
	.detach = uffd_detach,
	.close = uffd_close,
	.open = uffd_open,
};

const struct track track_uffd_async = {
	.name = "userfaultfd, asynchronous",
	.attach = uffd_attach,
	.detach = uffd_detach,
	.close = uffd_close,
	.open = uffd_open,
};

/* --- faults handled one by one --- */

/* A page outside all regions is not protected any more: the faulting thread only has to be woken. */
static void handle_fault(const struct uffd_msg *m)
{
	uintptr_t address = (uintptr_t)m->arg.pagefault.address;

	if (m->event == UFFD_EVENT_PAGEFAULT && !fault_touch(address, false)) {
		struct uffdio_range range = { .start = round_down(address, client.page_size), .len = client.page_size };

		bare_ioctl(uffd, UFFDIO_WAKE, &range);
	}
}

static void *fault_thread(void *arg _unused_)
{
	struct pollfd fds[] = { { .fd = uffd, .events = POLLIN }, { .fd = stop_fd, .events = POLLIN } };
	struct uffd_msg m[16];

	while (fds[1].revents == 0) {
		ssize_t n;

		if (poll(fds, 2, -1) < 0)
			continue;
		n = read(uffd, m, sizeof(m));
		for (ssize_t i = 0; i < n / (ssize_t)sizeof(m[0]); i++)
			handle_fault(&m[i]);
	}
	return NULL;
}

/* --- writes recorded by the kernel --- */

static int collect_region(const struct region *r)
{
	struct scan_range ranges[SCAN_RANGES];
	struct scan scan = {
		.size = sizeof(scan),
		.start = (uintptr_t)r->start,
		.end = (uintptr_t)r->start + (size_t)r->nr_pages * client.page_size,
		.vec = (uintptr_t)ranges,
		.vec_len = SCAN_RANGES,
		.category_mask = SCAN_WRITTEN,
		.return_mask = SCAN_WRITTEN,
	};

	while (scan.start < scan.end) {
		int nr = bare_ioctl(pagemap, SCAN, &scan);

		if (nr < 0)
			return -errno;
		for (int i = 0; i < nr; i++)
			for (uint64_t a = ranges[i].start; a < ranges[i].end; a += client.page_size)
				pages_add_dirty(&client.pages,
						r->first + (uint32_t)((a - (uintptr_t)r->start) / client.page_size),
						true);
		scan.start = scan.walk_end;
	}
	return 0;
}

int track_uffd_collect(void)
{
	for (uint32_t i = 0; i < client.nr_regions; i++) {
		int r = client.by_slot[i]->track == &track_uffd_async ? collect_region(client.by_slot[i]) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* --- start and stop --- */

/* Faults of system calls must be reported, too, which UFFD_USER_MODE_ONLY, available to every user, does not do. */
static int open_uffd(const char **why)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), device;

	if (fd >= 0)
		return fd;
	*why = "the kernel has no userfaultfd(2)";
	if (errno != EPERM)
		return -errno;
	*why = "userfaultfd(2) needs root: set vm.unprivileged_userfaultfd to 1 or grant access to /dev/userfaultfd";
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -EPERM;
	fd = ioctl(device, IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	closep(&device);
	return fd < 0 ? -EPERM : fd;
}

static int enable_features(bool async, const char **why)
{
	uint64_t wanted = FEATURE_WP | FEATURE_WP_UNPOPULATED | (async ? FEATURE_WP_ASYNC : 0);
	struct uffdio_api api = { .api = UFFD_API };
	int probe = open_uffd(why), r;

	if (probe < 0)
		return probe;
	*why = "the kernel's userfaultfd does not support the write protection needed";
	r = bare_ioctl(probe, UFFDIO_API, &api) < 0 ? -errno : (api.features & wanted) != wanted ? -EOPNOTSUPP : 0;
	closep(&probe);
	if (r < 0)
		return r;
	uffd = own_fd(open_uffd(why)); /* UFFDIO_API works once per descriptor */
	if (uffd < 0)
		return uffd;
	api = (struct uffdio_api){ .api = UFFD_API, .features = wanted | (api.features & FEATURE_WP_SHARED) };
	return bare_ioctl(uffd, UFFDIO_API, &api) < 0 ? -errno : 0;
}

static int open_pagemap(const char **why)
{
	struct scan scan = { .size = sizeof(scan) };

	*why = "the kernel has no PAGEMAP_SCAN";
	pagemap = own_fd(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	if (pagemap < 0)
		return -errno;
	return bare_ioctl(pagemap, SCAN, &scan) < 0 && errno == ENOTTY ? -EOPNOTSUPP : 0;
}

static int start_thread(const char **why)
{
	sigset_t before;
	int r;

	*why = "cannot create a thread";
	stop_fd = own_fd(eventfd(0, EFD_CLOEXEC));
	if (stop_fd < 0)
		return -errno;
	signals_block(&before);
	r = -pthread_create(&thread, NULL, fault_thread, NULL);
	signals_restore(&before);
	has_thread = r == 0;
	return r;
}

int track_uffd_start(bool async, const char **why)
{
	int r = enable_features(async, why);

	if (r == 0)
		r = async ? open_pagemap(why) : start_thread(why);
	if (r < 0)
		track_uffd_stop();
	return r;
}

void track_uffd_stop(void)
{
	if (has_thread) {
		if (eventfd_write(stop_fd, 1) < 0)
			log_warning("userfaultfd: cannot stop the thread: %s", strerror(errno));
		else
			pthread_join(thread, NULL);
		has_thread = false;
	}
	track_uffd_forget();
}

void track_uffd_forget(void)
{
	own_fd_closep(&uffd);
	own_fd_closep(&stop_fd);
	own_fd_closep(&pagemap);
	uffd = stop_fd = pagemap = -1;
	has_thread = false;
}
