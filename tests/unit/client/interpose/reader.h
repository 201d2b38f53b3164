/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A library that is not linked with libckptfs, as that of MPI is not. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

ssize_t reader_read(int fd, void *p, size_t len);
