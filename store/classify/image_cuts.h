/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Page boundaries of process images (store/cut_hooks.h): pages of memory, wherever memory begins in the file. A page of
 * memory is then the same chunk in every image and in the file that was mapped there.
 *
 * The headers are parsed while a file is written sequentially. Recognized are ELF core files (gdb's gcore writes the
 * 64-byte ELF header last and the program headers first) and DMTCP images. Pages of other files start at 0; with wrong
 * headers they start at the last offset given. Compiled into the daemon, unlike the readers of formats here: it trusts
 * nothing, and looks at a few words of a file.
 */
#pragma once

#include "store/cut_hooks.h"

extern const struct cut_hooks image_cuts;
