/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "tools/common/daemon.h"

static int command(const struct compact_daemon *d, struct ckptfs_compact *c, uint32_t what)
{
	c->plan = d->plan;
	return daemon_command(d->fd, CKPTFS_IOC_COMPACT, c, what);
}

int compact_daemon_begin(struct compact_daemon *d, int fd)
{
	struct ckptfs_compact c = { 0 };
	int r;

	*d = (struct compact_daemon){ .fd = fd, .add = calloc(1, sizeof(*d->add)) };
	r = d->add ? command(d, &c, CKPTFS_COMPACT_BEGIN) : -ENOMEM;
	if (r < 0) {
		compact_daemon_end(d);
		return r;
	}
	d->plan = c.plan;
	return 0;
}

void compact_daemon_end(struct compact_daemon *d)
{
	struct ckptfs_compact stop = { 0 };

	if (d->plan > 0)
		command(d, &stop, CKPTFS_COMPACT_STOP);
	free(d->add);
	*d = (struct compact_daemon){ .fd = -1 };
}

int compact_daemon_file(struct compact_daemon *d, int fd, uint32_t *ret)
{
	struct ckptfs_compact_file f = { .size = sizeof(f), .version = CKPTFS_IOC_VERSION, .plan = d->plan };

	if (ioctl(fd, CKPTFS_IOC_COMPACT_FILE, &f) < 0)
		return -errno;
	*ret = f.file;
	return 0;
}

/* Sends pending extents. A new variable is sent even without extents. */
static int send_extents(struct compact_daemon *d)
{
	struct ckptfs_compact_add *a = d->add;

	if (a->nr == 0 && a->flags == 0)
		return 0;
	a->size = sizeof(*a);
	a->version = CKPTFS_IOC_VERSION;
	a->plan = d->plan;
	if (ioctl(d->fd, CKPTFS_IOC_COMPACT_ADD, a) < 0)
		return -errno;
	a->flags = 0;
	a->nr = 0;
	return 0;
}

int compact_daemon_variable(struct compact_daemon *d, const char *key, const struct coding_shape *shape,
			    uint32_t before, bool is_rounded)
{
	int r = send_extents(d);

	if (r < 0)
		return r;
	d->add->flags = CKPTFS_COMPACT_BEGINS | (is_rounded ? CKPTFS_COMPACT_ROUNDED : 0);
	d->add->type = code_type_encode(shape->type);
	d->add->parts = shape->parts;
	d->add->row = shape->row;
	d->add->plane = shape->plane;
	d->add->before = before;
	memset(d->add->key, 0, sizeof(d->add->key));
	strncpy(d->add->key, key, sizeof(d->add->key) - 1);
	d->nr_variables++;
	return 0;
}

int compact_daemon_extent(struct compact_daemon *d, uint32_t file, uint64_t off, uint64_t len)
{
	int r = d->add->nr == CKPTFS_COMPACT_EXTENTS ? send_extents(d) : 0;

	if (r < 0)
		return r;
	d->add->extent[d->add->nr++] = (struct ckptfs_compact_extent){ .file = file, .off = off, .len = len };
	return 0;
}

int compact_daemon_run(struct compact_daemon *d, struct ckptfs_compact *how,
		       void (*show)(void *userdata, const void *so_far), void *userdata)
{
	const struct daemon_task task = {
		.fd = d->fd,
		.request = CKPTFS_IOC_COMPACT,
		.arg = how,
		.running = &how->running,
		.error = &how->error,
		.start = CKPTFS_COMPACT_START,
		.status = CKPTFS_COMPACT_STATUS,
		.stop = CKPTFS_COMPACT_STOP,
		.show = show,
		.userdata = userdata,
	};
	int r = send_extents(d);

	how->plan = d->plan;
	return r < 0 ? r : daemon_run(&task);
}

int compact_daemon_pause(int fd, bool pause)
{
	struct ckptfs_compact c = { 0 };

	return command(&(struct compact_daemon){ .fd = fd }, &c, pause ? CKPTFS_COMPACT_PAUSE : CKPTFS_COMPACT_RESUME);
}

int compact_daemon_result(const struct compact_daemon *d, uint32_t variable, struct ckptfs_compact_result *ret)
{
	*ret = (struct ckptfs_compact_result){
		.size = sizeof(*ret),
		.version = CKPTFS_IOC_VERSION,
		.plan = d->plan,
		.variable = variable,
	};
	return ioctl(d->fd, CKPTFS_IOC_COMPACT_RESULT, ret) < 0 ? -errno : 0;
}
