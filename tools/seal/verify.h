/* Proving an epoch: that a sealed directory is, to the last byte, what was sealed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/ioctl.h"

struct progress;

struct verify_result {
	struct ckptfs_seal seal; /* if it is sealed */
	bool is_sealed;
	uint64_t bytes; /* that were read */
	char why[512]; /* not: for people, without control characters */
};

/*
 * 1: it proves itself; 0: it does not, or is not sealed; <0: it cannot be looked at (-ECANCELED: interrupted). `why`
 * says so but for the first. The root is made anew from what the store has and compared with that of the seal; if
 * `reads`, every byte is read from the store, which compares it with what the root is made of. Memory does not grow
 * with the size of files. NULL is fine for `p`.
 */
int verify_seal(const char *path, bool reads, struct progress *p, struct verify_result *ret);
/* The same of an open directory, whose path is for messages only. `fd` may be the -errno of opening it. */
int verify_opened(int fd, const char *path, bool reads, struct progress *p, struct verify_result *ret);
/* Is that of this process or of the mount as a whole, and says nothing of the epoch, nor will it of others? Who goes on
 * to older ones then finds none, and takes that for the truth. */
bool verify_is_no_answer(int r);
