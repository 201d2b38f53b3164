/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by the link_*format.c files. */
#pragma once

#include "mpi-agent/wire/link_format.h"

struct buf;

#define LINK_ERROR_MAX 4095u /* MAX_ERRNO of the kernel */
#define LINK_CHUNK_LEN_MAX (1u << 20)

void link_add_header(struct buf *b, enum link_type type, uint64_t number, size_t len);
struct link_want_wire link_want_encode(const struct link_want *w, uint32_t nr_owners);
int link_want_decode(const struct link_want_wire *d, struct link_want *ret);
/* Accepts printable ASCII only: names are shown on terminals. */
int link_name_decode(const uint8_t name[LINK_NAME_LEN], char ret[LINK_NAME_LEN]);
