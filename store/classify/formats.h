/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Self-describing file formats. Each function is a pure function of all bytes of a file and trusts none of them. 1: the
 * file has this format, and its variables have been added; 0: it has not; -EBADMSG: it is inconsistent; -E2BIG: it
 * exceeds our limits; -ENOMEM. After an error `ret` is incomplete: discard it.
 */
#pragma once

#include "store/classify/typed.h"

int format_netcdf(const uint8_t *p, uint64_t len, struct typed *ret);
int format_safetensors(const uint8_t *p, uint64_t len, struct typed *ret);
int format_npy(const uint8_t *p, uint64_t len, struct typed *ret);
int format_zip(const uint8_t *p, uint64_t len, struct typed *ret); /* npz, torch */

/* Process images: their segments, by kind. */
int format_core(const uint8_t *p, uint64_t len, struct typed *ret);
int format_dmtcp(const uint8_t *p, uint64_t len, struct typed *ret);

/* Add an .npy of `len` bytes at `off` of the file p as a variable of this name. */
int npy_add(const uint8_t *p, uint64_t off, uint64_t len, const char *name, size_t name_len, struct typed *ret);

/* Try all of these in turn, and check that extents do not overlap. */
int format_any(const uint8_t *p, uint64_t len, struct typed *ret);
