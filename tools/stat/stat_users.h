/* ckptfs-stat --users: who has how much, by user and by group. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* All of them for root and who has mounted; else the caller and his groups. Says on standard error why not. -EINTR. */
int stat_users(const char *mountpoint, bool json, FILE *to);
