/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Verifies that a sealed checkpoint still has exactly the content that was sealed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/ioctl.h"

struct progress;

struct verify_result {
	struct ckptfs_seal seal; /* if it is sealed */
	bool is_sealed;
	uint64_t bytes; /* read */
	char why[512]; /* set if the result is not 1: a message, escaped for a terminal */
};

/*
 * 1: valid; 0: damaged or not sealed; <0: cannot be examined (-ECANCELED: interrupted). Recomputes the root from the
 * store and compares it with that of the seal. If `reads`, also reads every byte from the store, which compares it with
 * the fingerprint that the root covers. Memory does not grow with the size of files. `p` may be NULL.
 */
int verify_seal(const char *path, bool reads, struct progress *p, struct verify_result *ret);
/* The same for an open directory; `path` is for messages only. `fd` may be the -errno of opening it. */
int verify_opened(int fd, const char *path, bool reads, struct progress *p, struct verify_result *ret);
/* True for errors of this process or of the whole mount: they say nothing about this checkpoint, and older ones will
 * fail in the same way. A caller that continued with older ones would wrongly conclude that none is valid. */
bool verify_is_no_answer(int r);
