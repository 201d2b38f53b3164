/*
 * A checker that shares nothing with the engine but the formats: reads a closed store's index and pack files and
 * follows every reference.
 *   every extent lies inside the chunks of a frame whose table is sealed, and these chunks have their fingerprints;
 *   every recipe belongs to a content, and the extents of a content add up to its mapped bytes;
 *   every name leads to an inode of its type, every file has as many names as it counts, every content has a file.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

bool store_check(const char *path, FILE *to); /* false: not sound, and why is written to `to` */
