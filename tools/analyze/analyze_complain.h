/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Errors of a command on standard error, replacing its progress bar. */
#pragma once

#include "base/util.h"

/* Prints the name of the command, the text and strerror(-r). Returns r. */
int complain(int r, const char *fmt, ...) _printf_(2, 3);
/* The same without an errno. Returns -EINVAL. */
int refuse(const char *fmt, ...) _printf_(1, 2);
