/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ckptfs-stat --users: usage by user and by group. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Prints all users for root and the mounting user, else the caller and its groups. Errors are reported; -EINTR. */
int stat_users(const char *mountpoint, bool json, FILE *to);
