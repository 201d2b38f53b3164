/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A walk over a mount for a report: files by time, by directory and by fragmentation. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define WALK_WORST 8u
#define WALK_LARGEST 12u
#define WALK_LEVELS 2u
#define WALK_FINGERPRINT 16u
#define WALK_CLASSES 6u /* places per MiB: up to 1, 2, 4, 8, 16, more */

struct walk_file {
	time_t mtime;
	uint64_t mapped;
	uint8_t fingerprint[WALK_FINGERPRINT];
	bool again; /* an older file has the same content */
	unsigned directory[WALK_LEVELS];
};

struct walk_directory {
	char *name; /* below the mountpoint; "": the mountpoint itself */
	uint64_t files, mapped, again; /* again: bytes of files identical to an older one */
	uint64_t frames;
};

struct walk_worst {
	char *name;
	uint64_t mapped, frames;
};

struct walk_largest {
	char *name;
	uint64_t mapped;
};

struct walk {
	struct walk_file *files; /* by time */
	size_t nr_files;
	uint64_t mapped, frames, again;
	/* By the first and by the first two components of names; largest first. */
	struct walk_directory *directories[WALK_LEVELS];
	size_t nr_directories[WALK_LEVELS];
	struct walk_worst worst[WALK_WORST]; /* files of at least 1 MiB, most places per MiB first */
	size_t nr_worst;
	struct walk_largest largest[WALK_LARGEST]; /* files, largest first */
	size_t nr_largest;
	uint64_t class_mapped[WALK_CLASSES], class_files[WALK_CLASSES];
	uint64_t nr_unread; /* could not be read; reported on standard error */
};

/* Places per MiB that reading `mapped` bytes visits, as the daemon computes it. */
double walk_fragmentation(uint64_t frames, uint64_t mapped);

/* A file with several names counts once. -EINTR: interrupted. */
int walk_mount(const char *mountpoint, struct walk *ret);
void walk_release(struct walk *w);
