/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The filter of fingerprints that are absent from RocksDB. */
#pragma once

#include <stddef.h>

struct engine;
struct fingerprint_entry;

int filter_tend(struct engine *e); /* called often by the background thread */
/* before they are added to RocksDB */
void filter_add(struct engine *e, const struct fingerprint_entry *entries, size_t n);
