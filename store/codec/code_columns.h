/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records split into columns (CODE_SPLIT_COLUMNS): arrays of structs of which only the record length is known.
 *
 *	how each column is stored │ first bytes of all records │ second bytes │ ... │ bytes behind the last whole record
 *
 * Exponents, tags and flags of a record are columns with few distinct bytes; mantissas are noise. Separated, the former
 * compress well and the latter are stored unchanged. This needs no knowledge of types, alignment and byte order. Pure.
 */
#pragma once

#include "store/codec/code_format.h"

/* How a column is stored. */
enum code_column { CODE_COLUMN_SAME, CODE_COLUMN_DELTA, CODE_COLUMN_BASE, NR_CODE_COLUMNS };

/* Bytes of all sections but the last, which holds the bytes behind the last whole record. */
size_t code_columns_bytes(const struct code_header *h);
/* Split into sections at `ret`; each column is stored in the way that repeats most. The base, which may be shorter, is
 * used if the header says so. `room` is memory for as many bytes as the block has. */
void code_columns_split(const struct code_header *h, const uint8_t *p, const uint8_t *base, size_t base_len,
			uint8_t *room, uint8_t *ret);
/* Join sections, each at any address. -EBADMSG: a column is stored in an unknown way. */
int code_columns_join(const uint8_t *const sections[], const struct code_header *h, const uint8_t *base, size_t base_len,
		      uint8_t *ret);

/*
 * Find the record length: CODE_RECORD_MIN to CODE_RECORD_MAX; 0: the bytes do not look like records.
 *
 * Bytes one record apart are equal far more often than others: exponents, high bytes of integers, flags and padding are
 * at the same offsets of each record. So the distance at which most bytes of a sample are equal is taken; of several
 * that are nearly as good the shortest, since multiples of the record length are as good. A distance that is hardly
 * better than the average is rejected, and so is 1: runs of equal bytes are not records.
 */
uint32_t code_columns_find_record(const uint8_t *p, size_t len);
