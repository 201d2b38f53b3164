/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Converts MPI's error codes to errno. */
#pragma once

/* 0 or -EIO. Logs failures; `what`: the operation, for the message. */
int mpi_errno(int code, const char *what);
