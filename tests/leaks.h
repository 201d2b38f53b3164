/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

/* LeakSanitizer asks this before it looks. Not 0: every block is reached from a variable, nothing can have leaked. */
int __lsan_is_turned_off(void);
