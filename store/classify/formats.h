/*
 * Files that say what is in them, format by format. Each is a pure function of all bytes of a file that trusts none of
 * them: 1 it is of this format and its variables have been added, 0 it is not, -EBADMSG it lies about itself, -E2BIG it
 * has more than we look at, -ENOMEM. With an error `ret` has some of them: throw it away.
 */
#pragma once

#include "store/classify/typed.h"

int format_netcdf(const uint8_t *p, uint64_t len, struct typed *ret);
int format_safetensors(const uint8_t *p, uint64_t len, struct typed *ret);
int format_npy(const uint8_t *p, uint64_t len, struct typed *ret);
int format_zip(const uint8_t *p, uint64_t len, struct typed *ret); /* npz, torch */

/* Images of processes: their segments, by kind. */
int format_core(const uint8_t *p, uint64_t len, struct typed *ret);
int format_dmtcp(const uint8_t *p, uint64_t len, struct typed *ret);

/* An .npy that lies at `off` of the file p, and has `len` bytes; its variable gets this name. */
int npy_add(const uint8_t *p, uint64_t off, uint64_t len, const char *name, size_t name_len, struct typed *ret);

/* All of these in turn; and whether they overlap. */
int format_any(const uint8_t *p, uint64_t len, struct typed *ret);
