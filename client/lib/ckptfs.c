/* SPDX-License-Identifier: BSD-3-Clause */
/* Public functions: initialisation, regions and the end. The others are in checkpoint.c and restart.c. */
#include "client/lib/ckptfs.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/image.h"
#include "client/lib/mapping.h"
#include "client/lib/client_options.h"
#include "client/lib/track.h"

#define COW_PERCENT 5u /* of the protected memory: what the paper found to be enough */

struct client client = { .call = MUTEX_INIT, .job_lock = MUTEX_INIT };
const struct capture_hooks *client_capture;

uint32_t client_epoch_us(uint64_t now_ns)
{
	uint64_t us = (now_ns - atomic_load(&client.epoch_ns)) / 1000;

	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX - 1;
}

void client_job_clear(struct job *job)
{
	buf_release(&job->table);
	buf_release(&job->extras);
	buf_release(&job->extra_bytes);
	buf_release(&job->holes);
	*job = (struct job){ 0 };
}

/* Clears everything but `call`, and wakes the threads that wait for jobs. */
static void client_reset(void)
{
	uint32_t nr_ended = atomic_load(&client.nr_ended);

	memset((char *)&client + offsetof(struct client, alive), 0, sizeof(client) - offsetof(struct client, alive));
	mutex_init(&client.job_lock);
	atomic_store(&client.nr_ended, nr_ended + 1);
	futex_wake_all(&client.nr_ended);
}

/* In a child of fork(2) all state belongs to the parent, which continues to use it: forget it without releasing it. */
static void forget_parent(void)
{
	if (!client_is_child())
		return;
	for (uint32_t i = 0; i < client.nr_regions; i++)
		if (client.by_address[i]->track == &track_mprotect) /* a userfaultfd is not inherited */
			client_open_region(client.by_address[i]);
	track_forget_parent();
	mutex_init(&client.call); /* a thread of the parent may hold it */
	client_reset();
}

static void call_lock(void) ACQUIRE(client.call) NO_THREAD_SAFETY_ANALYSIS
{
	sigset_t before;

	if (client_capture)
		signals_block(&before);
	mutex_lock(&client.call);
	if (client_capture)
		client.call_signals = before;
}

void client_leave(void) NO_THREAD_SAFETY_ANALYSIS
{
	sigset_t before = client.call_signals;

	mutex_unlock(&client.call);
	if (client_capture)
		signals_restore(&before);
}

bool client_enter(int *ret)
{
	forget_parent();
	if (mutex_held(&client.call)) { /* in a signal handler that has interrupted its holder */
		*ret = -EDEADLK;
		return false;
	}
	call_lock();
	if (client_alive())
		return true;
	client_leave();
	*ret = -ENODEV;
	return false;
}

/* --- beginning and end --- */

/* Maps client.alive, which the kernel zeroes in children. */
static int map_alive_page(void)
{
	void *p = mmap(NULL, client.page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	if (madvise(p, client.page_size, MADV_WIPEONFORK) < 0) {
		int r = log_errno(-errno, "checkpoints: cannot detect fork(2): madvise(MADV_WIPEONFORK)");

		munmap(p, client.page_size);
		return r;
	}
	client.alive = p;
	*client.alive = 1;
	return 0;
}

static void client_release(void) REQUIRES(client.call)
{
	_Atomic(uint32_t) *alive;

	writer_stop();
	while (client.nr_regions > 0) {
		struct region *r = client.by_address[client.nr_regions - 1];

		if (!r->gone)
			client_drop_region(r);
		else
			client_free_gone_regions();
	}
	track_stop();
	image_dir_close(client.dir);
	if (client.pages.page)
		munmap(client.pages.page, client.pages_len);
	if (client.copies)
		munmap(client.copies, client.copies_len);
	free(client.by_address);
	free(client.by_slot);
	alive = TAKE(client.alive);
	if (alive)
		munmap((void *)alive, client.page_size);
}

static int client_start(const char *dir, const struct ckptfs_options *options)
{
	int r;

	client.page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	cond_init(&client.job_changed);
	client.error_reported = true;
	r = options_fill(options, &client.options, &client.cow_percent);
	if (r == 0 && client.options.cow_bytes == 0)
		client.cow_percent = client.cow_percent > 0 ? client.cow_percent : COW_PERCENT;
	if (r == 0)
		r = image_dir_open(dir, client.options.member, client.options.flags & CKPTFS_REQUIRE_MOUNT, &client.dir);
	if (r == 0)
		r = image_dir_highest(client.dir, &client.number);
	if (r == 0)
		r = map_alive_page();
	if (r == 0)
		r = track_start(); /* its thread reads client.alive */
	return r < 0 ? r : writer_start();
}

int ckptfs_init(const char *dir, const struct ckptfs_options *options)
{
	int r;

	if (!dir)
		return log_errno(-EINVAL, "checkpoints: no directory given");
	forget_parent();
	call_lock();
	if (client.alive) {
		r = log_errno(-EBUSY, "checkpoints %s: already initialised for %s", dir, image_dir_path(client.dir));
	} else {
		r = client_start(dir, options);
		if (r < 0) {
			client_release();
			client_reset();
		}
	}
	client_leave();
	return r;
}

int ckptfs_finish(void)
{
	int r;

	if (!client_enter(&r))
		return r;
	atomic_store(&client.hurry, true);
	writer_wait();
	r = client.error_reported ? 0 : client.error;
	client_release();
	client_reset();
	client_leave();
	return r;
}

/* --- regions --- */

static int check_name(const char *name)
{
	size_t len = name ? strnlen(name, IMAGE_NAME_MAX + 1) : 0;

	if (len == 0 || len > IMAGE_NAME_MAX)
		return log_errno(-EINVAL, "region: the name must have 1 to %u bytes", IMAGE_NAME_MAX);
	return 0;
}

/* Makes all its pages closed and clean, or open and dirty. */
static void region_init_pages(struct region *r, bool clean) REQUIRES(client.call)
{
	sigset_t before;

	siglock_enter(&client.lock, &before);
	if (clean && r->nr_pages > 0 && r->track->close(r->start, (size_t)r->nr_pages * client.page_size) < 0)
		clean = false;
	for (uint32_t i = 0; !clean && i < r->nr_pages; i++)
		pages_add_dirty(&client.pages, r->first + i, true);
	siglock_leave(&client.lock, &before);
}

static bool any_region_gone(void) REQUIRES(client.call)
{
	for (uint32_t i = 0; i < client.nr_regions; i++)
		if (client.by_slot[i]->gone)
			return true;
	return false;
}

int client_add_region(const char *name, void *p, size_t len, enum client_region_kind kind, uint32_t slot,
		      struct region **ret)
{
	struct region *r = calloc(1, sizeof(*r));
	int error;

	if (!r)
		return -ENOMEM;
	if (any_region_gone()) { /* it may have had the same addresses */
		writer_wait();
		client_free_gone_regions();
	}
	strcpy(r->name, name); /* check_name() and image_format.c limit its length */
	r->p = p;
	r->len = len;
	r->ours = kind != REGION_PROGRAMS && kind != REGION_CAPTURED;
	r->captured = kind == REGION_CAPTURED;
	r->claimed = kind != REGION_RESTORED;
	error = region_add(r, slot);
	if (error < 0) {
		free(r);
		return error;
	}
	r->since = slot != 0 && r->slot == slot ? 0 : client.number + 1;
	error = track_attach(r);
	if (error < 0) {
		writer_wait(); /* page numbers must not change before */
		region_remove(r);
		free(r);
		return error;
	}
	if (kind != REGION_RESTORED)
		region_init_pages(r, kind == REGION_ZEROED);
	*ret = r;
	return 0;
}

void client_open_region(struct region *r)
{
	if (r->nr_pages > 0)
		r->track->open(r->start, (size_t)r->nr_pages * client.page_size);
}

void client_pages_restored(struct region *r, bool clean)
{
	sigset_t before;

	siglock_enter(&client.lock, &before);
	pages_forget(&client.pages, r->first, r->nr_pages);
	siglock_leave(&client.lock, &before);
	region_init_pages(r, clean);
}

/* Acts as if the program wrote to all of it: pages that are still to be written are copied, or written first. */
static void region_touch_all(const struct region *r)
{
	uintptr_t start = (uintptr_t)r->start;
	sigset_t before;

	signals_block(&before);
	for (int wait = 0; wait < 2; wait++)
		for (uint32_t i = 0; i < r->nr_pages; i++)
			fault_touch(start + (size_t)i * client.page_size, wait);
	signals_restore(&before);
}

void client_drop_region(struct region *r)
{
	bool busy = client_is_writing();
	sigset_t before;

	if (busy)
		region_touch_all(r);
	r->track->detach(r);
	siglock_enter(&client.lock, &before);
	r->gone = true;
	atomic_fetch_add(&client.nr_gone, 1);
	siglock_leave(&client.lock, &before);
	if (r->ours)
		munmap(r->p, round_up(r->len, client.page_size));
	if (!busy)
		client_free_gone_regions();
}

void client_free_gone_regions(void)
{
	for (uint32_t i = client.nr_regions; i-- > 0;) {
		struct region *r = client.by_slot[i];

		if (!r->gone)
			continue;
		region_remove(r);
		free(r);
	}
}

void *client_map(void *at, size_t len)
{
	return mmap(at, round_up(len, client.page_size), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
}

static int allocate(const char *name, size_t len, void **ret) REQUIRES(client.call)
{
	struct region *r = region_by_name(name);
	void *p;
	int error;

	if (len == 0 || len > SIZE_MAX / 2)
		return log_errno(-EINVAL, "region %s: %zu bytes", name, len);
	if (r && (r->claimed || !r->ours))
		return log_errno(-EEXIST, "region %s: name in use", name);
	if (r && r->len != len)
		return log_errno(-ERANGE, "region %s: %zu bytes restored, %zu requested", name, r->len, len);
	if (r) {
		r->claimed = true;
		*ret = r->p;
		return 0;
	}
	p = client_map(NULL, len);
	if (p == MAP_FAILED)
		return log_errno(-ENOMEM, "region %s: %zu bytes", name, len);
	error = client_add_region(name, p, len, REGION_ZEROED, 0, &r);
	if (error < 0) {
		munmap(p, round_up(len, client.page_size));
		return error;
	}
	*ret = p;
	return 0;
}

void *ckptfs_malloc(const char *name, size_t len)
{
	void *p = NULL;
	int r = check_name(name);

	if (r == 0 && client_enter(&r)) {
		r = allocate(name, len, &p);
		client_leave();
	}
	errno = r < 0 ? -r : errno;
	return p;
}

static int reallocate(struct region *old, size_t len, void **ret) REQUIRES(client.call)
{
	struct region *r;
	void *p;
	int error;

	if (len == 0 || len > SIZE_MAX / 2)
		return log_errno(-EINVAL, "region %s: %zu bytes", old->name, len);
	p = client_map(NULL, len);
	if (p == MAP_FAILED)
		return log_errno(-ENOMEM, "region %s: %zu bytes", old->name, len);
	memcpy(p, old->p, MIN(len, old->len));
	writer_wait();
	/* Two regions have the name until client_drop_region(); lookups by name need `call`, which is held. */
	error = client_add_region(old->name, p, len, REGION_OURS, 0, &r);
	if (error < 0) {
		munmap(p, round_up(len, client.page_size));
		return error;
	}
	client_drop_region(old);
	*ret = p;
	return 0;
}

void *ckptfs_realloc(void *p, size_t len)
{
	struct region *old;
	void *q = NULL;
	int r;

	if (client_enter(&r)) {
		old = region_at(p);
		r = old && old->ours ? reallocate(old, len, &q) :
				       log_errno(-EINVAL, "region at %p: not from ckptfs_malloc()", p);
		client_leave();
	}
	errno = r < 0 ? -r : errno;
	return q;
}

static int drop_region_at(void *p, bool ours)
{
	struct region *region;
	int r = 0;

	if (!client_enter(&r))
		return r;
	region = region_at(p);
	if (region && region->ours == ours && !region->captured)
		client_drop_region(region);
	else
		r = log_errno(-EINVAL, "region at %p: %s", p, ours ? "not from ckptfs_malloc()" : "not protected");
	client_leave();
	return r;
}

int ckptfs_free(void *p)
{
	return p ? drop_region_at(p, true) : 0;
}

int ckptfs_unprotect(void *p)
{
	return drop_region_at(p, false);
}

/* Stacks cannot be tracked: a fault handler may run there, and their content changes with every call. */
static bool is_on_stack(const uint8_t *p, size_t len)
{
	uintptr_t page = client.page_size, start = round_up((uintptr_t)p, page),
		  end = round_down((uintptr_t)p + len, page);
	stack_t handlers = { .ss_flags = SS_DISABLE };
	pthread_attr_t attr;
	size_t stack_len = 0;
	void *stack = NULL;

	if (end <= start)
		return false;
	sigaltstack(NULL, &handlers);
	if (track_kind() == CKPTFS_TRACKING_MPROTECT && !(handlers.ss_flags & SS_DISABLE) &&
	    start < (uintptr_t)handlers.ss_sp + handlers.ss_size && end > (uintptr_t)handlers.ss_sp)
		return true;
	if (pthread_getattr_np(pthread_self(), &attr) != 0)
		return false;
	pthread_attr_getstack(&attr, &stack, &stack_len);
	pthread_attr_destroy(&attr);
	return start < (uintptr_t)stack + stack_len && end > (uintptr_t)stack;
}

/* Checks memory that the program has mapped itself. Without /proc the check is skipped. */
static int check_memory(const char *name, const uint8_t *p, size_t len)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int r;

	if (!maps)
		return 0;
	r = mapping_check(maps, (uintptr_t)p, (uintptr_t)p + len);
	fclose(maps);
	if (r == -ENOMEM)
		log_error("region %s: %zu bytes at %p: some of it is not mapped", name, len, (const void *)p);
	else if (r < 0)
		log_error("region %s: %zu bytes at %p: some of it is not readable and writable", name, len,
			  (const void *)p);
	return r;
}

static int protect(const char *name, uint8_t *p, size_t len) REQUIRES(client.call)
{
	struct region *restored = region_by_name(name), *r;
	int error;

	if (!p || len == 0 || (uintptr_t)p > UINTPTR_MAX - len)
		return log_errno(-EINVAL, "region %s: %zu bytes at %p", name, len, (void *)p);
	if (is_on_stack(p, len))
		return log_errno(-EINVAL, "region %s: contains pages of a stack", name);
	if (client_capture && client_capture->has(p, len))
		return log_errno(-EEXIST, "region %s: captured, and so in checkpoints already", name);
	if ((restored && restored->claimed) || region_overlaps(p, len))
		return log_errno(-EEXIST, "region %s: %s", name,
				 restored && restored->claimed ? "name in use" : "some of it is protected already");
	if (restored && restored->len != len)
		return log_errno(-ERANGE, "region %s: %zu bytes restored, %zu requested", name, restored->len, len);
	error = check_memory(name, p, len);
	if (error < 0)
		return error;
	if (restored) {
		memcpy(p, restored->p, len);
		client_drop_region(restored);
	}
	return client_add_region(name, p, len, REGION_PROGRAMS, 0, &r);
}

int ckptfs_protect(const char *name, void *p, size_t len)
{
	const struct capture_hooks *hooks = client_capture;
	int r = check_name(name);

	if (r < 0)
		return r;
	if (hooks)
		hooks->enter();
	if (client_enter(&r)) {
		r = protect(name, p, len);
		client_leave();
	}
	if (hooks)
		hooks->leave();
	return r;
}

int ckptfs_find(const char *name, void **ret, size_t *ret_len)
{
	struct region *region;
	int r = check_name(name);

	if (r < 0 || !client_enter(&r))
		return r;
	region = region_by_name(name);
	if (region) {
		region->claimed = true;
		if (ret)
			*ret = region->p;
		if (ret_len)
			*ret_len = region->len;
	}
	client_leave();
	return region ? 0 : -ENOENT;
}

