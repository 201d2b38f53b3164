/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ckptfs-compact --background: low priority, no hold on the mount. */
#pragma once

/*
 * Sets a low priority, ends with the parent process and, where permitted, enters a new mount namespace: open files then
 * do not prevent unmounting. Call it before anything is opened. Steps that fail are skipped.
 */
void compact_step_back(void);
