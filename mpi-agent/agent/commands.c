/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"

#define STEP_NS 100000000

static int cluster_command(int fd, const char *mount, enum ckptfs_cluster_command command, struct ckptfs_cluster *c)
{
	c->size = sizeof(*c);
	c->version = CKPTFS_IOC_VERSION;
	c->command = command;
	c->flags = 0;
	if (ioctl(fd, CKPTFS_IOC_CLUSTER, c) == 0)
		return 0;
	switch (errno) {
	case ENOTTY:
		return log_cause(-errno, "%s: not on a mounted ckptfs; ckptfs stat lists those that are", mount);
	case EOPNOTSUPP:
		return log_cause(-errno, "%s: its store was made without cluster=; only a new store can join a cluster", mount);
	case ENOTCONN:
		return log_cause(-errno, "%s: no ckptfs-agent runs on this node; start it first", mount);
	case EPERM:
		return log_cause(-errno, "%s: only root and the mounting user may do that", mount);
	case ENOENT:
		log_error("node %s: unknown; ckptfs gc --delete prints the name of a missing node", c->node);
		return -ENOENT;
	case EBUSY:
		log_error("node %s: takes part; only a lost node can be forgotten", c->node);
		return -EBUSY;
	default:
		return log_errno(-errno, "%s", mount);
	}
}

static int open_mount(const char *mount)
{
	int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? log_errno(-errno, "%s", mount) : fd;
}

/* Logs the directories that could not be replicated. 1: parts are lost; <0: a later attempt may succeed. */
static int log_unprotected(int fd, const char *mount, int error)
{
	struct ckptfs_unprotected u = { .size = sizeof(u), .version = CKPTFS_IOC_VERSION };
	bool all_lost = true;

	for (; ioctl(fd, CKPTFS_IOC_UNPROTECTED, &u) == 0; u.number++) {
		all_lost &= u.error == EIO;
		log_error("%s of node %s: %s", u.path, u.node,
			  u.error == EIO ?
				  "no connected node has some of its chunks: it cannot be restored; the rest can be read" :
			  u.error == EHOSTUNREACH ? "no connected node is on another host" :
						    strerror(u.error));
	}
	if (u.number > 0 && all_lost)
		return 1;
	if (error == EHOSTUNREACH) {
		log_error("%s: not all could be re-replicated: no connected node is on another host; retried when one connects",
			  mount);
		return -error;
	}
	return log_errno(-error, "%s: not all could be re-replicated; retrying", mount);
}

int command_repair(const char *mount)
{
	_cleanup_(closep) int fd = open_mount(mount);
	struct ckptfs_cluster before = { 0 }, c = { 0 };
	uint64_t number;
	int r = fd < 0 ? fd : cluster_command(fd, mount, CKPTFS_CLUSTER_REPAIR, &before);

	number = before.number;
	while (r == 0 && c.repaired < number) {
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
		r = cluster_command(fd, mount, CKPTFS_CLUSTER_STATUS, &c);
		if (r == 0 && c.repaired < number && c.flags & CKPTFS_CLUSTER_NO_AGENT)
			return log_cause(-ENOTCONN,
					 "%s: the agents ended before everything was re-replicated; it continues when they run again",
					 mount);
	}
	if (r < 0)
		return r;
	text_printf(stdout, "%s: %" PRIu64 " of %s %s replicated,", mount, c.protected_dirs,
		    human_nr(c.sealed, "sealed directory").s, c.protected_dirs == 1 ? "is" : "are");
	text_printf(stdout, " and %s of lost nodes; sent %s\n", human_nr(c.copies - before.copies, "replica").s,
		    human_size(c.bytes - before.bytes).s);
	return c.error != 0 ? log_unprotected(fd, mount, c.error) : 0;
}

int command_forget(const char *mount, const char *node)
{
	_cleanup_(closep) int fd = open_mount(mount);
	struct ckptfs_cluster c = { 0 };
	int r;

	if (fd < 0)
		return fd;
	if (strlen(node) >= sizeof(c.node)) {
		log_error("node %s: the name is too long", node);
		return -EINVAL;
	}
	memcpy(c.node, node, strlen(node));
	r = cluster_command(fd, mount, CKPTFS_CLUSTER_FORGET, &c);
	if (r == 0)
		text_printf(stdout, "%s: node %s is forgotten\n", mount, node);
	return r;
}
