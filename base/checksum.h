/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C (Castagnoli), with the CPU's instruction where it has one. Vectors: RFC 3720 B.4. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *p, size_t len);
/* Continue: crc32c_add(crc32c(a), b) == crc32c(a followed by b). */
uint32_t crc32c_add(uint32_t crc, const void *p, size_t len);
