/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mount -o remount changes the flags of an existing mount: `ro` and `noatime` in the kernel and the daemon, others in
 * the kernel alone. Options of ckptfs cannot change: with their current values, as mount(8) passes them from fstab,
 * they are ignored.
 */
#pragma once

struct options;

/* 0: done, or with -f only checked. Errors are logged. */
int remount_run(const struct options *o);
