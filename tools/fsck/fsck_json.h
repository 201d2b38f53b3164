/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The output of fsck.ckptfs --json: one document; findings are printed as they are found. */
#pragma once

struct check_finding;
struct check_result;

void fsck_json_begin(const char *store);
void fsck_json_finding(const struct check_finding *f);
void fsck_json_end(const struct check_result *r, int exit_code);
